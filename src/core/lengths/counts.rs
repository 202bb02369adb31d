//! What was seen of one class of answers, and the curve drawn from it.
//!
//! For each bin: how many answers came into it and how many ended in it, both
//! forgotten slowly. An answer counts in a bin when it leaves it, to the next
//! one or for good, so one that still runs says what it has shown and no more
//! (Kaplan and Meier 1958, on bins). The curve is drawn anew after a share of
//! new observations, never when it is asked for.
//!
//! What a class has not shown yet is taken from the class above it, drawn towards
//! what it has shown around there: where fewer of its answers ended than the
//! class above lets expect, its further bins end fewer too. That is the mean of a
//! gamma frailty (Vaupel, Manton and Stallard 1979), here with the bins nearby
//! counting most. A tenant whose answers get long is so believed to be one long
//! before its first answer has ended. The other way round nothing is concluded:
//! answers that end early say little of the few that do not, and memory that was
//! planned for too short ones is paid for by preemptions.

use std::sync::Arc;

use super::bins::{self, BINS};
use super::curve::Table;
use crate::core::units::Tokens;

/// What an observation leaves of the weight of those before it in its bin: the last
/// two hundred count. Fewer follow a change sooner and scatter more; on public
/// traces anything from a hundred to two thousand predicts about as well.
const KEPT: f64 = 0.995;

/// Weight of the class above, in observations of a bin. Less makes small classes
/// scatter, more makes them slow to differ from the class above.
const SHRINKAGE: f64 = 12.0;

/// Ends that a class is taken to have had, as many as were due, before its first.
const UNDECIDED: f64 = 1.0;

/// What a bin's observations count for the one beside it: three bins are about a
/// doubling. Less says little of lengths that are not yet seen, more makes the whole
/// tail of a few answers that have got far.
const NEARBY: f64 = 0.8;

/// Observations that pass at most between two curves: some tens of answers.
const OFTENEST: u32 = 2048;

/// Counts and curve of one class.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    at_risk: [f64; BINS],
    ended: [f64; BINS],
    /// Observations so far, and those the curve does not show yet.
    seen: u32,
    pending: u32,
    table: Arc<Table>,
}

// === impl Counts ===

impl Counts {
    /// Nothing seen: the curve of the class above.
    pub(super) fn new(above: Arc<Table>) -> Self {
        Self {
            at_risk: [0.0; BINS],
            ended: [0.0; BINS],
            seen: 0,
            pending: 0,
            table: above,
        }
    }

    pub(super) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// An answer grew from `from` tokens to `to` and may go on.
    pub(super) fn on_passed(&mut self, from: Tokens, to: Tokens) {
        for bin in bins::of(from)..bins::of(to) {
            self.observe(bin, 1.0, 0.0);
        }
    }

    /// An answer that had shown `from` tokens ended by itself after `to`.
    pub(super) fn on_ended(&mut self, from: Tokens, to: Tokens) {
        self.on_passed(from, to);
        self.observe(bins::of(to.max(from)), 1.0, 1.0);
    }

    /// Nothing more will be seen of an answer of `to` tokens: it counts for the
    /// part of its bin that it lived through.
    pub(super) fn on_lost(&mut self, from: Tokens, to: Tokens) {
        self.on_passed(from, to);
        self.observe(bins::of(to.max(from)), bins::lived(to.max(from)), 0.0);
    }

    fn observe(&mut self, bin: usize, weight: f64, ended: f64) {
        let kept = 1.0 - (1.0 - KEPT) * weight;
        self.at_risk[bin] = self.at_risk[bin] * kept + weight;
        self.ended[bin] = self.ended[bin] * kept + ended;
        self.seen = self.seen.saturating_add(1);
        self.pending += 1;
    }

    /// Draws the curve anew if enough was seen since the last one. O(bins), at
    /// most once in an eighth of what was seen.
    pub(super) fn refresh(&mut self, above: &Table) {
        if self.pending < (1 + self.seen / 8).min(OFTENEST) {
            return;
        }
        self.draw(above);
    }

    /// Draws the curve anew. O(bins).
    pub(super) fn draw(&mut self, above: &Table) {
        self.pending = 0;
        let frailty = self.frailty(above);
        self.table = Arc::new(Table::of(std::array::from_fn(|bin| {
            let ended = self.ended[bin] + SHRINKAGE * frailty[bin] * above.hazards[bin];
            ended / (self.at_risk[bin] + SHRINKAGE)
        })));
    }

    /// Ends around each bin over those that were due by the hazards of `above`, at
    /// most 1.
    fn frailty(&self, above: &Table) -> [f64; BINS] {
        let (mut ended, mut due) = ([0.0; BINS], [0.0; BINS]);
        let (mut before, mut after) = ((0.0, 0.0), (0.0, 0.0));
        let here = |bin: usize| (self.ended[bin], self.at_risk[bin] * above.hazards[bin]);
        for (up, down) in (0..BINS).zip((0..BINS).rev()) {
            let (ends, dues) = here(up);
            before = (before.0 * NEARBY + ends, before.1 * NEARBY + dues);
            ended[up] += before.0;
            due[up] += before.1;
            // Its own bin is counted on the way up.
            ended[down] += after.0;
            due[down] += after.1;
            let (ends, dues) = here(down);
            after = ((after.0 + ends) * NEARBY, (after.1 + dues) * NEARBY);
        }
        std::array::from_fn(|bin| {
            let ratio = (UNDECIDED + ended[bin]) / (UNDECIDED + due[bin]);
            ratio.min(1.0)
        })
    }
}
