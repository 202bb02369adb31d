//! A length or a coding that an answer names is the one it has.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::support::client::{Ask, Client, Reply};
use crate::support::fake::{Fake, FakeSpec};
use crate::support::setup::Setup;
use crate::support::stand::Stand;
use crate::support::wire::Ending;

const ERROR: &str = r#"{"error":{"message":"the temperature is too high","type":"BadRequestError","param":null,"code":400}}"#;
const STREAM: &str = r#","max_tokens":9,"stream":true"#;

async fn gateway() -> (Stand, Fake) {
    let fake = Fake::start(FakeSpec::default()).await;
    let stand = Stand::start(&Setup::tiny(&[fake.backend("a")])).await;
    (stand, fake)
}

/// The body came whole, by a length or by chunks and not by both.
fn is_whole(reply: &Reply) {
    assert_eq!(reply.ending, Ending::Whole);
    let length = reply.header("content-length");
    match reply.header("transfer-encoding") {
        Some(coding) => assert_eq!((coding, length), ("chunked", None)),
        None => assert_eq!(length, Some(reply.body.len().to_string().as_str())),
    }
}

#[tokio::test]
async fn an_answers_length_is_its_own_whatever_was_made_of_it() {
    let (stand, fake) = gateway().await;
    let mut client = Client::connect(stand.addr()).await;
    // An engine's refusal of a stream.
    client.send(&Ask::tokens(4, STREAM)).await;
    let mut call = fake.call().await;
    let head = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        ERROR.len()
    );
    call.say(format!("{head}{ERROR}").as_bytes()).await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.text()), (400, ERROR));
    is_whole(&reply);
    call.hand_back();
    // A stream with a length, of which an event is taken out.
    client.send(&Ask::tokens(4, STREAM)).await;
    let mut call = fake.call().await;
    let events = "data: {\"choices\":[{\"index\":0,\"text\":\"x\"}]}\n\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":1,\"total_tokens\":5}}\n\n\
        data: [DONE]\n\n";
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n",
        events.len()
    );
    call.say(format!("{head}{events}").as_bytes()).await;
    let reply = client.reply().await;
    assert!(!reply.text().contains("usage"), "{}", reply.text());
    assert!(reply.text().ends_with("data: [DONE]\n\n"));
    is_whole(&reply);
    call.hand_back();
    // A page that is no answer becomes one of ours.
    client.send(&Ask::tokens(4, "")).await;
    let mut call = fake.call().await;
    let page = "<html><h1>502 Bad Gateway</h1></html>".repeat(100);
    let head = format!(
        "HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n",
        page.len()
    );
    call.say(format!("{head}{page}").as_bytes()).await;
    let reply = client.reply().await;
    assert_eq!(reply.status, 502);
    assert_eq!(reply.json()["error"]["code"], "upstream_failed");
    is_whole(&reply);
    call.reset();
    // No body at all, and the connection goes on.
    client.send(&Ask::new("HEAD", "/v1/models")).await;
    assert_eq!(client.0.head().await.unwrap().second_word(), "405");
    assert_eq!(client.ask(&Ask::get("/v1/models")).await.status, 200);
    stand.settle().await;
    fake.check();
}

fn gzip(text: &str) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(text.as_bytes()).unwrap();
    packed.finish().unwrap()
}

#[tokio::test]
async fn an_answer_that_comes_packed_unasked_passes_as_it_is() {
    let (stand, fake) = gateway().await;
    let answer = r#"{"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":1}}"#;
    for (status, media, text) in [
        ("200 OK", "application/json", answer),
        ("400 Bad Request", "application/json", ERROR),
        ("200 OK", "text/event-stream", "data: [DONE]\n\n"),
    ] {
        let ask = Ask::tokens(4, STREAM).header("accept-encoding", "gzip");
        let mut client = stand.send(&ask).await;
        let mut call = fake.call().await;
        assert_eq!(call.head.get("accept-encoding"), None);
        let packed = gzip(text);
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {media}\r\ncontent-encoding: gzip\r\n\
             content-length: {}\r\n\r\n",
            packed.len()
        );
        call.say(&[head.as_bytes(), &packed].concat()).await;
        let reply = client.reply().await;
        assert_eq!(reply.header("content-encoding"), Some("gzip"));
        assert_eq!(reply.body, packed, "{media}");
        is_whole(&reply);
        call.hand_back();
    }
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn what_may_crash_an_engine_passes_as_it_is_and_is_told_by_whom() {
    let (stand, fake) = gateway().await;
    let long = format!(r#","guided_regex":"{}""#, "(a|".repeat(1 << 18));
    let schema = r##","response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"$ref":"#"}}}"##;
    for rest in [r#","guided_regex":"[""#, schema, &long] {
        let ask = Ask::chat(rest).header("x-request-id", "the-offender");
        let mut client = stand.send(&ask).await;
        let call = fake.call().await;
        assert!(
            call.body.ends_with(format!("{rest}}}").as_bytes()) || call.json()["model"] == "tiny"
        );
        call.reset();
        let reply = client.reply().await;
        assert_eq!(reply.status, 502);
        assert_eq!(reply.header("x-request-id"), Some("the-offender"));
    }
    stand.settle().await;
    fake.check();
}
