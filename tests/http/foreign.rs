//! Answers that are not an engine's: pages, redirects, errors without a word or
//! in another shape. A client gets the engine's JSON byte for byte, or ours.

use crate::support::client::{Ask, Reply};
use crate::support::fake::{Fake, FakeSpec};
use crate::support::refusal::refused;
use crate::support::setup::Setup;
use crate::support::stand::Stand;

const ONCE: &str = r#","max_tokens":1"#;
const STREAM: &str = r#","max_tokens":1,"stream":true"#;
const PAGE: &str = "<html>secret-host: 502 Bad Gateway, \"usage\":{\"prompt_tokens\":9}</html>";

async fn gateway() -> (Stand, Fake) {
    let fake = Fake::start(FakeSpec::default()).await;
    (Stand::start(&Setup::tiny(&[fake.backend("a")])).await, fake)
}

/// What a client gets where the engine answers `head` and `body`.
async fn relayed((stand, fake): &(Stand, Fake), rest: &str, (head, body): (&str, &str)) -> Reply {
    let mut client = stand.send(&Ask::tokens(4, rest)).await;
    let mut call = fake.call().await;
    let length = body.len();
    let said = format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\n\r\n{body}");
    call.say(said.as_bytes()).await;
    let reply = client.reply().await;
    call.hand_back();
    reply
}

const JSON: &str = "\r\ncontent-type: application/json";

#[tokio::test]
async fn an_error_of_the_engine_passes_byte_for_byte_whatever_its_shape() {
    let both = gateway().await;
    let bodies = [
        r#"{"error":{"message":"top_p must be in (0, 1]","type":"BadRequestError","param":"top_p","code":400}}"#,
        r#"{"error":{"message":"m","type":"BadRequestError","param":null,"code":"x"}}"#,
        r#"{"error":{"message":"m","type":"BadRequestError","code":null}}"#,
        r#"{ "error" : {"message":"m"} }"#,
        r#"{"object":"error","message":"old","type":"BadRequestError","param":null,"code":400}"#,
        r#"{"detail":[{"loc":["body","x"],"msg":"field required"}]}"#,
    ];
    for body in bodies {
        for (status, rest) in [("400", ONCE), ("422", STREAM), ("404", ONCE)] {
            let reply = relayed(&both, rest, (&format!("{status} X{JSON}"), body)).await;
            assert_eq!(
                (reply.status.to_string().as_str(), reply.text()),
                (status, body)
            );
            assert_eq!(reply.header("content-type"), Some("application/json"));
            assert_eq!(reply.header("x-tidegate-reason"), None);
        }
    }
    let totals = both.0.settle().await;
    assert_eq!(
        (&totals["finished"], &totals["failed"]),
        (&18.into(), &0.into())
    );
    both.1.check();
}

#[tokio::test]
async fn a_failure_in_json_passes_and_any_other_is_told_in_our_words() {
    let both = gateway().await;
    let own = r#"{"error":{"message":"EngineCore died","code":500}}"#;
    let reply = relayed(&both, ONCE, (&format!("500 X{JSON}"), own)).await;
    assert_eq!((reply.status, reply.text()), (500, own));
    let odd = [
        ("502 X\r\ncontent-type: text/html", PAGE),
        (&format!("500 X{JSON}"), ""),
        (&format!("500 X{JSON}"), PAGE),
        ("500 X", ""),
        ("599 X\r\ncontent-type: text/plain", "oops"),
    ];
    let page = ("504 X\r\ncontent-type: text/html", PAGE);
    let reply = relayed(&both, ONCE, page).await;
    refused(&reply, 504, "upstream_timeout", "upstream_timeout");
    assert_eq!(both.0.settle().await["failed"], 2);
    both.1.check();
    for (head, body) in odd {
        // More failures in a row would take the engine out.
        let both = gateway().await;
        for rest in [ONCE, STREAM] {
            let reply = relayed(&both, rest, (head, body)).await;
            let error = refused(&reply, 502, "upstream_failed", "upstream_failed");
            assert_eq!(error["type"], "upstream_failed");
            assert!(!reply.text().contains("secret"), "{}", reply.text());
        }
        let totals = both.0.settle().await;
        assert_eq!(
            (&totals["finished"], &totals["failed"]),
            (&0.into(), &2.into())
        );
        both.1.check();
    }
}

#[tokio::test]
async fn a_refusal_without_json_keeps_its_status_and_gets_words() {
    let both = gateway().await;
    for (head, body) in [
        (
            "404 X\r\ncontent-type: text/html\r\nset-cookie: secret-1",
            PAGE,
        ),
        ("413 X\r\ncontent-type: text/plain", "too large"),
        (&format!("400 X{JSON}"), ""),
    ] {
        let reply = relayed(&both, ONCE, (head, body)).await;
        assert_eq!(reply.status.to_string(), head[..3]);
        let error = &reply.json()["error"];
        assert_eq!(error["code"], "upstream_failed");
        assert!(error["message"].as_str().unwrap().contains(&head[..3]));
        assert_eq!(reply.header("content-type"), Some("application/json"));
        assert_eq!(reply.header("set-cookie"), None);
    }
    assert_eq!(both.0.settle().await["failed"], 0);
    both.1.check();
}

#[tokio::test]
async fn a_page_with_status_200_is_no_success_and_a_redirect_goes_nowhere() {
    let location = "location: http://secret-host:8000/v1/completions";
    let odd = [
        ("200 X\r\ncontent-type: text/html".to_owned(), PAGE),
        ("200 X\r\ncontent-type: text/plain".to_owned(), PAGE),
        (format!("301 X\r\n{location}"), ""),
        (format!("307 X{JSON}\r\n{location}"), "{}"),
        (format!("304 X\r\n{location}"), ""),
    ];
    for (head, body) in &odd {
        let both = gateway().await;
        for rest in [ONCE, STREAM] {
            let reply = relayed(&both, rest, (head, body)).await;
            refused(&reply, 502, "upstream_failed", "upstream_failed");
            assert_eq!(reply.header("location"), None);
        }
        let totals = both.0.settle().await;
        let ends = (&totals["finished"], &totals["failed"]);
        assert_eq!(ends, (&0.into(), &2.into()));
        // The prompts, as for any failure; nothing that the page says.
        assert_eq!(both.0.pool().await["tenants"][0]["served_tokens"], 8);
        both.1.check();
    }
}

#[tokio::test]
async fn an_engine_that_sheds_with_a_page_is_busy_and_not_broken() {
    let both = gateway().await;
    let page = ("503 X\r\ncontent-type: text/html", PAGE);
    let reply = relayed(&both, STREAM, page).await;
    refused(&reply, 503, "server_busy", "backend_busy");
    assert_eq!(both.0.settle().await["failed"], 0);
    both.1.check();
}

#[tokio::test]
async fn an_encoded_answer_nobody_asked_for_passes_with_its_encoding() {
    let both = gateway().await;
    let head = "200 X\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip";
    let reply = relayed(&both, STREAM, (head, "not really gzip")).await;
    assert_eq!(reply.header("content-encoding"), Some("gzip"));
    assert_eq!((reply.status, reply.text()), (200, "not really gzip"));
    assert_eq!(both.0.settle().await["finished"], 1);
    both.1.check();
}
