//! The time limits of one answer: first data, silence, the whole.
//!
//! Decides when an answer took too long; never reads it. Only time during which
//! the *backend* owes bytes counts as silence: while a slow client holds the
//! answer back nobody polls here, and the clock of silence starts at the first
//! poll that finds nothing to relay.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use crate::layers::woken::Woken;

/// Time limits of one answer.
#[derive(Clone, Copy, Debug)]
pub struct AnswerLimits {
    /// When the first data event must have come; `None` is no limit.
    pub first_data: Option<Instant>,
    /// Longest silence after the first data event.
    pub silence: Duration,
    /// When the whole answer must have come; `None` is no limit.
    pub whole: Option<Instant>,
    /// How long the client of a stream may hear nothing before a comment keeps
    /// its connection open; `None` is for ever.
    pub keepalive: Option<Duration>,
}

/// Which limit was passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overrun {
    /// No data event came.
    FirstData,
    /// Data events stopped coming.
    Silence,
    /// The answer did not end.
    Whole,
}

/// Watches one answer.
#[derive(Debug)]
pub(super) struct Watchdog {
    limits: AnswerLimits,
    seen_data: bool,
    quiet_since: Option<Instant>,
    alarm: Alarm,
}

/// A timer that is moved only when it fires: a stream of chunks costs one clock
/// read per gap, not one timer registration.
#[derive(Debug, Default)]
pub(super) struct Alarm(Option<Pin<Box<Woken<Sleep>>>>);

// === impl Watchdog ===

impl Watchdog {
    pub(super) fn new(limits: AnswerLimits) -> Self {
        Self {
            limits,
            seen_data: false,
            quiet_since: None,
            alarm: Alarm::default(),
        }
    }

    /// Bytes came.
    pub(super) fn on_bytes(&mut self) {
        self.quiet_since = None;
    }

    /// A data event (or a byte of a plain answer) came; whether it is the first.
    pub(super) fn on_data(&mut self) -> bool {
        !std::mem::replace(&mut self.seen_data, true)
    }

    /// Call when the backend has nothing to read; ready once a limit is passed.
    pub(super) fn poll_overrun(&mut self, cx: &mut Context<'_>) -> Poll<Overrun> {
        let quiet_since = *self.quiet_since.get_or_insert_with(Instant::now);
        let Some((deadline, overrun)) = self.next(quiet_since) else {
            return Poll::Pending;
        };
        self.alarm.poll_at(cx, deadline).map(|()| overrun)
    }

    fn next(&self, quiet_since: Instant) -> Option<(Instant, Overrun)> {
        let phase = if self.seen_data {
            Some((quiet_since + self.limits.silence, Overrun::Silence))
        } else {
            self.limits.first_data.map(|at| (at, Overrun::FirstData))
        };
        let whole = self.limits.whole.map(|at| (at, Overrun::Whole));
        phase.into_iter().chain(whole).min_by_key(|&(at, _)| at)
    }
}

// === impl Alarm ===

impl Alarm {
    /// Ready at `deadline`, which may be another one each time.
    pub(super) fn poll_at(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        let timer = self
            .0
            .get_or_insert_with(|| Box::pin(Woken::new(tokio::time::sleep_until(deadline))));
        if timer.get_ref().deadline() > deadline {
            timer.as_mut().get_pin_mut().reset(deadline);
        }
        while timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            timer.as_mut().get_pin_mut().reset(deadline);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_test::{assert_pending, assert_ready_eq, task};

    fn limits() -> AnswerLimits {
        AnswerLimits {
            first_data: Some(Instant::now() + Duration::from_secs(10)),
            silence: Duration::from_secs(3),
            whole: Some(Instant::now() + Duration::from_secs(60)),
            keepalive: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_counts_only_from_the_first_data_event() {
        let mut dog = Watchdog::new(limits());
        let mut poll = task::spawn(());
        assert_pending!(poll.enter(|cx, _| dog.poll_overrun(cx)));
        dog.on_bytes();
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_pending!(poll.enter(|cx, _| dog.poll_overrun(cx)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(poll.is_woken());
        assert_ready_eq!(poll.enter(|cx, _| dog.poll_overrun(cx)), Overrun::FirstData);
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_nobody_polls_is_not_silence() {
        let mut dog = Watchdog::new(limits());
        let mut poll = task::spawn(());
        dog.on_bytes();
        dog.on_data();
        // A slow client: nothing is polled for longer than the limit.
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_pending!(poll.enter(|cx, _| dog.poll_overrun(cx)));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_pending!(poll.enter(|cx, _| dog.poll_overrun(cx)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_ready_eq!(poll.enter(|cx, _| dog.poll_overrun(cx)), Overrun::Silence);
    }

    #[tokio::test(start_paused = true)]
    async fn the_whole_limit_holds_however_lively_the_stream_is() {
        let mut dog = Watchdog::new(limits());
        let mut poll = task::spawn(());
        dog.on_data();
        for _ in 0..30 {
            dog.on_bytes();
            assert_pending!(poll.enter(|cx, _| dog.poll_overrun(cx)));
            tokio::time::advance(Duration::from_secs(2)).await;
        }
        dog.on_bytes();
        assert_ready_eq!(poll.enter(|cx, _| dog.poll_overrun(cx)), Overrun::Whole);
    }
}
