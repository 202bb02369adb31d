//! Answers that go well: bytes, headers, and the few documented edits.

use serde_json::Value;

use crate::support::client::{Ask, tokens_body};
use crate::support::fake::{Fake, FakeSpec};
use crate::support::setup::Setup;
use crate::support::stand::Stand;

const PLAIN: &str = "{\"id\":\"c-1\",  \"choices\":[{\"index\":0,\"text\":\" x\\u00e9 \u{1f600}\",\"finish_reason\":\"length\"}],\n\"usage\":{\"prompt_tokens\":20,\"total_tokens\":24,\"completion_tokens\":4}}\n";

/// Events with everything that is legal and odd: a comment, CRLF, several
/// lines of data, a field nobody knows, text outside ASCII.
const EVENTS: &str = ": warming up\n\n\
data: {\"id\":\"c-1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"h\u{e9}\"},\"finish_reason\":null}]}\n\n\
event: x\r\nid: 7\r\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" \\n\\n\"},\"finish_reason\":null}]}\r\n\r\n\
retry: 10\ndata:{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const USAGE: &str = "data: {\"id\":\"c-1\",\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"total_tokens\":12,\"completion_tokens\":2}}\n\n";
const DONE: &str = "data: [DONE]\n\n";

/// A gateway before one scripted engine.
async fn one() -> (Stand, Fake) {
    with(|setup| setup).await
}

async fn with(change: impl FnOnce(Setup) -> Setup) -> (Stand, Fake) {
    let fake = Fake::start(FakeSpec::default()).await;
    let setup = change(Setup::tiny(&[fake.backend("a")]));
    (Stand::start(&setup).await, fake)
}

#[tokio::test]
async fn a_plain_answer_is_the_engines_own_bytes_with_what_we_know_in_headers() {
    let (stand, fake) = one().await;
    let mut client = stand.send(&Ask::tokens(20, r#","max_tokens":4"#)).await;
    fake.call().await.ok(PLAIN).await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.text()), (200, PLAIN));
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.header("x-tidegate-prompt-tokens"), Some("20;exact"));
    assert_eq!(reply.header("x-tidegate-tier"), Some("standard"));
    assert_eq!(reply.header("x-tidegate-queue-ms"), Some("0"));
    assert_eq!(reply.header("x-tidegate-backend"), Some("a"));
    assert_eq!(reply.header("x-tidegate-max-tokens"), None);
    assert_eq!(reply.header("x-tidegate-reason"), None);
    assert!(reply.header("x-request-id").unwrap().starts_with("req-"));
    assert_eq!(stand.settle().await["finished"], 1);
    let pool = stand.pool().await;
    assert_eq!(pool["tenants"][0]["served_tokens"], 24);
    fake.check();
}

#[tokio::test]
async fn a_stream_is_the_engines_own_bytes_in_whatever_pieces_they_come() {
    let (stand, fake) = one().await;
    let asked = r#","max_tokens":4,"stream":true,"stream_options":{"include_usage":true}"#;
    let all = [EVENTS, USAGE, DONE].concat();
    for size in [1, 7, 64, 100_000] {
        let mut client = stand.send(&Ask::chat(asked)).await;
        let mut call = fake.call().await;
        call.stream().await;
        let head = client.stream().await;
        let media = head.get("content-type");
        assert_eq!(media, Some("text/event-stream; charset=utf-8"));
        assert_eq!(head.get("content-length"), None);
        assert_eq!(head.get("x-tidegate-prompt-tokens"), Some("10;exact"));
        assert_eq!(head.get("x-tidegate-backend"), Some("a"));
        for piece in all.as_bytes().chunks(size) {
            call.chunk(piece).await;
        }
        call.end().await;
        let (body, _) = client.0.body(&head).await;
        assert_eq!(String::from_utf8(body).unwrap(), all, "pieces of {size}");
    }
    assert_eq!(stand.settle().await["finished"], 4);
    assert_eq!(stand.pool().await["tenants"][0]["served_tokens"], 48);
    fake.check();
}

#[tokio::test]
async fn each_event_passes_as_soon_as_it_is_there() {
    let (stand, fake) = one().await;
    let mut client = stand.send(&Ask::chat(r#","stream":true"#)).await;
    let mut call = fake.call().await;
    call.stream().await;
    client.stream().await;
    for event in EVENTS.split_inclusive("\n\n") {
        call.chunk(event.as_bytes()).await;
        assert_eq!(client.payload(event.len()).await, event.as_bytes());
    }
    call.chunk(DONE.as_bytes()).await;
    assert_eq!(client.payload(DONE.len()).await, DONE.as_bytes());
    call.end().await;
    assert_eq!(client.0.chunk().await, Ok(None));
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn usage_nobody_asked_for_is_asked_upstream_and_taken_out_again() {
    let (stand, fake) = one().await;
    let cases = [
        r#","stream":true"#,
        r#","stream":true,"stream_options":null"#,
        r#","stream":true,"stream_options":{}"#,
        r#","stream":true,"stream_options":{"include_usage":false}"#,
    ];
    for rest in cases {
        let mut client = stand.send(&Ask::chat(rest)).await;
        let mut call = fake.call().await;
        assert_eq!(call.json()["stream_options"]["include_usage"], true);
        call.stream().await;
        let head = client.stream().await;
        for piece in [EVENTS, USAGE, DONE].concat().as_bytes().chunks(5) {
            call.chunk(piece).await;
        }
        call.end().await;
        let (body, _) = client.0.body(&head).await;
        let expected = [EVENTS, DONE].concat();
        assert_eq!(String::from_utf8(body).unwrap(), expected, "{rest}");
    }
    // It was read on its way: the books know what the engine used.
    stand.settle().await;
    assert_eq!(stand.pool().await["tenants"][0]["served_tokens"], 48);
    fake.check();
}

#[tokio::test]
async fn a_body_without_edits_arrives_byte_for_byte() {
    let (stand, fake) = one().await;
    let body = "\u{feff} {\n  \"max_tokens\" : 4.0 ,\t\"prompt\":\"caf\\u00e9 \u{1f600}\",\"model\":\"tiny\",\"x\":{\"max_tokens\":9},\"big\":12345678901234567890123,\"logit_bias\":{\"1\":-100.50}} \n";
    let mut client = stand.send(&Ask::post("/v1/completions", body)).await;
    let call = fake.call().await;
    assert_eq!(call.head.second_word(), "/v1/completions");
    assert_eq!(String::from_utf8(call.body.clone()).unwrap(), body);
    assert_eq!(call.head.get("content-type"), Some("application/json"));
    call.ok(PLAIN).await;
    assert_eq!(client.reply().await.text(), PLAIN);
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn an_open_output_is_bounded_and_the_answer_says_so() {
    let (stand, fake) = with(|s| s.anonymous("max_output_tokens = 300")).await;
    // 10 tokens of prompt leave more than the tenant may have.
    let mut client = stand.send(&Ask::chat("")).await;
    let call = fake.call().await;
    let json = call.json();
    let bound = json["max_tokens"]
        .as_u64()
        .or(json["max_completion_tokens"].as_u64());
    assert_eq!(bound, Some(300), "{json}");
    call.ok("{}").await;
    let reply = client.reply().await;
    assert_eq!(reply.header("x-tidegate-max-tokens"), Some("300"));
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn an_asked_output_that_is_too_large_is_clamped_in_the_body_and_said() {
    let (stand, fake) = one().await;
    let ask = Ask::tokens(24, r#","temperature":0,"max_tokens":1024,"seed":1"#);
    let mut client = stand.send(&ask).await;
    let call = fake.call().await;
    let expected = tokens_body("tiny", 24, r#","temperature":0,"max_tokens":1000,"seed":1"#);
    assert_eq!(String::from_utf8(call.body.clone()).unwrap(), expected);
    call.ok("{}").await;
    let reply = client.reply().await;
    assert_eq!(reply.header("x-tidegate-max-tokens"), Some("1000"));
    assert_eq!(reply.header("x-tidegate-prompt-tokens"), Some("24;exact"));
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn a_client_chooses_neither_its_priority_nor_the_engines_request_id() {
    let (stand, fake) = with(|s| s.anonymous("priority = 7")).await;
    let ask = Ask::tokens(4, r#","priority":-5,"request_id":"mine","max_tokens":1"#);
    for _ in 0..2 {
        let mut client = stand
            .send(&ask.clone().header("x-request-id", "same"))
            .await;
        let call = fake.call().await;
        let json = call.json();
        assert_eq!(
            (&json["priority"], &json["request_id"]),
            (&7.into(), &Value::Null)
        );
        // Engines before 0.14 fail on two requests of one id.
        let id = call.head.get("x-request-id").unwrap();
        assert!(id.starts_with("same-") && id.len() == 13, "{id}");
        call.ok("{}").await;
        assert_eq!(client.reply().await.header("x-request-id"), Some("same"));
    }
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn an_engines_refusal_passes_untouched_and_blames_nobody() {
    let (stand, fake) = one().await;
    let body =
        r#"{"error":{"message":"no such thing","type":"BadRequestError","param":null,"code":400}}"#;
    for status in [400, 404, 422] {
        let mut client = stand.send(&Ask::tokens(4, r#","max_tokens":1"#)).await;
        fake.call()
            .await
            .answer(status, "application/json", body.as_bytes())
            .await;
        let reply = client.reply().await;
        assert_eq!((reply.status, reply.text()), (status, body));
        assert_eq!(reply.header("x-tidegate-reason"), None);
        assert_eq!(reply.header("retry-after"), None);
    }
    assert_eq!(stand.settle().await["failed"], 0);
    assert_eq!(stand.pool().await["backends"][0]["state"], "up");
    fake.check();
}

#[tokio::test]
async fn an_engine_that_sheds_is_relayed_with_a_time_to_come_back() {
    let (stand, fake) = one().await;
    let mut client = stand.send(&Ask::tokens(4, r#","max_tokens":1"#)).await;
    fake.call()
        .await
        .answer(503, "application/json", b"{\"error\":{}}")
        .await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.text()), (503, "{\"error\":{}}"));
    assert_eq!(reply.header("retry-after"), Some("1"));
    let totals = stand.settle().await;
    assert_eq!(totals["failed"], 0, "overflow is no failure: {totals}");
    assert_eq!(stand.pool().await["backends"][0]["state"], "degraded");
    fake.check();
}

#[tokio::test]
async fn an_answer_without_a_body_gives_its_memory_back() {
    let (stand, fake) = one().await;
    // An error without a word is told in ours.
    for (status, expected) in [(200, (200, true)), (400, (400, false)), (500, (502, false))] {
        let mut client = stand.send(&Ask::tokens(500, r#","max_tokens":500"#)).await;
        fake.call()
            .await
            .answer(status, "application/json", b"")
            .await;
        let reply = client.reply().await;
        assert_eq!((reply.status, reply.body.is_empty()), expected);
    }
    assert_eq!(stand.settle().await["admitted"], 3);
    fake.check();
}

#[tokio::test]
async fn the_engine_counts_a_chat_exactly_as_it_was_asked() {
    let (stand, fake) = one().await;
    let rest = r#","tools":[{"type":"function","function":{"name":"f"}}],"chat_template_kwargs":{"enable_thinking":false},"max_tokens":1"#;
    let mut client = stand.send(&Ask::chat(rest)).await;
    fake.call().await.ok("{}").await;
    let reply = client.reply().await;
    assert_eq!(reply.header("x-tidegate-prompt-tokens"), Some("10;exact"));
    let asked = fake.tokenized().pop().unwrap();
    assert_eq!(asked["messages"][0]["content"], "hi");
    assert_eq!(asked["tools"][0]["function"]["name"], "f");
    assert_eq!(asked["chat_template_kwargs"]["enable_thinking"], false);
    stand.settle().await;
    fake.check();
}
