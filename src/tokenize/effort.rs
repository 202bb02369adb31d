//! How much work a count is worth.
//!
//! Decides when counting may stop short: past the number that settles the
//! request, past its time, or once nobody waits for the answer. Never stops in
//! the middle of a piece: tokenizers cannot be interrupted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::Precision;
use super::engine::Counted;

/// Bounds on the work of one count, and for whom it is; the default is none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Effort<'a> {
    /// Tokens of one prompt past which its exact number changes nothing: the
    /// count may stop there and is then [`Precision::AtLeast`](super::Precision).
    pub enough: Option<u64>,
    /// When the rest is charged by an upper bound instead of being counted.
    pub until: Option<Instant>,
    /// Set once nobody waits any more; the number returned then means nothing.
    pub abandoned: Option<&'a AtomicBool>,
    /// Set where the count was cut because time was up, or nobody waited.
    pub cut: Option<&'a AtomicBool>,
    /// The index of the tenant whose own ratio an estimate goes by.
    pub tenant: Option<u32>,
}

impl Effort<'_> {
    /// What is left to count once this part of the prompt is. Past an estimate no
    /// number is sure to be below the truth, so none is enough.
    pub(super) fn after(&self, counted: Counted) -> Self {
        let enough = self
            .enough
            .filter(|_| counted.precision == Precision::Exact);
        Self {
            enough: enough.map(|enough| enough.saturating_sub(counted.tokens)),
            ..*self
        }
    }

    /// Whether `tokens` of a prompt settle it.
    pub(super) fn is_enough(&self, tokens: u64) -> bool {
        self.enough.is_some_and(|enough| tokens > enough)
    }

    /// Notes that the rest of a text is not counted for want of time.
    pub(super) fn note_cut(&self) {
        if let Some(cut) = self.cut {
            // Relaxed: read by the thread that counted.
            cut.store(true, Ordering::Relaxed);
        }
    }

    /// Whether somebody waits and `work` would be over in time.
    pub(super) fn has_time_for(&self, work: Duration) -> bool {
        // Relaxed: a flag that only saves work publishes nothing.
        let is_abandoned = self
            .abandoned
            .is_some_and(|abandoned| abandoned.load(Ordering::Relaxed));
        let is_over = |until| Instant::now() + work > until;
        !is_abandoned && !self.until.is_some_and(is_over)
    }
}
