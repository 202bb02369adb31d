//! The order of requests: a number for each, given when its body is complete.
//!
//! Decides nothing: what becomes of a request afterwards, and how long it takes
//! to unpack, read and count it, changes nothing about its place in the line.
//! Invariant: of two requests, the one that was complete first has the lower
//! number.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::core::demand::Arrival;

/// Gives out the numbers; clones share one row of them.
#[derive(Clone, Debug, Default)]
pub struct Arrivals(Arc<AtomicU64>);

// === impl Arrivals ===

impl Arrivals {
    /// The next number; never blocks.
    pub fn next(&self) -> Arrival {
        // Relaxed: the numbers of one row are apart and grow all the same, and
        // nothing else is told by them.
        Arrival(self.0.fetch_add(1, Ordering::Relaxed))
    }
}
