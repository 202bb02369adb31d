//! Whether a request fits a backend now, and what it would take.
//!
//! Strict adds up worst cases; the forecast looks at the future peak. Both ask
//! for seats first. It only looks: nothing is taken here, and which of several
//! backends that fit is best is not asked.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use super::backend::Capacity;
use super::demand::{Demand, OutputLimit, Progress, Work};
use super::gates::Barrier;
use super::ledger::Account;
use super::lengths::{ClassKey, Curve};
use super::outlook::{Applicant, Profile, Room, Runner, are_alike};
use super::placement::{Asked, Fleet, ForecastPolicy, Reservation};
use super::roster::{Backend, could_hold};
use super::units::{Blocks, Tokens};

/// What was worked out of a request for the first backend of a kind, so that it
/// is not for every one of them.
#[derive(Debug, Default)]
pub(super) struct Sketch {
    foreseen: RefCell<Vec<Foreseen>>,
    /// What it takes of the last size of backend that was asked about.
    bulk: Cell<Option<Bulk>>,
    /// Share of a pool that it must leave free.
    left: f64,
    /// Blocks that every backend is taken to have more than it has: none where it
    /// is decided, some where it is asked how many are missing.
    more: Cell<Blocks>,
    /// How often all leases of a backend were looked at for it.
    pub(super) looks: Cell<u32>,
    /// Whether it may wait for a backend that has its beginning, and whether it does.
    patience: Cell<Patience>,
}

/// Whether a request waits for a backend that has its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Patience {
    /// It goes wherever it may.
    #[default]
    Short,
    /// It may.
    Long,
    /// It does.
    Used,
}

/// What a request takes where it fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fit {
    /// Blocks to take now.
    pub(super) blocks: Blocks,
    /// Its output bound there.
    pub(super) output: OutputLimit,
}

/// A request as it would run on backends that are alike.
#[derive(Debug)]
struct Foreseen {
    like: Capacity,
    bound: Tokens,
    curve: Curve,
    profile: Profile,
}

/// What a request takes of a backend of one size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bulk {
    capacity: Capacity,
    output: OutputLimit,
    /// The most that each sequence may emit on an empty one.
    pub(super) largest: Option<Tokens>,
    /// Whether an empty one holds all of it.
    pub(super) is_possible: bool,
    /// Blocks of the prompt, and those with the first token.
    pub(super) prompt: Blocks,
    first: Blocks,
}

/// A backend's books and size, for the forecast.
#[derive(Clone, Copy)]
struct Site<'a> {
    backend: &'a Backend,
    account: &'a Account,
    capacity: &'a Capacity,
    foreign: Blocks,
}

/// Whether the forecast can follow a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    /// Its tokens are seen, or the pace of the backend is known.
    Foreseen,
    /// It counts as a whole from the start.
    Unknown,
}

// === impl Backend ===

impl Backend {
    /// Whether the growth of `demand` could be followed here.
    pub(super) fn growth_of(&self, demand: &Demand, account: &Account) -> Growth {
        match (demand.work, demand.progress) {
            (Work::Generate, Progress::Streamed) => Growth::Foreseen,
            (Work::Generate, Progress::Unseen) if self.step(account).is_some() => Growth::Foreseen,
            _ => Growth::Unknown,
        }
    }

    /// How long a token of each sequence takes here with what runs, where known.
    pub(super) fn step(&self, account: &Account) -> Option<Duration> {
        self.capacity?;
        let seconds = self.step_seconds(account)?;
        Some(Duration::from_secs_f64(seconds.clamp(1e-4, 60.0)))
    }

    /// Seconds of a decode step of what runs here, or of one sequence.
    pub(super) fn step_seconds(&self, account: &Account) -> Option<f64> {
        let mut load = self.load(account);
        load.sequences = load.sequences.max(1);
        self.pace.step(load)
    }
}

// === impl Fleet ===

impl Fleet<'_> {
    /// What `asked` would take on `backend`, if that stays within its limits.
    ///
    /// # Errors
    /// What there is too little of.
    pub(super) fn fits(
        &self,
        backend: &Backend,
        asked: Asked<'_>,
        output: OutputLimit,
    ) -> Result<Fit, Barrier> {
        let capacity = backend.capacity.as_ref();
        let capacity = capacity.ok_or(Barrier::CapacityUnknown)?;
        let place = |blocks, output| Fit { blocks, output };
        if asked.demand.work == Work::Aside {
            return Ok(place(Blocks::ZERO, output));
        }
        let account = self.ledger.account(backend.id);
        let sequences = account.sequences() + asked.shape.sequences();
        let has_seats = account.sequences() == 0
            || capacity
                .max_num_seqs
                .is_none_or(|seats| sequences <= u64::from(seats));
        let bulk = asked.bulk(output, capacity);
        if !bulk.is_possible {
            return Err(Barrier::Size);
        }
        if !has_seats {
            return Err(Barrier::Seats);
        }
        let foreign = backend.foreign(self.now, self.observed_for);
        match self.reservation {
            Reservation::Strict => {
                let room = bulk.largest.ok_or(Barrier::Size)?;
                let bound = strict_bound(output, room);
                let blocks = asked.shape.blocks(bound, capacity);
                let fresh = blocks - account.pinned(&asked.demand.prefix);
                let all = capacity.blocks + asked.sketch.more();
                let fits = account.held() + foreign + fresh <= all;
                let fit = place(blocks, OutputLimit::Asked(bound));
                fits.then_some(fit).ok_or(Barrier::Memory)
            }
            Reservation::Forecast(policy) => {
                let site = Site {
                    backend,
                    account,
                    capacity,
                    foreign,
                };
                let blocks = self.foresees(policy, asked, site, output);
                let fit = blocks.map(|blocks| place(blocks, output));
                fit.ok_or(Barrier::Memory)
            }
        }
    }

    /// Blocks that `asked` takes at once on a backend of `capacity`, at least; `None`
    /// where it fits none of that size.
    pub(super) fn least_of(
        &self,
        asked: Asked<'_>,
        capacity: &Capacity,
        output: OutputLimit,
    ) -> Option<Blocks> {
        if asked.demand.work == Work::Aside {
            return Some(Blocks::ZERO);
        }
        let bulk = asked.bulk(output, capacity);
        let room = bulk.largest.filter(|_| bulk.is_possible)?;
        let blocks = match self.reservation {
            Reservation::Strict => asked.shape.blocks(strict_bound(output, room), capacity),
            Reservation::Forecast(_) => bulk.prompt.max(bulk.first),
        };
        Some(blocks.saturating_sub(asked.demand.prefix.blocks()))
    }

    /// `asked` as it would run on a backend of `capacity`, where the forecast follows it
    /// on every one.
    pub(super) fn applicant(
        &self,
        asked: Asked<'_>,
        capacity: &Capacity,
        output: OutputLimit,
    ) -> Option<Applicant> {
        let streamed = (Work::Generate, Progress::Streamed);
        let Reservation::Forecast(_) = self.reservation else {
            return None;
        };
        if (asked.demand.work, asked.demand.progress) != streamed {
            return None;
        }
        let bound = self.bound_of(asked, (capacity, Growth::Foreseen), output)?;
        let size = (capacity, bound, output);
        let applicant = asked.sketch.with(self, asked, size, |foreseen| {
            let runner = runner(asked, foreseen);
            Applicant::new(runner, &foreseen.profile, capacity)
        });
        Some(applicant)
    }

    /// Blocks to take now under the forecast, if the future peak stays within plan.
    fn foresees(
        &self,
        policy: &ForecastPolicy,
        asked: Asked<'_>,
        site: Site<'_>,
        output: OutputLimit,
    ) -> Option<Blocks> {
        let Site {
            account, capacity, ..
        } = site;
        let growth = site.backend.growth_of(asked.demand, account);
        let bound = self.bound_of(asked, (capacity, growth), output)?;
        let now = if growth == Growth::Foreseen {
            let bulk = asked.bulk(output, capacity);
            bulk.prompt.max(bulk.first)
        } else {
            asked.shape.blocks(bound, capacity)
        };
        let fresh = now.saturating_sub(account.pinned(&asked.demand.prefix));
        let taken = account.held() + site.foreign + fresh;
        // An empty backend takes whatever fits it: waiting would bring nothing.
        if account.sequences() == 0 && site.foreign.is_zero() {
            return (taken <= capacity.blocks + asked.sketch.more()).then_some(now);
        }
        let watch = &site.backend.watch;
        let plan = capacity
            .blocks
            .share(watch.share(policy.margin) * (1.0 - asked.sketch.left))
            + asked.sketch.more();
        if taken > plan {
            return None;
        }
        // Of the newcomer's prefix only what is not pinned yet comes on top.
        let mut fixed = account.fixed() + site.foreign + asked.demand.prefix.blocks();
        fixed = fixed.saturating_sub(account.pinned(&asked.demand.prefix));
        if growth == Growth::Unknown {
            fixed += now.saturating_sub(asked.demand.prefix.blocks());
        }
        let room = Room {
            blocks: plan.as_f64() - fixed.as_f64(),
            confidence: watch.confidence(policy.confidence),
            doubt: watch.doubt(self.now, self.observed_for, capacity),
        };
        if growth == Growth::Unknown {
            return account
                .admits(None, (capacity, room), &asked.sketch.looks)
                .then_some(now);
        }
        asked
            .sketch
            .with(self, asked, (capacity, bound, output), |foreseen| {
                let runner = runner(asked, foreseen);
                let newcomer = Some((runner, &foreseen.profile));
                account
                    .admits(newcomer, (capacity, room), &asked.sketch.looks)
                    .then_some(now)
            })
    }

    /// Tokens after which each sequence is cut off there; of a request whose growth
    /// is not foreseen and which sets no bound, what is expected.
    fn bound_of(
        &self,
        asked: Asked<'_>,
        (capacity, growth): (&Capacity, Growth),
        output: OutputLimit,
    ) -> Option<Tokens> {
        let room = asked.bulk(output, capacity).largest?;
        let bound = match (growth, output) {
            (Growth::Unknown, output) => self.reservation.expected_output(output),
            (Growth::Foreseen, OutputLimit::Asked(bound)) => bound,
            (Growth::Foreseen, OutputLimit::Open { at_most }) => at_most.unwrap_or(Tokens::MAX),
        };
        Some(bound.clamp(Tokens::new(1), room.max(Tokens::new(1))))
    }
}

/// Tokens that are booked for each sequence where all it may need is.
fn strict_bound(output: OutputLimit, room: Tokens) -> Tokens {
    match output {
        OutputLimit::Asked(bound) => bound,
        OutputLimit::Open { at_most } => at_most.unwrap_or(room).min(room),
    }
}

fn runner<'a>(asked: Asked<'a>, foreseen: &'a Foreseen) -> Runner<'a> {
    Runner {
        shape: asked.shape,
        curve: &foreseen.curve,
        generated: Tokens::ZERO,
        bound: foreseen.bound,
        prefix: asked.demand.prefix.blocks(),
    }
}

// === impl Asked ===

impl Asked<'_> {
    /// What it takes of a backend of `capacity`: worked out once for all that are as
    /// large.
    pub(super) fn bulk(&self, output: OutputLimit, capacity: &Capacity) -> Bulk {
        let known = self.sketch.bulk.get();
        let same = |bulk: &Bulk| bulk.output == output && bulk.capacity == *capacity;
        if let Some(bulk) = known.filter(same) {
            return bulk;
        }
        let bulk = Bulk {
            capacity: *capacity,
            output,
            largest: self.shape.largest_output(capacity),
            is_possible: could_hold(self.shape, output, capacity),
            prompt: self.shape.blocks(Tokens::ZERO, capacity),
            first: self.shape.blocks(Tokens::new(1), capacity),
        };
        self.sketch.bulk.set(Some(bulk));
        bulk
    }
}

// === impl Sketch ===

impl Sketch {
    /// Of a request that must leave this share of a pool free.
    pub(super) fn leaving(left: f64) -> Self {
        Self {
            left,
            ..Self::default()
        }
    }

    /// The same of one that may wait for a backend that has its beginning.
    pub(super) fn patient(self) -> Self {
        self.patience.set(Patience::Long);
        self
    }

    pub(super) fn is_patient(&self) -> bool {
        self.patience.get() == Patience::Long
    }

    /// It waits for one.
    pub(super) fn hold(&self) {
        self.patience.set(Patience::Used);
    }

    pub(super) fn is_held(&self) -> bool {
        self.patience.get() == Patience::Used
    }

    /// Blocks that every backend is taken to have more than it has.
    pub(super) fn more(&self) -> Blocks {
        self.more.get()
    }

    /// From now on every backend is taken to have `more` blocks.
    pub(super) fn imagine(&self, more: Blocks) {
        self.more.set(more);
    }

    /// Asks about `asked` on a backend of `capacity`.
    fn with<T>(
        &self,
        fleet: &Fleet<'_>,
        asked: Asked<'_>,
        (capacity, bound, output): (&Capacity, Tokens, OutputLimit),
        ask: impl FnOnce(&Foreseen) -> T,
    ) -> T {
        let mut known = self.foreseen.borrow_mut();
        let alike = |seen: &Foreseen| seen.bound == bound && are_alike(&seen.like, capacity);
        if let Some(seen) = known.iter().find(|seen| alike(seen)) {
            return ask(seen);
        }
        let curve = fleet.lengths.curve(ClassKey::of(asked.demand), output);
        let runner = Runner {
            shape: asked.shape,
            curve: &curve,
            generated: Tokens::ZERO,
            bound,
            prefix: asked.demand.prefix.blocks(),
        };
        let profile = runner.profile(capacity);
        known.push(Foreseen {
            like: *capacity,
            bound,
            curve,
            profile,
        });
        ask(known.last().expect("just pushed"))
    }
}
