//! What a request takes of a pool, as time of the whole pool.
//!
//! A request uses prefill time and holds KV for a while. Each is taken as a share
//! of what the pool has of it, and the larger share is the cost: the dominant
//! resource of Ghodsi et al. (Dominant Resource Fairness, NSDI 2011), so that a
//! tenant of long prompts and one of long answers are charged alike. A cost of one
//! second is all that the pool has of one resource for one second.

use std::time::Duration;

use crate::core::units::Tokens;

/// Time of the whole pool, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::core) struct Cost(u64);

/// What a request uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::core) struct Usage {
    /// Its prefill, as if all engines shared it.
    pub(in crate::core) prefill: Duration,
    /// KV it holds, on average, while it is there.
    pub(in crate::core) held: Tokens,
    /// How long it is there.
    pub(in crate::core) stay: Duration,
}

// === impl Cost ===

impl Cost {
    /// Nothing.
    pub(in crate::core) const ZERO: Self = Self(0);

    /// All of the pool for that long.
    pub(in crate::core) fn of(time: Duration) -> Self {
        Self(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }

    pub(super) const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// As time of the whole pool.
    pub(in crate::core) const fn time(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    pub(super) const fn nanos(self) -> u64 {
        self.0
    }

    /// Adds, stopping at 584 years: a sum of costs only orders and predicts.
    #[must_use]
    pub(in crate::core) const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Subtracts, stopping at zero.
    #[must_use]
    pub(in crate::core) const fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

// === impl Usage ===

impl Usage {
    /// Tokens of KV times seconds.
    pub(in crate::core) fn size(self) -> f64 {
        self.held.as_f64() * self.stay.as_secs_f64()
    }

    /// The larger of its two shares, in a pool that holds `kv` tokens. Where that is
    /// not known memory costs nothing.
    pub(in crate::core) fn cost(self, kv: Tokens) -> Cost {
        let held = u128::from(self.held.get()) * self.stay.as_nanos();
        let memory = held.checked_div(u128::from(kv.get())).unwrap_or(0);
        let most = self.prefill.as_nanos().max(memory);
        Cost(u64::try_from(most).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: Tokens = Tokens::new(100_000);

    #[test]
    fn the_larger_share_is_charged() {
        let usage = |prefill: u64, held: u64| Usage {
            prefill: Duration::from_millis(prefill),
            held: Tokens::new(held),
            stay: Duration::from_secs(10),
        };
        // Half a second of prefill, against a thousandth of ten seconds of memory.
        let long_prompt = usage(500, 100).cost(POOL);
        assert_eq!(long_prompt.time(), Duration::from_millis(500));
        let long_answer = usage(20, 5000).cost(POOL);
        assert_eq!(long_answer.time(), Duration::from_millis(500));
        let unknown = usage(20, 5000).cost(Tokens::ZERO);
        assert_eq!(unknown.time(), Duration::from_millis(20));
    }
}
