//! The moments of what is in use at every horizon, kept as leases come and go.
//!
//! Kept twice: for what is there at a horizon, and for what may end on the way to
//! it. Adding a profile and taking it off again leaves exactly what was before.

use super::{Ending, Pools, Profile, SELDOM, SLOTS};
use crate::core::backend::Capacity;
use crate::core::units::Blocks;

/// 2^-40 of a pool: adding this to a number and taking it off rounds the number
/// to a multiple of that, and such numbers below 2^11 add up without rounding.
const ROUNDING: f64 = 6144.0;

/// Mean, variance and third central moment of what is in use at one moment, and
/// the most that may be.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Moments {
    pub(super) mean: f64,
    pub(super) variance: f64,
    pub(super) skew: f64,
    pub(super) most: f64,
}

/// The moments at every horizon.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Course {
    mean: [f64; SLOTS],
    variance: [f64; SLOTS],
    skew: [f64; SLOTS],
    most: [f64; SLOTS],
}

/// The sums of one account.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::core) struct Sums {
    there: Course,
    ending: Course,
}

// === impl Moments ===

impl Moments {
    /// One that is there with probability `alive` and then holds `mass`.
    pub(super) fn of(alive: f64, mass: f64) -> Self {
        let variance = alive * (1.0 - alive) * mass * mass;
        Self {
            mean: rounded(alive * mass),
            variance: rounded(variance),
            skew: rounded(variance * (1.0 - 2.0 * alive) * mass),
            most: if alive > 0.0 { rounded(mass) } else { 0.0 },
        }
    }

    /// What is passed as seldom as `z` deviations say, corrected for skew, and never
    /// more than all that may be there: where a room of that size is just kept.
    fn foreseen(self, z: f64) -> f64 {
        let more = if self.variance > 0.0 {
            let skew = (z * z - 1.0) / 6.0 * self.skew / self.variance;
            (z * self.variance.sqrt() + skew).max(0.0)
        } else {
            0.0
        };
        (self.mean + more).min(self.most)
    }

    /// Both, independent of each other.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            mean: self.mean + other.mean,
            variance: self.variance + other.variance,
            skew: self.skew + other.skew,
            most: self.most + other.most,
        }
    }

    /// What is left without `other`, which was part of it.
    pub(super) fn without(self, other: Self) -> Self {
        Self {
            mean: self.mean - other.mean,
            variance: self.variance - other.variance,
            skew: self.skew - other.skew,
            most: self.most - other.most,
        }
    }
}

fn rounded(share: f64) -> f64 {
    (share + ROUNDING) - ROUNDING
}

// === impl Course ===

impl Course {
    fn at(&self, slot: usize) -> Moments {
        Moments {
            mean: self.mean[slot],
            variance: self.variance[slot],
            skew: self.skew[slot],
            most: self.most[slot],
        }
    }

    fn add(&mut self, slot: usize, moments: Moments) {
        self.mean[slot] += moments.mean;
        self.variance[slot] += moments.variance;
        self.skew[slot] += moments.skew;
        self.most[slot] += moments.most;
    }

    fn take_off(&mut self, slot: usize, moments: Moments) {
        self.mean[slot] -= moments.mean;
        self.variance[slot] -= moments.variance;
        self.skew[slot] -= moments.skew;
        self.most[slot] -= moments.most;
    }
}

// === impl Sums ===

impl Sums {
    /// A lease comes.
    pub(in crate::core) fn add(&mut self, profile: &Profile) {
        for slot in profile.slots() {
            self.there.add(slot, profile.there(slot));
        }
        if let Some(end) = profile.end {
            self.ending.add(end.slot, Moments::of(end.alive, end.mass));
        }
    }

    /// A lease goes, as it was added.
    pub(in crate::core) fn take_off(&mut self, profile: &Profile) {
        for slot in profile.slots() {
            self.there.take_off(slot, profile.there(slot));
        }
        if let Some(end) = profile.end {
            self.ending
                .take_off(end.slot, Moments::of(end.alive, end.mass));
        }
    }

    /// The most blocks that are foreseen to be in use at any horizon, what may end
    /// on the way to it included, with `confidence` deviations to spare; rounded up.
    pub(in crate::core) fn peak(&self, capacity: &Capacity, confidence: f64) -> Blocks {
        let peaks = (0..SLOTS).map(|slot| {
            let (there, ending) = self.with(None, slot);
            there.and(ending).foreseen(confidence)
        });
        Pools::of(capacity).blocks_up(peaks.fold(0.0, f64::max))
    }

    /// What would be there at a horizon with `newcomer`, and what of all that may
    /// end on the way to it.
    pub(super) fn with(&self, newcomer: Option<&Profile>, slot: usize) -> (Moments, Moments) {
        let (there, ending) = (self.there.at(slot), self.ending.at(slot));
        let Some(newcomer) = newcomer else {
            return (there, ending);
        };
        let there = there.and(newcomer.there(slot));
        match newcomer.end {
            Some(end) if end.slot == slot => (there, ending.and(Moments::of(end.alive, end.mass))),
            _ => (there, ending),
        }
    }
}

// === impl Profile ===

impl Profile {
    /// The horizons at which it may be there.
    fn slots(&self) -> std::ops::Range<usize> {
        0..self.end.map_or(SLOTS, |end| end.slot)
    }

    /// Whether what is there at a horizon is its matter, if it is a newcomer.
    pub(super) fn stays(&self, slot: usize) -> bool {
        self.alive[slot] >= SELDOM
    }

    /// Whether that is, or what ends on the way there. If neither, nothing later is.
    pub(super) fn reaches(&self, slot: usize) -> bool {
        let ends = |end: Ending| end.slot == slot && end.alive >= SELDOM;
        self.stays(slot) || self.end.is_some_and(ends)
    }

    fn there(&self, slot: usize) -> Moments {
        Moments::of(self.alive[slot], self.mass[slot])
    }
}
