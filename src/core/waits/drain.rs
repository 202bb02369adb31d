//! How fast memory comes free.
//!
//! The measure is tokens of KV given back per second *while something waits*,
//! as an average that forgets with a time constant of ten such seconds: what an
//! idle pool gives back says how little was asked, not how much it can do. Until
//! enough has been seen nothing is known.

use std::time::Duration;

use crate::core::time::Time;
use crate::core::units::Tokens;

/// Seconds after which a release counts for 1/e.
const MEMORY_SECONDS: f64 = 10.0;

/// Shortest observation that says anything, in seconds as decayed.
const ENOUGH_SECONDS: f64 = 3.0;

/// Whether anything waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::core) enum Backlog {
    #[default]
    None,
    Some,
}

/// The measured drain of a pool.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::core) struct Drain {
    /// Tokens given back, each decayed by its age.
    weighted: f64,
    /// Seconds of observation, decayed likewise: the divisor that makes a
    /// young average honest.
    seconds: f64,
    last: Time,
    backlog: Backlog,
}

// === impl Drain ===

impl Drain {
    /// From `now` on something waits, or nothing does.
    pub(in crate::core) fn set_backlogged(&mut self, now: Time, backlog: Backlog) {
        self.decay(now);
        self.backlog = backlog;
    }

    /// `tokens` of KV were given back at `now`.
    pub(in crate::core) fn on_release(&mut self, now: Time, tokens: Tokens) {
        self.decay(now);
        if self.backlog == Backlog::Some {
            self.weighted += tokens.as_f64();
        }
    }

    /// Tokens per second, or `None` before the first release.
    pub(in crate::core) fn rate(&self, now: Time) -> Option<f64> {
        let mut then = *self;
        then.decay(now);
        (then.seconds >= ENOUGH_SECONDS && then.weighted > 0.0)
            .then(|| then.weighted / then.seconds)
    }

    /// Time until `tokens` have been given back, by the measured rate.
    pub(in crate::core) fn time_for(&self, now: Time, tokens: Tokens) -> Option<Duration> {
        let seconds = tokens.as_f64() / self.rate(now)?;
        // A day is as good as never, and keeps the conversion in range.
        Some(Duration::from_secs_f64(seconds.min(86_400.0)))
    }

    fn decay(&mut self, now: Time) {
        let passed = match self.backlog {
            Backlog::Some => (now - self.last).as_secs_f64(),
            Backlog::None => 0.0,
        };
        self.last = self.last.max(now);
        let keep = (-passed / MEMORY_SECONDS).exp();
        self.weighted *= keep;
        self.seconds = self.seconds * keep + MEMORY_SECONDS * (1.0 - keep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_steady_drain_is_measured_within_five_percent() {
        let mut drain = Drain::default();
        drain.set_backlogged(at(0), Backlog::Some);
        for second in 0..60 {
            drain.on_release(at(second), Tokens::new(500));
        }
        let rate = drain.rate(at(59)).expect("measured");
        assert!((475.0..=550.0).contains(&rate), "{rate}");
        let wait = drain.time_for(at(59), Tokens::new(5000)).expect("measured");
        assert!((9.0..=10.6).contains(&wait.as_secs_f64()), "{wait:?}");
    }

    #[test]
    fn what_is_given_back_while_nobody_waits_is_not_a_measure() {
        let mut drain = Drain::default();
        for second in 0..30 {
            drain.on_release(at(second), Tokens::new(10));
        }
        assert_eq!(drain.rate(at(30)), None);
        drain.set_backlogged(at(30), Backlog::Some);
        for second in 30..40 {
            drain.on_release(at(second), Tokens::new(1000));
        }
        let rate = drain.rate(at(40)).expect("measured");
        assert!((900.0..=1100.0).contains(&rate), "{rate}");
    }
}
