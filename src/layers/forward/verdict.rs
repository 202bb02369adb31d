//! What may be passed on of an answer, by its head.
//!
//! Decides whether an answer is the engine's own word, to be relayed byte for
//! byte, or something no client of ours could read: a page of a proxy, a
//! redirect, an empty error. Never changes a byte of what it lets through.
//! Invariant: what a client gets is a success of the engine, JSON, or ours.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{StatusCode, response};
use http_body::Body;
use http_body_util::{BodyExt, Limited};
use serde::de::IgnoredAny;

use crate::protocol::request::{Stream, StreamUsage};
use crate::protocol::{Code, Dialect, ErrorBody, Route, ScanMode, WorkKind};

use crate::layers::relay::Kind;

/// Largest error of an engine that is passed on, in bytes; they have some hundred.
const MAX_ERROR: usize = 256 * 1024;
/// Longest wait for the rest of an error.
const ERROR_TIME: Duration = Duration::from_secs(5);

/// What becomes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is relayed as it comes.
    Relayed(Kind),
    /// It passes if it turns out to be JSON.
    Failure,
    /// Nothing of it passes.
    Unreadable,
}

/// What a route was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) route: Route,
    pub(super) stream: Stream,
}

/// The answer's essence of a media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Media {
    Json,
    Events,
    Other,
    /// None is told.
    Unsaid,
}

/// What becomes of the answer with this head, of which `body` was not read.
pub(super) fn verdict<B: Body>(head: &response::Parts, body: &B, asked: Asked) -> Verdict {
    let media = media(&head.headers);
    let status = head.status;
    if status.is_success() {
        return success(&head.headers, media, asked);
    }
    if status.is_server_error() {
        return Verdict::Failure;
    }
    // A redirect is the engine's address book, and nothing for a client.
    let is_readable = media == Media::Json && !body.is_end_stream();
    match status.is_client_error() && is_readable {
        true => Verdict::Relayed(Kind::Refusal),
        false => Verdict::Unreadable,
    }
}

fn success(headers: &HeaderMap, media: Media, asked: Asked) -> Verdict {
    // What generates tokens answers in JSON or events; poolers have other forms.
    let generates = asked.route.work() == WorkKind::Generate && !asked.route.takes_form();
    if is_page(headers) || (generates && media == Media::Other) {
        return Verdict::Unreadable;
    }
    let is_plain = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    let is_encoded = !headers.get_all(CONTENT_ENCODING).iter().all(is_plain);
    if media != Media::Events || is_encoded {
        return Verdict::Relayed(Kind::Whole);
    }
    let unasked = Stream::Events {
        usage: StreamUsage::NotAsked,
    };
    Verdict::Relayed(Kind::Events(match asked.route.dialect() {
        Dialect::Responses => ScanMode::Responses,
        Dialect::Messages => ScanMode::Messages,
        Dialect::OpenAi if asked.stream == unasked => ScanMode::StripUsage,
        Dialect::OpenAi => ScanMode::Observe,
    }))
}

/// The whole body of a failure where it is JSON and comes soon.
pub(super) async fn failure_text<B>(body: B) -> Option<Bytes>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let reading = Limited::new(body, MAX_ERROR).collect();
    let read = tokio::time::timeout(ERROR_TIME, reading).await.ok()?;
    let text = read.ok()?.to_bytes();
    serde_json::from_slice::<IgnoredAny>(&text).ok()?;
    Some(text)
}

/// Whether a 404 says that the engine does not serve the model, in either shape
/// an engine writes it.
pub(super) fn denies_model(text: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Answer {
        error: Told,
    }
    #[derive(serde::Deserialize)]
    struct Told {
        message: String,
        r#type: String,
    }
    serde_json::from_slice::<Answer>(text).is_ok_and(|Answer { error }| {
        let denies =
            error.message.starts_with("The model `") && error.message.contains("` does not exist");
        denies && error.r#type == "NotFoundError"
    })
}

/// What stands in for a refusal that cannot be read.
pub(super) fn stand_in(status: StatusCode, dialect: Dialect) -> Bytes {
    let text = format!(
        "The backend refused the request with status {} and no reason.",
        status.as_u16()
    );
    ErrorBody::new(Code::UpstreamFailed, text).to_json(dialect)
}

fn essence(headers: &HeaderMap) -> Option<&[u8]> {
    let said = headers.get(CONTENT_TYPE)?.as_bytes();
    said.split(|byte| *byte == b';')
        .next()
        .map(<[u8]>::trim_ascii)
}

fn media(headers: &HeaderMap) -> Media {
    let Some(essence) = essence(headers) else {
        return Media::Unsaid;
    };
    let essence = essence.to_ascii_lowercase();
    match essence.as_slice() {
        b"text/event-stream" => Media::Events,
        b"application/json" => Media::Json,
        other if other.ends_with(b"+json") => Media::Json,
        _ => Media::Other,
    }
}

fn is_page(headers: &HeaderMap) -> bool {
    essence(headers).is_some_and(|essence| {
        [&b"text/html"[..], b"application/xhtml+xml"]
            .iter()
            .any(|page| essence.eq_ignore_ascii_case(page))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Response;
    use http_body_util::{Empty, Full};

    #[test]
    fn an_engine_that_denies_the_model_is_understood_in_both_its_shapes() {
        for text in [
            r#"{"error":{"message":"The model `m` does not exist.","type":"NotFoundError","param":null,"code":404}}"#,
            r#"{"type":"error","error":{"type":"NotFoundError","message":"The model `m` does not exist. Valid aliases: tiny."}}"#,
        ] {
            assert!(denies_model(text.as_bytes()), "{text}");
        }
        for text in [
            "{}",
            r#"{"detail":"Not Found"}"#,
            r#"{"error":{"message":"Response `r` does not exist.","type":"NotFoundError"}}"#,
            r#"{"error":{"message":"The model `m` does not exist","type":"BadRequestError"}}"#,
        ] {
            assert!(!denies_model(text.as_bytes()), "{text}");
        }
    }

    const CHAT: Asked = Asked {
        route: Route::ChatCompletions,
        stream: Stream::Once,
    };

    fn of(status: u16, media: &str, asked: Asked) -> Verdict {
        let answer = Response::builder().status(status);
        let answer = match media {
            "" => answer,
            media => answer.header(CONTENT_TYPE, media),
        };
        let (head, body) = answer
            .body(Full::new(Bytes::from_static(b"x")))
            .unwrap()
            .into_parts();
        verdict(&head, &body, asked)
    }

    #[test]
    fn only_json_and_events_of_an_engine_pass() {
        let whole = Verdict::Relayed(Kind::Whole);
        let refusal = Verdict::Relayed(Kind::Refusal);
        for (status, media, expected) in [
            (200, "application/json", whole),
            (200, "Application/JSON; charset=utf-8", whole),
            (200, "", whole),
            (200, "text/html", Verdict::Unreadable),
            (200, "text/plain", Verdict::Unreadable),
            (301, "application/json", Verdict::Unreadable),
            (304, "", Verdict::Unreadable),
            (400, "application/json", refusal),
            (422, "application/problem+json", refusal),
            (404, "text/html", Verdict::Unreadable),
            (400, "text/plain; charset=utf-8", Verdict::Unreadable),
            (500, "application/json", Verdict::Failure),
            (502, "text/html", Verdict::Failure),
            (503, "", Verdict::Failure),
        ] {
            assert_eq!(of(status, media, CHAT), expected, "{status} {media}");
        }
        let (head, ()) = Response::builder()
            .status(404)
            .header(CONTENT_TYPE, "application/json")
            .body(())
            .unwrap()
            .into_parts();
        let empty = Empty::<Bytes>::new();
        assert_eq!(verdict(&head, &empty, CHAT), Verdict::Unreadable);
    }

    #[test]
    fn a_pooler_may_answer_in_bytes_but_not_in_pages() {
        let pooling = Asked {
            route: Route::Pooling,
            stream: Stream::Once,
        };
        let bytes = of(200, "application/octet-stream", pooling);
        assert_eq!(bytes, Verdict::Relayed(Kind::Whole));
        assert_eq!(of(200, "text/html", pooling), Verdict::Unreadable);
    }

    #[test]
    fn an_encoded_stream_is_passed_on_unread() {
        let (head, ()) = Response::builder()
            .header(CONTENT_TYPE, "text/event-stream")
            .header(CONTENT_ENCODING, "gzip")
            .body(())
            .unwrap()
            .into_parts();
        let body = Full::new(Bytes::from_static(b"\x1f\x8b"));
        let whole = Verdict::Relayed(Kind::Whole);
        assert_eq!(verdict(&head, &body, CHAT), whole);
    }

    #[tokio::test]
    async fn a_failure_passes_only_as_json() {
        let text =
            |text: &'static str| failure_text(Full::new(Bytes::from_static(text.as_bytes())));
        assert_eq!(text("{\"error\":1}").await.unwrap(), "{\"error\":1}");
        for text in [text("<html>").await, text("").await, text("{\"err").await] {
            assert_eq!(text, None);
        }
        let huge = Bytes::from(vec![b' '; MAX_ERROR + 1]);
        assert_eq!(failure_text(Full::new(huge)).await, None);
    }
}
