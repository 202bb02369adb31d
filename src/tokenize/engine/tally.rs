//! The running count of one text.
//!
//! Decides when counting stops and what the count is then called. Never
//! tokenizes. Invariant: what was not counted is either charged by an upper bound,
//! and the count is an estimate, or left out past
//! [`Effort::enough`](crate::tokenize::Effort), and the count is a lower bound.

use std::time::Duration;

use super::Counted;
use crate::tokenize::{Effort, Precision};

/// A count on its way.
#[derive(Debug)]
pub(super) struct Tally<'a> {
    pub(super) effort: &'a Effort<'a>,
    counted: Counted,
}

// === impl Tally ===

impl<'a> Tally<'a> {
    /// Begins with the tokens that frame the text.
    pub(super) const fn new(effort: &'a Effort<'a>, tokens: u64) -> Self {
        Self {
            effort,
            counted: Counted {
                tokens,
                precision: Precision::Exact,
            },
        }
    }

    /// Adds one part.
    pub(super) fn add(&mut self, part: Counted) {
        self.counted = self.counted.plus(part);
    }

    /// Whether the tokens so far settle the request.
    pub(super) fn is_enough(&self) -> bool {
        self.effort.is_enough(self.counted.tokens)
    }

    /// Whether there is time for `work` more.
    pub(super) fn has_time_for(&self, work: Duration) -> bool {
        self.effort.has_time_for(work)
    }

    /// Ends with everything counted.
    pub(super) const fn whole(self) -> Counted {
        self.counted
    }

    /// Ends before the rest of the text, whose tokens are at most `rest`.
    pub(super) fn short_of(mut self, rest: u64) -> Counted {
        if self.is_enough() && self.counted.precision == Precision::Exact {
            self.counted.precision = Precision::AtLeast;
            return self.counted;
        }
        self.effort.note_cut();
        self.add(Counted {
            tokens: rest,
            precision: Precision::Estimated,
        });
        self.counted
    }
}
