//! `[auth.jwt]`: whose tokens are believed, and by which keys.
//!
//! Decides which keys a file holds and the one algorithm each is for, so that no
//! header of a token can choose how it is verified. Never shows a key.
//! Invariant: a [`Jwt`] has at least one key, each of a strength that RFC 7518
//! allows, and each can be told from the others.

use std::fmt;
use std::time::Duration;

use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, crypto};
use sha2::{Digest, Sha256};

use super::reader::Section;
use super::sections::{file_text, seconds, secret};
use super::surroundings::Surroundings;

/// Least bits of an RSA modulus (RFC 7518 §3.3).
const LEAST_RSA_BITS: usize = 2048;
/// Least bytes of an HMAC secret (RFC 7518 §3.2).
const LEAST_SECRET: usize = 32;

const ALGORITHMS: [(&str, JwtAlgorithm); 3] = [
    ("HS256", JwtAlgorithm::Hs256),
    ("RS256", JwtAlgorithm::Rs256),
    ("ES256", JwtAlgorithm::Es256),
];

const NAME: &str = "the name of a claim";

/// Tokens as a second way in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jwt {
    /// Who must have issued them (`iss`).
    pub issuer: String,
    /// Whom they must be for: one of these (`aud`); never empty.
    pub audience: Vec<String>,
    /// What verifies them; never empty. Where there are several, each has an id.
    pub keys: Vec<JwtKey>,
    /// Difference of clocks that is forgiven at `exp` and `nbf`.
    pub leeway: Duration,
    /// The claim that names the tenant.
    pub tenant_claim: String,
    /// The claim that lists the models the token is good for, if any may.
    pub models_claim: Option<String>,
}

/// How a key signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JwtAlgorithm {
    /// HMAC with SHA-256.
    Hs256,
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
}

/// A key, bound to its algorithm.
#[derive(Clone)]
pub struct JwtKey {
    /// Its `kid`; `None` where it came alone and without one.
    pub id: Option<String>,
    /// The one algorithm it verifies.
    pub algorithm: JwtAlgorithm,
    /// The key itself.
    pub key: DecodingKey,
    /// Digest of what it was made from, to tell a changed one.
    digest: [u8; 32],
}

/// Reads the section; `None` where it names no issuer, audience or key.
pub(super) fn jwt(mut section: Section<'_>, around: &dyn Surroundings) -> Option<Jwt> {
    let wanted = [
        "issuer",
        "audience",
        "secret_env",
        "secret_file",
        "public_key_file",
        "jwks_file",
    ]
    .iter()
    .any(|key| section.has(key));
    let issuer = section.text("issuer", "the `iss` of the tokens");
    let audience = section.texts("audience", "a list of texts, one of which is in `aud`");
    let allowed = section.word_list("algorithms", &ALGORITHMS);
    let keys = keys(&mut section, around);
    if let (true, Err((key, problem))) = (wanted, &keys) {
        section.note(key, None, problem);
    }
    let jwt = Jwt {
        issuer: issuer.unwrap_or_default(),
        audience: audience.unwrap_or_default(),
        keys: keys.unwrap_or_default(),
        leeway: section.time("leeway", seconds(0..=600), Duration::from_secs(30)),
        tenant_claim: section
            .text("tenant_claim", NAME)
            .unwrap_or_else(|| "tenant".to_owned()),
        models_claim: section.text("models_claim", NAME),
    };
    if wanted {
        check(&section, &jwt, allowed.as_deref());
    }
    section.finish();
    wanted.then_some(jwt)
}

fn check(section: &Section<'_>, jwt: &Jwt, allowed: Option<&[JwtAlgorithm]>) {
    if jwt.issuer.is_empty() {
        section.note("issuer", None, "is needed: who issues the tokens");
    }
    if jwt.audience.is_empty() {
        let problem = "is needed: whom the tokens are for, so that those for others are refused";
        section.note("audience", None, problem);
    }
    let forbidden = |key: &&JwtKey| allowed.is_some_and(|list| !list.contains(&key.algorithm));
    if let Some(key) = jwt.keys.iter().find(forbidden) {
        let problem = format!("leaves out {}, which a key is for", key.algorithm.name());
        section.note("algorithms", None, problem);
    }
}

/// The keys of the one source that is named; else which key is wrong, and how.
fn keys(
    section: &mut Section<'_>,
    around: &dyn Surroundings,
) -> Result<Vec<JwtKey>, (&'static str, String)> {
    let secret = secret(section, ["secret_env", "secret_file"], around);
    let pem = file(section, "public_key_file", around);
    let set = file(section, "jwks_file", around);
    let (key, read) = match (secret, pem, set) {
        (Some(secret), None, None) => ("secret_file", from_secret(secret.expose())),
        (None, Some(text), None) => ("public_key_file", text.and_then(|text| from_pem(&text))),
        (None, None, Some(text)) => ("jwks_file", text.and_then(|text| from_set(&text))),
        _ => {
            let problem = "set one of secret_env, secret_file, public_key_file and jwks_file";
            ("public_key_file", Err(problem.to_owned()))
        }
    };
    read.map_err(|problem| (key, problem))
}

/// The text of the file that `key` names, or why it cannot be read.
fn file(
    section: &mut Section<'_>,
    key: &'static str,
    around: &dyn Surroundings,
) -> Option<Result<String, String>> {
    let written = section.text(key, "the path of a file")?;
    Some(file_text(&around.path(&written), around))
}

fn from_secret(secret: &str) -> Result<Vec<JwtKey>, String> {
    if secret.len() < LEAST_SECRET {
        return Err(format!(
            "the secret must have at least {LEAST_SECRET} bytes"
        ));
    }
    let key = DecodingKey::from_secret(secret.as_bytes()).map_err(|_| "is no secret")?;
    Ok(vec![JwtKey::new(None, JwtAlgorithm::Hs256, key, secret)])
}

fn from_pem(text: &str) -> Result<Vec<JwtKey>, String> {
    if text.contains("PRIVATE KEY") {
        return Err("holds a private key; the public one is needed, and no other".to_owned());
    }
    let is_key = [
        "-----BEGIN PUBLIC KEY-----",
        "-----BEGIN RSA PUBLIC KEY-----",
    ]
    .iter()
    .any(|begin| text.contains(begin));
    if !is_key {
        return Err("must hold a PEM public key (BEGIN PUBLIC KEY)".to_owned());
    }
    let bytes = text.as_bytes();
    let rsa = DecodingKey::from_rsa_pem(bytes).map(|key| (JwtAlgorithm::Rs256, key));
    let ec = || DecodingKey::from_ec_pem(bytes).map(|key| (JwtAlgorithm::Es256, key));
    let (algorithm, key) = rsa
        .or_else(|_| ec())
        .map_err(|_| "must hold an RSA key or one on the curve P-256")?;
    check_strength(algorithm, &key)?;
    Ok(vec![JwtKey::new(None, algorithm, key, text)])
}

/// The usable keys of a set; others are passed over, as RFC 7517 §5 has it.
fn from_set(text: &str) -> Result<Vec<JwtKey>, String> {
    let set: JwkSet =
        serde_json::from_str(text).map_err(|_| "must be a JSON object with a list of keys")?;
    let mut keys = Vec::new();
    for jwk in &set.keys {
        let Some(algorithm) = algorithm_of(jwk) else {
            continue;
        };
        let id = jwk.common.key_id.clone();
        let named = id.as_deref().unwrap_or("without a kid").to_owned();
        let key = DecodingKey::from_jwk(jwk).map_err(|_| format!("key {named:?} is no key"))?;
        check_strength(algorithm, &key).map_err(|problem| format!("key {named:?}: {problem}"))?;
        keys.push(JwtKey::new(id, algorithm, key, text));
    }
    let mut ids: Vec<_> = keys.iter().map(|key| &key.id).collect();
    ids.sort();
    ids.dedup();
    if ids.len() < keys.len() || (keys.len() > 1 && ids.contains(&&None)) {
        return Err("its keys must each have a kid of its own".to_owned());
    }
    if keys.is_empty() {
        return Err("holds no RSA key and none on the curve P-256 for signatures".to_owned());
    }
    Ok(keys)
}

/// What a public key of a set is for; `None` for what is not served here.
fn algorithm_of(jwk: &Jwk) -> Option<JwtAlgorithm> {
    use jsonwebtoken::jwk::{EllipticCurve, KeyAlgorithm};

    let common = &jwk.common;
    if common
        .public_key_use
        .as_ref()
        .is_some_and(|what| *what != PublicKeyUse::Signature)
    {
        return None;
    }
    let said = common.key_algorithm;
    match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => said
            .is_none_or(|said| said == KeyAlgorithm::RS256)
            .then_some(JwtAlgorithm::Rs256),
        AlgorithmParameters::EllipticCurve(params) if params.curve == EllipticCurve::P256 => said
            .is_none_or(|said| said == KeyAlgorithm::ES256)
            .then_some(JwtAlgorithm::Es256),
        _ => None,
    }
}

fn check_strength(algorithm: JwtAlgorithm, key: &DecodingKey) -> Result<(), String> {
    match algorithm {
        JwtAlgorithm::Hs256 => Ok(()),
        JwtAlgorithm::Rs256 => {
            let bits = rsa_bits(key).ok_or("is no RSA key")?;
            if bits < LEAST_RSA_BITS {
                return Err(format!(
                    "the RSA key has {bits} bits, at least {LEAST_RSA_BITS} are needed"
                ));
            }
            Ok(())
        }
        // Only a point on the curve can be made a verifier of.
        JwtAlgorithm::Es256 => crypto::verify("AA", b"", key, Algorithm::ES256)
            .map(drop)
            .map_err(|_| "is no key on the curve P-256".to_owned()),
    }
}

/// Bits of the modulus, in whole bytes without leading zeros.
fn rsa_bits(key: &DecodingKey) -> Option<usize> {
    let Ok(Jwk {
        algorithm: AlgorithmParameters::RSA(params),
        ..
    }) = Jwk::from_decoding_key(key, None)
    else {
        return None;
    };
    // Six bits a character; leading zeros are `A`s.
    let digits = params.n.trim_start_matches('A');
    Some(digits.len() * 6 / 8 * 8)
}

// === impl JwtAlgorithm ===

impl JwtAlgorithm {
    /// As tokens write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
        }
    }
}

// === impl JwtKey ===

impl JwtKey {
    fn new(id: Option<String>, algorithm: JwtAlgorithm, key: DecodingKey, source: &str) -> Self {
        Self {
            id,
            algorithm,
            key,
            digest: Sha256::digest(source).into(),
        }
    }
}

impl PartialEq for JwtKey {
    fn eq(&self, other: &Self) -> bool {
        (&self.id, self.algorithm, self.digest) == (&other.id, other.algorithm, other.digest)
    }
}

impl Eq for JwtKey {}

impl fmt::Debug for JwtKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtKey")
            .field("id", &self.id)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}
