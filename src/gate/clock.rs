//! The mapping of tokio's clock onto the core's.

use tokio::time::Instant;

use crate::core::time::Time;

/// A clock whose start is the moment it was made. Follows tokio's paused clock
/// in tests.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self {
            start: Instant::now(),
        }
    }

    /// Now, in the core's time.
    pub fn now(&self) -> Time {
        Time::from_start(self.start.elapsed())
    }

    /// An instant in the core's time; the start where it came before.
    pub fn time(&self, instant: Instant) -> Time {
        Time::from_start(instant.saturating_duration_since(self.start))
    }

    /// The instant to sleep until for a time of the core.
    pub fn instant(&self, time: Time) -> Instant {
        self.start + (time - Time::ZERO)
    }
}
