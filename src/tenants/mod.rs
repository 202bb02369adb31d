//! Who asks, and what they may ask for.
//!
//! Decides which tenant an `Authorization` header belongs to, slows down the
//! guessing of keys, and checks one request against its tenant's own limits.
//! Never reads a clock, never keeps or prints a key, never counts KV (that is
//! the ledger's). Invariant: a [`TenantRef`] names a tenant of the loaded
//! configuration.

mod certificates;
mod failures;
mod keys;
mod limits;
mod names;
mod salt;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::config::{Anonymous, Config, ModelAccess, Tenant};
use crate::core::demand::TenantId;
use crate::core::time::Time;

use failures::FailedKeys;
use keys::KeyTable;
use names::Names;

pub use certificates::ClientCertificate;
pub use limits::{LimitError, check};
pub use salt::cache_salt;

/// All tenants of one configuration.
#[derive(Debug)]
pub struct Tenants {
    tenants: Vec<TenantRef>,
    keys: KeyTable,
    /// Index of the one that takes requests without a key.
    anonymous: Option<usize>,
    names: Names,
    failures: Arc<FailedKeys>,
}

/// A tenant a request belongs to. Cheap to clone; outlives a reload.
#[derive(Clone)]
pub struct TenantRef {
    /// Its name's id, the same over reloads and never another tenant's.
    pub id: TenantId,
    /// Its settings when the request came.
    pub tenant: Arc<Tenant>,
}

/// Why a request belongs to no tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AuthError {
    /// No key was sent and no tenant takes requests without one.
    #[error("no API key was sent")]
    Missing,
    /// The header is not `Bearer <key>`.
    #[error("the authorization header is not of the form 'Bearer <key>'")]
    Malformed,
    /// No tenant has this key.
    #[error("the API key is not known")]
    Unknown,
    /// The address has sent too many unknown keys.
    #[error("too many unknown API keys from this address")]
    TooManyFailures {
        /// Until the address may try again.
        retry_after: Duration,
    },
}

// === impl Tenants ===

impl Tenants {
    /// The tenants of `config`, with no failed key on record.
    pub fn new(config: &Config) -> Self {
        let failures = FailedKeys::new(&config.auth);
        Self::of(config, &Names::default(), Arc::new(failures))
    }

    /// The tenants of `config`, keeping ids and the failed keys on record here: a
    /// reload must not give an attacker a fresh start. A changed `auth`
    /// section takes effect at a restart.
    #[must_use]
    pub fn reloaded(&self, config: &Config) -> Self {
        Self::of(config, &self.names, Arc::clone(&self.failures))
    }

    fn of(config: &Config, known: &Names, failures: Arc<FailedKeys>) -> Self {
        let names = known.and(&config.tenants);
        let named = |tenant: &Tenant| TenantRef {
            id: names.id(&tenant.name).expect("learned above"),
            tenant: Arc::new(tenant.clone()),
        };
        let anonymous = |tenant: &Tenant| tenant.anonymous == Anonymous::Accepted;
        Self {
            tenants: config.tenants.iter().map(named).collect(),
            keys: KeyTable::new(&config.tenants),
            anonymous: config.tenants.iter().position(anonymous),
            names,
            failures,
        }
    }

    /// Finds the tenant of a request from its `Authorization` header.
    ///
    /// Without a header it is the anonymous tenant's. A wrong key is never
    /// taken as anonymous, except where no tenant has a key at all: OpenAI
    /// clients always send one. `from` is the peer's address, `now` must not
    /// run backwards by more than the failure window. O(1); never blocks.
    ///
    /// # Errors
    ///
    /// See [`AuthError`]. Unknown keys are counted against `from`. While an
    /// address is over its limit, only tenants that showed a right key from it
    /// before are let in, so clients behind one balancer do not lock each other
    /// out and a right guess tells a guesser nothing.
    pub fn authenticate(
        &self,
        header: Option<&HeaderValue>,
        from: IpAddr,
        now: Time,
    ) -> Result<TenantRef, AuthError> {
        let header = if self.keys.is_empty() { None } else { header };
        let Some(header) = header else {
            return self
                .anonymous
                .map(|index| self.tenants[index].clone())
                .ok_or(AuthError::Missing);
        };
        let key = bearer(header.as_bytes());
        let found = key.and_then(|key| self.keys.find(&Sha256::digest(key).into()));
        match found {
            Some(index) => {
                let found = self.tenants[index].clone();
                let name = &found.tenant.name;
                self.failures.right_key(from, name, now)?;
                Ok(found)
            }
            None => Err(self.wrong_key(key, from, now)),
        }
    }

    fn wrong_key(&self, key: Option<&[u8]>, from: IpAddr, now: Time) -> AuthError {
        match (self.failures.wrong_key(from, now), key) {
            (Err(too_many), _) => too_many,
            (Ok(()), Some(_)) => AuthError::Unknown,
            (Ok(()), None) => AuthError::Malformed,
        }
    }

    /// Every tenant, in the order of the configuration.
    pub fn all(&self) -> impl Iterator<Item = TenantRef> {
        self.tenants.iter().cloned()
    }

    /// The one tenant of this name, if any.
    pub fn named(&self, name: &str) -> Option<TenantRef> {
        self.all().find(|found| found.tenant.name == name)
    }

    /// The name behind each id, of every tenant there has been since the start.
    pub fn names(&self) -> &[Arc<str>] {
        self.names.all()
    }
}

// === impl TenantRef ===

impl TenantRef {
    /// Whether the tenant may use the base model of this name.
    pub fn may_use(&self, model: &str) -> bool {
        match &self.tenant.models {
            ModelAccess::All => true,
            ModelAccess::Only(names) => names.iter().any(|name| name == model),
        }
    }
}

impl fmt::Debug for TenantRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TenantRef({}, {:?})", self.id.0, self.tenant.name)
    }
}

/// The key of a `Bearer` header; the scheme in any case, as RFC 9110 has it.
fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = header.split_at_checked(7)?;
    let key = key.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !key.is_empty()).then_some(key)
}

#[cfg(test)]
mod tests;
