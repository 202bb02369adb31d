//! Which requests stand back while memory is short, and how far.
//!
//! What one request holds for minutes could have served hundreds of others. While
//! there is room for all nobody stands back. Where requests have been refused in
//! vain waits for memory, those that hold much more than is usual must leave a
//! share of the pool free: the trunk reservation of telephone networks, by which
//! wide calls leave circuits to narrow ones (Kelly, "Loss networks", 1991). The
//! bar over which a request counts as large falls with each one below it that was
//! lost, and rises again by itself, so that as many stand back as must. Whoever
//! does is not refused for it: it waits like others for room.
//!
//! Sizes are what a request is expected to hold over its life, tokens of KV times
//! seconds, on a logarithmic scale around what is usual: they differ a
//! thousandfold within one tenant.

use super::time::Time;

/// Weight of the newest request in what is usual: the last few hundred count.
const NEWEST: f64 = 0.01;

/// Doublings over the usual from which on sizes count as one; where the bar is
/// before anything was lost, so that nobody stands back.
const TOP: f64 = 8.0;

/// What one lost request takes off the bar, in doublings.
const FALL: f64 = 0.3;

/// What a second adds to it: about one lost request in thirty seconds holds it.
const RISE: f64 = 0.01;

/// Doublings over the bar until a request leaves all of the share.
const WIDTH: f64 = 2.0;

/// Largest share of a pool that a request leaves free.
const SHARE: f64 = 0.7;

/// What is usual, and who stands back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trunk {
    /// Mean of the logarithm of sizes; `None` before the first.
    usual: Option<f64>,
    /// Doublings over the usual from which on requests stand back.
    bar: f64,
    /// When that held.
    at: Time,
}

// === impl Trunk ===

impl Default for Trunk {
    /// Nobody stands back.
    fn default() -> Self {
        Self {
            usual: None,
            bar: TOP,
            at: Time::ZERO,
        }
    }
}

impl Trunk {
    /// A request of this size has come.
    pub(super) fn on_asked(&mut self, size: f64) {
        let size = size.max(1.0).log2();
        let usual = self.usual.get_or_insert(size);
        *usual += NEWEST * (size - *usual);
    }

    /// A request of this size was refused after it had waited for memory in vain.
    pub(super) fn on_lost(&mut self, now: Time, size: f64) {
        let bar = self.bar(now);
        // One close below the bar says little about those above it.
        let below = (bar - self.doublings(size)).clamp(0.0, 1.0);
        self.bar = (bar - FALL * below).max(0.0);
        self.at = now;
    }

    /// Share of a pool that a request of this size leaves free.
    pub(super) fn left_by(&self, now: Time, size: f64) -> f64 {
        let over = self.doublings(size).min(TOP) - self.bar(now);
        SHARE * (over / WIDTH).clamp(0.0, 1.0)
    }

    fn bar(&self, now: Time) -> f64 {
        (self.bar + RISE * (now - self.at).as_secs_f64()).min(TOP)
    }

    /// How many times the usual, as a power of two.
    fn doublings(&self, size: f64) -> f64 {
        self.usual.map_or(0.0, |usual| size.max(1.0).log2() - usual)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    fn usually(size: f64) -> Trunk {
        let mut trunk = Trunk::default();
        trunk.on_asked(size);
        trunk
    }

    #[test]
    fn nobody_stands_back_before_anything_was_lost() {
        let trunk = usually(1.0);
        assert_eq!(trunk.left_by(at(0), 200.0), 0.0);
        assert_eq!(trunk.left_by(at(0), 1e9), 0.0);
    }

    #[test]
    fn losses_of_small_requests_make_the_largest_stand_back_first() {
        let mut trunk = usually(1000.0);
        for _ in 0..10 {
            trunk.on_lost(at(0), 1000.0);
        }
        // The bar stands 8 - 10 x 0.3 = 5 doublings over the usual.
        assert_eq!(trunk.left_by(at(0), 1000.0 * 32.0), 0.0);
        let (one, two) = (1000.0 * 64.0, 1000.0 * 128.0);
        assert!((trunk.left_by(at(0), one) - 0.35).abs() < 1e-9);
        assert!((trunk.left_by(at(0), two) - 0.7).abs() < 1e-9);
        // A hundred quiet seconds give back one doubling.
        assert!(trunk.left_by(at(100), one) < 1e-9);
    }

    #[test]
    fn losses_of_those_over_the_bar_change_nothing() {
        let mut trunk = usually(1000.0);
        for _ in 0..10 {
            trunk.on_lost(at(0), 1000.0);
        }
        let before = trunk.left_by(at(0), 1000.0 * 64.0);
        for _ in 0..100 {
            trunk.on_lost(at(0), 1000.0 * 64.0);
        }
        assert_eq!(trunk.left_by(at(0), 1000.0 * 64.0), before);
    }

    #[test]
    fn what_is_usual_never_stands_back() {
        let mut trunk = usually(1000.0);
        for _ in 0..1000 {
            trunk.on_lost(at(0), 1000.0);
        }
        assert_eq!(trunk.left_by(at(0), 1000.0), 0.0);
    }
}
