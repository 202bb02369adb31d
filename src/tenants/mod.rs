//! Who asks, and what they may ask for.
//!
//! Decides which tenant an `Authorization` header belongs to, an API key or a
//! token; slows down the guessing of either; checks one request against its
//! tenant's own limits, and keeps the books of its rates. Never keeps or prints
//! a key or a token, never counts KV (that is the ledger's). Invariant: a
//! [`TenantRef`] names a tenant of the loaded configuration.

mod certificates;
mod failures;
mod keys;
mod limits;
mod names;
mod rates;
mod salt;
mod tokens;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::HeaderValue;
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::config::{Anonymous, Config, Jwt, ModelAccess, Tenant};
use crate::core::demand::TenantId;
use crate::core::time::Time;

use certificates::CertificateTable;
use failures::FailedKeys;
use keys::KeyTable;
use names::Names;
use rates::Rates;

pub use certificates::ClientCertificate;
pub use limits::{LimitError, check};
pub use rates::{Charge, Cost, Gauge, RateError, Standing, TenantRates};
pub use salt::cache_salt;
pub use tokens::{Identity, TokenError, Verifier};

/// All tenants of one configuration.
#[derive(Debug)]
pub struct Tenants {
    tenants: Vec<TenantRef>,
    keys: KeyTable,
    certificates: CertificateTable,
    /// Index of the one that takes requests without a key.
    anonymous: Option<usize>,
    names: Names,
    tokens: Option<Tokens>,
    shared: Shared,
}

/// What outlives a reload.
#[derive(Clone, Debug)]
struct Shared {
    failures: Arc<FailedKeys>,
    rates: Arc<Rates>,
}

/// What takes tokens.
#[derive(Debug)]
struct Tokens {
    verifier: Verifier,
    /// The base model behind each id a token may name.
    models: HashMap<String, String>,
}

/// When a request comes, by both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// On the gateway's own clock; must not run backwards by more than the
    /// failure window.
    pub now: Time,
    /// On the calendar, which tokens go by.
    pub date: SystemTime,
}

/// A tenant a request belongs to. Cheap to clone; outlives a reload.
#[derive(Clone)]
pub struct TenantRef {
    /// Its name's id, the same over reloads and never another tenant's.
    pub id: TenantId,
    /// Its settings when the request came.
    pub tenant: Arc<Tenant>,
    /// What it has used of its rates.
    pub rates: Arc<TenantRates>,
    /// Base models that the token of this request is good for; `None` is all.
    narrowed: Option<Arc<[String]>>,
}

/// What a client shows of itself.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// Its `Authorization` header.
    pub header: Option<&'a HeaderValue>,
    /// The certificate of its connection.
    pub certificate: Option<&'a ClientCertificate>,
    /// Its address.
    pub from: IpAddr,
}

/// Why a request belongs to no tenant.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
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
    /// It is a token that is not believed.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The address has sent too many unknown keys.
    #[error("too many unknown API keys from this address")]
    TooManyFailures {
        /// Until the address may try again.
        retry_after: Duration,
    },
}

// === impl Tenants ===

impl Tenants {
    /// The tenants of `config`, with no failed key on record and nothing used.
    pub fn new(config: &Config) -> Self {
        let shared = Shared {
            failures: Arc::new(FailedKeys::new(&config.auth)),
            rates: Arc::default(),
        };
        Self::of(config, &Names::default(), shared)
    }

    /// The tenants of `config`, keeping ids, what is used of the rates, and the
    /// failed keys on record here: a reload must not give an attacker a fresh
    /// start. A changed `max_failed_keys` takes effect at a restart.
    #[must_use]
    pub fn reloaded(&self, config: &Config) -> Self {
        Self::of(config, &self.names, self.shared.clone())
    }

    fn of(config: &Config, known: &Names, shared: Shared) -> Self {
        let names = known.and(&config.tenants);
        let named = |tenant: &Tenant| TenantRef {
            id: names.id(&tenant.name).expect("learned above"),
            tenant: Arc::new(tenant.clone()),
            rates: shared.rates.of(&tenant.name),
            narrowed: None,
        };
        let anonymous = |tenant: &Tenant| tenant.anonymous == Anonymous::Accepted;
        Self {
            tenants: config.tenants.iter().map(named).collect(),
            keys: KeyTable::new(&config.tenants),
            certificates: CertificateTable::new(&config.tenants),
            anonymous: config.tenants.iter().position(anonymous),
            tokens: config.auth.jwt.as_ref().map(|jwt| Tokens::new(jwt, config)),
            names,
            shared,
        }
    }

    /// Finds the tenant of a request from all its client has shown.
    ///
    /// Where any tenant is known by certificates, one that is shown must be some
    /// tenant's, and a key or token beside it the same tenant's; what differs is
    /// told and counted as an unknown key, so that nothing is learned of the key.
    /// Without one, the header decides alone; see [`Self::authenticate`].
    ///
    /// # Errors
    ///
    /// As [`Self::authenticate`].
    pub fn identify(&self, shown: Shown<'_>, at: Moment) -> Result<TenantRef, AuthError> {
        let Shown { header, from, .. } = shown;
        let certificate = shown.certificate.filter(|_| !self.certificates.is_empty());
        let Some(certificate) = certificate else {
            return self.authenticate(header, from, at);
        };
        let unknown = || {
            self.shared.failures.wrong_key(from, at.now)?;
            Err(AuthError::Unknown)
        };
        let Some(index) = self.certificates.find(certificate) else {
            return unknown();
        };
        let proved = self.tenants[index].clone();
        if header.is_none() || self.is_open() {
            return Ok(proved);
        }
        let keyed = self.authenticate(header, from, at)?;
        if keyed.id == proved.id {
            Ok(keyed)
        } else {
            unknown()
        }
    }

    /// Finds the tenant of a request from its `Authorization` header.
    ///
    /// Without a header it is the anonymous tenant's. A wrong key is never
    /// taken as anonymous, except where no tenant has a key and no token is
    /// taken: OpenAI clients always send one. What is no known key and has the
    /// form of a token is one, where tokens are taken. `from` is the client's
    /// address. O(1), and one signature check for a token; never blocks.
    ///
    /// # Errors
    ///
    /// See [`AuthError`]. Unknown keys and refused tokens are counted against
    /// `from`. While an address is over its limit, only tenants that showed a
    /// right key from it before are let in, so clients behind one balancer do
    /// not lock each other out and a right guess tells a guesser nothing.
    pub fn authenticate(
        &self,
        header: Option<&HeaderValue>,
        from: IpAddr,
        at: Moment,
    ) -> Result<TenantRef, AuthError> {
        let Some(header) = header.filter(|_| !self.is_open()) else {
            return self
                .anonymous
                .map(|index| self.tenants[index].clone())
                .ok_or(AuthError::Missing);
        };
        let failures = &self.shared.failures;
        match self.find(header, from, at) {
            Ok(found) => {
                failures.right_key(from, &found.tenant.name, at.now)?;
                Ok(found)
            }
            Err(error) => {
                failures.wrong_key(from, at.now)?;
                Err(error)
            }
        }
    }

    /// Whether nothing that a header may hold names a tenant.
    fn is_open(&self) -> bool {
        self.keys.is_empty() && self.tokens.is_none()
    }

    fn find(&self, header: &HeaderValue, from: IpAddr, at: Moment) -> Result<TenantRef, AuthError> {
        let key = bearer(header.as_bytes()).ok_or(AuthError::Malformed)?;
        if let Some(index) = self.keys.find(&Sha256::digest(key).into()) {
            return Ok(self.tenants[index].clone());
        }
        let tokens = self.tokens.as_ref().filter(|_| tokens::is_token(key));
        let tokens = tokens.ok_or(AuthError::Unknown)?;
        // A flood of forged tokens costs no signature checks.
        self.shared.failures.is_welcome(from, at.now)?;
        let identity = tokens.verifier.verify(key, at.date)?;
        let mut found = self.named(&identity.tenant).ok_or(TokenError::Tenant)?;
        found.narrowed = identity.models.map(|names| tokens.base_models(&names));
        Ok(found)
    }

    /// Every tenant, in the order of the configuration, to look at.
    pub fn all_refs(&self) -> &[TenantRef] {
        &self.tenants
    }

    /// Every tenant, in the order of the configuration.
    pub fn all(&self) -> impl Iterator<Item = TenantRef> {
        self.tenants.iter().cloned()
    }

    /// The one tenant of this name, if any.
    pub fn named(&self, name: &str) -> Option<TenantRef> {
        self.all().find(|found| found.tenant.name == name)
    }

    /// The tenant of requests that show no key, where there is one.
    pub fn anonymous(&self) -> Option<TenantRef> {
        self.anonymous.map(|index| self.tenants[index].clone())
    }

    /// The name behind each id, of every tenant there has been since the start.
    pub fn names(&self) -> &[Arc<str>] {
        self.names.all()
    }
}

// === impl Tokens ===

impl Tokens {
    fn new(jwt: &Jwt, config: &Config) -> Self {
        let ids = config.models.iter().flat_map(|model| {
            let base = |id: &str| (id.to_owned(), model.name.clone());
            model.served_ids().map(base)
        });
        Self {
            verifier: Verifier::new(jwt),
            models: ids.collect(),
        }
    }

    /// The base models behind `names`; those there are not are left out.
    fn base_models(&self, names: &[String]) -> Arc<[String]> {
        let bases = names.iter().filter_map(|name| self.models.get(name));
        bases.cloned().collect()
    }
}

// === impl TenantRef ===

impl TenantRef {
    /// Whether the tenant may use the base model of this name, by what it is and
    /// by the token it came with.
    pub fn may_use(&self, model: &str) -> bool {
        let narrowed = self.narrowed.as_deref();
        if narrowed.is_some_and(|names| !names.iter().any(|name| name == model)) {
            return false;
        }
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
