//! The only place with status codes: every refusal becomes one answer in its route's shape.
//!
//! Decides status, code, message, `Retry-After` from the typed errors of the
//! steps below; a panic there is answered as a bug of ours. Never touches an
//! answer that a step gave. Invariant: one reason ⇔ one status, code and label.

use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::header::{
    ACCEPT_ENCODING, ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::{Response, StatusCode, Version};
use tower::{Layer, Service};

use crate::protocol::{Code, Dialect, ErrorBody, RouteError, dialect_of};
use crate::telemetry::Finish;

use super::answer::AnswerBody;
use super::error::{IngestError, Refusal};
use super::ingest::ACCEPTED_ENCODINGS;
use super::message::{message, param};
use super::reason::Reason;
use super::steps::Traced;
use super::trail::Trail;
use super::{BoxFuture, wait::retry_after};

/// Adds [`Rescue`].
#[derive(Clone, Copy, Debug, Default)]
pub struct RescueLayer;

/// Turns refusals and panics into answers.
#[derive(Clone)]
pub struct Rescue<S>(S);

/// The status and code of a reason.
pub const fn status_and_code(reason: Reason) -> (StatusCode, Code) {
    match reason {
        Reason::InvalidApiKey => (StatusCode::UNAUTHORIZED, Code::InvalidApiKey),
        Reason::TooManyAuthFailures => (StatusCode::TOO_MANY_REQUESTS, Code::TooManyAuthFailures),
        Reason::TenantQueueFull | Reason::TenantRequestRate | Reason::TenantTokenRate => {
            (StatusCode::TOO_MANY_REQUESTS, Code::TenantLimitExceeded)
        }
        Reason::ServerBusy | Reason::BackendBusy => {
            (StatusCode::SERVICE_UNAVAILABLE, Code::ServerBusy)
        }
        Reason::ServerShutdown => (StatusCode::SERVICE_UNAVAILABLE, Code::ServerShutdown),
        Reason::UnknownRoute => (StatusCode::NOT_FOUND, Code::NotFound),
        Reason::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, Code::MethodNotAllowed),
        Reason::UnsupportedMediaType => (
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Code::UnsupportedMediaType,
        ),
        Reason::UnsupportedEncoding => (
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Code::UnsupportedEncoding,
        ),
        Reason::ExpectationFailed => (StatusCode::EXPECTATION_FAILED, Code::ExpectationFailed),
        Reason::HeadersTooLarge => (
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Code::HeadersTooLarge,
        ),
        Reason::RequestTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, Code::RequestTooLarge),
        // Never 408: client libraries send the same body again at once.
        Reason::RequestTimeout => (StatusCode::BAD_REQUEST, Code::RequestTimeout),
        Reason::InvalidJson => (StatusCode::BAD_REQUEST, Code::InvalidJson),
        Reason::InvalidRequest => (StatusCode::BAD_REQUEST, Code::InvalidRequest),
        Reason::ModelNotFound => (StatusCode::NOT_FOUND, Code::ModelNotFound),
        Reason::TokenizerUnavailable => {
            (StatusCode::SERVICE_UNAVAILABLE, Code::TokenizerUnavailable)
        }
        Reason::TenantContextLimit
        | Reason::TenantPromptLimit
        | Reason::TenantOutputLimit
        | Reason::ContextTooLong
        | Reason::AboveTokenBurst
        | Reason::AboveTenantShare => (StatusCode::BAD_REQUEST, Code::ContextLengthExceeded),
        Reason::QueueRequestsFull | Reason::QueueTokensFull | Reason::PredictedWaitTooLong => {
            (StatusCode::TOO_MANY_REQUESTS, Code::Overloaded)
        }
        Reason::QueueTimeout => (StatusCode::TOO_MANY_REQUESTS, Code::QueueTimeout),
        Reason::NoBackend => (StatusCode::SERVICE_UNAVAILABLE, Code::NoBackend),
        Reason::UpstreamFailed => (StatusCode::BAD_GATEWAY, Code::UpstreamFailed),
        Reason::UpstreamTimeout => (StatusCode::GATEWAY_TIMEOUT, Code::UpstreamTimeout),
        Reason::InternalError => (StatusCode::INTERNAL_SERVER_ERROR, Code::InternalError),
    }
}

/// The bytes sent to an HTTP/1 client whose headers do not arrive in time.
///
/// There is no request to answer yet, so this is a whole message.
pub fn slow_headers_answer() -> Vec<u8> {
    let (status, code) = status_and_code(Reason::RequestTimeout);
    let body = ErrorBody::new(code, "The request headers did not arrive in time.");
    let body = body.to_json(Dialect::OpenAi);
    let mut answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nx-tidegate-reason: {}\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        Reason::RequestTimeout.label(),
        body.len()
    )
    .into_bytes();
    answer.extend_from_slice(&body);
    answer
}

/// The answer to `refusal`, in the shape its path has; notes the reason on the trail.
fn refuse<B>(
    refusal: &Refusal,
    trail: &Trail,
    (version, dialect): (Version, Dialect),
) -> Response<AnswerBody<B>> {
    let reason = refusal.reason();
    let (status, code) = status_and_code(reason);
    let route = trail.read(|facts| facts.route);
    trail.ended(Finish::Refused, Some(reason));
    let body = ErrorBody {
        message: message(refusal),
        param: param(refusal, route),
        code,
    };
    let mut answer = Response::new(AnswerBody::whole(body.to_json(dialect)));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(seconds) = retry_after(refusal) {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        trail.note(|facts| facts.record.retry_after_s = Some(seconds));
    }
    if let Refusal::Ingest(IngestError::Route(RouteError::MethodNotAllowed { allow })) = refusal {
        headers.insert(ALLOW, HeaderValue::from_static(allow));
    }
    if reason == Reason::UnsupportedEncoding {
        headers.insert(
            ACCEPT_ENCODING,
            HeaderValue::from_static(ACCEPTED_ENCODINGS),
        );
    }
    if reason == Reason::InvalidApiKey {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    // HTTP/2 forbids the header; there the stream ends and the connection stays.
    if reason == Reason::RequestTimeout && version < Version::HTTP_2 {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

// === impl RescueLayer ===

impl<S> Layer<S> for RescueLayer {
    type Service = Rescue<S>;

    fn layer(&self, inner: S) -> Rescue<S> {
        Rescue(inner)
    }
}

// === impl Rescue ===

impl<S, B, U> Service<Traced<B>> for Rescue<S>
where
    S: Service<Traced<B>, Response = Response<AnswerBody<U>>, Error = Refusal>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
    B: Send + 'static,
    U: Send + 'static,
{
    type Response = Response<AnswerBody<U>>;
    type Error = Infallible;
    type Future = BoxFuture<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Traced<B>) -> Self::Future {
        let trail = request.trail.clone();
        let head = &request.head;
        let shape = (head.version, dialect_of(head.uri.path()));
        let mut inner = self.0.clone();
        // The call itself is inside, so that a panic in it is caught too.
        let answer: BoxFuture<_> = Box::pin(async move { inner.call(request).await });
        Box::pin(async move {
            Ok(CatchPanic(answer)
                .await
                .unwrap_or_else(|refusal| refuse(&refusal, &trail, shape)))
        })
    }
}

/// A future whose panic is a [`Refusal`].
struct CatchPanic<F>(F);

impl<F, T> Future for CatchPanic<F>
where
    F: Future<Output = Result<T, Refusal>> + Unpin,
{
    type Output = Result<T, Refusal>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // A future that panicked is not polled again, and what it held gives
        // itself back when it is dropped: nothing half-changed is seen.
        std::panic::catch_unwind(AssertUnwindSafe(|| Pin::new(&mut self.0).poll(cx)))
            .unwrap_or_else(|_| Poll::Ready(Err(Refusal::Panicked)))
    }
}

#[cfg(test)]
mod tests;
