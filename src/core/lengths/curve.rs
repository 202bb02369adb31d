//! How long an answer is still going to be, as a curve of survival.
//!
//! A [`Curve`] is what was known when it was made: later facts do not change
//! it. Cloning it copies a pointer, and no question to it costs more than a few
//! additions or, for a quantile, one bisection of 64 bins.
//!
//! Invariant: survival never rises with length, is 1 at 0 and 0 at the bound.

use std::sync::Arc;

use super::bins::{self, BINS};
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
    /// Share of answers that are taken to go to the bound whatever the table says.
    unbroken: f64,
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

    /// Where nothing is known: `mean` tokens on average, and `mean + g` more of
    /// those that outlive any length `g` (Lomax of shape 2): the longer, the longer
    /// still, as answers are.
    pub(super) fn prior(mean: Tokens) -> Self {
        let scale = mean.max(Tokens::new(1)).as_f64();
        let alive = |bin: usize| (scale / (scale + edge(bin))).powi(2);
        Self::of(std::array::from_fn(|bin| 1.0 - alive(bin + 1) / alive(bin)))
    }

    /// Share of answers longer than `length`.
    fn at(&self, length: Tokens) -> f64 {
        let bin = bins::around(length);
        let above = self.survival[bin];
        above + (self.survival[bin + 1] - above) * part(bin, length)
    }

    /// Tokens emitted on average up to `length`.
    fn area(&self, length: Tokens) -> f64 {
        let bin = bins::around(length);
        let into = part(bin, length) * (edge(bin + 1) - edge(bin));
        self.area[bin] + into * (self.survival[bin] + self.at(length)) / 2.0
    }

    /// The least length that at most a share `alive` exceeds, rounded **up**;
    /// `None` where it lies beyond the last bin.
    fn length_at(&self, alive: f64) -> Option<Tokens> {
        let end = self.survival.partition_point(|&there| there > alive);
        if end > BINS {
            return None;
        }
        let Some(bin) = end.checked_sub(1) else {
            return Some(Tokens::ZERO);
        };
        let (above, below) = (self.survival[bin], self.survival[end]);
        let (from, to) = (bins::edge(bin), bins::edge(end));
        // Rounding down what is left of the bin rounds the length up.
        let beyond = Tokens::new(to - from).share((alive - below) / (above - below));
        Some(Tokens::new(to) - beyond)
    }
}

// === impl Curve ===

impl Curve {
    /// `unbroken` is the share of answers which go to `bound`, whatever else is known.
    pub(super) fn new(table: Arc<Table>, bound: Tokens, unbroken: f64) -> Self {
        let mut curve = Self {
            table,
            bound: bound.max(Tokens::new(1)),
            unbroken,
            certain: false,
        };
        let before = curve.bound.saturating_sub(Tokens::new(1));
        curve.certain = curve.bound < Tokens::MAX && curve.at(before) >= NEARLY_ALL;
        curve
    }

    /// Probability that an answer is longer than `generated` tokens, 0..=1; 0
    /// from the bound on.
    pub fn alive(&self, generated: Tokens) -> f64 {
        if generated >= self.bound {
            0.0
        } else if self.certain {
            1.0
        } else {
            self.at(generated)
        }
    }

    /// Probability that a sequence which has emitted `generated` tokens and goes
    /// on emits more than `ahead` further ones, 0..=1. Always 1 for `ahead` 0: a
    /// running sequence is never counted as gone.
    pub fn given(&self, generated: Tokens, ahead: Tokens) -> f64 {
        self.given_after((generated, self.at(generated)), ahead)
    }

    /// The same of one that has emitted `generated`, beyond which goes a share `came`
    /// of all, as [`share_beyond`](Self::share_beyond) says.
    pub(in crate::core) fn given_after(
        &self,
        (generated, came): (Tokens, f64),
        ahead: Tokens,
    ) -> f64 {
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
        self.at(then) / came
    }

    /// Share of answers longer than `generated`, whatever their bound.
    pub(in crate::core) fn share_beyond(&self, generated: Tokens) -> f64 {
        self.at(generated)
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
        let end = self.bound.min(last);
        let of_table = self.table.area(end) - self.table.area(generated);
        let of_bound = end.saturating_sub(generated).as_f64();
        let mean = self.mixed(of_bound, of_table) / self.at(generated);
        mean.clamp(1.0, to_bound.as_f64().max(1.0))
    }

    /// Tokens a whole answer has on average, rounded **up**, at least 1.
    pub fn mean(&self) -> Tokens {
        let most = self.bound.min(Tokens::new(bins::edge(BINS)));
        let beyond = most.as_f64() - self.mean_remaining(Tokens::ZERO);
        // Rounding down what is left over rounds the mean up.
        most - most.share(beyond / most.as_f64())
    }

    /// The fewest further tokens which a share `q` (0..=1) of the sequences that
    /// have emitted `generated` does not exceed, rounded **up** and at least 1.
    /// Beyond the last bin: all up to the bound.
    pub fn quantile(&self, generated: Tokens, q: f64) -> Tokens {
        let to_bound = self.bound.saturating_sub(generated).max(Tokens::new(1));
        if self.certain {
            return to_bound;
        }
        let left = self.at(generated) * (1.0 - q.clamp(0.0, 1.0)) - self.unbroken;
        let length = self.table.length_at(left / (1.0 - self.unbroken));
        let ahead = |length: Tokens| length.saturating_sub(generated);
        length.map_or(to_bound, |length| {
            ahead(length).clamp(Tokens::new(1), to_bound)
        })
    }

    /// The length every answer is taken to have, where that is known: the bound
    /// of answers that nearly all reach it.
    pub fn certain(&self) -> Option<Tokens> {
        self.certain.then_some(self.bound)
    }

    fn at(&self, length: Tokens) -> f64 {
        self.mixed(1.0, self.table.at(length))
    }

    fn mixed(&self, of_bound: f64, of_table: f64) -> f64 {
        self.unbroken * of_bound + (1.0 - self.unbroken) * of_table
    }
}

/// How much of `bin` lies below `length`, 0..=1.
fn part(bin: usize, length: Tokens) -> f64 {
    ((length.as_f64() - EDGES[bin]) * WIDTHS_INVERTED[bin]).min(1.0)
}

fn edge(bin: usize) -> f64 {
    EDGES[bin]
}

/// The edges of all bins.
const EDGES: [f64; BINS + 1] = {
    let mut edges = [0.0; BINS + 1];
    let mut bin = 0;
    while bin <= BINS {
        edges[bin] = Tokens::new(bins::edge(bin)).as_f64();
        bin += 1;
    }
    edges
};

/// What to multiply by instead of dividing by the width of a bin: widths are powers of
/// two, so both give the same.
const WIDTHS_INVERTED: [f64; BINS] = {
    let mut inverted = [0.0; BINS];
    let mut bin = 0;
    while bin < BINS {
        inverted[bin] = 1.0 / (EDGES[bin + 1] - EDGES[bin]);
        bin += 1;
    }
    inverted
};
