//! What a connection may do: be used again, send in pieces, ask first.

use crate::support::client::{Ask, Client};
use crate::support::fake::{Fake, FakeSpec, LinkEnd};
use crate::support::refusal::refused;
use crate::support::setup::Setup;
use crate::support::stand::Stand;
use crate::support::wire::Ending;

const ANSWER: &str = r#"{"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":1}}"#;

async fn gateway() -> (Stand, Fake) {
    let fake = Fake::start(FakeSpec::default()).await;
    let stand = Stand::start(&Setup::tiny(&[fake.backend("a")])).await;
    (stand, fake)
}

#[tokio::test]
async fn a_connection_serves_one_request_after_another_of_every_kind() {
    let (stand, fake) = gateway().await;
    let mut client = Client::connect(stand.addr()).await;
    for _ in 0..3 {
        client.send(&Ask::tokens(4, r#","max_tokens":1"#)).await;
        fake.call().await.ok(ANSWER).await;
        assert_eq!(client.reply().await.text(), ANSWER);
        client.send(&Ask::chat(r#","stream":true"#)).await;
        let mut call = fake.call().await;
        call.stream().await;
        call.chunk(b"data: [DONE]\n\n").await;
        call.end().await;
        let reply = client.reply().await;
        assert_eq!(reply.text(), "data: [DONE]\n\n");
        assert_eq!(reply.ending, Ending::Whole);
        let reply = client.ask(&Ask::get("/v1/nothing")).await;
        refused(&reply, 404, "not_found", "unknown_route");
        let reply = client.ask(&Ask::get("/v1/models")).await;
        assert_eq!(reply.json()["data"][0]["id"], "tiny");
    }
    assert_eq!(stand.settle().await["finished"], 6);
    fake.check();
}

#[tokio::test]
async fn requests_sent_ahead_are_answered_in_their_order() {
    let (stand, fake) = gateway().await;
    let mut client = Client::connect(stand.addr()).await;
    let asks = [2, 3, 4].map(|prompt| Ask::tokens(prompt, r#","max_tokens":1"#).bytes());
    client.0.send(&asks.concat()).await.unwrap();
    for prompt in [2, 3, 4] {
        let call = fake.call().await;
        let length = call.json()["prompt"].as_array().unwrap().len();
        assert_eq!(length, prompt);
        call.ok(&format!("{{\"n\":{prompt}}}")).await;
        let reply = client.reply().await;
        assert_eq!(reply.json()["n"], prompt);
    }
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn a_chunked_body_is_read_whole_and_sent_on_with_a_length() {
    let (stand, fake) = gateway().await;
    let ask = Ask::tokens(40, r#","max_tokens":1"#);
    for size in [1, 13, 10_000] {
        let mut client = Client::connect(stand.addr()).await;
        client.0.send(&ask.chunked(size)).await.unwrap();
        let call = fake.call().await;
        assert_eq!(call.body, ask.body());
        assert_eq!(call.head.get("transfer-encoding"), None);
        let length = ask.body().len().to_string();
        assert_eq!(call.head.get("content-length"), Some(length.as_str()));
        call.ok(ANSWER).await;
        assert_eq!(client.reply().await.text(), ANSWER);
    }
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn a_request_that_comes_byte_by_byte_is_a_request() {
    let (stand, fake) = gateway().await;
    let mut client = Client::connect(stand.addr()).await;
    for byte in Ask::tokens(4, r#","max_tokens":1"#).bytes() {
        client.0.send(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    fake.call().await.ok(ANSWER).await;
    assert_eq!(client.reply().await.text(), ANSWER);
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn a_client_that_asks_first_is_told_to_go_on_or_why_not() {
    let (stand, fake) = gateway().await;
    let ask = Ask::tokens(4, r#","max_tokens":1"#).header("expect", "100-continue");
    let bytes = ask.bytes();
    let head = bytes.len() - ask.body().len();
    let mut client = Client::connect(stand.addr()).await;
    client.0.send(&bytes[..head]).await.unwrap();
    assert_eq!(client.0.head().await.unwrap().line, "HTTP/1.1 100 Continue");
    client.0.send(&bytes[head..]).await.unwrap();
    let call = fake.call().await;
    assert_eq!(call.head.get("expect"), None);
    call.ok(ANSWER).await;
    assert_eq!(client.reply().await.text(), ANSWER);
    // A refusal that needs no body comes instead of the go-ahead.
    let encoded = ask.header("content-encoding", "br");
    let bytes = encoded.bytes();
    let mut client = Client::connect(stand.addr()).await;
    client
        .0
        .send(&bytes[..bytes.len() - encoded.body().len()])
        .await
        .unwrap();
    let reply = client.reply().await;
    refused(&reply, 415, "unsupported_encoding", "unsupported_encoding");
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn what_two_readers_could_see_as_two_requests_reaches_no_engine() {
    let (stand, fake) = gateway().await;
    let smuggled = [
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\ncontent-length: 5\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: +10\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 0x0A\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 111111111111111111111111111111\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked, x\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nhost : x\r\n\r\n",
    ];
    for request in smuggled {
        let mut client = Client::connect(stand.addr()).await;
        client.0.send(request.as_bytes()).await.unwrap();
        let head = client.0.head().await.unwrap();
        assert_eq!(head.second_word(), "400", "{request}");
    }
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn headers_of_a_connection_go_no_further_in_either_direction() {
    let (stand, fake) = gateway().await;
    let ask = Ask::tokens(4, "")
        .header("connection", "x-hop")
        .header("x-hop", "1")
        .header("te", "trailers")
        .header("accept-encoding", "gzip")
        .header("proxy-authorization", "Basic c2VjcmV0");
    let mut client = stand.send(&ask).await;
    let mut call = fake.call().await;
    for name in ["x-hop", "te", "accept-encoding", "proxy-authorization"] {
        assert_eq!(call.head.get(name), None, "{name}");
    }
    call.say(
        b"HTTP/1.1 200 OK\r\nkeep-alive: timeout=5\r\nconnection: x-back\r\nx-back: 1\r\n\
          x-request-id: the-engines\r\nserver: uvicorn\r\ncontent-type: application/json\r\n\
          content-length: 2\r\n\r\n{}",
    )
    .await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.text()), (200, "{}"));
    for name in ["keep-alive", "x-back"] {
        assert_eq!(reply.header(name), None, "{name}");
    }
    assert!(reply.header("x-request-id").unwrap().starts_with("req-"));
    assert_eq!(reply.header("server"), Some("uvicorn"));
    call.hand_back();
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn an_idle_connection_to_an_engine_is_closed_in_order() {
    let fake = Fake::start(FakeSpec::default()).await;
    let setup = Setup::tiny(&[fake.backend("a")])
        .set("upstream.pool_idle_timeout", "\"100ms\"")
        .set("probe.interval", "\"60s\"")
        .set("probe.stale_after", "\"300s\"");
    let stand = Stand::start(&setup).await;
    let mut client = stand.send(&Ask::tokens(4, "")).await;
    fake.call().await.ok(ANSWER).await;
    assert_eq!(client.reply().await.status, 200);
    fake.until(|fake| fake.open_links() == 0).await;
    let ends = fake.links().into_iter().filter_map(|link| link.ended);
    assert!(ends.clone().count() > 0);
    for (_, end) in ends {
        assert_eq!(end, LinkEnd::Closed);
    }
    stand.settle().await;
    fake.check();
}
