//! How long a request will wait, and how true that has been.
//!
//! The work ahead of a request, as time of the pool, over the rate at which such work
//! was let in while something waited, gives its wait up to a factor. What that factor
//! has been, for waits of about that length, is followed by quantiles (`Quantile`):
//! whatever is wrong with the first figure corrects itself, and the spread of what
//! comes true is told with it. The same is done for those who are sent away: they
//! would have been let in when the next one like them was.
//!
//! Nothing here decides; what was said is kept and compared with what came.

use std::time::Duration;

use super::fairness::Cost;
use super::time::Time;

pub(super) use drain::{Backlog, Drain};
pub(super) use returns::{Caller, Pledge, Returns};

mod drain;
mod returns;

/// Seconds of waiting after which what was let in counts for 1/e.
const MEMORY_SECONDS: f64 = 10.0;

/// Waits of one length class, each twice as long as the one before, and the shortest.
const CLASSES: usize = 10;
const SHORTEST: f64 = 0.125;

/// Observations after which the lucky case is believed to be known.
const ENOUGH: u32 = 50;

/// Step of a quantile at each observation, as a factor's logarithm.
const STEP: f64 = 0.1;

/// A predicted wait is at most a day: as good as never.
const LONGEST: f64 = 86_400.0;

/// How long a wait will be: one in five, a half, four in five are no longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Predicted {
    /// The lucky case.
    pub q20: Duration,
    /// As likely longer as shorter.
    pub q50: Duration,
    /// What is promised.
    pub q80: Duration,
}

/// A prediction and what it was made from.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Promise {
    /// Seconds, before correction.
    raw: f64,
    pub(super) predicted: Predicted,
    /// Whether enough was seen to refuse somebody by it.
    pub(super) is_tried: bool,
}

/// How a wait has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// It was let in after that long.
    In(Duration),
    /// It left, and would have waited longer.
    Longer(Duration),
}

/// What a pool has learned of its waits.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits {
    service: Service,
    factors: [Factor; CLASSES],
    seen: u32,
}

/// Pool time let in per second while something waited.
#[derive(Clone, Copy, Debug, Default)]
struct Service {
    granted: f64,
    seconds: f64,
    last: Time,
    backlog: Backlog,
}

/// What real waits were, as a factor of the first figure.
#[derive(Clone, Copy, Debug)]
struct Factor {
    q20: Quantile,
    q50: Quantile,
    q80: Quantile,
}

/// A quantile that follows what it sees: up by `share` of a step where it was too
/// low, down by the rest where it was not, so that it is right in `share` of all
/// cases whatever they are (adaptive conformal inference, Gibbs and Candès 2021, on a
/// logarithmic scale).
#[derive(Clone, Copy, Debug)]
struct Quantile {
    share: f64,
    /// Natural logarithm.
    at: f64,
}

// === impl Quantile ===

impl Quantile {
    fn new(share: f64, start: f64) -> Self {
        Self {
            share,
            at: start.ln(),
        }
    }

    fn value(self) -> f64 {
        self.at.exp()
    }

    fn see(&mut self, factor: f64) {
        let low = factor.max(1e-6).ln() > self.at;
        let step = if low { self.share } else { self.share - 1.0 };
        self.at = (self.at + STEP * step).clamp(-7.0, 7.0);
    }

    /// It was more than `factor`, nobody knows how much.
    fn see_more_than(&mut self, factor: f64) {
        if factor.max(1e-6).ln() >= self.at {
            self.see(factor * 1.001);
        }
    }
}

// === impl Factor ===

impl Default for Factor {
    fn default() -> Self {
        Self {
            q20: Quantile::new(0.2, 0.3),
            q50: Quantile::new(0.5, 0.7),
            q80: Quantile::new(0.8, 1.5),
        }
    }
}

impl Factor {
    fn learn(&mut self, raw: f64, waited: Waited) {
        let quantiles = [&mut self.q20, &mut self.q50, &mut self.q80];
        for quantile in quantiles {
            match waited {
                Waited::In(time) => quantile.see(time.as_secs_f64() / raw),
                Waited::Longer(time) => quantile.see_more_than(time.as_secs_f64() / raw),
            }
        }
    }

    fn predict(&self, raw: f64) -> Predicted {
        let of = |factor: f64| Duration::from_secs_f64((raw * factor).min(LONGEST));
        let q50 = self.q50.value();
        Predicted {
            q20: of(self.q20.value().min(q50)),
            q50: of(q50),
            q80: of(self.q80.value().max(q50)),
        }
    }
}

/// The class of a wait of `raw` seconds.
fn class(raw: f64) -> usize {
    let mut edge = SHORTEST;
    for class in 0..CLASSES - 1 {
        if raw < edge {
            return class;
        }
        edge *= 2.0;
    }
    CLASSES - 1
}

// === impl Service ===

impl Service {
    fn decay(&mut self, now: Time) {
        let passed = match self.backlog {
            Backlog::Some => (now - self.last).as_secs_f64(),
            Backlog::None => 0.0,
        };
        self.last = self.last.max(now);
        let keep = (-passed / MEMORY_SECONDS).exp();
        self.granted *= keep;
        self.seconds = self.seconds * keep + MEMORY_SECONDS * (1.0 - keep);
    }

    /// All of the pool's time where nothing was measured: two seconds of that count
    /// beside what was.
    fn rate(&self) -> f64 {
        const DOUBT: f64 = 2.0;
        ((self.granted + DOUBT) / (self.seconds + DOUBT)).max(0.01)
    }
}

// === impl Waits ===

impl Waits {
    /// From `now` on something waits, or nothing does.
    pub(super) fn set_backlogged(&mut self, now: Time, backlog: Backlog) {
        self.service.decay(now);
        self.service.backlog = backlog;
    }

    /// Something of that cost was let in.
    pub(super) fn on_granted(&mut self, now: Time, cost: Cost) {
        self.service.decay(now);
        if self.service.backlog == Backlog::Some {
            self.service.granted += cost.time().as_secs_f64();
        }
    }

    /// The wait of a request that has `ahead` before it, its own cost included.
    pub(super) fn promise(&self, ahead: Cost) -> Promise {
        let raw = (ahead.time().as_secs_f64() / self.service.rate()).clamp(0.01, LONGEST);
        let factor = &self.factors[class(raw)];
        Promise {
            raw,
            predicted: factor.predict(raw),
            is_tried: self.seen >= ENOUGH,
        }
    }

    /// A wait that was promised is over.
    pub(super) fn learn(&mut self, promise: Promise, waited: Waited) {
        self.factors[class(promise.raw)].learn(promise.raw, waited);
        self.seen = self.seen.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::fixtures::at;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn a_wait_is_the_work_ahead_over_the_rate_of_service() {
        let mut waits = Waits::default();
        waits.set_backlogged(at(0.0), Backlog::Some);
        for tenth in 0..600 {
            waits.on_granted(at(f64::from(tenth) / 10.0), Cost::of(seconds(0.05)));
        }
        let raw = waits.promise(Cost::of(seconds(4.0))).raw;
        assert!(
            (6.5..=8.5).contains(&raw),
            "4 s at half a second a second: {raw}"
        );
    }

    #[test]
    fn four_in_five_of_what_is_promised_holds_however_wrong_the_first_figure_is() {
        let mut waits = Waits::default();
        let (mut within, mut below, mut all) = (0, 0, 0);
        for nth in 0_u32..4000 {
            let promise = waits.promise(Cost::of(seconds(1.0 + f64::from(nth % 7))));
            // Three times as long as the first figure says, give or take a half.
            let spread = 0.5 + f64::from(nth.wrapping_mul(2_654_435_761) >> 16) / 65_536.0;
            let waited = seconds(promise.raw * 3.0 * spread);
            waits.learn(promise, Waited::In(waited));
            if nth >= 1000 {
                all += 1;
                within += u32::from(waited <= promise.predicted.q80);
                below += u32::from(waited <= promise.predicted.q50);
            }
        }
        let share = f64::from(within) / f64::from(all);
        assert!((0.77..=0.83).contains(&share), "{share}");
        let share = f64::from(below) / f64::from(all);
        assert!((0.47..=0.53).contains(&share), "{share}");
    }

    #[test]
    fn who_leaves_early_says_nothing_and_who_leaves_late_that_it_was_longer() {
        let mut waits = Waits::default();
        let before = waits.promise(Cost::of(seconds(1.0)));
        for _ in 0..100 {
            waits.learn(before, Waited::Longer(seconds(0.001)));
        }
        assert_eq!(
            waits.promise(Cost::of(seconds(1.0))).predicted,
            before.predicted
        );
        for _ in 0..100 {
            waits.learn(before, Waited::Longer(seconds(10.0)));
        }
        let after = waits.promise(Cost::of(seconds(1.0))).predicted;
        assert!(after.q80 > before.predicted.q80 * 5, "{after:?}");
        assert!(after.q20 <= after.q50 && after.q50 <= after.q80);
    }
}
