//! The way back: relays an answer and owns the lease it runs on.
//!
//! Decides when an answer has ended, and how: whole, failed by the engine, cut
//! short, too slow, or dropped by a client that left. Polls the backend's body
//! directly, without a task or a channel, so a slow client slows the engine and
//! a client that leaves drops the backend's connection and the lease at once.
//! Never changes a byte, except for the usage event asked for on our own account
//! and, where the operator wants them, comments between events of a quiet stream.
//! Invariant: the lease ends in the same call in which the end is seen.

mod account;
mod beat;
mod broken;
mod reader;
mod watchdog;

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use thiserror::Error;
use tokio::time::Sleep;

use crate::core::units::Tokens;
use crate::gate::Lease;
use crate::protocol::ScanMode;
use crate::telemetry::{Finish, UpstreamFailure};

use super::BoxFuture;
use super::woken::Woken;

pub use account::Account;
use account::Told;
use beat::{Beat, COMMENT};
use broken::Break;
use reader::{Ended, Reader, Wholeness};
use watchdog::Watchdog;
pub use watchdog::{AnswerLimits, Overrun};

/// How long the connection lives on after an error event, so that what is
/// buffered gets out: long enough for the connection's task to write, short
/// enough that nobody waits for it. A reader slower than this loses the event,
/// never the cut.
const LINGER: Duration = Duration::from_millis(50);

/// The answer was cut: the connection (HTTP/1) or the stream (HTTP/2) must not
/// end as if it were whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the backend's answer broke off")]
pub struct Cut;

/// What kind of answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Server-sent events.
    Events(ScanMode),
    /// One JSON answer.
    Whole,
    /// An engine's refusal (4xx): relayed, counts against nobody.
    Refusal,
}

/// The body of a relayed answer.
pub struct Relay<U> {
    backend: Option<Pin<Box<U>>>,
    lease: Option<Lease>,
    reader: Reader,
    kind: Kind,
    watchdog: Watchdog,
    beat: Beat,
    /// Resolves when nothing more may come, whatever the backend does.
    trouble: Woken<BoxFuture<Break>>,
    phase: Phase,
    account: Account,
}

enum Phase {
    /// Passing on what comes.
    Flowing,
    /// The backend is done; these bytes are left.
    Last(Bytes),
    /// The backend is lost; this event says so.
    Breaking(Bytes),
    /// The event is out; the cut follows.
    Lingering(Pin<Box<Sleep>>),
    /// The cut follows, after one turn in which what was given goes out: the
    /// connection code drops what it has not written, the head too.
    Waning,
    /// Cut at the next poll.
    Cutting,
    /// Over.
    Ended,
}

type FramePoll = Poll<Option<Result<Frame<Bytes>, Cut>>>;

// === impl Relay ===

impl<U> Relay<U>
where
    U: Body<Data = Bytes>,
{
    /// Relays `backend` on `lease`.
    pub fn new(
        backend: U,
        kind: Kind,
        (lease, limits): (Lease, AnswerLimits),
        account: Account,
    ) -> Self {
        let reader = match kind {
            Kind::Events(mode) => Reader::events(mode),
            Kind::Whole => Reader::whole(),
            Kind::Refusal => Reader::Opaque,
        };
        let mut relay = Self {
            backend: Some(Box::pin(backend)),
            lease: Some(lease),
            reader,
            kind,
            watchdog: Watchdog::new(limits),
            beat: Beat::new(limits.keepalive.filter(|_| matches!(kind, Kind::Events(_)))),
            trouble: Woken::new(account.trouble()),
            phase: Phase::Flowing,
            account,
        };
        // An answer without a body is never polled.
        if relay.backend_ended() {
            relay.on_end();
        }
        relay
    }

    fn backend_ended(&self) -> bool {
        self.backend
            .as_ref()
            .is_some_and(|backend| backend.is_end_stream())
    }

    fn poll_flowing(&mut self, cx: &mut Context<'_>) -> FramePoll {
        loop {
            let Some(backend) = &mut self.backend else {
                return Poll::Ready(None);
            };
            let Poll::Ready(next) = backend.as_mut().poll_frame(cx) else {
                return self.poll_trouble(cx);
            };
            let frame = match next {
                Some(Ok(frame)) => self.on_frame(frame),
                Some(Err(_)) => {
                    self.on_break(Break::Lost);
                    None
                }
                None => {
                    self.on_end();
                    None
                }
            };
            if let Some(frame) = frame {
                return Poll::Ready(Some(Ok(frame)));
            }
            if !matches!(self.phase, Phase::Flowing) {
                return self.poll_phase(cx);
            }
        }
    }

    /// The backend has nothing to read: is it still there, and in time?
    fn poll_trouble(&mut self, cx: &mut Context<'_>) -> FramePoll {
        if let Poll::Ready(cause) = Pin::new(&mut self.trouble).poll(cx) {
            self.on_break(cause);
            return self.poll_phase(cx);
        }
        if let Poll::Ready(overrun) = self.watchdog.poll_overrun(cx) {
            self.on_break(Break::TooSlow(overrun));
            return self.poll_phase(cx);
        }
        if !self.reader.is_between_events() {
            return Poll::Pending;
        }
        ready!(self.beat.poll_due(cx));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(COMMENT)))))
    }

    fn on_frame(&mut self, frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        let frame = match frame.into_data() {
            Ok(chunk) => self.on_chunk(chunk).map(Frame::data),
            // No engine sends trailers; whatever does speaks to us.
            Err(_) => None,
        };
        // The connection code stops polling once a length-delimited body is
        // complete; an end waited for as `None` would never be seen.
        if self.backend_ended() {
            self.on_end();
        }
        frame
    }

    fn on_chunk(&mut self, chunk: Bytes) -> Option<Bytes> {
        let passed = self.reader.push(chunk);
        self.watchdog.on_bytes();
        let first = passed.data && self.watchdog.on_data();
        if first && matches!(self.kind, Kind::Events(_)) {
            self.account.first_output();
        }
        if let (Some(total), Some(lease)) = (passed.generated, &mut self.lease) {
            lease.on_generated(total);
        }
        if passed.forward.is_some() {
            self.beat.on_passed();
        }
        passed.forward
    }

    /// The backend's body is over.
    fn on_end(&mut self) {
        self.backend = None;
        let ended = self.reader.finish();
        if ended.state == Wholeness::Truncated {
            return self.break_off(Break::Lost, ended);
        }
        self.phase = ended.rest.clone().map_or(Phase::Ended, Phase::Last);
        self.settle(&ended);
    }

    /// The answer will never be whole: gives back everything, then says so.
    fn on_break(&mut self, cause: Break) {
        if self.reader.is_done() {
            // The client has all there was; only the connection was lost.
            return self.on_end();
        }
        let ended = self.reader.finish();
        self.break_off(cause, ended);
    }

    fn break_off(&mut self, cause: Break, ended: Ended) {
        self.backend = None;
        // Without a failure the lease ends as cancelled: the backend is not to blame.
        let mut lease = self.lease.take();
        let output = self.account.output(&ended, Told::Partly);
        if let Some(lease) = &mut lease {
            lease.on_generated(output.tokens);
        }
        if let Some(failure) = cause.failure() {
            if let Some(lease) = lease {
                lease.fail();
            }
            self.account.broke(failure, cause);
            if output.tokens.is_zero() {
                self.account.costs_nothing();
            }
        }
        self.account.close(&ended, output);
        self.account.ended(Finish::Failed, Some(cause.reason()));
        // What was held back of an event is no event: nobody is given half of one.
        self.phase = if matches!(self.kind, Kind::Events(_)) {
            let event = cause.error().to_sse_event(self.account.dialect());
            Phase::Breaking([ended.closing, &event].concat().into())
        } else {
            Phase::Waning
        };
    }

    fn poll_phase(&mut self, cx: &mut Context<'_>) -> FramePoll {
        match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Flowing => {
                self.phase = Phase::Flowing;
                self.poll_flowing(cx)
            }
            Phase::Last(rest) => Poll::Ready(Some(Ok(Frame::data(rest)))),
            Phase::Breaking(event) => {
                self.phase = Phase::Lingering(Box::pin(tokio::time::sleep(LINGER)));
                Poll::Ready(Some(Ok(Frame::data(event))))
            }
            Phase::Lingering(mut timer) => {
                if timer.as_mut().poll(cx).is_pending() {
                    self.phase = Phase::Lingering(timer);
                    return Poll::Pending;
                }
                Poll::Ready(Some(Err(Cut)))
            }
            Phase::Waning => {
                self.phase = Phase::Cutting;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Phase::Cutting => Poll::Ready(Some(Err(Cut))),
            Phase::Ended => Poll::Ready(None),
        }
    }
}

impl<U> Relay<U> {
    /// Settles an answer that is all there.
    fn settle(&mut self, ended: &Ended) {
        let Some(lease) = self.lease.take() else {
            return;
        };
        let account = &self.account;
        let output = account.output(ended, Told::Whole);
        let finish = match (self.kind, ended.state) {
            (Kind::Refusal, _) => {
                account.costs_nothing();
                lease.finish(Tokens::ZERO, Tokens::ZERO);
                Finish::Complete
            }
            (_, Wholeness::EngineFailed) => {
                lease.fail();
                account.failed(UpstreamFailure::ErrorEvent);
                if output.tokens.is_zero() {
                    account.costs_nothing();
                }
                Finish::Failed
            }
            _ => {
                let prompt = ended.usage.map(|usage| Tokens::new(usage.prompt_tokens));
                lease.finish(prompt.unwrap_or(account.prompt()), output.tokens);
                account.succeeded(ended);
                Finish::Complete
            }
        };
        account.close(ended, output);
        account.ended(finish, None);
    }

    /// The client left before the end: what it was given is what it is charged.
    fn abandon(&mut self) {
        let Some(mut lease) = self.lease.take() else {
            return;
        };
        let ended = self.reader.finish();
        let output = self.account.output(&ended, Told::Partly);
        lease.on_generated(output.tokens);
        self.account.close(&ended, output);
        // The lease is given back as cancelled by its own drop.
    }
}

impl<U> Body for Relay<U>
where
    U: Body<Data = Bytes>,
{
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> FramePoll {
        self.get_mut().poll_phase(cx)
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.backend, self.kind) {
            (_, Kind::Events(_)) | (None, _) => SizeHint::default(),
            (Some(backend), _) => backend.size_hint(),
        }
    }
}

impl<U> Drop for Relay<U> {
    fn drop(&mut self) {
        self.backend = None;
        if self.reader.is_done() {
            // The client left after the last event, before the end was seen.
            let ended = self.reader.finish();
            self.settle(&ended);
        }
        self.abandon();
    }
}

#[cfg(test)]
mod any;
#[cfg(test)]
mod tests;
