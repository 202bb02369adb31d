//! JSON Web Tokens as a second way in.
//!
//! Decides whether a token was issued by the one issuer the operator named, for
//! this gateway, and is good at this moment; and which tenant it names. The key
//! decides how a token is verified: what the token says of its own algorithm or
//! key (`alg`, `jwk`, `jku`, `x5u`) can only disagree with it and be refused.
//! Nothing in a token is believed before its signature is. Never reads a clock
//! and never keeps, prints or echoes a token. Cost: one signature check, below
//! a millisecond; memory is bounded by [`MAX_BYTES`].

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Header, Validation, decode, decode_header};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::config::{Jwt, JwtAlgorithm, JwtKey};

/// Longest token that is looked at, in bytes; those of identity providers have
/// one to four thousand.
pub(super) const MAX_BYTES: usize = 8192;

/// Verifies tokens by the keys of a configuration.
#[derive(Debug)]
pub struct Verifier {
    jwt: Jwt,
}

/// What a believed token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The tenant it names; nobody has looked yet whether there is one.
    pub tenant: String,
    /// The models it is good for, as it names them; `None` is all of the tenant's.
    pub models: Option<Vec<String>>,
}

/// Why a token is not believed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TokenError {
    /// It is longer than any that is looked at.
    #[error("the token is longer than {limit} bytes")]
    TooLong {
        /// The limit.
        limit: usize,
    },
    /// It is no token.
    #[error("the token is malformed")]
    Malformed,
    /// It says it is signed in a way its key is not for, or not at all.
    #[error("the token's algorithm is not that of its key")]
    Algorithm,
    /// No key has the id it names, or it names none where there are several.
    #[error("the token's key id is not known")]
    UnknownKey,
    /// Its key did not sign it.
    #[error("the token's signature does not match")]
    Signature,
    /// It was good until a moment ago or longer.
    #[error("the token has expired")]
    Expired,
    /// It will be good later.
    #[error("the token is not valid yet")]
    NotYet,
    /// Somebody else issued it.
    #[error("the token's issuer is not the one expected")]
    Issuer,
    /// It is for somebody else.
    #[error("the token is for another audience")]
    Audience,
    /// A claim is missing, or not of the form it must have.
    #[error("the token's claim {claim:?} is missing or malformed")]
    Claim {
        /// Its name, from the configuration.
        claim: String,
    },
    /// It names no tenant that there is.
    #[error("the token names no known tenant")]
    Tenant,
}

/// Whether `key` has the form of a token: three parts, the first of which begins
/// a JSON object. A token without a signature has it too, so that it is refused
/// as one.
pub(super) fn is_token(key: &[u8]) -> bool {
    let letters = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    key.starts_with(b"eyJ")
        && key.iter().filter(|byte| **byte == b'.').count() == 2
        && key.iter().all(letters)
}

// === impl Verifier ===

impl Verifier {
    /// Believes what `jwt` says.
    pub fn new(jwt: &Jwt) -> Self {
        Self { jwt: jwt.clone() }
    }

    /// What `token` says, where it is believed at `now`. Any bytes may be given.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn verify(&self, token: &[u8], now: SystemTime) -> Result<Identity, TokenError> {
        if token.len() > MAX_BYTES {
            return Err(TokenError::TooLong { limit: MAX_BYTES });
        }
        let header = decode_header(token).map_err(|_| unreadable(token))?;
        let key = self.key_of(&header)?;
        let validation = self.validation(key.algorithm);
        let claims = decode::<Map<String, Value>>(token, &key.key, &validation)
            .map_err(|error| failure(error.kind()))?
            .claims;
        // A list would do for the library; an issuer is one name (RFC 7519 §4.1.1).
        if !claims.get("iss").is_some_and(Value::is_string) {
            return Err(malformed("iss"));
        }
        self.check_times(&claims, now)?;
        self.identity(&claims)
    }

    /// The key that must have signed a token with this header.
    fn key_of(&self, header: &Header) -> Result<&JwtKey, TokenError> {
        // What must be understood and is not must not be passed over (RFC 7515 §4.1.11).
        if header.crit.is_some() {
            return Err(TokenError::Malformed);
        }
        let keys = &self.jwt.keys;
        let key = match (&header.kid, keys.as_slice()) {
            (None, [only]) | (Some(_), [only @ JwtKey { id: None, .. }]) => Some(only),
            (None, _) => None,
            (Some(_), _) => keys.iter().find(|key| key.id == header.kid),
        };
        let key = key.ok_or(TokenError::UnknownKey)?;
        if header.alg != algorithm(key.algorithm) {
            return Err(TokenError::Algorithm);
        }
        Ok(key)
    }

    fn validation(&self, of_key: JwtAlgorithm) -> Validation {
        let mut validation = Validation::new(algorithm(of_key));
        validation.set_issuer(&[&self.jwt.issuer]);
        validation.set_audience(&self.jwt.audience);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        // Times are compared with the caller's clock, below.
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation
    }

    fn check_times(&self, claims: &Map<String, Value>, now: SystemTime) -> Result<(), TokenError> {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let expires = time(claims, "exp")?.ok_or_else(|| malformed("exp"))?;
        if now >= expires.saturating_add(self.jwt.leeway) {
            return Err(TokenError::Expired);
        }
        match time(claims, "nbf")? {
            Some(begins) if now.saturating_add(self.jwt.leeway) < begins => Err(TokenError::NotYet),
            _ => Ok(()),
        }
    }

    fn identity(&self, claims: &Map<String, Value>) -> Result<Identity, TokenError> {
        let tenant = claims.get(&self.jwt.tenant_claim).and_then(Value::as_str);
        let tenant = tenant.ok_or_else(|| malformed(&self.jwt.tenant_claim))?;
        let models = match &self.jwt.models_claim {
            Some(claim) => models(claims, claim)?,
            None => None,
        };
        Ok(Identity {
            tenant: tenant.to_owned(),
            models,
        })
    }
}

/// A list of names, or one text of names with spaces between, as `scope` has it.
fn models(claims: &Map<String, Value>, claim: &str) -> Result<Option<Vec<String>>, TokenError> {
    let names = match claims.get(claim) {
        None => return Ok(None),
        Some(Value::String(names)) => Some(names.split_whitespace().map(str::to_owned).collect()),
        Some(Value::Array(names)) => names
            .iter()
            .map(|name| name.as_str().map(str::to_owned))
            .collect(),
        Some(_) => None,
    };
    // Never taken for "all": a claim that narrows must not widen.
    names.map(Some).ok_or_else(|| malformed(claim))
}

/// Seconds since 1970, if the claim is there; fractions are allowed (RFC 7519 §2).
fn time(claims: &Map<String, Value>, claim: &str) -> Result<Option<Duration>, TokenError> {
    let Some(value) = claims.get(claim) else {
        return Ok(None);
    };
    let seconds = value.as_f64().filter(|seconds| *seconds >= 0.0);
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.map(Some).ok_or_else(|| malformed(claim))
}

fn malformed(claim: &str) -> TokenError {
    TokenError::Claim {
        claim: claim.to_owned(),
    }
}

/// What is wrong with a token whose header cannot be read: most of them name an
/// algorithm there is not, such as `none`.
fn unreadable(token: &[u8]) -> TokenError {
    let mut parts = token.split(|byte| *byte == b'.');
    let (header, parts) = (parts.next().unwrap_or_default(), parts.count());
    let header = URL_SAFE_NO_PAD.decode(header).ok();
    let header = header.and_then(|text| serde_json::from_slice::<Map<_, Value>>(&text).ok());
    match header {
        Some(header) if parts == 2 && header.get("alg").is_some_and(Value::is_string) => {
            TokenError::Algorithm
        }
        _ => TokenError::Malformed,
    }
}

const fn algorithm(of_key: JwtAlgorithm) -> Algorithm {
    match of_key {
        JwtAlgorithm::Hs256 => Algorithm::HS256,
        JwtAlgorithm::Rs256 => Algorithm::RS256,
        JwtAlgorithm::Es256 => Algorithm::ES256,
    }
}

fn failure(kind: &ErrorKind) -> TokenError {
    match kind {
        ErrorKind::InvalidSignature => TokenError::Signature,
        ErrorKind::InvalidIssuer => TokenError::Issuer,
        ErrorKind::InvalidAudience => TokenError::Audience,
        ErrorKind::InvalidAlgorithm | ErrorKind::UnsupportedAlgorithm => TokenError::Algorithm,
        ErrorKind::MissingRequiredClaim(claim) | ErrorKind::InvalidClaimFormat(claim) => {
            malformed(claim)
        }
        _ => TokenError::Malformed,
    }
}

#[cfg(test)]
mod tests;
