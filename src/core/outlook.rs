//! How full a backend will get: the gate on memory.
//!
//! Sequences that run together grow together, one token a step, and leave at
//! different times. So the blocks in use are foreseen over horizons, tokens from
//! here on: at each of them every sequence is there with the probability that it
//! goes on that long, and as large as it would then be. Short-lived peaks of
//! different requests may interleave, and a tail counts with its probability
//! only. Where lengths are known the sum is exact, and its highest point is the
//! future peak of the "Past-Future" scheduler (LightLLM, ASPLOS 2025), which
//! always lies just before a sequence ends; where they are not, mean and
//! deviation are corrected for skew (Cornish and Fisher, 1937).
//!
//! A newcomer answers for the moments at which it is still there. Whatever lies
//! beyond the length that one in twenty of its kind outlives comes with or without
//! it, as a job that ends before the next reservation begins delays nobody (EASY
//! backfilling: Mu'alem and Feitelson 2001). Else a few long answers, once they have
//! turned out to be long, would shut a pool to all short ones that end before.
//!
//! The sums of an account are kept, not derived: each lease is added and taken
//! off again as it grows. They are sums of multiples of 2^-40 pools, which floats
//! add without rounding, so that what is kept always equals what would be
//! computed anew. Nothing is decided here for any other reason than memory.

use std::cell::Cell;

use super::backend::Capacity;
use super::footprint::Shape;
use super::lengths::Curve;
use super::units::{Blocks, Tokens};
use sums::Moments;

pub(super) use sums::Sums;
pub(super) use tight::{Applicant, Bar, Tight};
pub(super) use track::Track;

mod exact;
mod sums;
#[cfg(test)]
mod tests;
mod tight;
mod track;
pub(super) mod watch;

/// Horizons in tokens. What lies between two of them is looked at where a
/// sequence may end there; all that may still run beyond the last ends somewhere.
const HORIZONS: [u64; SLOTS - 1] = [
    0, 16, 32, 64, 100, 150, 220, 320, 480, 720, 1100, 1700, 2800, 5000, 10_000,
];

/// The horizons, and the time beyond the last.
const SLOTS: usize = 16;

/// Where fewer than this share of a newcomer's kind are still there, what is there is
/// not its matter.
const SELDOM: f64 = 0.05;

/// A lease is never counted for more pools than this: it fits nowhere anyway.
const MOST_POOLS: f64 = 4.0;

/// What one lease, or one that wants to be, will hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runner<'a> {
    pub(super) shape: &'a Shape,
    /// How long its sequences go on.
    pub(super) curve: &'a Curve,
    /// Tokens each sequence has emitted so far.
    pub(super) generated: Tokens,
    /// Tokens after which each is cut off, whatever the curve says.
    pub(super) bound: Tokens,
    /// Leading blocks it shares with others, which are counted elsewhere.
    pub(super) prefix: Blocks,
}

/// A runner at every horizon, in shares of a pool.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Profile {
    alive: [f64; SLOTS],
    mass: [f64; SLOTS],
    end: Option<Ending>,
}

/// The last moment of a runner that its bound cuts off between two horizons.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ending {
    /// The horizon after it.
    slot: usize,
    alive: f64,
    mass: f64,
}

/// What blocks are counted in: a power of two of at least a whole pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pools {
    blocks: f64,
    /// One block, as a share: a power of two, so that to multiply by it is to divide.
    one: f64,
}

/// What must not be passed, and how surely.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Room {
    /// Blocks for what runs, all that is fixed already taken off.
    pub(super) blocks: f64,
    /// Standard deviations to leave.
    pub(super) confidence: f64,
    /// Deviation, in blocks, of what is not known otherwise.
    pub(super) doubt: f64,
}

/// Those who run on a backend.
pub(super) struct Running<'a> {
    pub(super) sums: &'a Sums,
    pub(super) tracks: &'a [Track],
    pub(super) capacity: &'a Capacity,
    /// Where they were too many last.
    pub(super) tight: &'a Tight,
    /// Counts how often all of them are looked at.
    pub(super) looks: &'a Cell<u32>,
}

// === impl Pools ===

impl Pools {
    /// The unit for a backend of `capacity`.
    pub(super) fn of(capacity: &Capacity) -> Self {
        let whole = capacity.blocks.believable().max(Blocks::new(1));
        let blocks = Blocks::new(whole.get().next_power_of_two()).as_f64();
        Self {
            blocks,
            one: 1.0 / blocks,
        }
    }

    fn share(self, blocks: Blocks) -> f64 {
        (blocks.as_f64() * self.one).min(MOST_POOLS)
    }

    /// Whole blocks, rounded **up**, of so many of this unit; never below 0.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a float beyond the largest count saturates there"
    )]
    fn blocks_up(self, units: f64) -> Blocks {
        Blocks::new((units * self.blocks).ceil().max(0.0) as u64)
    }
}

// === impl Runner ===

impl Runner<'_> {
    /// Tokens each sequence may still emit, at least 1: what runs is never
    /// counted as gone.
    fn remaining(&self) -> Tokens {
        self.bound
            .saturating_sub(self.generated)
            .max(Tokens::new(1))
    }

    /// Probability that it is there when each sequence has emitted `ahead` more.
    pub(super) fn alive(&self, ahead: Tokens) -> f64 {
        if ahead > self.remaining() {
            return 0.0;
        }
        self.curve
            .given(self.generated, ahead.saturating_sub(Tokens::new(1)))
    }

    /// Blocks of its own then.
    fn blocks(&self, ahead: Tokens, capacity: &Capacity) -> Blocks {
        self.shape
            .blocks(self.generated.saturating_add(ahead), capacity)
            .saturating_sub(self.prefix)
    }

    /// How it adds to the sums of a backend of `capacity`.
    pub(super) fn profile(&self, capacity: &Capacity) -> Profile {
        let pools = Pools::of(capacity);
        let remaining = self.remaining();
        let (mut alive, mut mass) = ([0.0; SLOTS], [0.0; SLOTS]);
        let mut end = None;
        for (slot, horizon) in HORIZONS.into_iter().map(Tokens::new).enumerate() {
            if horizon > remaining {
                end = Some(slot);
                break;
            }
            alive[slot] = self.alive(horizon);
            mass[slot] = pools.share(self.blocks(horizon, capacity));
            if horizon == remaining {
                return Profile {
                    alive,
                    mass,
                    end: None,
                };
            }
        }
        let end = Ending {
            slot: end.unwrap_or(HORIZONS.len()),
            alive: self.alive(remaining),
            mass: pools.share(self.blocks(remaining, capacity)),
        };
        Profile {
            alive,
            mass,
            end: Some(end),
        }
    }
}

// === impl Room ===

impl Room {
    fn within(self, pools: Pools) -> Self {
        Self {
            blocks: self.blocks / pools.blocks,
            doubt: self.doubt / pools.blocks,
            ..self
        }
    }

    /// Whether `moments` pass it. More than all that may be there is never there.
    fn is_passed_by(self, moments: Moments) -> bool {
        let Self {
            blocks,
            confidence: z,
            doubt,
        } = self;
        if moments.most + z * doubt <= blocks {
            return false;
        }
        if moments.mean > blocks {
            return true;
        }
        let variance = moments.variance + doubt * doubt;
        if variance <= 0.0 {
            return false;
        }
        let skew = (z * z - 1.0) / 6.0 * moments.skew / variance;
        moments.mean + (z * variance.sqrt() + skew).max(0.0) > blocks
    }
}

// === impl Running ===

impl Running<'_> {
    /// Whether the peak stays within `room`, with `newcomer` if there is one.
    ///
    /// O(horizons), and O(runners) more for each that may end where the sums
    /// alone do not say.
    pub(super) fn admits(&self, newcomer: Option<(Runner<'_>, &Profile)>, room: Room) -> bool {
        let room = room.within(Pools::of(self.capacity));
        if self
            .tight
            .refuses((self.sums, newcomer), room, self.capacity)
        {
            return false;
        }
        let mut doubtful = [false; SLOTS];
        let mut is_clear = true;
        let profile = newcomer.map(|(_, profile)| profile);
        for (slot, doubt) in doubtful.iter_mut().enumerate() {
            if profile.is_some_and(|profile| !profile.reaches(slot)) {
                break;
            }
            let (there, ending) = self.sums.with(profile, slot);
            if !room.is_passed_by(there.and(ending)) {
                continue;
            }
            let stays = profile.is_none_or(|profile| profile.stays(slot));
            if stays && room.is_passed_by(there) {
                self.tight.note_slot(slot);
                return false;
            }
            *doubt = true;
            is_clear = false;
        }
        if is_clear {
            return true;
        }
        let newcomer = newcomer.map(|(runner, _)| Track::of(runner, self.capacity));
        self.own_end_is_within(newcomer.as_ref(), &doubtful, room)
            && self.ends_are_within(newcomer.as_ref(), &doubtful, room)
    }
}

/// The first horizon that is not before `end`.
fn slot_after(end: Tokens) -> usize {
    HORIZONS.partition_point(|&horizon| horizon < end.get())
}

/// Whether leases grow on a backend of `one` as on one of `other`, and are counted
/// in the same unit.
pub(super) fn are_alike(one: &Capacity, other: &Capacity) -> bool {
    let growth = |capacity: &Capacity| {
        let Capacity {
            block_size,
            max_model_len,
            lookahead,
            prefix_caching,
            ..
        } = *capacity;
        (block_size, max_model_len, lookahead, prefix_caching)
    };
    growth(one) == growth(other) && Pools::of(one) == Pools::of(other)
}
