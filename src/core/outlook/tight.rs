//! Where an account was found too full last: asked first the next time.
//!
//! A pool that is full refuses one newcomer after the other at the same moment, just
//! before the same end. The moments of all that run then are kept, and follow each
//! lease that comes, grows and goes, so that the next newcomer is refused without a
//! look at anybody. It never changes an answer: sums are exact, and what is kept is
//! dropped as soon as nobody ends at that moment any more.

use std::cell::Cell;
use std::fmt;

use super::sums::Moments;
use super::track::Track;
use super::{Pools, Profile, Room, Runner, SELDOM, SLOTS, Sums, slot_after};
use crate::core::backend::Capacity;
use crate::core::units::Tokens;

/// What refused last on one account.
#[derive(Clone, Default)]
pub(in crate::core) struct Tight {
    /// The horizon at which there was too much.
    slot: Cell<Option<usize>>,
    end: Cell<Option<End>>,
    /// Just before the end of the last newcomer that was asked about.
    own: Cell<Option<End>>,
    /// Where the end before that was, if nobody ends there any more.
    near: Cell<Option<Tokens>>,
}

/// The moment before an end.
#[derive(Clone, Copy, Debug)]
struct End {
    /// Tokens from here on.
    ahead: Tokens,
    /// All that run then, without a newcomer.
    there: Moments,
}

/// What refused last on one account, apart from it: enough to refuse most newcomers
/// without a look at the account. It holds as long as the account is left alone.
#[derive(Clone, Copy, Debug)]
pub(in crate::core) struct Bar {
    /// No less than any newcomer finds.
    room: Room,
    slot: Option<(usize, Passed)>,
    end: Option<(Tokens, usize, Passed)>,
}

/// Moments that must both be too much: of those that are there for certain, and with
/// all that may be beside them.
#[derive(Clone, Copy, Debug)]
struct Passed {
    there: Moments,
    with_ending: Moments,
}

/// A newcomer as bars are asked about it.
#[derive(Clone, Debug)]
pub(in crate::core) struct Applicant {
    track: Track,
    /// The horizons that are its matter, and those with the ends on the way to one.
    stay: usize,
    reach: usize,
    /// What it adds at every horizon, and what with its end on the way to it.
    slots: [(Moments, Moments); SLOTS],
}

// === impl Applicant ===

impl Applicant {
    pub(in crate::core) fn new(runner: Runner<'_>, profile: &Profile, capacity: &Capacity) -> Self {
        let nobody = Sums::default();
        let slots = std::array::from_fn(|slot| {
            let (there, ending) = nobody.with(Some(profile), slot);
            (there, there.and(ending))
        });
        Self {
            track: Track::of(runner, capacity),
            stay: (0..SLOTS).take_while(|&slot| profile.stays(slot)).count(),
            reach: (0..SLOTS).take_while(|&slot| profile.reaches(slot)).count(),
            slots,
        }
    }
}

// === impl Bar ===

impl Bar {
    /// Whether `applicant` is refused on that account, for sure.
    pub(in crate::core) fn refuses(&self, applicant: &Applicant, capacity: &Capacity) -> bool {
        let Self { room, slot, end } = *self;
        let by_slot = slot.is_some_and(|(slot, passed)| {
            if slot >= applicant.stay {
                return false;
            }
            let (there, with_ending) = applicant.slots[slot];
            room.is_passed_by(passed.there.and(there))
                && room.is_passed_by(passed.with_ending.and(with_ending))
        });
        by_slot
            || end.is_some_and(|(ahead, slot, passed)| {
                if slot >= applicant.reach || !applicant.track.reaches(ahead, capacity) {
                    return false;
                }
                let (_, with_ending) = applicant.slots[slot];
                let there = applicant.track.moments(ahead, capacity);
                room.is_passed_by(passed.there.and(there))
                    && room.is_passed_by(passed.with_ending.and(with_ending))
            })
    }
}

// === impl Tight ===

impl fmt::Debug for Tight {
    /// Nothing: what is kept here is no part of what an account says.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tight").finish_non_exhaustive()
    }
}

impl Tight {
    /// A lease begins to count as `runner`.
    pub(in crate::core) fn join(&mut self, runner: Option<Runner<'_>>, capacity: &Capacity) {
        let Some(runner) = runner else { return };
        for end in [&mut self.end, &mut self.own] {
            if let Some(end) = end.get_mut() {
                end.there = end.there.and(runner.moments(end.ahead, capacity));
            }
        }
    }

    /// It no longer counts as `runner`.
    pub(in crate::core) fn leave(&mut self, runner: Option<Runner<'_>>, capacity: &Capacity) {
        let Some(runner) = runner else { return };
        for end in [&mut self.end, &mut self.own] {
            if let Some(end) = end.get_mut() {
                end.there = end.there.without(runner.moments(end.ahead, capacity));
            }
        }
        let dropped = self.end.get().filter(|end| runner.remaining() == end.ahead);
        if let Some(end) = dropped {
            self.near.set(Some(end.ahead));
            self.end.set(None);
        }
    }

    /// Whether what is kept is what would be computed anew.
    pub(in crate::core) fn is_right<'a>(
        &self,
        runners: impl Iterator<Item = Runner<'a>>,
        capacity: &Capacity,
    ) -> bool {
        let runners: Vec<_> = runners.collect();
        let is_right = |end: End| {
            let each = runners.iter();
            let each = each.map(|runner| runner.moments(end.ahead, capacity));
            each.fold(Moments::default(), Moments::and) == end.there
        };
        let ends = |end: End| runners.iter().any(|runner| runner.remaining() == end.ahead);
        self.own.get().is_none_or(is_right)
            && self.end.get().is_none_or(|end| ends(end) && is_right(end))
    }

    /// All that run just before `ahead`, where a newcomer ends; `look` adds them up.
    pub(super) fn before_own(&self, ahead: Tokens, look: impl FnOnce() -> Moments) -> Moments {
        let known = self.own.get().filter(|end| end.ahead == ahead);
        let end = known.unwrap_or_else(|| End {
            ahead,
            there: look(),
        });
        self.own.set(Some(end));
        end.there
    }

    /// At this horizon there was too much.
    pub(super) fn note_slot(&self, slot: usize) {
        self.slot.set(Some(slot));
    }

    /// So much of what runs is there before an end, `ahead` from here, that a newcomer
    /// was refused for it.
    pub(super) fn note_end(&self, ahead: Tokens, there: Moments) {
        self.end.set(Some(End { ahead, there }));
    }

    /// Where the next refusal is most likely, if anywhere.
    pub(super) fn likely(&self) -> Option<Tokens> {
        self.end.get().map(|end| end.ahead).or(self.near.get())
    }

    /// What refuses by this, where no newcomer finds more than `room`.
    pub(in crate::core) fn bar(&self, sums: &Sums, room: Room, capacity: &Capacity) -> Bar {
        let at = |slot: usize| {
            let (there, ending) = sums.with(None, slot);
            (there, there.and(ending))
        };
        Bar {
            room: room.within(Pools::of(capacity)),
            slot: self.slot.get().map(|slot| {
                let (there, with_ending) = at(slot);
                (slot, Passed { there, with_ending })
            }),
            end: self.end.get().map(|End { ahead, there }| {
                let slot = slot_after(ahead).min(SLOTS - 1);
                let (_, with_ending) = at(slot);
                (ahead, slot, Passed { there, with_ending })
            }),
        }
    }

    /// Whether what refused last refuses `newcomer` too.
    pub(super) fn refuses(
        &self,
        (sums, newcomer): (&Sums, Option<(Runner<'_>, &Profile)>),
        room: Room,
        capacity: &Capacity,
    ) -> bool {
        let profile = newcomer.map(|(_, profile)| profile);
        let stays = |&slot: &usize| profile.is_none_or(|profile| profile.stays(slot));
        if let Some(slot) = self.slot.get().filter(stays) {
            let (there, ending) = sums.with(profile, slot);
            if room.is_passed_by(there.and(ending)) && room.is_passed_by(there) {
                return true;
            }
        }
        let end = self.end.get().filter(|end| {
            newcomer.is_none_or(|(runner, profile)| {
                runner.alive(end.ahead) >= SELDOM && profile.reaches(slot_after(end.ahead))
            })
        });
        let Some(End { ahead, there }) = end else {
            return false;
        };
        let (horizon, ending) = sums.with(profile, slot_after(ahead));
        if !room.is_passed_by(horizon.and(ending)) {
            return false;
        }
        let newcomer = newcomer.map(|(runner, _)| runner.moments(ahead, capacity));
        room.is_passed_by(there.and(newcomer.unwrap_or_default()))
    }
}

// === impl Runner ===

impl Runner<'_> {
    /// What it adds `ahead` tokens from here, in shares of a pool.
    pub(super) fn moments(&self, ahead: Tokens, capacity: &Capacity) -> Moments {
        let alive = self.alive(ahead);
        if alive <= 0.0 {
            return Moments::default();
        }
        let mass = Pools::of(capacity).share(self.blocks(ahead, capacity));
        Moments::of(alive, mass)
    }
}
