//! The moments between two horizons, looked at one by one.
//!
//! Between horizons nothing but an end changes what is there in a step, and the
//! fullest moment is just before one. Only ends within the doubtful stretches are
//! looked at: the one in the middle with everybody, then each half of them, unless
//! all that could be there in that half is little enough. A peak is broad, so one
//! that is too high is soon found.

use std::collections::VecDeque;
use std::ops::Range;

use super::sums::Moments;
use super::{Pools, Room, Runner, Running, SLOTS, slot_after};
use crate::core::units::Tokens;

/// What can be there at most at any moment of a stretch.
#[derive(Clone, Copy, Debug, Default)]
struct Ceiling {
    mean: f64,
    variance: f64,
    most: f64,
    /// The largest one.
    largest: f64,
}

// === impl Room ===

impl Room {
    /// Whether nothing under `ceiling` can pass it. A skew is never more than the
    /// largest one's whole size.
    fn is_over(self, ceiling: Ceiling) -> bool {
        let Self {
            blocks,
            confidence: z,
            doubt,
        } = self;
        let deviation = (ceiling.variance + doubt * doubt).sqrt();
        let skew = (z * z - 1.0).abs() / 6.0 * ceiling.largest;
        ceiling.most + z * doubt <= blocks || ceiling.mean + z * deviation + skew <= blocks
    }
}

// === impl Running ===

impl<'a, I: Iterator<Item = Runner<'a>> + Clone> Running<'a, I> {
    /// Whether `room` is kept just before each end on the way to a `doubtful` horizon.
    pub(super) fn ends_are_within(
        &self,
        newcomer: Option<Runner<'a>>,
        doubtful: &[bool; SLOTS],
        room: Room,
    ) -> bool {
        let all: Vec<_> = self.runners.clone().chain(newcomer).collect();
        let ends = all.iter().map(Runner::remaining);
        let mut ends: Vec<Tokens> = ends.filter(|&end| doubtful[slot_after(end)]).collect();
        ends.sort_unstable();
        ends.dedup();
        let running = &all[..all.len() - usize::from(newcomer.is_some())];
        let is_passed = |ahead: Tokens| {
            let is_passed = room.is_passed_by(self.at(&all, ahead));
            if is_passed && running.iter().any(|runner| runner.remaining() == ahead) {
                self.tight.note_end(ahead, self.at(running, ahead));
            }
            is_passed
        };
        let likely = self.tight.likely().and_then(|likely| {
            let after = ends.partition_point(|&end| end < likely);
            ends[..ends.len().min(after + 1)].last()
        });
        if likely.is_some_and(|&ahead| is_passed(ahead)) {
            return false;
        }
        let mut stretches = VecDeque::new();
        stretches.push_back(0..ends.len());
        while let Some(Range { start, end }) = stretches.pop_front() {
            let middle = start.midpoint(end);
            let Some(&ahead) = ends[start..end].get(middle - start) else {
                continue;
            };
            if is_passed(ahead) {
                return false;
            }
            for half in [start..middle, middle + 1..end] {
                let [from, .., to] = ends[half.clone()] else {
                    stretches.push_back(half);
                    continue;
                };
                if !room.is_over(self.ceiling(&all, (from, to))) {
                    stretches.push_back(half);
                }
            }
        }
        true
    }

    /// The same just before the newcomer's own end, which is where most are refused
    /// that are refused at all.
    pub(super) fn own_end_is_within(
        &self,
        newcomer: Option<Runner<'a>>,
        doubtful: &[bool; SLOTS],
        room: Room,
    ) -> bool {
        let doubted = newcomer.filter(|newcomer| doubtful[slot_after(newcomer.remaining())]);
        doubted.is_none_or(|newcomer| {
            let ahead = newcomer.remaining();
            let each = self.runners.clone();
            let each = each.map(|runner| runner.moments(ahead, self.capacity));
            let look = || each.fold(Moments::default(), Moments::and);
            let there = self.tight.before_own(ahead, look);
            !room.is_passed_by(there.and(newcomer.moments(ahead, self.capacity)))
        })
    }

    /// What is there when each sequence has emitted `ahead` more tokens.
    fn at(&self, all: &[Runner<'a>], ahead: Tokens) -> Moments {
        let each = all
            .iter()
            .map(|runner| runner.moments(ahead, self.capacity));
        each.fold(Moments::default(), Moments::and)
    }

    /// The most that is there from the one to the other.
    fn ceiling(&self, all: &[Runner<'a>], (from, to): (Tokens, Tokens)) -> Ceiling {
        let pools = Pools::of(self.capacity);
        let mut sum = Ceiling::default();
        for runner in all.iter().filter(|runner| from <= runner.remaining()) {
            let last = to.min(runner.remaining());
            let (early, late) = (runner.alive(from), runner.alive(last));
            let mass = pools.share(runner.blocks(last, self.capacity));
            // Half there scatters most.
            let middling = 0.5_f64.clamp(late, early.max(late));
            sum.mean += early * mass;
            sum.variance += middling * (1.0 - middling) * mass * mass;
            sum.most += mass;
            sum.largest = sum.largest.max(mass);
        }
        sum
    }
}
