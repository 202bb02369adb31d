//! How a client of HTTP/2 treats its streams.
//!
//! A stream costs its client one small frame to open and one to reset, and us a
//! request each time. Decides when that is no way to behave: when more streams
//! were reset before their answer than a client could want, beside those that
//! it let be answered. Never ends anything itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// Streams reset before their answer, beyond those answered, that are borne.
const MOST_ABANDONED: u32 = 100;

/// How long a client of HTTP/2 that has nothing to read has to take its leave.
pub(super) const FAREWELL: Duration = Duration::from_secs(1);

/// The conduct of one connection's client.
#[derive(Clone, Debug, Default)]
pub(super) struct Conduct(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    abandoned: AtomicU32,
    /// Whether any stream had an answer.
    answered: AtomicBool,
    worn_out: Notify,
}

/// A stream whose answer has not begun; dropped before that, it was abandoned.
#[derive(Debug)]
pub(super) struct Fate(Option<Conduct>);

// === impl Conduct ===

impl Conduct {
    /// A stream begins.
    pub(super) fn begin(&self) -> Fate {
        Fate(Some(self.clone()))
    }

    /// Ends once too many streams were reset. To be awaited by one task.
    pub(super) async fn worn_out(&self) {
        self.0.worn_out.notified().await;
    }

    /// How long it has to take its leave: `reading` once it had an answer. A
    /// stream is over for us when its end is handed to the connection, which may
    /// hold a part of it until the client opens its window; to end before that
    /// would cut it.
    pub(super) fn patience(&self, reading: Duration) -> Duration {
        // Relaxed: set and read by tasks that meet in the answer itself.
        if self.0.answered.load(Ordering::Relaxed) {
            reading
        } else {
            FAREWELL
        }
    }

    fn abandoned(&self) {
        // Relaxed: one counter, and the notice orders itself.
        let before = self.0.abandoned.fetch_add(1, Ordering::Relaxed);
        if before >= MOST_ABANDONED {
            self.0.worn_out.notify_one();
        }
    }
}

// === impl Fate ===

impl Fate {
    /// The stream has its answer.
    pub(super) fn answered(mut self) {
        if let Some(conduct) = self.0.take() {
            conduct.0.answered.store(true, Ordering::Relaxed);
            let abandoned = &conduct.0.abandoned;
            let _forgiven = abandoned.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
                count.checked_sub(1)
            });
        }
    }
}

impl Drop for Fate {
    fn drop(&mut self) {
        if let Some(conduct) = self.0.take() {
            conduct.abandoned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_test::{assert_pending, assert_ready, task};

    #[test]
    fn streams_that_are_answered_make_good_for_those_that_are_reset() {
        let conduct = Conduct::default();
        let mut worn_out = task::spawn(conduct.worn_out());
        assert_pending!(worn_out.poll());
        for _ in 0..10 * MOST_ABANDONED {
            drop(conduct.begin());
            conduct.begin().answered();
        }
        assert_pending!(worn_out.poll());
        for _ in 0..MOST_ABANDONED {
            drop(conduct.begin());
        }
        assert_pending!(worn_out.poll());
        drop(conduct.begin());
        assert!(worn_out.is_woken());
        assert_ready!(worn_out.poll());
    }
}
