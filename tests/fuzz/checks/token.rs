//! Tokens: what nobody signed is not believed, and what is signed not blindly.

use std::time::{Duration, SystemTime};

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Map, Value};
use tidegate::config::{Jwt, load_in};
use tidegate::tenants::Verifier;

use super::config::Secrets;

/// A moment within the life of what the corpus holds.
const NOW: Duration = Duration::from_secs(1_700_000_000);
/// Difference of clocks forgiven.
const LEEWAY: Duration = Duration::from_secs(30);

const CONFIG: &str = "[auth.jwt]\nissuer = \"i\"\naudience = [\"a\"]\nsecret_env = \"S\"\n\
    models_claim = \"models\"\n[[models]]\nname = \"m\"\n[[models.backends]]\n\
    url = \"http://127.0.0.1:8000\"\n[[tenants]]\nname = \"t\"\n";

/// The first byte tells whether the rest is a token as it came, or claims to sign.
pub(super) fn verify(data: &[u8]) {
    let Some((signed, rest)) = super::choice(data, 2) else {
        return;
    };
    let verifier = Verifier::new(&jwt());
    let now = SystemTime::UNIX_EPOCH + NOW;
    if signed == 0 {
        // The corpus holds no key, so nothing in it or made of it is signed.
        assert!(
            verifier.verify(rest, now).is_err(),
            "a forged token is believed"
        );
        return;
    }
    let Ok(claims) = serde_json::from_slice::<Map<String, Value>>(rest) else {
        return;
    };
    let key = EncodingKey::from_secret(super::config::SECRET.as_bytes());
    let key = key.expect("the secret is long enough");
    let token = encode(&Header::default(), &claims, &key).expect("claims can be signed");
    if let Ok(identity) = verifier.verify(token.as_bytes(), now) {
        check_claims(&claims, &identity.tenant);
    }
}

/// What a believed token must have said.
fn check_claims(claims: &Map<String, Value>, tenant: &str) {
    let is = |claim: &str, text: &str| match claims.get(claim) {
        Some(Value::String(one)) => one == text,
        Some(Value::Array(several)) => several.iter().any(|one| one == text),
        _ => false,
    };
    assert!(is("iss", "i") && is("aud", "a"), "{claims:?}");
    assert!(is("tenant", tenant), "{claims:?}");
    let expires = claims
        .get("exp")
        .and_then(Value::as_f64)
        .expect("it is asked for");
    assert!(expires > (NOW - LEEWAY).as_secs_f64(), "{claims:?}");
}

fn jwt() -> Jwt {
    let config = load_in(CONFIG, &Secrets).expect("it is a configuration");
    config.auth.jwt.expect("it has tokens")
}
