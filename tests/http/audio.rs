//! Speech to text: forms go through byte for byte and are charged by policy.

use crate::support::client::Ask;
use crate::support::fake::{Fake, FakeSpec};
use crate::support::setup::Setup;
use crate::support::stand::Stand;

const PATHS: [&str; 2] = ["/v1/audio/transcriptions", "/v1/audio/translations"];
const MEDIA: &str = "multipart/form-data; boundary=\"--x\"";
const ANSWER: &str = r#"{"text":"hello","usage":{"type":"duration","seconds":3}}"#;

async fn gateway(change: impl FnOnce(Setup) -> Setup) -> (Stand, Fake) {
    let spec = FakeSpec {
        blocks: 1024,
        max_model_len: 4096,
        ..FakeSpec::default()
    };
    let fake = Fake::start(spec).await;
    let setup = change(Setup::tiny(&[fake.backend("a")]));
    (Stand::start(&setup).await, fake)
}

/// A form with these fields and a file of this size.
fn form(path: &str, fields: &[(&str, &str)], size: usize) -> Ask {
    let mut body = Vec::new();
    for (name, value) in fields {
        let part =
            format!("----x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
        body.extend_from_slice(part.as_bytes());
    }
    let file = "----x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.mp3\"\r\n\r\n";
    body.extend_from_slice(file.as_bytes());
    // Not text, not JSON, and like a boundary here and there.
    body.extend(b"\xff\r\n--\0{}\r\n----".iter().cycle().take(size));
    body.extend_from_slice(b"\r\n----x--\r\n");
    Ask::post(path, body).header("content-type", MEDIA)
}

#[tokio::test]
async fn a_form_is_relayed_byte_for_byte_and_charged_by_its_clips() {
    let (stand, fake) = gateway(|setup| setup).await;
    for path in PATHS {
        // 61 seconds at 4,000 bytes: three clips.
        let ask = form(path, &[("model", "tiny"), ("language", "en")], 61 * 4000);
        let mut client = stand.send(&ask).await;
        let call = fake.call().await;
        assert_eq!(call.head.second_word(), path);
        assert_eq!(call.head.get("content-type"), Some(MEDIA));
        assert_eq!(call.body, ask.body());
        let backend = &stand.pool().await["backends"][0];
        assert_eq!(backend["sequences"], 3);
        // Each of 1,500 tokens of audio, 9 of text and 448 of output, less one.
        assert_eq!(backend["held_blocks"], 3 * (1509_u32 + 447).div_ceil(16));
        call.ok(ANSWER).await;
        let reply = client.reply().await;
        assert_eq!((reply.status, reply.text()), (200, ANSWER));
        let tokens = reply.header("x-tidegate-prompt-tokens");
        assert_eq!(tokens, Some("4527;estimated"));
        assert_eq!(reply.header("x-tidegate-max-tokens"), None);
    }
    let totals = stand.settle().await;
    assert_eq!(totals["finished"], 2);
    fake.check();
}

#[tokio::test]
async fn a_streamed_transcript_passes_untouched() {
    let (stand, fake) = gateway(|setup| setup).await;
    let fields = [("stream", "true"), ("max_completion_tokens", "10")];
    let ask = form(PATHS[0], &fields, 10);
    let mut client = stand.send(&ask).await;
    let mut call = fake.call().await;
    assert_eq!(call.body, ask.body());
    call.stream().await;
    let events = b"data: {\"object\":\"transcription.chunk\",\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n\
        data: {\"object\":\"transcription.chunk\",\"choices\":[{\"delta\":{\"content\":\"b\"},\"finish_reason\":\"stop\"}]}\n\n\
        data: [DONE]\n\n";
    call.chunk(events).await;
    call.end().await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.body), (200, events.to_vec()));
    let totals = stand.settle().await;
    assert_eq!(
        (&totals["finished"], &totals["failed"]),
        (&1.into(), &0.into())
    );
    fake.check();
}

#[tokio::test]
async fn what_is_no_form_is_refused_and_limits_hold() {
    let (stand, fake) = gateway(|setup| setup.anonymous("max_prompt_tokens = 1000")).await;
    let model = [("model", "tiny")];
    for path in PATHS {
        let other = stand.ask(&Ask::get(path)).await;
        assert_eq!((other.status, other.header("allow")), (405, Some("POST")));
        let json = stand.ask(&Ask::post(path, "{}")).await;
        assert_eq!(json.status, 415);
        let message = &json.json()["error"]["message"];
        assert_eq!(message, "The content type must be multipart/form-data.");
        let bare = form(path, &model, 9).header("content-type", "multipart/form-data");
        for (odd, status, code) in [
            (bare, 400, "invalid_request"),
            (
                Ask::post(path, "----x--").header("content-type", MEDIA),
                400,
                "invalid_request",
            ),
            (
                form(path, &[("model", "tiny"), ("model", "b")], 9),
                400,
                "invalid_request",
            ),
            (form(path, &[("model", "b")], 9), 404, "model_not_found"),
            (form(path, &model, 9), 400, "context_length_exceeded"),
        ] {
            let reply = stand.ask(&odd).await;
            assert_eq!(reply.status, status, "{}", reply.text());
            assert_eq!(reply.json()["error"]["code"], code, "{}", reply.text());
        }
    }
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn a_form_that_two_readers_read_apart_reaches_no_engine() {
    let (stand, fake) = gateway(|setup| setup).await;
    let plain = form(PATHS[0], &[("model", "tiny"), ("prompt", "a")], 9);
    let text = String::from_utf8_lossy(plain.body()).into_owned();
    let name = "form-data; name=\"prompt\"";
    assert!(text.contains(name), "{text}");
    for (hidden, header) in [
        (
            "form-data; name=\"zz\"; name=\"prompt\"",
            "content-disposition",
        ),
        ("form-data; NAME=\"prompt\"", "content-disposition"),
        (
            "form-data; x=\" name=zz\"; name=\"prompt\"",
            "content-disposition",
        ),
        ("form-data; name=prompt\t;x=1", "content-disposition"),
        (name, "content-type"),
    ] {
        let media = match header {
            "content-type" => "multipart/form-data; boundary=--x; boundary=bbb",
            _ => MEDIA,
        };
        for path in PATHS {
            let odd = Ask::post(path, text.replace(name, hidden)).header("content-type", media);
            let reply = stand.ask(&odd).await;
            assert_eq!(reply.status, 400, "{hidden}");
            let error = &reply.json()["error"];
            assert_eq!(error["code"], "invalid_request", "{error}");
            let said = error["message"].to_string();
            assert!(said.to_lowercase().contains(header), "{said}");
        }
    }
    stand.settle().await;
    fake.check();
}
