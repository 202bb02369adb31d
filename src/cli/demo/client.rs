//! The load's HTTP client: sends one request, reads its stream to the end.
//!
//! Knows no more of the other side than any client would: HTTP/1.1, server-sent events,
//! OpenAI-shaped errors. Never retries. A stream counts as answered only when `[DONE]`
//! has come.

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as Connections;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde_json::Value;
use std::time::Duration;

/// Sends requests; clones share their connections.
#[derive(Clone)]
pub(super) struct Client(Connections<HttpConnector, Full<Bytes>>);

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Answered to the end, with this many output tokens by the server's own count.
    Whole {
        /// `usage.completion_tokens`.
        tokens: u64,
    },
    /// Turned away or failed, with a reason.
    Not(String),
}

/// What is sent.
pub(super) struct Call<'a> {
    /// `http://host:port/path`.
    pub(super) url: String,
    /// API key, if the other side asks for one.
    pub(super) key: Option<&'a str>,
    /// The JSON body.
    pub(super) body: Bytes,
}

/// The reason of a prompt that no context can hold, whoever says so.
pub(super) const TOO_LONG: &str = "context_length_exceeded";

// === impl Client ===

impl Client {
    pub(super) fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let connections = Connections::builder(TokioExecutor::new())
            // Below the 5 s after which an engine closes an idle connection.
            .pool_idle_timeout(Duration::from_secs(4))
            .pool_timer(TokioTimer::new())
            .build(connector);
        Self(connections)
    }

    /// Sends `call`, tells `first` when content begins to come, and reads on to the end.
    /// Dropping the future closes the connection.
    pub(super) async fn ask(&self, call: Call<'_>, first: impl FnOnce()) -> Answer {
        let mut request = Request::post(call.url).header(CONTENT_TYPE, "application/json");
        if let Some(key) = call.key {
            request = request.header(AUTHORIZATION, format!("Bearer {key}"));
        }
        let request = request
            .body(Full::new(call.body))
            .expect("addresses and keys of the demo are valid header values");
        match self.0.request(request).await {
            Ok(response) if response.status() == StatusCode::OK => read(response, first).await,
            Ok(response) => Answer::Not(refusal(response).await),
            Err(_) => Answer::Not("connection_failed".to_owned()),
        }
    }
}

async fn read(response: Response<Incoming>, first: impl FnOnce()) -> Answer {
    let mut body = response.into_body();
    let mut events = Events::default();
    let mut first = Some(first);
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return Answer::Not("stream_cut".to_owned());
        };
        if let Some(data) = frame.data_ref() {
            events.push(data);
        }
        if events.content == Content::Begun
            && let Some(first) = first.take()
        {
            first();
        }
    }
    events.answer()
}

/// The reason in an error answer: its code, or what an engine means by its message.
async fn refusal(response: Response<Incoming>) -> String {
    let status = response.status();
    let body = match response.into_body().collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => return "stream_cut".to_owned(),
    };
    let error: Value = serde_json::from_slice(&body).unwrap_or_default();
    let text = |key: &str| error["error"][key].as_str();
    match (text("code"), text("message")) {
        (Some(code), _) => code.to_owned(),
        (None, Some(message)) if message.starts_with("This model's maximum context length") => {
            TOO_LONG.to_owned()
        }
        _ => format!("http_{}", status.as_u16()),
    }
}

/// A stream of events, read as it comes.
#[derive(Debug, Default)]
struct Events {
    /// The event that is not whole yet.
    rest: Vec<u8>,
    content: Content,
    tokens: u64,
    end: End,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Content {
    #[default]
    Awaited,
    Begun,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    /// Not seen: whoever closes now cuts the stream.
    #[default]
    Open,
    Done,
    Failed,
}

// === impl Events ===

impl Events {
    fn push(&mut self, bytes: &[u8]) {
        let mut scanned = self.rest.len().saturating_sub(1);
        self.rest.extend_from_slice(bytes);
        let mut begin = 0;
        while let Some(at) = memchr::memmem::find(&self.rest[scanned..], b"\n\n") {
            let end = scanned + at;
            let event = self.rest[begin..end].to_vec();
            self.event(&event);
            begin = end + 2;
            scanned = begin;
        }
        self.rest.drain(..begin);
    }

    fn event(&mut self, event: &[u8]) {
        let Some(data) = event.strip_prefix(b"data: ") else {
            self.end = End::Failed;
            return;
        };
        if data == b"[DONE]" {
            if self.end == End::Open {
                self.end = End::Done;
            }
            return;
        }
        // After the first content only usage and errors are of interest, and parsing
        // every token of a fast engine would be the largest cost of the whole run.
        let has = |what: &[u8]| memchr::memmem::find(data, what).is_some();
        if self.content == Content::Begun && !has(b"\"usage\":{") && !has(b"\"error\":") {
            return;
        }
        let data: Value = serde_json::from_slice(data).unwrap_or_default();
        if data.get("error").is_some() {
            self.end = End::Failed;
        }
        if let Some(tokens) = data["usage"]["completion_tokens"].as_u64() {
            self.tokens = tokens;
        }
        let choice = &data["choices"][0];
        let text = choice["delta"]["content"]
            .as_str()
            .or(choice["text"].as_str());
        if text.is_some_and(|text| !text.is_empty()) {
            self.content = Content::Begun;
        }
    }

    fn answer(&self) -> Answer {
        match self.end {
            End::Done => Answer::Whole {
                tokens: self.tokens,
            },
            End::Open => Answer::Not("stream_cut".to_owned()),
            End::Failed => Answer::Not("stream_failed".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLE: &str = r#"data: {"choices":[{"delta":{"role":"assistant","content":""}}]}"#;
    const WORD: &str = r#"data: {"choices":[{"delta":{"content":" the"}}]}"#;
    const USAGE: &str = r#"data: {"choices":[],"usage":{"completion_tokens":7}}"#;

    #[test]
    fn content_begins_with_the_first_word_not_with_the_role() {
        let mut events = Events::default();
        events.push(format!("{ROLE}\n\n").as_bytes());
        assert_eq!(events.content, Content::Awaited);
        events.push(format!("{WORD}\n\n").as_bytes());
        assert_eq!(events.content, Content::Begun);
    }

    #[test]
    fn a_stream_in_single_bytes_is_read_as_in_one_piece() {
        let mut events = Events::default();
        for byte in format!("{ROLE}\n\n{WORD}\n\n{USAGE}\n\ndata: [DONE]\n\n").bytes() {
            events.push(&[byte]);
        }
        assert_eq!(events.answer(), Answer::Whole { tokens: 7 });
    }

    #[test]
    fn a_stream_without_done_was_cut_and_one_with_an_error_failed() {
        let mut events = Events::default();
        events.push(format!("{WORD}\n\n{USAGE}\n\n").as_bytes());
        assert_eq!(events.answer(), Answer::Not("stream_cut".to_owned()));
        events.push(b"data: {\"error\":{\"message\":\"dead\"}}\n\ndata: [DONE]\n\n");
        assert_eq!(events.answer(), Answer::Not("stream_failed".to_owned()));
    }
}
