//! What an engine's own figures say of the forecast, and what follows from it.
//!
//! A preemption means that too much was planned: the forecast becomes surer and
//! plans less of the pool at once, and comes back slowly. A scrape that is late
//! never holds anything up: it only makes the forecast less sure. What an engine
//! uses beyond the books is not its matter: that is foreign, or tokens on their
//! way, and a bias learned from those would only idle memory.

use std::time::Duration;

use crate::core::backend::Capacity;
use crate::core::time::Time;

/// What each preemption adds to the confidence, of at most so many at a time.
const ALARM: (f64, u32) = (0.075, 4);

/// The most that is asked for, in standard deviations.
const MOST_CONFIDENCE: f64 = 4.0;

/// What is taken off that again, per second.
const CALM: f64 = 0.01;

/// What a scrape that tells of preemptions leaves of the share that is planned.
const CUT: f64 = 0.99;

/// The share never falls below the first by that, nor rises above the second.
const SHARES: (f64, f64) = (0.80, 0.985);

/// What it comes back by, per second without a preemption.
const RECOVERY: f64 = 0.000_2;

/// Deviation for each second without a scrape, and the most, in shares of a pool.
const STALE: (f64, f64) = (0.02, 0.10);

/// How the forecast of one backend has fared.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::core) struct Watch {
    /// When the last scrape was sent, and the engine's count of preemptions then.
    last: Option<(Time, u64)>,
    /// Added to the confidence that is set.
    alarm: f64,
    /// Added to the share that is set.
    shift: f64,
}

/// What a scrape said, as the forecast sees it.
#[derive(Clone, Copy, Debug)]
pub(in crate::core) struct Reading {
    /// When it was sent.
    pub(in crate::core) at: Time,
    /// The engine's count of preemptions.
    pub(in crate::core) preemptions: u64,
    /// Whose forecast was wrong if there were any.
    pub(in crate::core) fault: Fault,
    /// The share of a pool that is planned by the settings.
    pub(in crate::core) share: f64,
}

/// Who filled an engine that preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) enum Fault {
    /// Our own leases hold at least half of what is used.
    Ours,
    /// Somebody else does: planning less would not help.
    Others,
}

// === impl Watch ===

impl Watch {
    /// A scrape came in. The first one only tells where the counter stands, and so
    /// does one whose counter has started again.
    pub(in crate::core) fn on_reading(&mut self, reading: Reading) {
        let Reading {
            at,
            preemptions,
            fault,
            share,
        } = reading;
        let (since, before) = self
            .last
            .replace((at, preemptions))
            .unwrap_or((at, preemptions));
        let passed = at.since(since).as_secs_f64();
        let more = preemptions.saturating_sub(before);
        if more > 0 && fault == Fault::Ours {
            let (each, most) = ALARM;
            let counted = u32::try_from(more).unwrap_or(u32::MAX).min(most);
            self.alarm += each * f64::from(counted);
            self.shift = (self.share(share) * CUT).max(SHARES.0.min(share)) - share;
        } else {
            self.alarm = (self.alarm - CALM * passed).max(0.0);
            let back = self.shift + RECOVERY * passed;
            self.shift = back.min((SHARES.1 - share).max(0.0));
        }
    }

    /// Whether more may be admitted by this than by `other`.
    pub(in crate::core) fn is_easier_than(&self, other: &Self) -> bool {
        self.alarm < other.alarm || self.shift > other.shift
    }

    /// Standard deviations to leave, where `set` are by the settings.
    pub(in crate::core) fn confidence(&self, set: f64) -> f64 {
        (set + self.alarm).min(MOST_CONFIDENCE.max(set))
    }

    /// Share of the pool to plan, where `set` is by the settings.
    pub(in crate::core) fn share(&self, set: f64) -> f64 {
        (set + self.shift).min(1.0)
    }

    /// Until when there is no such deviation.
    pub(in crate::core) fn calm_until(&self, fresh_for: Duration) -> Time {
        self.last.map_or(Time::NEVER, |(at, _)| at + fresh_for)
    }

    /// Deviation in blocks for want of a scrape, from `fresh_for` after the last on.
    pub(in crate::core) fn doubt(
        &self,
        now: Time,
        fresh_for: Duration,
        capacity: &Capacity,
    ) -> f64 {
        let Some((at, _)) = self.last else {
            return 0.0;
        };
        let stale = now.since(at).saturating_sub(fresh_for).as_secs_f64();
        let (each, most) = STALE;
        (each * stale).min(most) * capacity.blocks.as_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::fixtures::{at, capacity};

    fn reading(seconds: f64, preemptions: u64) -> Reading {
        Reading {
            at: at(seconds),
            preemptions,
            fault: Fault::Ours,
            share: 0.97,
        }
    }

    #[test]
    fn preemptions_make_it_surer_at_once_and_less_sure_again_slowly() {
        let mut watch = Watch::default();
        watch.on_reading(reading(0.0, 7));
        assert_eq!((watch.confidence(1.64), watch.share(0.97)), (1.64, 0.97));
        watch.on_reading(reading(1.0, 9));
        assert!((watch.confidence(1.64) - 1.79).abs() < 1e-9);
        assert!((watch.share(0.97) - 0.97 * 0.99).abs() < 1e-9);
        // Of a hundred at once four count.
        watch.on_reading(reading(2.0, 109));
        assert!((watch.confidence(1.64) - 2.09).abs() < 1e-9);
        // A hundredth each second, however many scrapes tell of it.
        for half in 1..=20 {
            watch.on_reading(reading(2.0 + f64::from(half) / 2.0, 109));
        }
        assert!((watch.confidence(1.64) - 1.99).abs() < 1e-9);
        assert!((watch.share(0.97) - (0.97 * 0.99 * 0.99 + 0.002)).abs() < 1e-9);
        watch.on_reading(reading(20_000.0, 109));
        assert_eq!(watch.confidence(1.64), 1.64);
        assert!((watch.share(0.97) - 0.985).abs() < 1e-9);
    }

    #[test]
    fn the_share_that_is_planned_has_a_floor_and_the_confidence_a_ceiling() {
        let mut watch = Watch::default();
        for count in 0..100_u32 {
            watch.on_reading(reading(f64::from(count), u64::from(count) * 9));
        }
        assert!((watch.share(0.97) - 0.80).abs() < 1e-9);
        assert_eq!(watch.confidence(1.64), 4.0);
        // Somebody who plans less than the floor keeps that.
        assert!(watch.share(0.6) <= 0.6);
    }

    #[test]
    fn what_others_preempt_by_filling_an_engine_changes_nothing() {
        let mut watch = Watch::default();
        for (seconds, count) in [(0.0, 0), (1.0, 14)] {
            watch.on_reading(Reading {
                fault: Fault::Others,
                ..reading(seconds, count)
            });
        }
        assert_eq!(watch.confidence(1.64), 1.64);
    }

    #[test]
    fn a_counter_that_starts_again_is_no_preemption() {
        let mut watch = Watch::default();
        for (seconds, count) in [(0.0, 500), (1.0, 3), (2.0, 3)] {
            watch.on_reading(reading(seconds, count));
        }
        assert_eq!(watch.confidence(1.64), 1.64);
    }

    #[test]
    fn a_late_scrape_adds_doubt_by_the_second_and_never_more_than_a_tenth() {
        let mut watch = Watch::default();
        let doubt = |watch: &Watch, seconds| {
            watch.doubt(at(seconds), Duration::from_secs(5), &capacity(1000))
        };
        assert_eq!(doubt(&watch, 100.0), 0.0);
        watch.on_reading(reading(10.0, 0));
        assert_eq!(doubt(&watch, 15.0), 0.0);
        assert!((doubt(&watch, 17.0) - 40.0).abs() < 1e-6);
        assert!((doubt(&watch, 1000.0) - 100.0).abs() < 1e-6);
    }
}
