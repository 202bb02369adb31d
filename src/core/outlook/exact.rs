//! The moments between two horizons, looked at one by one.
//!
//! Between horizons nothing but an end changes what is there in a step, and the
//! fullest moment is just before one. Only ends within the doubtful stretches are
//! looked at: the outermost with everybody, then the one in the middle of those
//! between, and so on in each half, unless all that could be there in it, by the looks
//! at either side, is little enough. A peak is broad, so one that is too high is soon
//! found.

use std::collections::VecDeque;
use std::rc::Rc;

use super::sums::Moments;
use super::track::{Point, Track};
use super::{Room, Running, SLOTS, slot_after};
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

impl Running<'_> {
    /// Whether `room` is kept just before each end on the way to a `doubtful` horizon.
    pub(super) fn ends_are_within(
        &self,
        newcomer: Option<&Track>,
        doubtful: &[bool; SLOTS],
        room: Room,
    ) -> bool {
        let tracks = || self.tracks.iter().chain(newcomer);
        let ends = tracks().map(|track| track.remaining);
        let mut ends: Vec<Tokens> = ends.filter(|&end| doubtful[slot_after(end)]).collect();
        ends.sort_unstable();
        ends.dedup();
        let reach = newcomer
            .map(|newcomer| ends.partition_point(|&end| newcomer.reaches(end, self.capacity)));
        ends.truncate(reach.unwrap_or(ends.len()));
        let is_within = |ahead: Tokens| -> Option<Look> {
            self.looks.update(|looks| looks + 1);
            let look: Look = tracks()
                .map(|track| track.at(ahead, self.capacity))
                .collect();
            let there = together(&look);
            let is_passed = room.is_passed_by(there);
            if is_passed && self.tracks.iter().any(|track| track.remaining == ahead) {
                self.tight
                    .note_end(ahead, together(&look[..self.tracks.len()]));
            }
            (!is_passed).then_some(look)
        };
        let likely = self.tight.likely().and_then(|likely| {
            let after = ends.partition_point(|&end| end < likely);
            ends[..ends.len().min(after + 1)].last()
        });
        if likely.is_some_and(|&ahead| is_within(ahead).is_none()) {
            return false;
        }
        let [first, inner @ .., last] = &ends[..] else {
            return ends.iter().all(|&ahead| is_within(ahead).is_some());
        };
        let (Some(first), Some(last)) = (is_within(*first), is_within(*last)) else {
            return false;
        };
        let mut stretches = VecDeque::from([(inner, Rc::new(first), Rc::new(last))]);
        while let Some((ends, from, to)) = stretches.pop_front() {
            let Some(&first) = ends.first() else {
                continue;
            };
            if room.is_over(self.ceiling(newcomer, first, (&from, &to))) {
                continue;
            }
            let (before, after) = ends.split_at(ends.len() / 2);
            let Some(middle) = is_within(after[0]) else {
                return false;
            };
            let middle = Rc::new(middle);
            stretches.push_back((before, from, Rc::clone(&middle)));
            stretches.push_back((&after[1..], middle, to));
        }
        true
    }

    /// The same just before the newcomer's own end, which is where most are refused
    /// that are refused at all.
    pub(super) fn own_end_is_within(
        &self,
        newcomer: Option<&Track>,
        doubtful: &[bool; SLOTS],
        room: Room,
    ) -> bool {
        let doubted = newcomer.filter(|newcomer| {
            let end = newcomer.remaining;
            doubtful[slot_after(end)] && newcomer.reaches(end, self.capacity)
        });
        doubted.is_none_or(|newcomer| {
            let ahead = newcomer.remaining;
            let tracks = self.tracks.iter();
            let each = tracks.map(|track| track.moments(ahead, self.capacity));
            let look = || {
                self.looks.update(|looks| looks + 1);
                each.fold(Moments::default(), Moments::and)
            };
            let there = self.tight.before_own(ahead, look);
            !room.is_passed_by(there.and(newcomer.moments(ahead, self.capacity)))
        })
    }

    /// The most that is there from `first` on, between a look before and one after.
    fn ceiling(
        &self,
        newcomer: Option<&Track>,
        first: Tokens,
        (from, to): (&[Point], &[Point]),
    ) -> Ceiling {
        let mut sum = Ceiling::default();
        let tracks = self.tracks.iter().chain(newcomer);
        for (track, (from, to)) in tracks.zip(from.iter().zip(to)) {
            if track.remaining < first {
                continue;
            }
            let (early, late, mass) = (from.alive, to.alive, to.mass);
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

/// Every track at one moment.
type Look = Vec<Point>;

fn together(look: &[Point]) -> Moments {
    let each = look.iter().map(|point| point.moments());
    each.fold(Moments::default(), Moments::and)
}
