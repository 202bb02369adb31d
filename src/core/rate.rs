//! GCRA: whether one more arrival keeps to a rate, and when the next one would.
//!
//! The Generic Cell Rate Algorithm of ITU-T Rec. I.371 (Annex A), in its
//! continuous-state leaky bucket form, which lets the same arrivals through as
//! virtual scheduling does: a bucket drains one unit every `T`; an arrival of
//! cost `c` conforms where the level after draining is at most `τ`, and adds
//! `c·T`. Here `T` is a minute over the rate and `τ` what the burst leaves, so a
//! bucket holds `burst` units and nothing more is let in until they fit.
//! Between two instants `t` apart at most `burst + rate·t` units pass.
//!
//! Never reads a clock. Levels are integers in shares of a unit that divide by
//! any rate, so nothing is rounded however long a meter lives.
//! Invariant: a meter that nobody takes from becomes empty and stays so.

use std::time::Duration;

use super::time::Time;

/// Shares of one unit: nanoseconds of a minute. A rate of `n` units a minute
/// drains exactly `n` shares a nanosecond.
const UNIT: u128 = 60_000_000_000;

/// Longest debt that is remembered, in minutes of the rate: what an engine says
/// of its usage must not lock a tenant out for good.
const DEBT_MINUTES: u128 = 60;

/// How much may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Units a minute in the long run; 0 is taken as 1.
    pub per_minute: u64,
    /// Units at one moment, after a pause; 0 is taken as 1.
    pub burst: u64,
}

/// A bucket: how much of a rate is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meter {
    rate: Rate,
    /// Shares in the bucket at `at`.
    level: u128,
    at: Time,
}

/// An arrival does not conform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// It will, after this time without other arrivals; rounded up.
    For(Duration),
    /// It never will: it is larger than the burst.
    Always,
}

// === impl Rate ===

impl Rate {
    /// A rate whose burst is one minute's worth.
    pub const fn per_minute(units: u64) -> Self {
        Self {
            per_minute: units,
            burst: units,
        }
    }

    const fn drain(self) -> u128 {
        // Widening; `u128::from` is not const.
        match self.per_minute {
            0 => 1,
            units => units as u128,
        }
    }

    /// Units that pass at one moment after a pause; at least 1.
    pub const fn capacity(self) -> u64 {
        if self.burst == 0 { 1 } else { self.burst }
    }

    fn full(self) -> u128 {
        u128::from(self.capacity()) * UNIT
    }
}

// === impl Meter ===

impl Meter {
    /// An empty bucket.
    pub const fn new(rate: Rate, now: Time) -> Self {
        Self {
            rate,
            level: 0,
            at: now,
        }
    }

    /// What it keeps to.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Keeps to another rate from `now` on; what is used up stays used up.
    pub fn set_rate(&mut self, rate: Rate, now: Time) {
        self.drain(now);
        self.rate = rate;
    }

    /// Takes `units`, all or nothing. A `now` before the last one drains nothing.
    ///
    /// # Errors
    /// [`Excess`] where they do not conform; nothing is taken.
    pub fn take(&mut self, units: u64, now: Time) -> Result<(), Excess> {
        self.check(units, now)?;
        self.drain(now);
        self.level += u128::from(units) * UNIT;
        Ok(())
    }

    /// Whether `units` would be let in, without taking them.
    ///
    /// # Errors
    /// [`Excess`] where they do not conform.
    pub fn check(&self, units: u64, now: Time) -> Result<(), Excess> {
        let room = self.rate.full();
        let asked = u128::from(units) * UNIT;
        if asked > room {
            return Err(Excess::Always);
        }
        match self.level_at(now).saturating_sub(room - asked) {
            0 => Ok(()),
            over => Err(Excess::For(self.time_for(over))),
        }
    }

    /// Takes `units` that are spent already, conforming or not. The debt is
    /// paid by later arrivals; beyond an hour of the rate it is forgiven.
    pub fn debit(&mut self, units: u64, now: Time) {
        self.drain(now);
        let most = self.rate.full() + DEBT_MINUTES * self.rate.drain() * UNIT;
        let level = self.level + u128::from(units) * UNIT;
        self.level = level.min(most.max(self.level));
    }

    /// Gives back `units` taken and not spent. What has drained in between is
    /// not given a second time: a bucket is never emptier than empty.
    pub fn credit(&mut self, units: u64, now: Time) {
        self.drain(now);
        self.level = self.level.saturating_sub(u128::from(units) * UNIT);
    }

    /// Units that would be let in at once; rounded down.
    pub fn remaining(&self, now: Time) -> u64 {
        let room = self.rate.full().saturating_sub(self.level_at(now));
        u64::try_from(room / UNIT).unwrap_or(u64::MAX)
    }

    /// Until the bucket is empty, where nobody takes; rounded up.
    pub fn empty_in(&self, now: Time) -> Duration {
        self.time_for(self.level_at(now))
    }

    fn drain(&mut self, now: Time) {
        self.level = self.level_at(now);
        self.at = self.at.max(now);
    }

    fn level_at(&self, now: Time) -> u128 {
        let passed = now.since(self.at).as_nanos();
        self.level
            .saturating_sub(passed.saturating_mul(self.rate.drain()))
    }

    fn time_for(&self, shares: u128) -> Duration {
        let nanos = shares.div_ceil(self.rate.drain());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(milliseconds: u64) -> Time {
        Time::from_start(Duration::from_millis(milliseconds))
    }

    #[test]
    fn a_burst_passes_at_once_and_then_one_in_each_interval() {
        let mut meter = Meter::new(Rate::per_minute(5), at(0));
        for left in (0..5).rev() {
            assert_eq!(meter.take(1, at(0)), Ok(()));
            assert_eq!(meter.remaining(at(0)), left);
        }
        let wait = Duration::from_secs(12);
        assert_eq!(meter.take(1, at(0)), Err(Excess::For(wait)));
        let last = Duration::from_millis(1);
        assert_eq!(meter.take(1, at(11_999)), Err(Excess::For(last)));
        assert_eq!(meter.take(1, at(12_000)), Ok(()));
        assert_eq!(meter.empty_in(at(12_000)), Duration::from_secs(60));
        assert_eq!(meter.take(5, at(72_000)), Ok(()));
    }

    #[test]
    fn arrivals_exactly_at_the_rate_are_never_refused() {
        // Seven a minute: an interval of no whole number of nanoseconds.
        let rate = Rate {
            per_minute: 7,
            burst: 1,
        };
        let mut meter = Meter::new(rate, at(0));
        let interval = 60_000_000_000_u64.div_ceil(7);
        for count in 0..7 * 60 * 24 {
            let now = Time::from_nanos(count * interval);
            assert_eq!(meter.take(1, now), Ok(()), "{count}");
        }
        assert!(meter.take(1, at(0)).is_err());
    }

    #[test]
    fn a_refusal_takes_nothing_and_its_time_is_exact() {
        let mut meter = Meter::new(Rate::per_minute(1000), at(0));
        assert_eq!(meter.take(900, at(0)), Ok(()));
        let Err(Excess::For(wait)) = meter.take(200, at(0)) else {
            panic!("900 and 200 are more than 1000");
        };
        assert_eq!(wait, Duration::from_secs(6));
        let just_before = Time::from_nanos(5_999_999_999);
        let nanosecond = Duration::from_nanos(1);
        let refused = meter.take(200, just_before);
        assert_eq!(refused, Err(Excess::For(nanosecond)));
        assert_eq!(meter.take(200, at(6000)), Ok(()));
    }

    #[test]
    fn what_is_larger_than_the_burst_never_passes() {
        let mut meter = Meter::new(Rate::per_minute(1000), at(0));
        assert_eq!(meter.take(1001, at(0)), Err(Excess::Always));
        assert_eq!(meter.take(u64::MAX, at(0)), Err(Excess::Always));
        assert_eq!(meter.take(1000, at(0)), Ok(()));
    }

    #[test]
    fn what_was_not_spent_comes_back_but_not_twice() {
        let mut meter = Meter::new(Rate::per_minute(600), at(0));
        meter.take(600, at(0)).unwrap();
        meter.credit(500, at(0));
        assert_eq!(meter.remaining(at(0)), 500);
        // Five seconds drain 50 of the 100 left; of 80 given back, 30 drained before.
        meter.credit(80, at(5000));
        assert_eq!(meter.remaining(at(5000)), 600);
        assert_eq!(meter.take(601, at(5000)), Err(Excess::Always));
    }

    #[test]
    fn a_debt_is_waited_off_and_bounded() {
        let mut meter = Meter::new(Rate::per_minute(60), at(0));
        meter.debit(90, at(0));
        assert_eq!(meter.remaining(at(0)), 0);
        let wait = Duration::from_secs(31);
        assert_eq!(meter.take(1, at(0)), Err(Excess::For(wait)));
        meter.debit(u64::MAX, at(0));
        assert_eq!(meter.empty_in(at(0)), Duration::from_secs(61 * 60));
    }

    #[test]
    fn another_rate_keeps_what_is_used_up() {
        let mut meter = Meter::new(Rate::per_minute(60), at(0));
        meter.take(60, at(0)).unwrap();
        meter.set_rate(Rate::per_minute(120), at(10_000));
        assert_eq!(meter.remaining(at(10_000)), 70);
        assert_eq!(meter.remaining(at(20_000)), 90);
        meter.set_rate(Rate::per_minute(10), at(20_000));
        assert_eq!(meter.remaining(at(20_000)), 0);
    }

    #[test]
    fn a_clock_that_stands_or_steps_back_drains_nothing() {
        let mut meter = Meter::new(Rate::per_minute(60), at(5000));
        meter.take(60, at(5000)).unwrap();
        assert_eq!(meter.remaining(at(1000)), 0);
        meter.credit(1, at(1000));
        assert_eq!(meter.remaining(at(5000)), 1);
        assert_eq!(meter.remaining(Time::NEVER), 60);
    }

    proptest! {
        /// Whatever comes when, no window lets more through than the burst and
        /// the rate over its length.
        #[test]
        fn no_window_passes_more_than_burst_and_rate(
            per_minute in 1_u64..1_000_000,
            burst in 1_u64..100_000,
            arrivals in prop::collection::vec((0_u64..20_000, 1_u64..5_000), 1..60),
        ) {
            let rate = Rate { per_minute, burst };
            let mut meter = Meter::new(rate, Time::ZERO);
            let (mut now, mut passed) = (0, Vec::new());
            for (pause, units) in arrivals {
                now += pause;
                if meter.take(units, at(now)).is_ok() {
                    passed.push((now, units));
                }
            }
            for (first, (start, _)) in passed.iter().enumerate() {
                let mut sum = 0;
                for (when, units) in &passed[first..] {
                    sum += units;
                    let allowed = burst * 60_000 + per_minute * (when - start);
                    prop_assert!(sum * 60_000 <= allowed, "{sum} within {} ms", when - start);
                }
            }
        }

        /// A refused arrival is let in at the time it was told, not before.
        #[test]
        fn the_time_told_is_the_first_that_works(
            per_minute in 1_u64..10_000_000_000,
            burst in 1_u64..1_000_000,
            used in 0_u64..3_000_000,
            asked in 1_u64..1_000_000,
        ) {
            let mut meter = Meter::new(Rate { per_minute, burst }, Time::ZERO);
            meter.debit(used, Time::ZERO);
            match meter.check(asked, Time::ZERO) {
                Ok(()) => prop_assert!(used + asked <= burst),
                Err(Excess::Always) => prop_assert!(asked > burst),
                Err(Excess::For(wait)) => {
                    let then = Time::ZERO + wait;
                    let before = Time::from_nanos(then.nanos() - 1);
                    prop_assert!(meter.check(asked, before).is_err());
                    prop_assert_eq!(meter.check(asked, then), Ok(()));
                }
            }
        }
    }
}
