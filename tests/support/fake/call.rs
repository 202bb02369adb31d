//! One request in the hands of a test: what came, and what it answers.

use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::link::Line;
use super::{Shared, answer, route_of};
use crate::support::wire::{Ending, Head, Io};
use std::sync::Arc;
use tidegate::protocol::{Route, WorkKind};

/// One generation request and the connection it came on.
pub(crate) struct Call<I: Io = TcpStream> {
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
    /// Head and body byte by byte, as they came.
    pub(crate) raw: Vec<u8>,
    pub(super) line: Line<I>,
    /// Blocks it holds while the test has it.
    pub(super) held: u64,
    pub(super) sequences: u64,
    pub(super) shared: Arc<Shared<I>>,
    /// Where the connection goes when the answer is complete.
    pub(super) back: oneshot::Sender<Line<I>>,
}

/// What of a client's must not reach an engine, by name.
const FORBIDDEN: [&str; 18] = [
    "connection",
    "cookie",
    "expect",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-api-key",
    "api-key",
    "x-consumer-id",
    "x-organization-id",
    "x-tenant",
    "x-tenant-id",
    "x-user-id",
];

/// What tells where a client is.
const WHEREABOUTS: [&str; 5] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
];

// === impl Call ===

impl<I: Io> Call<I> {
    /// The body as JSON, with or without a byte order mark, as engines read it.
    pub(crate) fn json(&self) -> Value {
        let body = self.body.strip_prefix("\u{feff}".as_bytes());
        serde_json::from_slice(body.unwrap_or(&self.body)).unwrap()
    }

    pub(super) fn check(&self) {
        let spec = self.shared.spec();
        let orders = |name: &str| name.starts_with("x-tidegate-") || name.starts_with("x-vllm-");
        for (name, value) in &self.head.headers {
            let forbidden = orders(name)
                || FORBIDDEN.contains(&name.as_str())
                || (!spec.knows_clients && WHEREABOUTS.contains(&name.as_str()));
            assert!(!forbidden, "the engine got {name}: {value}");
        }
        let bearer = spec.key.map(|key| format!("Bearer {key}"));
        assert_eq!(self.head.get("authorization"), bearer.as_deref());
        assert!(self.head.get("x-request-id").is_some());
    }

    /// Charges it; more than the pool fails the test.
    pub(super) fn hold(&mut self) {
        let spec = self.shared.spec();
        // A form is no JSON, and what it holds is not for this engine to know.
        let body = serde_json::from_slice(&self.body).unwrap_or_default();
        (self.held, self.sequences) = match route_of(&self.head).map(Route::work) {
            Some(WorkKind::Aside) => (0, 0),
            _ => spec.footprint(&body),
        };
        let mut facts = self.shared.lock();
        facts.held += self.held;
        facts.peak = facts.peak.max(facts.held);
        facts.sequences += self.sequences;
        facts.peak_sequences = facts.peak_sequences.max(facts.sequences);
        let (held, blocks) = (facts.held, spec.blocks * spec.ranks);
        drop(facts);
        let fits = held <= blocks || spec.takes_too_much;
        assert!(fits, "{held} blocks of {blocks}");
    }

    fn give_back(&mut self) {
        let mut facts = self.shared.lock();
        facts.held -= std::mem::take(&mut self.held);
        facts.sequences -= std::mem::take(&mut self.sequences);
    }

    /// Sends these bytes as they are.
    pub(crate) async fn say(&mut self, bytes: &[u8]) {
        self.line.wire.send(bytes).await.unwrap();
    }

    /// Sends these bytes, if the gateway still takes them.
    pub(crate) async fn tell(&mut self, bytes: &[u8]) -> bool {
        self.line.wire.send(bytes).await.is_ok()
    }

    /// As [`Call::tell`], one chunk of a stream.
    pub(crate) async fn tell_chunk(&mut self, payload: &[u8]) -> bool {
        let head = format!("{:x}\r\n", payload.len());
        let bytes = [head.as_bytes(), payload, b"\r\n"].concat();
        self.tell(&bytes).await
    }

    /// Sends what of `bytes` is taken at once; returns how much that was.
    pub(crate) async fn try_some(&mut self, bytes: &[u8]) -> usize {
        self.line.wire.send_some(bytes).await
    }

    /// Begins a stream.
    pub(crate) async fn stream(&mut self) {
        let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
            transfer-encoding: chunked\r\n\r\n";
        self.say(head).await;
    }

    /// A piece of a stream, one chunk; not empty, which would end the stream.
    pub(crate) async fn chunk(&mut self, payload: &[u8]) {
        let mut bytes = format!("{:x}\r\n", payload.len()).into_bytes();
        bytes.extend_from_slice(payload);
        bytes.extend_from_slice(b"\r\n");
        self.say(&bytes).await;
    }

    /// Ends a stream properly.
    pub(crate) async fn end(mut self) {
        self.give_back();
        self.say(b"0\r\n\r\n").await;
        self.hand_back();
    }

    /// Answers at once and completely.
    pub(crate) async fn answer(mut self, status: u16, media: &str, body: &[u8]) {
        self.give_back();
        self.say(&answer(status, media, body)).await;
        self.hand_back();
    }

    /// Answers with this JSON.
    pub(crate) async fn ok(self, body: &str) {
        self.answer(200, "application/json", body.as_bytes()).await;
    }

    /// The answer is complete: the connection waits for the next request.
    pub(crate) fn hand_back(mut self) {
        self.give_back();
        let (back, line) = (self.back, self.line);
        // An engine that died meanwhile has no use for it.
        drop(back.send(line));
    }

    /// Closes the connection without a reset.
    pub(crate) fn close(mut self) {
        self.give_back();
    }

    /// Resets the connection.
    pub(crate) fn reset(mut self) {
        self.give_back();
        self.line.reset();
    }

    /// Waits until the gateway closes the connection, and says how.
    pub(crate) async fn gone(mut self) -> Ending {
        let (said, ending) = self.line.wire.rest().await;
        assert_eq!(said, b"", "nothing may follow a request");
        self.line.peer_ended(ending);
        self.give_back();
        ending
    }
}
