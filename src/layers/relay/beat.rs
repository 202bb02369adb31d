//! Comments that keep a quiet stream's connection open.
//!
//! Decides when the client has heard nothing for long enough; never looks at
//! what it heard. One line without a blank one after it: a line that begins
//! with a colon is a comment of whatever event follows, while a blank line
//! would make some readers hand out an event that is empty.

use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use super::watchdog::Alarm;

/// What is said.
pub(super) const COMMENT: &[u8] = b": ping\n";

/// Measures how long a client has heard nothing.
#[derive(Debug)]
pub(super) struct Beat {
    /// `None` is never.
    every: Option<Duration>,
    since: Instant,
    alarm: Alarm,
}

// === impl Beat ===

impl Beat {
    /// Nothing was said yet.
    pub(super) fn new(every: Option<Duration>) -> Self {
        Self {
            every,
            since: Instant::now(),
            alarm: Alarm::default(),
        }
    }

    /// The client is given bytes.
    pub(super) fn on_passed(&mut self) {
        if self.every.is_some() {
            self.since = Instant::now();
        }
    }

    /// Ready once the client has heard nothing for long enough, and then again
    /// after as long.
    pub(super) fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(every) = self.every else {
            return Poll::Pending;
        };
        let due = self.alarm.poll_at(cx, self.since + every);
        if due.is_ready() {
            self.since = Instant::now();
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_test::{assert_pending, assert_ready, task};

    #[tokio::test(start_paused = true)]
    async fn it_beats_in_gaps_and_not_where_it_is_off() {
        let second = Duration::from_secs(1);
        let mut beat = Beat::new(Some(15 * second));
        let mut poll = task::spawn(());
        assert_pending!(poll.enter(|cx, _| beat.poll_due(cx)));
        tokio::time::advance(14 * second).await;
        beat.on_passed();
        assert_pending!(poll.enter(|cx, _| beat.poll_due(cx)));
        for _ in 0..3 {
            tokio::time::advance(14 * second).await;
            assert_pending!(poll.enter(|cx, _| beat.poll_due(cx)));
            tokio::time::advance(second).await;
            assert!(poll.is_woken());
            assert_ready!(poll.enter(|cx, _| beat.poll_due(cx)));
        }
        let mut off = Beat::new(None);
        off.on_passed();
        assert_pending!(poll.enter(|cx, _| off.poll_due(cx)));
        tokio::time::advance(3600 * second).await;
        assert_pending!(poll.enter(|cx, _| off.poll_due(cx)));
    }
}
