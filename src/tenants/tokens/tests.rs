use super::*;
use crate::config::{Config, Surroundings, load_in};
use jsonwebtoken::{EncodingKey, encode};
use proptest::prelude::*;
use serde_json::json;
use std::io;
use std::path::{Path, PathBuf};

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const RSA: &str = include_str!("../../../tests/keys/rsa.pem");
const EC: &str = include_str!("../../../tests/keys/ec.pem");

/// Seconds since 1970 at which the tests happen.
const NOW: u64 = 1_800_000_000;

/// The files of `tests/keys`, and one variable.
struct Keys;

impl Surroundings for Keys {
    fn variable(&self, name: &str) -> Option<String> {
        match name {
            "SHORT" => Some("too-short".to_owned()),
            "SECRET" => Some(SECRET.to_owned()),
            _ => None,
        }
    }

    fn path(&self, written: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/keys")
            .join(written)
    }

    fn text(&self, path: &Path) -> io::Result<String> {
        std::fs::read_to_string(path)
    }

    fn is_file(&self, path: &Path) -> bool {
        path.is_file()
    }

    fn is_open_to_all(&self, _: &Path) -> bool {
        false
    }
}

fn load(lines: &str) -> Result<Config, String> {
    let text = format!(
        "[[models]]\nname = \"m\"\n[[models.backends]]\nurl = \"http://127.0.0.1:1\"\n\
         [auth.jwt]\nissuer = \"https://id.example\"\naudience = [\"tidegate\", \"other\"]\n{lines}\n"
    );
    load_in(&text, &Keys).map_err(|problems| problems.to_string())
}

fn verifier(lines: &str) -> Verifier {
    let config = load(lines).unwrap_or_else(|problems| panic!("{problems}"));
    Verifier::new(&config.auth.jwt.expect("the section is there"))
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW)
}

fn claims() -> Value {
    json!({
        "iss": "https://id.example",
        "aud": "tidegate",
        "exp": NOW + 60,
        "tenant": "acme",
    })
}

/// Good claims, one of them replaced; `null` takes it away.
fn with(claim: &str, value: Value) -> Value {
    let mut claims = claims();
    match value {
        Value::Null => claims.as_object_mut().unwrap().remove(claim),
        value => claims
            .as_object_mut()
            .unwrap()
            .insert(claim.to_owned(), value),
    };
    claims
}

fn header(algorithm: Algorithm, kid: Option<&str>) -> Header {
    let mut header = Header::new(algorithm);
    header.kid = kid.map(str::to_owned);
    header
}

fn signed(header: &Header, claims: &Value) -> String {
    let key = match header.alg {
        Algorithm::RS256 => EncodingKey::from_rsa_pem(RSA.as_bytes()).unwrap(),
        Algorithm::ES256 => EncodingKey::from_ec_pem(EC.as_bytes()).unwrap(),
        _ => EncodingKey::from_secret(SECRET.as_bytes()).unwrap(),
    };
    encode(header, claims, &key).unwrap()
}

fn hs256(claims: &Value) -> String {
    signed(&header(Algorithm::HS256, None), claims)
}

fn base64(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(text)
}

fn claim(name: &str) -> TokenError {
    malformed(name)
}

#[test]
fn a_token_of_each_algorithm_names_its_tenant() {
    let acme = Identity {
        tenant: "acme".to_owned(),
        models: None,
    };
    let cases = [
        ("secret_env = \"SECRET\"", Algorithm::HS256, None),
        ("public_key_file = \"rsa.pub.pem\"", Algorithm::RS256, None),
        ("public_key_file = \"ec.pub.pem\"", Algorithm::ES256, None),
        (
            "public_key_file = \"ec.pub.pem\"",
            Algorithm::ES256,
            Some("any"),
        ),
        ("jwks_file = \"jwks.json\"", Algorithm::RS256, Some("rsa-1")),
        ("jwks_file = \"jwks.json\"", Algorithm::ES256, Some("ec-1")),
    ];
    for (lines, algorithm, kid) in cases {
        let token = signed(&header(algorithm, kid), &claims());
        assert!(is_token(token.as_bytes()));
        let found = verifier(lines).verify(token.as_bytes(), now());
        assert_eq!(found.as_ref(), Ok(&acme), "{lines}");
    }
}

#[test]
fn a_key_is_never_used_for_another_algorithm_than_its_own() {
    // The public key as an HMAC secret: the classic confusion.
    let public = include_str!("../../../tests/keys/rsa.pub.pem");
    let key = EncodingKey::from_secret(public.as_bytes()).unwrap();
    let confused = encode(&header(Algorithm::HS256, None), &claims(), &key).unwrap();
    let rsa = verifier("public_key_file = \"rsa.pub.pem\"");
    assert_eq!(
        rsa.verify(confused.as_bytes(), now()),
        Err(TokenError::Algorithm)
    );
    let confused = encode(&header(Algorithm::HS256, Some("rsa-1")), &claims(), &key).unwrap();
    let set = verifier("jwks_file = \"jwks.json\"");
    assert_eq!(
        set.verify(confused.as_bytes(), now()),
        Err(TokenError::Algorithm)
    );
    // A key for one algorithm, asked for by a token of another.
    let other = signed(&header(Algorithm::ES256, Some("rsa-1")), &claims());
    assert_eq!(
        set.verify(other.as_bytes(), now()),
        Err(TokenError::Algorithm)
    );
    // A stronger one of the same family is not what the key is for either.
    let longer = signed(&header(Algorithm::HS512, None), &claims());
    let secret = verifier("secret_env = \"SECRET\"");
    assert_eq!(
        secret.verify(longer.as_bytes(), now()),
        Err(TokenError::Algorithm)
    );
}

#[test]
fn unsigned_and_forged_tokens_are_refused() {
    let secret = verifier("secret_env = \"SECRET\"");
    let body = base64(&claims().to_string());
    for none in ["none", "None", "NONE", "HS1"] {
        let head = base64(&format!("{{\"alg\":\"{none}\",\"typ\":\"JWT\"}}"));
        let token = format!("{head}.{body}.");
        assert!(is_token(token.as_bytes()));
        assert_eq!(
            secret.verify(token.as_bytes(), now()),
            Err(TokenError::Algorithm)
        );
    }
    let good = hs256(&claims());
    let (signed_part, signature) = good.rsplit_once('.').unwrap();
    let (head, _) = signed_part.split_once('.').unwrap();
    let forged = with("tenant", json!("victim")).to_string();
    let forged = format!("{head}.{}.{signature}", base64(&forged));
    assert_eq!(
        secret.verify(forged.as_bytes(), now()),
        Err(TokenError::Signature)
    );
    let bare = format!("{signed_part}.");
    assert_eq!(
        secret.verify(bare.as_bytes(), now()),
        Err(TokenError::Signature)
    );
    // A key that comes with the token is the forger's.
    let mut header = header(Algorithm::ES256, None);
    header.jku = Some("https://forger.example/keys".to_owned());
    let set = verifier("jwks_file = \"jwks.json\"");
    let own = signed(&header, &claims());
    assert_eq!(
        set.verify(own.as_bytes(), now()),
        Err(TokenError::UnknownKey)
    );
}

#[test]
fn a_key_id_that_is_not_known_is_refused() {
    let set = verifier("jwks_file = \"jwks.json\"");
    for kid in [
        None,
        Some("rsa-2"),
        Some(""),
        Some("for-encryption"),
        Some("shared"),
    ] {
        let token = signed(&header(Algorithm::RS256, kid), &claims());
        assert_eq!(
            set.verify(token.as_bytes(), now()),
            Err(TokenError::UnknownKey),
            "{kid:?}"
        );
    }
}

#[test]
fn each_claim_that_is_wrong_is_told_as_what_it_is() {
    let secret = verifier("secret_env = \"SECRET\"");
    let cases = [
        ("exp", json!(null), claim("exp")),
        ("exp", json!("soon"), claim("exp")),
        ("exp", json!(-1), claim("exp")),
        ("exp", json!(NOW - 30), TokenError::Expired),
        ("exp", json!(0), TokenError::Expired),
        ("nbf", json!(NOW + 31), TokenError::NotYet),
        ("nbf", json!([]), claim("nbf")),
        ("iss", json!(null), claim("iss")),
        ("iss", json!("https://other.example"), TokenError::Issuer),
        ("iss", json!(["https://id.example"]), claim("iss")),
        (
            "iss",
            json!(["https://other.example", "https://id.example"]),
            claim("iss"),
        ),
        ("aud", json!(null), claim("aud")),
        ("aud", json!("tidegate2"), TokenError::Audience),
        ("aud", json!(["a", "b"]), TokenError::Audience),
        ("aud", json!(7), claim("aud")),
        ("tenant", json!(null), claim("tenant")),
        ("tenant", json!(["acme"]), claim("tenant")),
    ];
    for (name, value, expected) in cases {
        let token = hs256(&with(name, value.clone()));
        let found = secret.verify(token.as_bytes(), now());
        assert_eq!(found, Err(expected), "{name}: {value}");
    }
    let allowed = [
        ("exp", json!(NOW - 29)),
        ("exp", json!(1.9e9)),
        ("nbf", json!(NOW + 30)),
        ("aud", json!(["a", "other"])),
    ];
    for (name, value) in allowed {
        let token = hs256(&with(name, value.clone()));
        assert!(
            secret.verify(token.as_bytes(), now()).is_ok(),
            "{name}: {value}"
        );
    }
}

#[test]
fn a_claim_narrows_to_models_and_never_widens() {
    let secret = verifier("secret_env = \"SECRET\"\nmodels_claim = \"scope\"");
    let models = |value| {
        let token = hs256(&with("scope", value));
        secret
            .verify(token.as_bytes(), now())
            .map(|found| found.models)
    };
    let both = Some(vec!["m".to_owned(), "n".to_owned()]);
    assert_eq!(models(json!(["m", "n"])), Ok(both.clone()));
    assert_eq!(models(json!("m n")), Ok(both));
    assert_eq!(models(json!([])), Ok(Some(Vec::new())));
    assert_eq!(models(json!(null)), Ok(None));
    for odd in [json!(true), json!({"m": 1}), json!(["m", 1])] {
        assert_eq!(models(odd), Err(claim("scope")));
    }
}

#[test]
fn what_is_no_token_is_malformed_and_a_long_one_is_not_read() {
    let secret = verifier("secret_env = \"SECRET\"");
    for text in [
        "",
        ".",
        "..",
        "a.b.c",
        "eyJ.eyJ.",
        "eyJhbGciOiJIUzI1NiJ9",
        "eyJ9.a.b.c",
    ] {
        let found = secret.verify(text.as_bytes(), now());
        assert_eq!(found, Err(TokenError::Malformed), "{text}");
    }
    let long = vec![b'e'; MAX_BYTES + 1];
    let too_long = TokenError::TooLong { limit: MAX_BYTES };
    assert_eq!(secret.verify(&long, now()), Err(too_long));
    let mut critical = header(Algorithm::HS256, None);
    critical.crit = Some(vec!["exp".to_owned()]);
    let token = signed(&critical, &claims());
    assert_eq!(
        secret.verify(token.as_bytes(), now()),
        Err(TokenError::Malformed)
    );
    assert!(!is_token(b"sk-live-0123456789"));
    assert!(!is_token(b"eyJ.b"));
}

#[test]
fn keys_that_are_weak_private_or_ambiguous_are_told_before_the_start() {
    let cases = [
        ("", "set one of secret_env"),
        (
            "secret_env = \"SECRET\"\njwks_file = \"jwks.json\"",
            "set one of secret_env",
        ),
        ("secret_env = \"SHORT\"", "at least 32 bytes"),
        ("public_key_file = \"rsa.pem\"", "holds a private key"),
        ("public_key_file = \"short.pub.pem\"", "has 1024 bits"),
        ("public_key_file = \"p384.pub.pem\"", "P-256"),
        ("public_key_file = \"jwks.json\"", "BEGIN PUBLIC KEY"),
        ("public_key_file = \"nothing.pem\"", "cannot be read"),
        ("jwks_file = \"rsa.pub.pem\"", "a JSON object"),
        (
            "public_key_file = \"rsa.pub.pem\"\nalgorithms = [\"ES256\"]",
            "leaves out RS256",
        ),
    ];
    for (lines, expected) in cases {
        let problems = load(lines).expect_err(lines);
        assert!(problems.contains(expected), "{lines}: {problems}");
        assert!(!problems.contains("PRIVATE"), "{problems}");
    }
}

proptest! {
    /// Whatever is sent, nothing panics and nothing is believed.
    #[test]
    fn no_bytes_are_believed_unsigned(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        head in "\\PC{0,40}",
        body in "\\PC{0,40}",
    ) {
        let secret = verifier("secret_env = \"SECRET\"\nmodels_claim = \"scope\"");
        prop_assert!(secret.verify(&bytes, now()).is_err());
        let shaped = format!("{}.{}.{}", base64(&head), base64(&body), base64(&head));
        prop_assert!(secret.verify(shaped.as_bytes(), now()).is_err());
    }
}
