//! The way back: relays an answer and owns the lease it runs on.
//!
//! Decides when an answer has ended, and how: whole, failed by the engine, cut
//! short, too slow, or dropped by a client that left. Polls the backend's body
//! directly, without a task or a channel, so a slow client slows the engine and
//! a client that leaves drops the backend's connection and the lease at once.
//! Never changes a byte, except for the usage event asked for on our own account.
//! Invariant: the lease ends in the same call in which the end is seen.

mod broken;
mod reader;
mod watchdog;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use thiserror::Error;
use tokio::time::Sleep;

use crate::core::demand::TenantId;
use crate::core::units::Tokens;
use crate::gate::Lease;
use crate::protocol::{Dialect, ScanMode, Usage, WorkKind};
use crate::telemetry::{Finish, UpstreamFailure};
use crate::tokenize::Sample;
use crate::upstream::probe::Outcome;

use super::BoxFuture;
use super::door::Door;
use super::pool::Pool;
use super::reason::Reason;
use super::seat::Seat;
use super::selfcheck::compare_usage;
use super::steps::Measured;
use super::trail::Trail;

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

/// What the relay accounts to.
pub struct Account {
    trail: Trail,
    pool: Arc<Pool>,
    seat: Arc<Seat>,
    door: Door,
    /// How a failure is told.
    dialect: Dialect,
    /// Prompt tokens counted.
    prompt: Tokens,
    /// Whether the engine itself has answered: what is answered beside it says
    /// nothing of its health.
    generates: bool,
    tenant: TenantId,
    /// The route's name.
    kind: &'static str,
    /// What an estimate can learn from.
    sample: Option<Sample>,
    /// What the engine must have counted if our count is exact.
    claim: Option<u64>,
}

/// The body of a relayed answer.
pub struct Relay<U> {
    backend: Option<Pin<Box<U>>>,
    lease: Option<Lease>,
    reader: Reader,
    kind: Kind,
    watchdog: Watchdog,
    /// Resolves when nothing more may come, whatever the backend does.
    trouble: BoxFuture<Break>,
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
            trouble: account.trouble(),
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
        if let Poll::Ready(cause) = self.trouble.as_mut().poll(cx) {
            self.on_break(cause);
            return self.poll_phase(cx);
        }
        let overrun = ready!(self.watchdog.poll_overrun(cx));
        self.on_break(Break::TooSlow(overrun));
        self.poll_phase(cx)
    }

    fn on_frame(&mut self, frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        let frame = match frame.into_data() {
            Ok(chunk) => self.on_chunk(chunk).map(Frame::data),
            Err(trailers) => Some(trailers),
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
            let trail = &self.account.trail;
            let since = trail.started().elapsed();
            trail.note(|facts| facts.record.ttft_ms = Some(since));
        }
        if let (Some(total), Some(lease)) = (passed.generated, &mut self.lease) {
            lease.on_generated(total);
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
        let lease = self.lease.take();
        if let Some(failure) = cause.failure() {
            if let Some(lease) = lease {
                lease.fail();
            }
            self.account.trail.backend_failed(failure);
            if cause.blames_backend() {
                self.account.seat.report(Outcome::Failed);
            }
        }
        self.account
            .close(Finish::Failed, Some(cause.reason()), &ended);
        let rest = ended.rest;
        self.phase = if matches!(self.kind, Kind::Events(_)) {
            let mut last = BytesMut::from(rest.unwrap_or_default());
            let event = cause.error().to_sse_event(self.account.dialect);
            last.extend_from_slice(&event);
            Phase::Breaking(last.freeze())
        } else {
            Phase::Cutting
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
        let finish = match (self.kind, ended.state) {
            (Kind::Refusal, _) => {
                lease.finish(Tokens::ZERO, Tokens::ZERO);
                Finish::Complete
            }
            (_, Wholeness::EngineFailed) => {
                lease.fail();
                account.failed(UpstreamFailure::ErrorEvent);
                Finish::Failed
            }
            _ => {
                let used = |count: fn(&Usage) -> u64| ended.usage.as_ref().map(count);
                let prompt = used(|usage| usage.prompt_tokens).map(Tokens::new);
                let generated = used(|usage| usage.completion_tokens).map(Tokens::new);
                lease.finish(
                    prompt.unwrap_or(account.prompt),
                    generated.unwrap_or(ended.generated),
                );
                if account.generates {
                    account.seat.report(Outcome::Served);
                }
                Finish::Complete
            }
        };
        account.close(finish, None, ended);
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
        // A lease still held is given back as cancelled by its own drop.
    }
}

// === impl Account ===

impl Account {
    /// The account of a request that was sent to `seat` while `door` was not over.
    pub fn new(measured: &Measured, seat: Arc<Seat>, door: Door) -> Self {
        let (letter, outline) = (&measured.letter, &measured.outline);
        Self {
            trail: letter.trail.clone(),
            pool: Arc::clone(&letter.pool),
            seat,
            door,
            dialect: letter.route.dialect(),
            prompt: outline.prompt,
            generates: letter.route.work() != WorkKind::Aside,
            tenant: letter.tenant.id,
            kind: letter.route.label(),
            sample: outline.sample,
            claim: outline.claim,
        }
    }

    /// Resolves when the backend is given up, or the process ends.
    fn trouble(&self) -> BoxFuture<Break> {
        let (lost, over) = (self.seat.lost(), self.door.over());
        Box::pin(async move {
            tokio::select! {
                () = lost => Break::Lost,
                () = over => Break::Shutdown,
            }
        })
    }

    /// The backend failed this request.
    fn failed(&self, failure: UpstreamFailure) {
        self.trail.backend_failed(failure);
        self.seat.report(Outcome::Failed);
    }

    /// Learns from what the engine says the prompt was.
    fn learn(&self, usage: &Usage) {
        let theirs = usage.prompt_tokens;
        if let Some(sample) = self.sample {
            self.pool.counter().observe(self.tenant.0, sample, theirs);
        }
        if let Some(ours) = self.claim {
            let pool = (&*self.pool, self.trail.metrics());
            compare_usage(pool, self.kind, (ours, theirs));
        }
    }

    /// Notes how the request ended, and learns from the engine's own account of it.
    fn close(&self, finish: Finish, reason: Option<Reason>, ended: &Ended) {
        if let Some(usage) = &ended.usage {
            self.learn(usage);
        }
        self.trail.ended(finish, reason);
        let generated = (!ended.generated.is_zero()).then_some(ended.generated.get());
        self.trail.note(|facts| {
            let record = &mut facts.record;
            record.used_prompt_tokens = ended.usage.map(|usage| usage.prompt_tokens);
            record.used_cached_tokens = ended.usage.and_then(|usage| usage.cached_tokens);
            record.used_output_tokens = ended
                .usage
                .map(|usage| usage.completion_tokens)
                .or(generated);
        });
    }
}

#[cfg(test)]
mod tests;
