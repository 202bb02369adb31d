//! The outermost step: request id, timing, the access record, the headers.
//!
//! Decides the request id and what the answer says about how it came to be.
//! Never fails and never changes a body. Invariant: the trail lives exactly as
//! long as the request, held by the handler first and by the answer's body
//! after, so its record is written once however the request ends.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower::{Layer, Service};

use crate::config::BackendVisibility;
use crate::protocol::route;
use crate::telemetry::{Finish, Target, Telemetry};

use super::BoxFuture;
use super::quota;
use super::steps::Traced;
use super::trail::{Facts, Trail};

/// `x-request-id`, taken from the client where sane.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Counted prompt tokens, `;exact`, `;estimated` or, refused, `;at_least`.
pub const PROMPT_TOKENS: HeaderName = HeaderName::from_static("x-tidegate-prompt-tokens");
/// Name of the backend, where the tenant may know.
pub const BACKEND: HeaderName = HeaderName::from_static("x-tidegate-backend");
/// Tier of the backend.
pub const TIER: HeaderName = HeaderName::from_static("x-tidegate-tier");
/// Milliseconds in the queue, rounded down.
pub const QUEUE_MS: HeaderName = HeaderName::from_static("x-tidegate-queue-ms");
/// `max_tokens` as written into the body by the gateway.
pub const MAX_TOKENS: HeaderName = HeaderName::from_static("x-tidegate-max-tokens");
/// Why the request was refused.
pub const REASON: HeaderName = HeaderName::from_static("x-tidegate-reason");

/// Longest request id taken from a client.
const MAX_ID: usize = 128;

/// Adds [`Observe`].
#[derive(Clone)]
pub struct ObserveLayer {
    telemetry: Arc<Telemetry>,
}

/// Begins the trail of each request.
#[derive(Clone)]
pub struct Observe<S> {
    inner: S,
    telemetry: Arc<Telemetry>,
}

pin_project! {
    /// An answer's body that holds the trail until it is over.
    pub struct Observed<B> {
        #[pin]
        body: B,
        trail: Trail,
    }
}

// === impl ObserveLayer ===

impl ObserveLayer {
    /// Reports to `telemetry`.
    pub fn new(telemetry: Arc<Telemetry>) -> Self {
        Self { telemetry }
    }
}

impl<S> Layer<S> for ObserveLayer {
    type Service = Observe<S>;

    fn layer(&self, inner: S) -> Observe<S> {
        Observe {
            inner,
            telemetry: Arc::clone(&self.telemetry),
        }
    }
}

// === impl Observe ===

impl<S, B, R> Service<Request<B>> for Observe<S>
where
    S: Service<Traced<B>, Response = Response<R>, Error = Infallible>,
    S::Future: Send + 'static,
    R: Body,
{
    type Response = Response<Observed<R>>;
    type Error = Infallible;
    type Future = BoxFuture<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (head, body) = request.into_parts();
        let id = request_id(head.headers.get(REQUEST_ID));
        let matched = route(&head.method, head.uri.path());
        let matched = matched.ok();
        let route = matched.map(|matched| matched.route);
        let trail = Trail::begin(&id, route, Arc::clone(&self.telemetry));
        let path = matched.map(|matched| matched.path);
        trail.trace(&head.headers, Target::new(&head.method, path));
        let answer = self.inner.call(Traced {
            head: Box::new(head),
            body,
            trail: trail.clone(),
        });
        Box::pin(async move {
            let Ok(answer) = answer.await;
            let (mut head, body) = answer.into_parts();
            trail.answered(head.status);
            trail.read(|facts| explain(facts, &mut head.headers));
            set(&mut head.headers, REQUEST_ID, &id);
            Ok(Response::from_parts(head, Observed { body, trail }))
        })
    }
}

/// The client's id where it is short and plain, else a new one.
fn request_id(sent: Option<&HeaderValue>) -> String {
    let sane = |id: &&str| {
        (1..=MAX_ID).contains(&id.len())
            && id
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte))
    };
    sent.and_then(|id| id.to_str().ok())
        .filter(sane)
        .map_or_else(drawn_id, str::to_owned)
}

fn drawn_id() -> String {
    let mut id = String::with_capacity(36);
    id.push_str("req-");
    push_hexadecimal(&rand::random::<[u8; 16]>(), &mut id);
    id
}

/// Writes `bytes` as two digits each to the end of `text`.
pub(super) fn push_hexadecimal(bytes: &[u8], text: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from(DIGITS[usize::from(digit)]));
        }
    }
}

/// Says in headers what the steps decided.
fn explain(facts: &Facts, headers: &mut HeaderMap) {
    let record = &facts.record;
    if let (Some(tokens), Some(precision)) = (record.prompt_tokens, record.precision) {
        set(
            headers,
            PROMPT_TOKENS,
            &[&tokens.to_string(), ";", precision].concat(),
        );
    }
    if let (Some(backend), BackendVisibility::Shown) = (&record.backend, facts.backend_name) {
        set(headers, BACKEND, backend);
    }
    if let Some(tier) = record.tier {
        set(headers, TIER, tier.name());
    }
    if let Some(queued) = record.queue_ms {
        let whole = u64::try_from(queued.as_millis()).unwrap_or(u64::MAX);
        headers.insert(QUEUE_MS, HeaderValue::from(whole));
    }
    if let Some(tokens) = facts.set_output {
        headers.insert(MAX_TOKENS, HeaderValue::from(tokens.get()));
    }
    if let Some(standing) = &facts.standing {
        quota::tell(standing, headers);
    }
    if let (Some(reason), Finish::Refused) = (record.reason, record.finish) {
        set(headers, REASON, reason);
    }
}

/// A value that is no header value (a backend's name may be any text) is left out.
fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

// === impl Observed ===

impl<B: Body<Data = Bytes>> Body for Observed<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        self.project().body.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sane_id_of_the_client_is_kept_and_any_other_replaced() {
        let kept = |id: &'static str| request_id(Some(&HeaderValue::from_static(id)));
        assert_eq!(kept("job-7_a.b:c"), "job-7_a.b:c");
        for odd in ["", "a b", "a\"b", "a/b"] {
            assert!(kept(odd).starts_with("req-"), "{odd:?}");
        }
        let long = HeaderValue::from_str(&"x".repeat(MAX_ID + 1)).unwrap();
        assert_eq!(request_id(Some(&long)).len(), 36);
        assert_ne!(request_id(None), request_id(None));
        let mut text = "id-".to_owned();
        push_hexadecimal(&[0x0f, 0xa0], &mut text);
        assert_eq!(text, "id-0fa0");
    }
}
