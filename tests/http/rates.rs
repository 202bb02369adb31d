//! Rates of tenants: what is let in, what it is charged, what clients are told.

use std::time::Duration;

use serde_json::Value;
use tidegate::protocol::Route;
use tokio::time::advance;

use crate::support::client::{Ask, Reply};
use crate::support::fake::{Fake, FakeSpec};
use crate::support::memory::Memory;
use crate::support::refusal::refused;
use crate::support::setup::Setup;
use crate::support::stand::Stand;

const ONE: &str = "key-of-tenant-one";
const TWO: &str = "key-of-tenant-two";
/// An event of one token.
const EVENT: &[u8] = b"data: {\"choices\":[{\"index\":0,\"text\":\"word\"}]}\n\n";
const LIMITED: &str = "tenant_limit_exceeded";

/// An engine large enough that only rates limit.
fn large() -> FakeSpec {
    FakeSpec {
        blocks: 4000,
        max_model_len: 16_384,
        ..FakeSpec::default()
    }
}

async fn gateway(limits: &str) -> (Stand, Fake) {
    let fake = Fake::start(large()).await;
    let setup = Setup::tiny(&[fake.backend("a")])
        .tenant("one", ONE, limits)
        .tenant("two", TWO, "");
    (Stand::start(&setup).await, fake)
}

/// The first tenant's tokens that are left, and those booked.
async fn tokens(stand: &Stand) -> (u64, u64) {
    let state = stand.state().await;
    let one: &Value = &state["tenants"][0];
    let left = one["tokens"]["remaining"].as_u64().unwrap();
    (left, one["booked_tokens"].as_u64().unwrap())
}

fn told(reply: &Reply, names: [&str; 3]) -> [String; 3] {
    names.map(|name| {
        let header = reply.header(&format!("x-ratelimit-{name}"));
        header.unwrap_or("none").to_owned()
    })
}

#[tokio::test]
async fn an_engine_that_denies_the_model_or_our_key_costs_the_tenant_nothing() {
    let (stand, fake) = gateway("tokens_per_minute = 1\ntoken_burst = 1000").await;
    let denial = br#"{"error":{"message":"The model `tiny` does not exist.","type":"NotFoundError","param":"model","code":404}}"#;
    let ask = Ask::tokens(100, r#","max_tokens":100"#).key(ONE);
    let mut client = stand.send(&ask).await;
    for _ in 0..3 {
        let call = fake.call().await;
        call.answer(401, "application/json", br#"{"error":"Unauthorized"}"#)
            .await;
    }
    refused(
        &client.reply().await,
        502,
        "upstream_failed",
        "upstream_failed",
    );
    assert_eq!(tokens(&stand).await, (1000, 0));
    let mut client = stand.send(&ask).await;
    let call = fake.call().await;
    call.answer(404, "application/json", denial).await;
    refused(&client.reply().await, 503, "no_backend", "no_backend");
    assert_eq!(tokens(&stand).await, (1000, 0));
    stand.settle().await;
}

#[tokio::test]
async fn fifty_at_once_pass_no_more_tokens_than_the_limit_holds() {
    let (stand, fake) = gateway("tokens_per_minute = 1000").await;
    let ask = Ask::tokens(100, r#","max_tokens":100"#).key(ONE);
    let mut clients = Vec::new();
    for _ in 0..50 {
        clients.push(stand.send(&ask).await);
    }
    let refusals =
        r#"tidegate_requests_total{route="completions",status="429",reason="tenant_token_rate"}"#;
    let mut calls = Vec::new();
    for _ in 0..5 {
        calls.push(fake.call().await);
    }
    while stand.metric(refusals).await < 45.0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(fake.unseen(), 0);
    assert_eq!(tokens(&stand).await.1, 1000);
    assert_eq!(
        stand
            .metric(r#"tidegate_tenant_booked_tokens{tenant="one"}"#)
            .await,
        1000.0
    );
    for call in calls {
        call.ok(r#"{"usage":{"prompt_tokens":100,"completion_tokens":40,"total_tokens":140}}"#)
            .await;
    }
    let mut served = 0;
    for client in &mut clients {
        let reply = client.reply().await;
        if reply.status == 200 {
            served += 1;
            continue;
        }
        let error = refused(&reply, 429, LIMITED, "tenant_token_rate");
        let words = "Rate limit reached: 1000 tokens a minute for your tenant. ";
        assert!(
            error["message"].as_str().unwrap().starts_with(words),
            "{error}"
        );
    }
    assert_eq!(served, 5);
    stand.settle().await;
    let (left, booked) = tokens(&stand).await;
    assert_eq!(booked, 0);
    assert!((300..=1000).contains(&left), "{left} left after 5 of 140");
    fake.check();
}

#[tokio::test(start_paused = true)]
async fn one_at_each_interval_is_never_refused_and_retry_after_is_exact() {
    let limits = "requests_per_minute = 6\nrequest_burst = 1";
    let mut memory = Memory::new(|setup| setup.tenant("one", ONE, limits)).await;
    let ask = Ask::get("/v1/models").key(ONE);
    let mut client = memory.connect();
    for round in 0..30 {
        assert_eq!(client.ask(&ask).await.status, 200, "{round}");
        advance(Duration::from_secs(10)).await;
    }
    assert_eq!(client.ask(&ask).await.status, 200);
    let reply = client.ask(&ask).await;
    refused(&reply, 429, LIMITED, "tenant_request_rate");
    assert_eq!(reply.header("retry-after"), Some("10"));
    advance(Duration::from_millis(9_000)).await;
    assert_eq!(client.ask(&ask).await.status, 429);
    advance(Duration::from_millis(1_000)).await;
    assert_eq!(client.ask(&ask).await.status, 200);
    memory.settle().await;
}

#[tokio::test(start_paused = true)]
async fn five_a_minute_count_down_to_none_and_the_sixth_is_told_when() {
    let limits = "requests_per_minute = 5";
    let mut memory = Memory::new(|setup| setup.tenant("one", ONE, limits)).await;
    let names = ["limit-requests", "remaining-requests", "reset-requests"];
    let ask = Ask::get("/v1/models").key(ONE);
    let mut client = memory.connect();
    let seconds = ["12s", "24s", "36s", "48s", "1m0s"];
    for (left, reset) in (0..5).rev().zip(seconds) {
        let reply = client.ask(&ask).await;
        assert_eq!(reply.status, 200);
        assert_eq!(told(&reply, names), ["5", &left.to_string(), reset]);
        assert_eq!(reply.header("x-ratelimit-limit-tokens"), None);
    }
    let reply = client.ask(&ask).await;
    refused(&reply, 429, LIMITED, "tenant_request_rate");
    assert_eq!(told(&reply, names), ["5", "0", "1m0s"]);
    assert_eq!(reply.header("retry-after"), Some("12"));
    memory.settle().await;
}

#[tokio::test(start_paused = true)]
async fn tokens_are_told_and_come_back_when_the_answer_used_less() {
    let limits = "tokens_per_minute = 600";
    let mut memory = Memory::of([large()], |setup| setup.tenant("one", ONE, limits)).await;
    let names = ["limit-tokens", "remaining-tokens", "reset-tokens"];
    let ask = |prompt| Ask::tokens(prompt, r#","max_tokens":100"#).key(ONE);
    let mut first = memory.send(&ask(400)).await;
    let call = memory.call().await;
    let reply = memory.connect().ask(&ask(200)).await;
    refused(&reply, 429, LIMITED, "tenant_token_rate");
    assert_eq!(reply.header("retry-after"), Some("20"));
    assert_eq!(told(&reply, names), ["600", "100", "50s"]);
    call.ok(r#"{"usage":{"prompt_tokens":400,"completion_tokens":0,"total_tokens":400}}"#)
        .await;
    let reply = first.reply().await;
    assert_eq!(told(&reply, names), ["600", "100", "50s"]);
    // 200 are left: 100 of the output came back, 100 more take ten seconds.
    let reply = memory.connect().ask(&ask(200)).await;
    assert_eq!(reply.header("retry-after"), Some("10"));
    advance(Duration::from_secs(10)).await;
    let mut last = memory.send(&ask(200)).await;
    memory.call().await.ok("{}").await;
    assert_eq!(last.reply().await.status, 200);
    memory.settle().await;
}

#[tokio::test]
async fn an_answer_that_costs_nothing_tells_what_is_left_after_it() {
    let (stand, fake) = gateway("tokens_per_minute = 1\ntoken_burst = 1000").await;
    let ask = Ask::tokens(100, r#","max_tokens":100"#).key(ONE);
    let refusal: &[u8] = br#"{"error":{"message":"no","type":"BadRequestError","code":400}}"#;
    for (status, kind, body) in [
        (400, "application/json", refusal),
        (422, "text/plain", b"no"),
        (503, "application/json", refusal),
        (500, "application/json", refusal),
    ] {
        let mut client = stand.send(&ask).await;
        fake.call().await.answer(status, kind, body).await;
        let reply = client.reply().await;
        let left = reply.header("x-ratelimit-remaining-tokens");
        assert_eq!(left, Some("1000"), "{status}: {reply:?}");
        assert_eq!(tokens(&stand).await, (1000, 0));
    }
    let mut client = stand.send(&ask).await;
    fake.call().await.ok("{}").await;
    let reply = client.reply().await;
    let left = reply.header("x-ratelimit-remaining-tokens");
    assert_eq!(left, Some("800"));
    stand.settle().await;
}

#[tokio::test]
async fn what_can_never_pass_the_rate_is_400_with_its_numbers() {
    let (stand, fake) = gateway("tokens_per_minute = 1000").await;
    let never = Ask::tokens(600, r#","max_tokens":500"#).key(ONE);
    let reply = stand.ask(&never).await;
    let error = refused(&reply, 400, "context_length_exceeded", "above_token_burst");
    let message = error["message"].as_str().unwrap();
    let begins = "This model's maximum context length is 1000 tokens";
    assert!(
        message.starts_with(begins) && message.contains("1100"),
        "{message}"
    );
    assert_eq!(error["param"], "prompt");
    // An output nobody asked for is no reason to refuse for good.
    let mut client = stand.send(&Ask::tokens(600, "").key(ONE)).await;
    fake.call().await.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    stand.settle().await;
    fake.check();
}

/// Each way for a request to end, and what it is charged of a prompt of 100.
#[tokio::test]
async fn whatever_ends_a_request_settles_its_charge() {
    // One token a second: what drains meanwhile is lost in the tolerance.
    let (stand, fake) = gateway("tokens_per_minute = 60\ntoken_burst = 100000").await;
    let whole = Ask::tokens(100, r#","max_tokens":900"#).key(ONE);
    let stream = Ask::tokens(100, r#","max_tokens":900,"stream":true"#).key(ONE);
    let mut spent = 0;
    let mut charged = async |expected: u64, what: &str| {
        stand.settle().await;
        let (left, booked) = tokens(&stand).await;
        assert_eq!(booked, 0, "{what}");
        spent += expected;
        let used = 100_000 - left;
        assert!(
            used <= spent && used + 60 >= spent,
            "{what}: {used} of {spent}"
        );
    };
    let mut client = stand.send(&whole).await;
    fake.call()
        .await
        .answer(400, "application/json", b"{\"error\":{}}")
        .await;
    assert_eq!(client.reply().await.status, 400);
    charged(0, "refused by the engine").await;
    let mut client = stand.send(&whole).await;
    fake.call().await.reset();
    assert_eq!(client.reply().await.status, 502);
    charged(0, "failed before any output").await;
    let client = stand.send(&whole).await;
    let call = fake.call().await;
    drop(client);
    call.gone().await;
    charged(100, "left before any output").await;
    let mut client = stand.send(&stream).await;
    let mut call = fake.call().await;
    call.stream().await;
    client.stream().await;
    for _ in 0..200 {
        call.chunk(EVENT).await;
    }
    client.payload(200 * EVENT.len()).await;
    call.reset();
    client.0.rest().await;
    charged(300, "cut by the engine after 200 tokens").await;
    fake.check();
}

#[tokio::test]
async fn a_stream_that_its_client_leaves_costs_its_prompt_and_what_it_was_given() {
    let (stand, fake) = gateway("tokens_per_minute = 60\ntoken_burst = 100000").await;
    let ask = Ask::tokens(2000, r#","max_tokens":4000,"stream":true"#).key(ONE);
    let mut client = stand.send(&ask).await;
    let mut call = fake.call().await;
    call.stream().await;
    client.stream().await;
    assert_eq!(tokens(&stand).await.1, 6000);
    for _ in 0..500 {
        call.chunk(EVENT).await;
    }
    client.payload(500 * EVENT.len()).await;
    drop(client);
    call.gone().await;
    stand.settle().await;
    let (left, booked) = tokens(&stand).await;
    let used = 100_000 - left;
    assert_eq!(booked, 0);
    assert!((2250..=2750).contains(&used), "{used}");
    fake.check();
}

/// Bodies of every route that takes JSON, of more than one token each.
fn body(route: Route) -> &'static str {
    match route {
        Route::ChatCompletions | Route::Messages | Route::CountTokens => {
            r#"{"model":"tiny","messages":[{"role":"user","content":"hi"}],"max_tokens":5}"#
        }
        Route::Completions => r#"{"model":"tiny","prompt":[1,2,3],"max_tokens":5}"#,
        Route::Tokenize => r#"{"model":"tiny","prompt":"one two"}"#,
        Route::Detokenize => r#"{"model":"tiny","tokens":[7,8,9]}"#,
        Route::Score => r#"{"model":"tiny","queries":"q","documents":["one","two"]}"#,
        Route::Rerank => r#"{"model":"tiny","query":"q","documents":["one","two"]}"#,
        _ => r#"{"model":"tiny","input":[7,7,7,7]}"#,
    }
}

#[tokio::test]
async fn every_route_there_is_counts_towards_the_rates() {
    let limits = "requests_per_minute = 1\nrequest_burst = 1\nmodels = [\"tiny\"]";
    let (stand, fake) = gateway(limits).await;
    assert_eq!(
        stand.ask(&Ask::get("/v1/models").key(ONE)).await.status,
        200
    );
    for (path, route) in Route::served() {
        for path in [path.to_owned(), format!("{path}?stream=true")] {
            let ask = match route.allow() {
                "GET" => Ask::get(&path),
                _ => Ask::post(&path, body(route)),
            };
            let reply = stand.ask(&ask.key(ONE)).await;
            assert_eq!(reply.status, 429, "{path}");
            assert_eq!(
                reply.header("x-tidegate-reason"),
                Some("tenant_request_rate"),
                "{path}"
            );
        }
    }
    stand.settle().await;
    let (tight, fakes) = gateway("tokens_per_minute = 1").await;
    let forms = |route: &Route| route.takes_form() || *route == Route::Models;
    for (path, route) in Route::served().filter(|(_, route)| !forms(route)) {
        let reply = tight.ask(&Ask::post(path, body(route)).key(ONE)).await;
        assert_eq!(reply.status, 400, "{path}: {}", reply.text());
        assert_eq!(
            reply.header("x-tidegate-reason"),
            Some("above_token_burst"),
            "{path}"
        );
    }
    tight.settle().await;
    fake.check();
    fakes.check();
}

#[tokio::test]
async fn forged_requests_charge_nobody() {
    let fake = Fake::start(large()).await;
    let limits = "requests_per_minute = 60\nrequest_burst = 5000\ntokens_per_minute = 60";
    let setup = Setup::tiny(&[fake.backend("a")])
        .set("auth.max_failed_keys", "20")
        .tenant("one", ONE, limits);
    let stand = Stand::start(&setup).await;
    assert_eq!(
        stand.ask(&Ask::get("/v1/models").key(ONE)).await.status,
        200
    );
    let mut statuses = [0, 0];
    for guess in 0..1000 {
        let forged = Ask::tokens(10, "")
            .key(&format!("{}{guess}", &ONE[..12]))
            .header("x-tenant-id", "one");
        match stand.ask(&forged).await.status {
            401 => statuses[0] += 1,
            429 => statuses[1] += 1,
            other => panic!("{other}"),
        }
    }
    assert_eq!(statuses, [20, 980]);
    let one = &stand.state().await["tenants"][0];
    assert!(
        one["requests"]["remaining"].as_u64().unwrap() >= 4999,
        "{one}"
    );
    assert_eq!(one["tokens"]["remaining"], 60);
    // The tenant itself was seen from here before and is let in.
    assert_eq!(
        stand.ask(&Ask::get("/v1/models").key(ONE)).await.status,
        200
    );
    stand.settle().await;
    fake.check();
}
