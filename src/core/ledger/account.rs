//! The books of one backend generation.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::{Booking, Entry, LeaseId};
use crate::core::backend::{Capacity, Observed};
use crate::core::demand::{OutputLimit, Progress};
use crate::core::lengths::{ClassKey, Curve, Growth};
use crate::core::outlook::{Bar, Profile, Room, Runner, Running, Sums, Tight, Track};
use crate::core::prefix::{PrefixChain, PrefixHash};
use crate::core::time::Time;
use crate::core::units::{Blocks, Tokens};

/// Growth after which a lease is foreseen by what has been learned since.
const REFRESH: u64 = 16;

/// How often what is not seen is made older: a few tokens each time.
const AGING: Duration = Duration::from_millis(200);

/// How long a lease that has ended may still be in a scrape that was under way.
const UNDER_WAY: Duration = Duration::from_secs(10);

/// The books of one backend generation.
#[derive(Clone, Debug, Default)]
pub(in crate::core) struct Account {
    held: Blocks,
    sequences: u64,
    leases: BTreeMap<LeaseId, Entry>,
    pins: BTreeMap<PrefixHash, u32>,
    /// Own blocks of leases that hold all they may need.
    fixed: Blocks,
    /// The others, as they are expected to grow and to end.
    sums: Sums,
    /// The same one by one, and whose each is.
    tracks: Vec<Track>,
    tracked: Vec<LeaseId>,
    /// Where they were too many last.
    tight: Tight,
    /// The backend's size, once a lease may be taken there.
    capacity: Option<Capacity>,
    /// Leases that have ended lately, in order.
    ended: VecDeque<Ended>,
    /// When the leases whose growth is not seen were last made older.
    aged: Time,
}

/// What a lease used when it ended.
#[derive(Clone, Copy, Debug)]
struct Ended {
    at: Time,
    admitted: Time,
    used: Blocks,
    sequences: u64,
}

/// Blocks that leases use at one moment, and what they may use beyond that.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::core) struct InUse {
    /// What is known of.
    pub(in crate::core) known: Blocks,
    /// What may be on its way here.
    pub(in crate::core) slack: Blocks,
}

// === impl Account ===

impl Account {
    /// Blocks held by live leases.
    pub(in crate::core) fn held(&self) -> Blocks {
        self.held
    }

    /// Blocks of shared prefixes.
    pub(in crate::core) fn shared(&self) -> Blocks {
        Blocks::new(self.pins.len() as u64)
    }

    /// Blocks that stay whatever the forecast says.
    pub(in crate::core) fn fixed(&self) -> Blocks {
        self.fixed + self.shared()
    }

    /// Blocks that are kept for the growth of live leases: what they hold at their
    /// future peak, with `confidence` deviations to spare, beyond what they do now.
    /// Rounded up. O(horizons).
    pub(in crate::core) fn growing(&self, confidence: f64) -> Blocks {
        let Some(capacity) = &self.capacity else {
            return Blocks::ZERO;
        };
        let peak = self.fixed() + self.sums.peak(capacity, confidence);
        peak.saturating_sub(self.held)
    }

    /// Sequences of live leases.
    pub(in crate::core) fn sequences(&self) -> u64 {
        self.sequences
    }

    /// Number of live leases.
    pub(in crate::core) fn leases(&self) -> u32 {
        u32::try_from(self.leases.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn count(&self) -> usize {
        self.leases.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = LeaseId> {
        self.leases.keys().copied()
    }

    pub(super) fn entry(&self, lease: LeaseId) -> &Entry {
        self.leases.get(&lease).expect("a lease is on its account")
    }

    /// Leading blocks of `chain` that are already pinned here.
    pub(in crate::core) fn pinned(&self, chain: &PrefixChain) -> Blocks {
        let known = chain
            .hashes()
            .iter()
            .take_while(|hash| self.pins.contains_key(hash));
        Blocks::new(known.count() as u64)
    }

    /// Whether the future peak stays within `room` with `newcomer`; counts its `looks`.
    pub(in crate::core) fn admits(
        &self,
        newcomer: Option<(Runner<'_>, &Profile)>,
        (capacity, room): (&Capacity, Room),
        looks: &Cell<u32>,
    ) -> bool {
        let running = Running {
            sums: &self.sums,
            tracks: &self.tracks,
            capacity,
            tight: &self.tight,
            looks,
        };
        running.admits(newcomer, room)
    }

    /// What refuses newcomers here that find no more than `room`.
    pub(in crate::core) fn bar(&self, capacity: &Capacity, room: Room) -> Bar {
        self.tight.bar(&self.sums, room, capacity)
    }

    /// Tokens that each sequence emits from here on until its leases are expected to
    /// have given back `blocks` of what they hold, rounded **up** to a power of two
    /// below 64, and to a sixteenth above; `None` where they never are. O(leases).
    pub(in crate::core) fn frees_after(&self, blocks: Blocks) -> Option<Tokens> {
        let freed = |ahead: u64| -> f64 {
            let ahead = Tokens::new(ahead);
            let running = self.leases.values();
            let ended = running.filter_map(|entry| {
                let gone = 1.0 - entry.runner()?.alive(ahead);
                Some(entry.own.as_f64() * gone)
            });
            ended.sum()
        };
        let enough = |ahead: &u64| freed(*ahead) >= blocks.as_f64();
        let last = (0..40).map(|power| 1_u64 << power).find(enough)?;
        if last <= 64 {
            return Some(Tokens::new(last));
        }
        let (from, step) = (last / 2, last / 32);
        let ahead = (1..=16).map(|nth| from + nth * step).find(enough);
        ahead.map(Tokens::new)
    }

    pub(super) fn on_capacity(&mut self, capacity: Capacity) {
        if self.capacity == Some(capacity) {
            return;
        }
        self.capacity = Some(capacity);
        self.sums = Sums::default();
        self.tight = Tight::default();
        self.fixed = Blocks::ZERO;
        self.tracks.clear();
        self.tracked.clear();
        for (&lease, entry) in &mut self.leases {
            match &entry.growing {
                Some(_) => {
                    foresee(entry, &capacity, &mut self.sums);
                    self.tracks
                        .extend(entry.runner().map(|runner| Track::of(runner, &capacity)));
                    self.tracked.push(lease);
                }
                None => self.fixed += entry.own,
            }
        }
    }

    pub(super) fn put(&mut self, lease: LeaseId, mut entry: Entry) {
        entry.own -= entry.prefix.blocks();
        for &hash in entry.prefix.hashes() {
            let pins = self.pins.entry(hash).or_insert(0);
            *pins += 1;
            if *pins == 1 {
                self.held += Blocks::new(1);
            }
        }
        self.held += entry.own;
        self.sequences += entry.shape.sequences();
        match &self.capacity {
            Some(capacity) if entry.growing.is_some() => {
                foresee(&mut entry, capacity, &mut self.sums);
                self.tight.join(entry.runner(), capacity);
                self.tracks
                    .extend(entry.runner().map(|runner| Track::of(runner, capacity)));
                self.tracked.push(lease);
            }
            _ => self.fixed += entry.own,
        }
        self.leases.insert(lease, entry);
    }

    pub(super) fn grow(
        &mut self,
        lease: LeaseId,
        generated: Tokens,
        curve: impl FnOnce(ClassKey, OutputLimit) -> Curve,
    ) -> Option<(ClassKey, Growth)> {
        let entry = self
            .leases
            .get_mut(&lease)
            .expect("a lease is on its account");
        let growth = Growth {
            from: entry.generated,
            to: entry.generated.max(generated),
        };
        let news = entry.class.map(|class| (class, growth));
        let Some(capacity) = self.capacity.filter(|_| growth.to > growth.from) else {
            entry.generated = growth.to;
            return news;
        };
        self.tight.leave(entry.runner(), &capacity);
        entry.generated = growth.to;
        if let Some(growing) = &mut entry.growing {
            if let Some(profile) = growing.profile.take() {
                self.sums.take_off(&profile);
            }
            if growth.to.get() / REFRESH > growth.from.get() / REFRESH
                && let Some(class) = entry.class
            {
                growing.curve = curve(class, entry.output);
            }
            foresee(entry, &capacity, &mut self.sums);
            self.tight.join(entry.runner(), &capacity);
            let place = self.tracked.iter().position(|&tracked| tracked == lease);
            if let Some((place, runner)) = place.zip(entry.runner()) {
                self.tracks[place] = Track::of(runner, &capacity);
            }
        }
        if entry.booking == Booking::AsItGrows {
            let own = entry.shape.blocks(entry.generated, &capacity);
            let own = own.saturating_sub(entry.prefix.blocks()).max(entry.own);
            self.held += own - entry.own;
            if entry.growing.is_none() {
                self.fixed += own - entry.own;
            }
            entry.own = own;
        }
        news
    }

    /// Whether what is not seen should be made older.
    pub(in crate::core) fn is_aged_at(&self, now: Time) -> bool {
        now.since(self.aged) < AGING
    }

    /// Leases whose growth is not seen have emitted a token each `step` since they
    /// were admitted: their prefill counted as tokens, so rather too many. One that
    /// should have ended holds all it may need from then on.
    pub(super) fn age(&mut self, now: Time, step: Duration) {
        let Some(capacity) = self.capacity else {
            return;
        };
        if step.is_zero() {
            return;
        }
        self.aged = now;
        let unseen = |(_, entry): &(&LeaseId, &mut Entry)| entry.progress == Progress::Unseen;
        for (lease, entry) in self.leases.iter_mut().filter(unseen) {
            let place = self.tracked.iter().position(|tracked| tracked == lease);
            let steps = now.since(entry.admitted).as_nanos() / step.as_nanos();
            let age = Tokens::new(u64::try_from(steps).unwrap_or(u64::MAX));
            self.tight.leave(entry.runner(), &capacity);
            let Some(growing) = &mut entry.growing else {
                continue;
            };
            if let Some(profile) = growing.profile.take() {
                self.sums.take_off(&profile);
            }
            growing.age = age.min(growing.bound);
            let own = entry.shape.blocks(growing.age, &capacity);
            let own = own.saturating_sub(entry.prefix.blocks()).max(entry.own);
            self.held += own - entry.own;
            entry.own = own;
            if age < growing.bound {
                foresee(entry, &capacity, &mut self.sums);
                self.tight.join(entry.runner(), &capacity);
                if let Some((place, runner)) = place.zip(entry.runner()) {
                    self.tracks[place] = Track::of(runner, &capacity);
                }
            } else {
                entry.growing = None;
                self.fixed += own;
                self.tracks
                    .swap_remove(place.expect("what grows is tracked"));
                self.tracked
                    .swap_remove(place.expect("what grows is tracked"));
            }
        }
    }

    pub(super) fn remove(&mut self, now: Time, lease: LeaseId) -> Entry {
        let entry = self
            .leases
            .remove(&lease)
            .expect("a lease is on its account");
        for hash in entry.prefix.hashes() {
            let pins = self
                .pins
                .get_mut(hash)
                .expect("a pinned block is counted until unpinned");
            *pins -= 1;
            if *pins == 0 {
                self.pins.remove(hash);
                self.held -= Blocks::new(1);
            }
        }
        self.held -= entry.own;
        self.sequences -= entry.shape.sequences();
        if let Some(capacity) = &self.capacity {
            self.tight.leave(entry.runner(), capacity);
        }
        if let Some(place) = self.tracked.iter().position(|&tracked| tracked == lease) {
            self.tracks.swap_remove(place);
            self.tracked.swap_remove(place);
        }
        match entry
            .growing
            .as_ref()
            .and_then(|growing| growing.profile.as_ref())
        {
            Some(profile) => self.sums.take_off(profile),
            None => self.fixed -= entry.own,
        }
        self.remember(now, &entry);
        entry
    }

    fn remember(&mut self, now: Time, entry: &Entry) {
        let Some(capacity) = &self.capacity else {
            return;
        };
        let old = |ended: &Ended| now.since(ended.at) > UNDER_WAY;
        while self.ended.front().is_some_and(old) {
            self.ended.pop_front();
        }
        self.ended.push_back(Ended {
            at: now,
            admitted: entry.admitted,
            used: used_by(entry, capacity),
            sequences: entry.shape.sequences(),
        });
    }

    /// Blocks used at `seen.at` by the leases taken before that: what they have
    /// grown to where that is seen, their whole reservation where it is not.
    ///
    /// A lease that has ended since was still there. One block a sequence is for tokens that are on their way here,
    /// and a second's worth of `pace` where the engine runs no more than is ours:
    /// then whatever it uses is likely to be.
    pub(in crate::core) fn usage(
        &self,
        seen: &Observed,
        capacity: &Capacity,
        pace: Tokens,
    ) -> InUse {
        let mut usage = InUse::default();
        let mut sequences = 0;
        let there = |entry: &&Entry| entry.admitted <= seen.at;
        for entry in self.leases.values().filter(there) {
            usage.known += used_by(entry, capacity);
            sequences += match entry.progress {
                Progress::Streamed => entry.shape.sequences(),
                Progress::Unseen => 0,
            };
        }
        let ours = |ended: &&Ended| ended.admitted <= seen.at;
        for ended in self.ended.iter().filter(ours) {
            if ended.at > seen.at {
                usage.known += ended.used;
                sequences += ended.sequences;
            }
        }
        let running = u64::from(seen.running) + u64::from(seen.waiting);
        let unseen = if running <= self.sequences.max(sequences) {
            pace.blocks_up(capacity.block_size)
        } else {
            Blocks::ZERO
        };
        usage.slack += (unseen + Blocks::new(1)).saturating_mul(sequences);
        usage
    }

    /// Whether every balance equals the sum of the leases.
    pub(super) fn audit(&self) -> bool {
        let leases = self.leases.values();
        let own: Blocks = leases.clone().map(|entry| entry.own).sum();
        let sequences: u64 = leases.clone().map(|entry| entry.shape.sequences()).sum();
        let (mut sums, mut fixed) = (Sums::default(), Blocks::ZERO);
        for entry in leases {
            match self.capacity.as_ref().zip(entry.runner()) {
                Some((capacity, runner)) => sums.add(&runner.profile(capacity)),
                None => fixed += entry.own,
            }
        }
        self.held == own + self.shared()
            && self.sequences == sequences
            && self.fixed == fixed
            && self.sums == sums
            && self.capacity.is_none_or(|capacity| {
                let runners = self.leases.values().filter_map(Entry::runner);
                self.tight.is_right(runners.clone(), &capacity)
                    && self.tracks.len() == runners.count()
                    && self.tracked.len() == self.tracks.len()
                    && self.tracks.iter().zip(&self.tracked).all(|(track, lease)| {
                        let runner = self.leases.get(lease).and_then(Entry::runner);
                        runner.is_some_and(|runner| track.is_of(runner, &capacity))
                    })
            })
    }
}

/// Puts a lease into the sums of its account, where its growth is foreseen.
fn foresee(entry: &mut Entry, capacity: &Capacity, sums: &mut Sums) {
    let profile = entry.runner().map(|runner| runner.profile(capacity));
    if let Some(growing) = &mut entry.growing {
        if let Some(profile) = &profile {
            sums.add(profile);
        }
        growing.profile = profile;
    }
}

/// Blocks the engine uses for a lease, as far as that is seen.
fn used_by(entry: &Entry, capacity: &Capacity) -> Blocks {
    match entry.progress {
        Progress::Unseen => entry.own,
        Progress::Streamed => entry.shape.blocks(entry.generated, capacity),
    }
}
