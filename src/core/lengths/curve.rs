//! How long an answer is still going to be, as a curve of survival.
//!
//! A [`Curve`] is what was known when it was made: later facts do not change
//! it. Cloning it copies a pointer, and no question to it costs more than a few
//! additions or, for a quantile, one bisection of 64 bins.
//!
//! Invariant: survival never rises with length, is 1 at 0 and 0 at the bound.

use std::sync::Arc;

use super::bins::{self, BINS};
use crate::core::demand::OutputLimit;
use crate::core::units::Tokens;

/// Where fewer than this share of answers end before their bound, all are taken
/// to end at it: sums over many of them are then exact instead of nearly so.
const NEARLY_ALL: f64 = 0.98;

/// The probability that an answer goes on, by its length so far.
#[derive(Clone, Debug)]
pub struct Curve {
    table: Arc<Table>,
    /// The engine stops here; [`Tokens::MAX`] where nobody has set a bound.
    bound: Tokens,
    /// Whether every answer is taken to end at the bound.
    certain: bool,
}

/// Survival at the edges of the bins, linear in between.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) hazards: [f64; BINS],
    survival: [f64; BINS + 1],
    /// Tokens emitted on average up to each edge.
    area: [f64; BINS + 1],
}

// === impl Table ===

impl Table {
    pub(super) fn of(hazards: [f64; BINS]) -> Self {
        let (mut survival, mut area) = ([1.0; BINS + 1], [0.0; BINS + 1]);
        for bin in 0..BINS {
            // Never quite 0, so that one may be divided by another.
            let left = survival[bin] * (1.0 - hazards[bin]);
            survival[bin + 1] = left.max(f64::MIN_POSITIVE);
            let width = edge(bin + 1) - edge(bin);
            area[bin + 1] = area[bin] + width * (survival[bin] + survival[bin + 1]) / 2.0;
        }
        Self {
            hazards,
            survival,
            area,
        }
    }

    /// Where nothing is known: half of all answers are longer than `median`, and
    /// of those that outlive any length `g` half outlive `2 g + median`. The tail
    /// is heavy (Lomax of shape 1), so a large bound keeps its probability.
    pub(super) fn prior(median: Tokens) -> Self {
        let scale = median.max(Tokens::new(1)).as_f64();
        let hazard = |bin: usize| 1.0 - (scale + edge(bin)) / (scale + edge(bin + 1));
        Self::of(std::array::from_fn(hazard))
    }

    /// Survival beyond `at`, and the tokens emitted on average until then.
    fn at(&self, at: Tokens) -> (f64, f64) {
        let bin = bins::around(at);
        let (from, to) = (edge(bin), edge(bin + 1));
        let part = (at.as_f64().min(to) - from) / (to - from);
        let above = self.survival[bin];
        let here = above + (self.survival[bin + 1] - above) * part;
        let area = self.area[bin] + part * (to - from) * (above + here) / 2.0;
        (here, area)
    }
}

// === impl Curve ===

impl Curve {
    pub(super) fn new(table: Arc<Table>, output: OutputLimit) -> Self {
        let bound = match output {
            OutputLimit::Asked(bound) => bound,
            OutputLimit::Open { at_most } => at_most.unwrap_or(Tokens::MAX),
        };
        let bound = bound.max(Tokens::new(1));
        let before = bound.saturating_sub(Tokens::new(1));
        let certain = bound < Tokens::MAX && table.at(before).0 >= NEARLY_ALL;
        Self {
            table,
            bound,
            certain,
        }
    }

    /// Probability that an answer is longer than `generated` tokens, 0..=1; 0
    /// from the bound on.
    pub fn alive(&self, generated: Tokens) -> f64 {
        if generated >= self.bound {
            0.0
        } else if self.certain {
            1.0
        } else {
            self.table.at(generated).0
        }
    }

    /// Probability that a sequence which has emitted `generated` tokens and goes
    /// on emits more than `ahead` further ones, 0..=1. Always 1 for `ahead` 0: a
    /// running sequence is never counted as gone.
    pub fn given(&self, generated: Tokens, ahead: Tokens) -> f64 {
        if ahead.is_zero() {
            return 1.0;
        }
        let then = generated.saturating_add(ahead);
        if then >= self.bound {
            return 0.0;
        }
        if self.certain {
            return 1.0;
        }
        self.table.at(then).0 / self.table.at(generated).0
    }

    /// Tokens a sequence that has emitted `generated` still emits on average, at
    /// least 1. Beyond the last bin: as many again.
    pub fn mean_remaining(&self, generated: Tokens) -> f64 {
        let to_bound = self.bound.saturating_sub(generated);
        if self.certain {
            return to_bound.as_f64().max(1.0);
        }
        let last = Tokens::new(bins::edge(BINS));
        if generated >= last {
            return to_bound.min(generated).as_f64().max(1.0);
        }
        let (alive, before) = self.table.at(generated);
        let (_, until) = self.table.at(self.bound.min(last));
        ((until - before) / alive).clamp(1.0, to_bound.as_f64().max(1.0))
    }

    /// Tokens a whole answer has on average, rounded **up**, at least 1.
    pub fn mean(&self) -> Tokens {
        let mean = self.mean_remaining(Tokens::ZERO);
        // A share of what is surely more: tokens come from floats no other way.
        let whole = Tokens::new(bins::edge(BINS)).max(self.bound.believable());
        Tokens::new(1) + whole.share((mean - 1e-9) / whole.as_f64())
    }

    /// The fewest further tokens which a share `q` (0..=1) of the sequences that
    /// have emitted `generated` does not exceed, rounded **up** and at least 1.
    /// Beyond the last bin: all up to the bound.
    pub fn quantile(&self, generated: Tokens, q: f64) -> Tokens {
        let to_bound = self.bound.saturating_sub(generated).max(Tokens::new(1));
        if self.certain {
            return to_bound;
        }
        let target = self.table.at(generated).0 * (1.0 - q.clamp(0.0, 1.0));
        let survival = &self.table.survival;
        let end = survival.partition_point(|&alive| alive > target);
        if end > BINS {
            return to_bound;
        }
        let Some(bin) = end.checked_sub(1) else {
            return Tokens::new(1);
        };
        let part = (survival[bin] - target) / (survival[bin] - survival[bin + 1]);
        let width = Tokens::new(bins::edge(end) - bins::edge(bin));
        let length = Tokens::new(bins::edge(bin)) + width - width.share(1.0 - part);
        length
            .saturating_sub(generated)
            .clamp(Tokens::new(1), to_bound)
    }

    /// The length every answer is taken to have, where that is known: the bound
    /// of answers that nearly all reach it.
    pub fn certain(&self) -> Option<Tokens> {
        self.certain.then_some(self.bound)
    }
}

fn edge(bin: usize) -> f64 {
    Tokens::new(bins::edge(bin)).as_f64()
}
