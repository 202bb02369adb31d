//! Sends a leased request to its backend and hands the answer to the relay.
//!
//! Decides what the backend is asked (by a few edits) and whether a request
//! that failed may go elsewhere: only if no byte of it was taken. Never waits
//! for KV and never reads an answer. Invariant: whoever holds a `Leased` here
//! ends its lease, by the relay or by a drop.

mod edits;
mod verdict;

pub(super) use edits::output_to_write;

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{
    CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, TRANSFER_ENCODING,
};
use http::{Request, Response, StatusCode, response};
use http_body_util::Full;
use tokio::time::Instant;
use tower::Service;

use crate::config::Config;
use crate::core::units::Tokens;
use crate::gate::Lease;
use crate::protocol::request::Stream;
use crate::telemetry::{Finish, Stage, UpstreamFailure};
use crate::tenants::Charge;
use crate::upstream::client::{Answering, Client, Connector, Delivery, SendError};
use crate::upstream::probe::Outcome;

use super::BoxFuture;
use super::admit::Undelivered;
use super::answer::AnswerBody;
use super::door::Door;
use super::error::ForwardError;
use super::observe::REQUEST_ID;
use super::relay::{Account, AnswerLimits, Kind, Relay};
use super::seat::Seat;
use super::steps::{Leased, Measured};

use verdict::{Asked, Verdict, denies_model, failure_text, stand_in, verdict};

/// When a client should come back to an engine that sheds, in seconds.
const SHED_RETRY: u64 = 1;

/// Forwards requests.
#[derive(Clone)]
pub struct Forward<C> {
    client: Client<C>,
    door: Door,
}

/// What became of sending.
#[expect(
    clippy::large_enum_variant,
    reason = "one is made for each request, and taken apart at once"
)]
enum Sent {
    Answered(Response<Answering>),
    Failed(SendError),
    /// The probe gave the backend up.
    BackendLost,
    /// A time limit passed.
    TooSlow,
}

// === impl Forward ===

impl<C: Connector> Forward<C> {
    /// Forwards over `client`, as long as `door` is not over.
    pub fn new(client: Client<C>, door: Door) -> Self {
        Self { client, door }
    }

    async fn forward(self, leased: Leased) -> Result<Response<AnswerBody<Answering>>, Undelivered> {
        let Leased { measured, lease } = leased;
        let seat = measured.letter.pool.seat(lease.grant().backend);
        let mut request = edits::request(&measured, lease.grant());
        let lap = measured
            .letter
            .trail
            .enter(Stage::Upstream(seat.name().clone()));
        lap.inject(request.headers_mut());
        let limits = limits(&measured);
        measured.letter.trail.tell_charge(Charge::sent);
        let answer = match self.send(&seat, request, limits).await {
            Sent::Answered(answer) => answer,
            failed => {
                // First: whoever is admitted next must find the memory free.
                lease.fail();
                return Err(undelivered(failed, measured, &seat));
            }
        };
        let (mut head, body) = answer.into_parts();
        if head.status == StatusCode::UNAUTHORIZED {
            // It is our key that it does not like: the client's was not sent.
            return Err(passed_by((lease, measured), &seat, Outcome::Unauthorized));
        }
        let asked = Asked {
            route: measured.letter.route,
            stream: measured.outline.stream,
        };
        let kind = match verdict(&head, &body, asked) {
            Verdict::Relayed(Kind::Refusal) if head.status == StatusCode::NOT_FOUND => {
                let text = failure_text(body).await;
                if text.as_deref().is_some_and(denies_model) {
                    let unknown = Outcome::UnknownModel(measured.letter.served);
                    return Err(passed_by((lease, measured), &seat, unknown));
                }
                return answered_badly(head, text, (lease, measured), &seat);
            }
            Verdict::Relayed(kind) => {
                if kind == Kind::Refusal {
                    measured.letter.trail.tell_charge(Charge::unspent);
                }
                kind
            }
            other => {
                let text = match other {
                    Verdict::Failure => failure_text(body).await,
                    _ => None,
                };
                return answered_badly(head, text, (lease, measured), &seat);
            }
        };
        rewrite(kind, &mut head.headers);
        let account = Account::new(&measured, (seat, lap), self.door.clone());
        // The body was delivered: its bytes and their share of the budget go.
        drop(measured);
        let relay = Relay::new(body, kind, (lease, limits), account);
        Ok(Response::from_parts(head, AnswerBody::relayed(relay)))
    }

    async fn send(
        &self,
        seat: &Arc<Seat>,
        request: Request<Full<Bytes>>,
        limits: AnswerLimits,
    ) -> Sent {
        // Headers come before the first data event.
        let ends = [limits.whole, limits.first_data]
            .into_iter()
            .flatten()
            .min();
        let too_late = async {
            match ends {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            sent = self.client.send(seat.endpoint(), request) => match sent {
                Ok(answer) => Sent::Answered(answer),
                Err(error) => Sent::Failed(error),
            },
            () = seat.lost() => Sent::BackendLost,
            () = too_late => Sent::TooSlow,
        }
    }
}

/// Reports a failed try and says whether the request may go elsewhere.
fn undelivered(sent: Sent, measured: Measured, seat: &Seat) -> Undelivered {
    let trail = measured.letter.trail.clone();
    let timed_out = matches!(sent, Sent::Failed(SendError::FirstByte(_)) | Sent::TooSlow);
    if !timed_out {
        // Who waited for more than is allowed has used the engine all the same.
        trail.tell_charge(Charge::unspent);
    }
    let (outcome, failure, error) = match sent {
        Sent::Failed(error) if error.delivery() == Delivery::Nothing => {
            tracing::debug!(backend = %seat.name(), %error, "request not delivered");
            seat.report(match error {
                SendError::Refused => Outcome::Refused,
                _ => Outcome::Unreachable,
            });
            trail.backend_failed(UpstreamFailure::Connect);
            return Undelivered::Untouched(Box::new(measured));
        }
        Sent::Failed(SendError::FirstByte(_)) | Sent::TooSlow => (
            Outcome::Failed,
            UpstreamFailure::Timeout,
            ForwardError::TimedOut,
        ),
        _ => (
            Outcome::Failed,
            UpstreamFailure::NoAnswer,
            ForwardError::Failed,
        ),
    };
    seat.report(outcome);
    trail.backend_failed(failure);
    Undelivered::Lost(error)
}

/// Books a try at an engine that serves another model than it did, or wants
/// another key: nothing was generated, so the request may go elsewhere.
fn passed_by((lease, measured): (Lease, Measured), seat: &Seat, outcome: Outcome) -> Undelivered {
    lease.fail();
    let trail = &measured.letter.trail;
    trail.tell_charge(Charge::unspent);
    trail.backend_failed(UpstreamFailure::Status);
    seat.report(outcome);
    Undelivered::Untouched(Box::new(measured))
}

/// Books an answer that is no success and no refusal in JSON; `text` is the body
/// where it may pass.
fn answered_badly<U>(
    mut head: response::Parts,
    text: Option<Bytes>,
    (lease, measured): (Lease, Measured),
    seat: &Seat,
) -> Result<Response<AnswerBody<U>>, Undelivered> {
    let (trail, status) = (&measured.letter.trail, head.status);
    let is_refusal = status.is_client_error();
    trail.tell_charge(Charge::unspent);
    if is_refusal || status == StatusCode::SERVICE_UNAVAILABLE {
        // Nothing was generated, and nobody is to blame.
        lease.finish(Tokens::ZERO, Tokens::ZERO);
    } else {
        lease.fail();
        trail.backend_failed(UpstreamFailure::Status);
        seat.report(Outcome::Failed);
    }
    if status == StatusCode::SERVICE_UNAVAILABLE {
        seat.report(Outcome::Shed);
    }
    let text = match text {
        Some(text) => text,
        None if is_refusal => {
            head.headers.clear();
            let json = HeaderValue::from_static("application/json");
            head.headers.insert(CONTENT_TYPE, json);
            stand_in(status, measured.letter.route.dialect())
        }
        None => return Err(Undelivered::Lost(replaced(status))),
    };
    let finish = match status {
        StatusCode::SERVICE_UNAVAILABLE => Finish::Complete,
        _ if is_refusal => Finish::Complete,
        _ => Finish::Failed,
    };
    trail.ended(finish, None);
    rewrite_error(status, &mut head.headers);
    Ok(Response::from_parts(head, AnswerBody::whole(text)))
}

/// What stands for a failure that cannot be read.
fn replaced(status: StatusCode) -> ForwardError {
    match status {
        StatusCode::SERVICE_UNAVAILABLE => ForwardError::Busy,
        StatusCode::GATEWAY_TIMEOUT => ForwardError::TimedOut,
        _ => ForwardError::Unreadable {
            status: status.as_u16(),
        },
    }
}

/// The time limits of the answer to a request that is sent now.
fn limits(measured: &Measured) -> AnswerLimits {
    let Config {
        server, upstream, ..
    } = &*measured.letter.snapshot.config;
    let now = Instant::now();
    AnswerLimits {
        first_data: upstream.first_byte_timeout.map(|limit| now + limit),
        silence: upstream.stream_silence_timeout,
        whole: upstream.request_timeout.map(|limit| now + limit),
        // One that did not ask for a stream could not read a comment.
        keepalive: server
            .stream_keepalive
            .filter(|_| measured.outline.stream != Stream::Once),
    }
}

/// Makes the headers of the backend's answer ours.
fn rewrite(kind: Kind, headers: &mut HeaderMap) {
    headers.remove(REQUEST_ID);
    if matches!(kind, Kind::Events(_)) {
        // An event may be taken out, so a length would be wrong.
        headers.remove(CONTENT_LENGTH);
    }
}

/// The same for an error whose body is at hand.
fn rewrite_error(status: StatusCode, headers: &mut HeaderMap) {
    for name in [REQUEST_ID, CONTENT_LENGTH, TRANSFER_ENCODING] {
        headers.remove(name);
    }
    if status == StatusCode::SERVICE_UNAVAILABLE {
        // Engines send none, and a client without one comes back at once.
        headers
            .entry(RETRY_AFTER)
            .or_insert_with(|| HeaderValue::from(SHED_RETRY));
    }
}

impl<C: Connector> Service<Leased> for Forward<C> {
    type Response = Response<AnswerBody<Answering>>;
    type Error = Undelivered;
    type Future = BoxFuture<Result<Self::Response, Undelivered>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Undelivered>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, leased: Leased) -> Self::Future {
        Box::pin(self.clone().forward(leased))
    }
}
