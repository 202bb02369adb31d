//! When there will be room for one that does not fit yet.

use super::sums::Moments;
use super::{Pools, Room, SLOTS, Sums, horizon};
use crate::core::backend::Capacity;
use crate::core::units::{Blocks, Tokens};

// === impl Sums ===

impl Sums {
    /// The first horizon, in tokens of each sequence from now, from which on `more`
    /// blocks fit within `room` at every later one, if nobody else comes. `None`
    /// where that is not foreseen. O(horizons).
    pub(in crate::core) fn soonest(
        &self,
        more: Blocks,
        capacity: &Capacity,
        room: Room,
    ) -> Option<Tokens> {
        let pools = Pools::of(capacity);
        let room = room.within(pools);
        let more = Moments::of(1.0, pools.share(more));
        let is_passed = |moments: Moments| room.is_passed_by(moments.and(more));
        let mut slots = (0..SLOTS).rev();
        let full = slots.find(|&slot| {
            let (there, ending) = self.with(None, slot);
            is_passed(there.and(ending))
        });
        let Some(full) = full else {
            return Some(Tokens::ZERO);
        };
        // It may be only on the way to that horizon that there is no room.
        let (there, _) = self.with(None, full);
        let from = if is_passed(there) { full + 1 } else { full };
        (from < SLOTS - 1).then(|| horizon(from))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Kept, Runner, Running};
    use super::*;
    use crate::core::fixtures::{capacity, demand};
    use crate::core::footprint::Shape;
    use crate::core::lengths::{ClassKey, Curve, Lengths};

    /// Of tokens, counted in blocks of 16, on a pool of 100.
    fn known(prompt: u64, output: u64) -> (Shape, Curve) {
        let of = demand(prompt, output);
        let lengths = Lengths::new(Tokens::new(100_000));
        let curve = lengths.curve(ClassKey::of(&of), of.output);
        (Shape::of(&of), curve)
    }

    fn runner((shape, curve): &(Shape, Curve), bound: u64) -> Runner<'_> {
        Runner {
            shape,
            curve,
            generated: Tokens::ZERO,
            bound: Tokens::new(bound),
            prefix: Blocks::ZERO,
        }
    }

    const ROOM: Room = Room {
        blocks: 100.0,
        confidence: 1.64,
        doubt: 0.0,
        kept: None,
    };

    #[test]
    fn room_comes_with_the_end_of_whoever_takes_it() {
        let capacity = capacity(100);
        let (short, long) = (known(480, 90), known(480, 600));
        let mut sums = Sums::default();
        sums.add(&runner(&short, 90).profile(&capacity));
        sums.add(&runner(&long, 600).profile(&capacity));
        let soonest = |more| sums.soonest(Blocks::new(more), &capacity, ROOM);
        assert_eq!(soonest(20), Some(Tokens::ZERO));
        // 36 and 30 + 6 blocks until the first ends, 68 at most after that.
        assert_eq!(soonest(30), Some(Tokens::new(100)));
        assert_eq!(soonest(60), Some(Tokens::new(720)));
        assert_eq!(soonest(101), None);
    }

    #[test]
    fn what_is_kept_stops_only_who_is_there_then() {
        let capacity = capacity(100);
        let (short, long) = (known(480, 90), known(480, 300));
        let sums = Sums::default();
        let running = Running {
            sums: &sums,
            runners: std::iter::empty(),
            capacity: &capacity,
        };
        let is_admitted = |of, bound, kept| {
            let runner = runner(of, bound);
            let profile = runner.profile(&capacity);
            let room = Room {
                kept: Some(kept),
                ..ROOM
            };
            running.admits(Some((runner, &profile)), room)
        };
        let kept = Kept {
            from: Tokens::new(100),
            blocks: 60.0,
        };
        assert!(is_admitted(&short, 90, kept));
        // It needs 49 of 40 blocks in the end.
        assert!(!is_admitted(&long, 300, kept));
        let later = Kept {
            from: Tokens::new(320),
            ..kept
        };
        assert!(is_admitted(&long, 300, later));
    }
}
