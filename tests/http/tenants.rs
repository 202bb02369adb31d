//! Who may ask for what: keys, models, limits, shares.

use crate::support::client::{Ask, tokens_body};
use crate::support::fake::{Fake, FakeSpec};
use crate::support::refusal::refused;
use crate::support::setup::{Setup, backend};
use crate::support::stand::Stand;

const ONE: &str = "secret-one";
const TWO: &str = "secret-two";

/// A gateway before one engine, with these tenants.
async fn gateway(change: impl FnOnce(Setup) -> Setup) -> (Stand, Fake) {
    let fake = Fake::start(FakeSpec::default()).await;
    let setup = change(Setup::tiny(&[fake.backend("a")]));
    (Stand::start(&setup).await, fake)
}

#[tokio::test]
async fn no_key_and_a_wrong_key_are_401_and_reach_no_engine() {
    let (stand, fake) = gateway(|setup| setup.tenant("one", ONE, "")).await;
    let ask = Ask::chat("");
    let wrong = [
        ask.clone(),
        ask.clone().key("secret-wrong"),
        ask.clone().header("authorization", ONE),
        ask.clone()
            .header("authorization", "Basic c2VjcmV0LW9uZQ=="),
        Ask::get("/v1/models"),
    ];
    for ask in wrong {
        let reply = stand.ask(&ask).await;
        let error = refused(&reply, 401, "invalid_api_key", "invalid_api_key");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
        assert!(!error["message"].as_str().unwrap().contains("secret-"));
    }
    assert_eq!(
        stand.ask(&Ask::get("/v1/models").key(ONE)).await.status,
        200
    );
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn an_address_that_guesses_keys_is_told_to_wait() {
    let few = |setup: Setup| {
        setup
            .tenant("one", ONE, "")
            .set("auth.max_failed_keys", "3")
    };
    let (stand, fake) = gateway(few).await;
    for guess in 0..3 {
        let reply = stand
            .ask(&Ask::chat("").key(&format!("guess-{guess}")))
            .await;
        refused(&reply, 401, "invalid_api_key", "invalid_api_key");
    }
    let reply = stand.ask(&Ask::chat("").key("guess-4")).await;
    let (code, reason) = ("too_many_auth_failures", "too_many_auth_failures");
    refused(&reply, 429, code, reason);
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn the_clients_key_stays_here_and_the_engines_own_goes_there() {
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("engine.key");
    std::fs::write(&file, "engine-key\n").unwrap();
    let fake = Fake::start(FakeSpec {
        key: Some("engine-key".into()),
        ..FakeSpec::default()
    })
    .await;
    let lines = format!("api_key_file = \"{}\"", file.display());
    let setup = Setup::tiny(&[backend("a", &fake.url(), &lines)]).tenant("one", ONE, "");
    let stand = Stand::start(&setup).await;
    let ask = Ask::tokens(4, r#","max_tokens":1"#).key(ONE);
    let orders = ask
        .header("x-tidegate-class", "long")
        .header("x-vllm-priority", "0")
        .header("x-data-parallel-rank", "3")
        .header("x-other", "dropped")
        .header(
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        );
    let mut client = stand.send(&orders).await;
    let call = fake.call().await;
    assert_eq!(call.head.get("authorization"), Some("Bearer engine-key"));
    assert_eq!(call.head.get("x-data-parallel-rank"), None);
    assert_eq!(call.head.get("x-other"), None);
    assert!(call.head.get("traceparent").is_some());
    call.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn a_model_of_others_does_not_exist_for_a_tenant() {
    let other = Fake::start(FakeSpec {
        model: "other".into(),
        ..FakeSpec::default()
    })
    .await;
    let two = |setup: Setup| {
        setup
            .model(
                "name = \"other\"\naliases = [\"adapter\"]",
                &[other.backend("b")],
            )
            .tenant("one", ONE, "models = [\"tiny\"]\nmax_context_tokens = 500")
            .tenant("two", TWO, "")
    };
    let (stand, fake) = gateway(two).await;
    for model in ["other", "adapter", "nothing"] {
        let ask = Ask::post("/v1/completions", tokens_body(model, 4, "")).key(ONE);
        let reply = stand.ask(&ask).await;
        refused(&reply, 404, "model_not_found", "model_not_found");
    }
    let listed = async |key| {
        let list = stand.ask(&Ask::get("/v1/models").key(key)).await.json();
        assert_eq!(list["object"], "list");
        let models = list["data"].as_array().unwrap().clone();
        let seen = models.iter().map(|model| {
            assert_eq!(model["object"], "model");
            let id = model["id"].as_str().unwrap().to_owned();
            (id, model["max_model_len"].as_u64().unwrap())
        });
        seen.collect::<Vec<_>>()
    };
    assert_eq!(listed(ONE).await, [("tiny".into(), 500)]);
    let all = [("tiny", 1024), ("other", 1024), ("adapter", 1024)];
    assert_eq!(listed(TWO).await, all.map(|(id, len)| (id.to_owned(), len)));
    // A tenant of one model need not name it.
    let unnamed = Ask::post("/v1/completions", r#"{"prompt":[1,2],"max_tokens":1}"#);
    let mut client = stand.send(&unnamed.key(ONE)).await;
    let call = fake.call().await;
    assert_eq!(call.json()["prompt"][1], 2);
    call.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    stand.settle().await;
    fake.check();
    other.check();
}

#[tokio::test]
async fn each_limit_of_a_tenant_is_a_context_refusal_that_names_it() {
    let limits = "max_context_tokens = 300\nmax_prompt_tokens = 200\nmax_output_tokens = 150";
    let (stand, fake) = gateway(|setup| setup.tenant("one", ONE, limits)).await;
    let cases = [
        (
            Ask::tokens(201, r#","max_tokens":1"#),
            "tenant_prompt_limit",
            200,
        ),
        (
            Ask::tokens(10, r#","max_tokens":151"#),
            "tenant_output_limit",
            150,
        ),
        (
            Ask::tokens(160, r#","max_tokens":141"#),
            "tenant_context_limit",
            300,
        ),
    ];
    for (ask, reason, limit) in cases {
        let reply = stand.ask(&ask.key(ONE)).await;
        let error = refused(&reply, 400, "context_length_exceeded", reason);
        let begins = format!("This model's maximum context length is {limit} tokens");
        assert!(error["message"].as_str().unwrap().starts_with(&begins));
        assert_eq!(error["param"], "prompt");
    }
    let fits = Ask::tokens(160, r#","max_tokens":140"#).key(ONE);
    let mut client = stand.send(&fits).await;
    fake.call().await.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn a_tenant_at_its_share_waits_while_others_pass() {
    let shares = |setup: Setup| {
        setup
            .tenant("one", ONE, "max_in_flight_tokens = 400")
            .tenant("two", TWO, "")
    };
    let (stand, fake) = gateway(shares).await;
    let ask = Ask::tokens(200, r#","max_tokens":100"#);
    let mut first = stand.send(&ask.clone().key(ONE)).await;
    let running = fake.call().await;
    let mut second = stand.send(&ask.clone().key(ONE)).await;
    stand.until_waiting(1).await;
    let mut other = stand.send(&ask.clone().key(TWO)).await;
    fake.call().await.ok("{}").await;
    assert_eq!(other.reply().await.status, 200);
    assert_eq!(fake.unseen(), 0);
    running.ok("{}").await;
    assert_eq!(first.reply().await.status, 200);
    fake.call().await.ok("{}").await;
    assert_eq!(second.reply().await.status, 200);
    // One that alone is above the share could wait for ever.
    let never = Ask::tokens(200, r#","max_tokens":300"#).key(ONE);
    let reply = stand.ask(&never).await;
    refused(&reply, 400, "context_length_exceeded", "above_tenant_share");
    assert_eq!(stand.settle().await["finished"], 3);
    fake.check();
}

#[tokio::test]
async fn a_tenant_with_its_places_taken_is_told_so_and_others_still_wait() {
    let places = |setup: Setup| {
        setup
            .tenant("one", ONE, "max_waiting = 1")
            .tenant("two", TWO, "")
    };
    let (stand, fake) = gateway(places).await;
    let ask = Ask::tokens(500, r#","max_tokens":500"#);
    let mut first = stand.send(&ask.clone().key(ONE)).await;
    let running = fake.call().await;
    let mut second = stand.send(&ask.clone().key(ONE)).await;
    stand.until_waiting(1).await;
    let reply = stand.ask(&ask.clone().key(ONE)).await;
    refused(&reply, 429, "tenant_limit_exceeded", "tenant_queue_full");
    let mut other = stand.send(&ask.clone().key(TWO)).await;
    stand.until_waiting(2).await;
    running.ok("{}").await;
    for _ in 0..2 {
        fake.call().await.ok("{}").await;
    }
    for client in [&mut first, &mut second, &mut other] {
        assert_eq!(client.reply().await.status, 200);
    }
    assert_eq!(stand.settle().await["finished"], 3);
    assert_eq!(fake.peak(), 63);
    fake.check();
}

#[tokio::test]
async fn a_tenant_that_may_not_know_the_backend_is_not_told() {
    let hidden = |setup: Setup| setup.tenant("one", ONE, "backend_name = \"hidden\"");
    let (stand, fake) = gateway(hidden).await;
    let mut client = stand.send(&Ask::tokens(4, "").key(ONE)).await;
    fake.call().await.ok("{}").await;
    let reply = client.reply().await;
    assert_eq!(reply.header("x-tidegate-backend"), None);
    assert_eq!(reply.header("x-tidegate-tier"), Some("standard"));
    stand.settle().await;
    fake.check();
}
