//! Who a client is: tokens beside keys, addresses behind proxies, and what it
//! says of itself that nobody believes.

use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};

use crate::support::client::{Ask, tokens_body};
use crate::support::fake::{Fake, FakeSpec};
use crate::support::refusal::refused;
use crate::support::setup::Setup;
use crate::support::stand::Stand;

const ONE: &str = "key-of-tenant-one";
const TWO: &str = "key-of-tenant-two";
const SECRET_FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/keys/jwt.secret");
const SECRET: &str = include_str!("../keys/jwt.secret");

async fn gateway(change: impl FnOnce(Setup) -> Setup) -> (Stand, Fake) {
    let fake = Fake::start(FakeSpec::default()).await;
    let setup = change(Setup::tiny(&[fake.backend("a")]));
    (Stand::start(&setup).await, fake)
}

fn with_tokens(setup: Setup) -> Setup {
    setup
        .set("auth.jwt.issuer", "\"https://id.example\"")
        .set("auth.jwt.audience", "[\"tidegate\"]")
        .set("auth.jwt.secret_file", &format!("{SECRET_FILE:?}"))
        .set("auth.jwt.models_claim", "\"models\"")
}

/// A token for `tenant`, `lasting` seconds from now, with one more claim.
fn token(tenant: &str, lasting: i64, (name, value): (&str, Value)) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = i64::try_from(now.as_secs()).unwrap();
    let mut claims = json!({
        "iss": "https://id.example",
        "aud": "tidegate",
        "exp": now + lasting,
        "tenant": tenant,
    });
    claims[name] = value;
    let key = EncodingKey::from_secret(SECRET.trim().as_bytes()).unwrap();
    encode(&Header::default(), &claims, &key).unwrap()
}

#[tokio::test]
async fn a_token_is_its_tenants_key_with_its_limits() {
    let (stand, fake) = gateway(|setup| {
        with_tokens(setup)
            .tenant("one", ONE, "max_prompt_tokens = 20")
            .tenant("two", TWO, "")
    })
    .await;
    let plain = token("one", 60, ("sub", json!("somebody")));
    let mut client = stand.send(&Ask::tokens(4, "").key(&plain)).await;
    let call = fake.call().await;
    assert_eq!(call.head.get("authorization"), None);
    call.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    let reply = stand.ask(&Ask::tokens(21, "").key(&plain)).await;
    refused(
        &reply,
        400,
        "context_length_exceeded",
        "tenant_prompt_limit",
    );
    // Anthropic's clients put it where they put their key.
    let message = r#"{"model":"tiny","max_tokens":1,"messages":[{"role":"user","content":"hi"}]}"#;
    let theirs = Ask::post("/v1/messages", message).header("x-api-key", &plain);
    let mut client = stand.send(&theirs).await;
    fake.call().await.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    // Keys go on as they did.
    let mut client = stand.send(&Ask::tokens(21, "").key(TWO)).await;
    fake.call().await.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn a_token_may_be_good_for_some_models_only() {
    let other = Fake::start(FakeSpec {
        model: "other".into(),
        ..FakeSpec::default()
    })
    .await;
    let (stand, fake) = gateway(|setup| {
        let other = [other.backend("b")];
        with_tokens(setup)
            .model("name = \"other\"\naliases = [\"adapter\"]", &other)
            .tenant("one", ONE, "models = [\"other\"]")
    })
    .await;
    let ask = |model: &str, models: Value| {
        let token = token("one", 60, ("models", models));
        Ask::post("/v1/completions", tokens_body(model, 4, "")).key(&token)
    };
    for (model, models) in [
        ("other", json!(["tiny"])),
        ("other", json!([])),
        ("tiny", json!(["tiny", "other"])),
    ] {
        let reply = stand.ask(&ask(model, models)).await;
        refused(&reply, 404, "model_not_found", "model_not_found");
    }
    let mut client = stand.send(&ask("other", json!("adapter"))).await;
    other.call().await.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    stand.settle().await;
    fake.check();
    other.check();
}

#[tokio::test]
async fn a_token_that_is_not_believed_is_told_why_and_counts_as_a_wrong_key() {
    let (stand, fake) = gateway(|setup| {
        with_tokens(setup)
            .tenant("one", ONE, "")
            .set("auth.max_failed_keys", "5")
    })
    .await;
    let good = token("one", 60, ("sub", json!("x")));
    let (signed, _) = good.rsplit_once('.').unwrap();
    let cases = [
        (
            token("one", -60, ("sub", json!("x"))),
            "The token has expired.",
        ),
        (
            token("nobody", 60, ("sub", json!("x"))),
            "The token names no known tenant.",
        ),
        (
            token("one", 60, ("aud", json!("elsewhere"))),
            "The token is for another audience.",
        ),
        (
            format!("{signed}."),
            "The token's signature does not match.",
        ),
        (
            "eyJhbGciOiJub25lIn0.eyJ0ZW5hbnQiOiJvbmUifQ.".to_owned(),
            "The token's algorithm is not that of its key.",
        ),
    ];
    for (token, words) in cases {
        let reply = stand.ask(&Ask::tokens(4, "").key(&token)).await;
        let error = refused(&reply, 401, "invalid_api_key", "invalid_api_key");
        assert_eq!(error["message"], words);
        assert!(!reply.text().contains(&token[..20]));
    }
    let reply = stand.ask(&Ask::tokens(4, "").key(&good)).await;
    let code = "too_many_auth_failures";
    refused(&reply, 429, code, code);
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn two_keys_are_two_callers_and_neither_is_served() {
    let (stand, fake) = gateway(|setup| setup.tenant("one", ONE, "")).await;
    let bearer = format!("Bearer {ONE}");
    let message = Ask::post(
        "/v1/messages",
        r#"{"model":"tiny","max_tokens":1,"messages":[{"role":"user","content":"hi"}]}"#,
    );
    for ask in [
        Ask::tokens(4, "").key(ONE).also("authorization", &bearer),
        Ask::tokens(4, "")
            .key(ONE)
            .also("authorization", "Bearer x"),
        message.header("x-api-key", ONE).also("x-api-key", "x"),
    ] {
        let reply = stand.ask(&ask).await;
        let error = reply.json()["error"].clone();
        assert_eq!(reply.status, 400, "{error}");
        assert_eq!(reply.header("x-tidegate-reason"), Some("invalid_request"));
        let told = error["message"].as_str().unwrap();
        assert!(told.ends_with("must not be given twice."), "{told}");
    }
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn what_a_client_says_of_itself_decides_nothing_and_stays_here() {
    let (stand, fake) = gateway(|setup| {
        setup
            .tenant("one", ONE, "max_prompt_tokens = 20")
            .tenant("two", TWO, "priority = 7")
    })
    .await;
    let said = |ask: Ask| {
        ask.header("x-tenant-id", "two")
            .header("X-Tenant-ID", "two, two")
            .header("x-user-id", "two")
            .header("openai-organization", "two")
            .header("x-priority", "0")
            .header("x-gateway-inference-objective", "first")
            .header("x-gateway-inference-fairness-id", "two")
            .header("cookie", "session=two")
            .header("x-api-key", TWO)
            .header("x-forwarded-for", "192.0.2.1")
            .header("forwarded", "for=192.0.2.1")
            .header("x-real-ip", "192.0.2.1")
    };
    let reply = stand.ask(&said(Ask::tokens(21, "")).key(ONE)).await;
    refused(
        &reply,
        400,
        "context_length_exceeded",
        "tenant_prompt_limit",
    );
    let first = r#","priority":-1000,"max_tokens":1"#;
    for (key, priority) in [(ONE, Value::Null), (TWO, json!(7))] {
        let mut client = stand.send(&said(Ask::tokens(4, first)).key(key)).await;
        let call = fake.call().await;
        assert_eq!(call.json()["priority"], priority);
        let passed = String::from_utf8_lossy(&call.raw).to_ascii_lowercase();
        for gone in [
            "two",
            "192.0.2.1",
            "first",
            "x-priority",
            "session=",
            "authorization",
        ] {
            assert!(!passed.contains(gone), "{gone}: {passed}");
        }
        call.ok("{}").await;
        assert_eq!(client.reply().await.status, 200);
    }
    let ended = r#"tidegate_admitted_prompt_tokens_total{model="tiny",tenant="one"}"#;
    stand.settle().await;
    assert_eq!(stand.metric(ended).await, 4.0);
    fake.check();
}

#[tokio::test]
async fn only_a_trusted_proxy_says_whose_wrong_keys_these_are() {
    let guess = |from: &str| {
        Ask::tokens(4, "")
            .key("nobody-has-this-key")
            .header("x-forwarded-for", from)
    };
    let few = |setup: Setup| {
        setup
            .tenant("one", ONE, "")
            .set("auth.max_failed_keys", "3")
    };
    let (stand, fake) = gateway(few).await;
    let mut statuses = Vec::new();
    for client in 0..5 {
        statuses.push(stand.ask(&guess(&format!("192.0.2.{client}"))).await.status);
    }
    assert_eq!(statuses, [401, 401, 401, 429, 429]);
    stand.settle().await;
    let proxied = |setup| few(setup).set("server.trusted_proxies", "[\"127.0.0.0/8\"]");
    let (stand, behind) = gateway(proxied).await;
    let mut statuses = Vec::new();
    for client in 0..5 {
        let from = format!("203.0.113.9, 192.0.2.{client}, 127.0.0.2");
        statuses.push(stand.ask(&guess(&from)).await.status);
    }
    for _ in 0..4 {
        statuses.push(stand.ask(&guess("192.0.2.77, 198.51.100.7")).await.status);
    }
    assert_eq!(statuses, [401, 401, 401, 401, 401, 401, 401, 401, 429]);
    stand.settle().await;
    fake.check();
    behind.check();
}

#[tokio::test]
async fn the_context_limit_of_a_tenant_holds_for_every_form_of_prompt() {
    let fake = Fake::start(FakeSpec {
        blocks: 4000,
        max_model_len: 16_384,
        // What the engine says a chat has, its tools and template included.
        counts: Some(4001),
        ..FakeSpec::default()
    })
    .await;
    let setup = Setup::tiny(&[fake.backend("a")]).tenant("one", ONE, "max_context_tokens = 4000");
    let stand = Stand::start(&setup).await;
    let long = "word ".repeat(1500);
    let tools = format!(
        r#","tools":[{{"type":"function","function":{{"name":"f","description":"{long}"}}}}]"#
    );
    for ask in [
        Ask::tokens(5000, ""),
        Ask::tokens(3900, r#","max_tokens":200"#),
        Ask::tokens(4000, ""),
        Ask::chat(&tools),
    ] {
        let reply = stand.ask(&ask.key(ONE)).await;
        let error = refused(
            &reply,
            400,
            "context_length_exceeded",
            "tenant_context_limit",
        );
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains(" 4000 tokens for your tenant"),
            "{message}"
        );
    }
    // Each prompt of a list is a sequence of its own and counts by itself.
    let list = format!("[{}]", vec!["7"; 1000].join(","));
    let lists = vec![list; 10].join(",");
    let body = format!(r#"{{"model":"tiny","prompt":[{lists}],"max_tokens":1}}"#);
    let mut client = stand
        .send(&Ask::post("/v1/completions", body).key(ONE))
        .await;
    fake.call().await.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    assert_eq!(stand.settle().await["finished"], 1);
    fake.check();
}

#[tokio::test]
async fn a_body_past_a_tenants_own_limit_is_413_announced_or_not() {
    let (stand, fake) = gateway(|setup| {
        setup
            .tenant("one", ONE, "max_body_bytes = 1024")
            .tenant("two", TWO, "")
    })
    .await;
    let large = Ask::chat(&format!(r#","user":"{}""#, "x".repeat(2000)));
    let reply = stand.ask(&large.clone().key(ONE)).await;
    let (code, reason) = ("request_too_large", "request_too_large");
    let error = refused(&reply, 413, code, reason);
    assert_eq!(
        error["message"],
        "The request body is larger than 1024 bytes."
    );
    let mut client = stand.send(&Ask::get("/v1/models").key(ONE)).await;
    assert_eq!(client.reply().await.status, 200);
    client
        .0
        .send(&large.clone().key(ONE).chunked(500))
        .await
        .unwrap();
    refused(&client.reply().await, 413, code, reason);
    let mut client = stand.send(&large.key(TWO)).await;
    fake.call().await.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    stand.settle().await;
    fake.check();
}
