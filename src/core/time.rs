//! The instant that callers pass in: the core never reads a clock.

use std::ops::{Add, Sub};
use std::time::Duration;

/// An instant on the caller's monotonic clock, in nanoseconds since its start.
///
/// The gate maps tokio's clock onto it and the simulation steps it by hand, so
/// the same admission code runs live and in virtual time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The clock's start.
    pub const ZERO: Self = Self(0);
    /// Later than anything that happens; stands for "no deadline".
    pub const NEVER: Self = Self(u64::MAX);

    /// The instant `nanos` after the clock's start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The instant `since_start` after the clock's start; past 584 years it is [`Self::NEVER`].
    pub fn from_start(since_start: Duration) -> Self {
        Self(u64::try_from(since_start.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Nanoseconds since the clock's start.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// The instant `wait` before this one; the clock's start where there is none.
    pub fn before(self, wait: Duration) -> Self {
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(nanos))
    }

    /// Time passed since `earlier`; zero if `earlier` is not earlier.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    /// Saturates at [`Time::NEVER`], so a deadline of "never" stays never.
    fn add(self, wait: Duration) -> Self {
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

impl Sub for Time {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}
