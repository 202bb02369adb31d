//! How fast memory comes free, and so when to come back.
//!
//! The measure is tokens of KV given back per second *while something waits*,
//! as an average that forgets with a time constant of ten such seconds: what an
//! idle pool gives back says how little was asked, not how much it can do. Until
//! enough has been seen nothing is known, and the answer is a short guess.

use std::time::Duration;

use super::time::Time;
use super::units::Tokens;

/// Seconds after which a release counts for 1/e.
const MEMORY_SECONDS: f64 = 10.0;

/// Said when nothing has been measured.
const UNKNOWN: Duration = Duration::from_secs(2);

/// Shortest and longest time a client is told to stay away: SDKs ignore longer ones.
const RANGE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Shortest observation that says anything, in seconds as decayed.
const ENOUGH_SECONDS: f64 = 3.0;

/// Whether anything waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Backlog {
    #[default]
    None,
    Some,
}

/// The measured drain of a pool.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Drain {
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
    pub(super) fn set_backlogged(&mut self, now: Time, backlog: Backlog) {
        self.decay(now);
        self.backlog = backlog;
    }

    /// `tokens` of KV were given back at `now`.
    pub(super) fn on_release(&mut self, now: Time, tokens: Tokens) {
        self.decay(now);
        if self.backlog == Backlog::Some {
            self.weighted += tokens.as_f64();
        }
    }

    /// Tokens per second, or `None` before the first release.
    pub(super) fn rate(&self, now: Time) -> Option<f64> {
        let mut then = *self;
        then.decay(now);
        (then.seconds >= ENOUGH_SECONDS && then.weighted > 0.0)
            .then(|| then.weighted / then.seconds)
    }

    /// Time until `tokens` have been given back, by the measured rate.
    pub(super) fn time_for(&self, now: Time, tokens: Tokens) -> Option<Duration> {
        let seconds = tokens.as_f64() / self.rate(now)?;
        // A day is as good as never, and keeps the conversion in range.
        Some(Duration::from_secs_f64(seconds.min(86_400.0)))
    }

    /// When a client should come back whose turn is after `ahead` tokens:
    /// 1 to 60 seconds.
    pub(super) fn retry_after(&self, now: Time, ahead: Tokens) -> Duration {
        self.time_for(now, ahead)
            .unwrap_or(UNKNOWN)
            .clamp(RANGE.0, RANGE.1)
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

    #[test]
    fn retry_after_stays_between_one_and_sixty_seconds() {
        let mut drain = Drain::default();
        assert_eq!(drain.retry_after(at(0), Tokens::new(1)), UNKNOWN);
        drain.set_backlogged(at(0), Backlog::Some);
        for second in 0..20 {
            drain.on_release(at(second), Tokens::new(100));
        }
        assert_eq!(
            drain.retry_after(at(20), Tokens::new(1)),
            Duration::from_secs(1)
        );
        assert_eq!(
            drain.retry_after(at(20), Tokens::new(1_000_000)),
            Duration::from_secs(60)
        );
    }
}
