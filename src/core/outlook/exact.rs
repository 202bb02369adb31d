//! The moments between two horizons, looked at one by one.
//!
//! Between horizons nothing but an end changes what is there in a step, and the
//! fullest moment is just before one. Only ends within the doubtful stretches
//! are looked at, each with everybody.

use super::sums::Moments;
use super::{HORIZONS, Pools, Room, Runner, Running, SLOTS};
use crate::core::units::Tokens;

// === impl Running ===

impl<'a, I: Iterator<Item = Runner<'a>> + Clone> Running<'a, I> {
    /// Whether `room` is kept just before each end on the way to a `doubtful` horizon.
    pub(super) fn ends_are_within(
        &self,
        newcomer: Option<Runner<'a>>,
        doubtful: &[bool; SLOTS],
        room: Room,
    ) -> bool {
        let all = self.runners.clone().chain(newcomer);
        let ends = all.map(|runner| runner.remaining());
        let mut ends: Vec<Tokens> = ends.filter(|&end| doubtful[slot_after(end)]).collect();
        ends.sort_unstable();
        ends.dedup();
        // The later ones are fuller, where there is no room.
        let mut ends = ends.into_iter().rev();
        ends.all(|end| !room.is_passed_by(self.at(newcomer, end)))
    }

    /// What is there when each sequence has emitted `ahead` more tokens.
    fn at(&self, newcomer: Option<Runner<'a>>, ahead: Tokens) -> Moments {
        let pools = Pools::of(self.capacity);
        let all = self.runners.clone().chain(newcomer);
        let mut sum = Moments::default();
        for runner in all {
            let alive = runner.alive(ahead);
            if alive > 0.0 {
                let mass = pools.share(runner.blocks(ahead, self.capacity));
                sum = sum.and(Moments::of(alive, mass));
            }
        }
        sum
    }
}

/// The first horizon that is not before `end`.
fn slot_after(end: Tokens) -> usize {
    HORIZONS.partition_point(|&horizon| horizon < end.get())
}
