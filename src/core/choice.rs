//! Which of the backends that have room a request goes to, and whether one may be
//! sent anything at all.
//!
//! The work gate keeps an engine's own line short: a backend takes nobody while
//! more prefill than `late` is on its way to it. Among the rest the smallest of
//! expected wait and pressure wins. Looks at no memory beyond its share in use,
//! and changes nothing.

use std::cell::{OnceCell, RefCell};
use std::time::Duration;

use super::ahead::span;
use super::backend::{BackendId, Capacity, Tier};
use super::demand::{Demand, OutputLimit, Work};
use super::fit::Fit;
use super::footprint::Shape;
use super::gates::{Barrier, Choice};
use super::outlook::Applicant;
use super::overlap::Uncached;
use super::pace::Prefill;
use super::placement::{Asked, Fleet, Placement};
use super::roster::{Backend, could_hold};
use super::stats::Hold;
use super::table::{Kind, Row, Terms};
use super::units::Blocks;

/// Seconds of first token that a full pool is worth against an empty one, growing
/// with the square of its use: a pool half full hardly counts, the last tenth
/// does, since what comes next may need it.
pub(super) const PRESSURE: f64 = 0.6;

/// Seconds that a larger tier than the request needs must bring: what is taken
/// there is missed by those who fit nowhere else. No less than [`PRESSURE`], so
/// that pressure at home alone sends nobody there who still fits.
pub(super) const LARGER_TIER: f64 = 0.6;

/// Seconds of first token that a second of prefill is worth which is not to be done
/// again: all who come after have it, not only the one who is spared it.
const SPARED: f64 = 3.0;

/// How well a backend would suit a request: smallest first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rank {
    /// Healthy before degraded.
    degraded: bool,
    /// The slow tier only after all others.
    slow: bool,
    /// Expected seconds to the first token, with what else counts against it.
    cost: f64,
    sequences: u64,
    slot: u32,
}

/// A request that looks for a place.
struct Sought<'a> {
    asked: Asked<'a>,
    home: Tier,
    output: OutputLimit,
    work: Uncached,
    /// How it stands to each kind of backend.
    kinds: Vec<Standing>,
    sequences: u64,
    /// Backends whose books were asked, and what they said.
    asked_of: RefCell<Vec<(BackendId, Option<Fit>)>>,
}

/// How a request stands to backends of one kind.
struct Standing {
    /// Whether it may be sent there at all.
    is_open: bool,
    /// Blocks that it takes at once, at least; `None` where it fits none of them.
    least: Option<Blocks>,
    capacity: Option<Capacity>,
    /// How the forecast sees it there, once that was asked.
    applicant: OnceCell<Option<Applicant>>,
}

// === impl Sought ===

impl<'a> Sought<'a> {
    fn of(fleet: &Fleet<'_>, asked: Asked<'a>, (home, output): (Tier, OutputLimit)) -> Self {
        let open = fleet.open_tiers(asked, home);
        let standing = |kind: &Kind| {
            let is_open = open[kind.tier as usize] && kind.may_serve(asked.demand);
            let capacity = kind.capacity.as_ref().filter(|_| is_open);
            Standing {
                is_open,
                least: capacity.and_then(|capacity| fleet.least_of(asked, capacity, output)),
                capacity: kind.capacity,
                applicant: OnceCell::new(),
            }
        };
        Self {
            asked,
            home,
            output,
            work: fleet.overlap.uncached(asked.demand),
            kinds: fleet.table.kinds.iter().map(standing).collect(),
            sequences: asked.shape.sequences(),
            asked_of: RefCell::default(),
        }
    }

    /// Whether all that keeps it from a backend is the prefill on its way there.
    fn may_follow(&self, fleet: &Fleet<'_>, (row, backend): (&Row, &Backend)) -> bool {
        fleet.is_row_shut(row, backend)
            && self.may_ever_go(row)
            && row.is_trusted_with(self.asked.demand.work)
            && !self.is_hopeless(fleet, row)
            && fleet.keeps_pace(backend, self.asked)
    }

    /// Whether a backend admits such requests, and is kept for nobody else.
    fn may_ever_go(&self, row: &Row) -> bool {
        let aside = self.asked.demand.work == Work::Aside;
        let kept = |ticket| !aside && self.asked.ticket != Some(ticket);
        row.admits
            && row.kind.is_some_and(|kind| self.kinds[kind].is_open)
            && !row.set_aside.is_some_and(kept)
    }

    /// Whether every gate lets it through to a backend, room and trust aside.
    fn may_go(&self, fleet: &Fleet<'_>, (row, backend): (&Row, &Backend)) -> bool {
        let Self { asked, .. } = *self;
        let aside = asked.demand.work == Work::Aside;
        self.may_ever_go(row)
            && (aside || !fleet.is_row_shut(row, backend))
            && fleet.is_in_time(asked, row.known_prefill(self.work.on(backend.id)))
            && fleet.keeps_pace(backend, asked)
    }

    /// Whether there may be room on a backend; if not, there is none.
    fn might_fit(&self, fleet: &Fleet<'_>, row: &Row) -> bool {
        let standing = row.kind.map(|kind| &self.kinds[kind]);
        let Some(least) = standing.and_then(|standing| standing.least) else {
            return false;
        };
        !row.holds(fleet.now) || !row.is_too_full_for(self.sequences, least)
    }

    /// Whether there is no room on a backend, for sure.
    fn is_hopeless(&self, fleet: &Fleet<'_>, row: &Row) -> bool {
        !self.might_fit(fleet, row) || self.is_barred(fleet, row)
    }

    /// Whether the forecast is known to refuse it on a backend.
    fn is_barred(&self, fleet: &Fleet<'_>, row: &Row) -> bool {
        let standing = row.kind.map(|kind| &self.kinds[kind]);
        let Some((standing, capacity)) = standing.and_then(|kind| Some((kind, kind.capacity?)))
        else {
            return false;
        };
        let Self { asked, output, .. } = *self;
        let applicant = standing
            .applicant
            .get_or_init(|| fleet.applicant(asked, &capacity, output));
        let applicant = applicant.as_ref().filter(|_| row.holds(fleet.now));
        applicant.is_some_and(|applicant| row.bars(fleet.now, applicant, &capacity))
    }
}

/// Which of them is the best.
fn first<T>(ranked: &[(Rank, T, &Backend)]) -> Option<usize> {
    let places = 0..ranked.len();
    places.min_by(|&left, &right| ranked[left].0.order(&ranked[right].0))
}

// === impl Rank ===

impl Rank {
    pub(super) fn order(&self, other: &Self) -> std::cmp::Ordering {
        let kind = |rank: &Self| (rank.degraded, rank.slow);
        let tie = |rank: &Self| (rank.sequences, rank.slot);
        kind(self)
            .cmp(&kind(other))
            .then(self.cost.total_cmp(&other.cost))
            .then(tie(self).cmp(&tie(other)))
    }
}

// === impl Fleet ===

impl Fleet<'_> {
    /// The best backend that can take `asked` now, or `None`. Backends short of
    /// trust take more than that allows only where nothing better is up.
    pub(super) fn place(
        &self,
        asked: Asked<'_>,
        home: Tier,
        output: OutputLimit,
    ) -> Option<Placement> {
        let trusted = |row: &Row| row.is_trusted_with(asked.demand.work);
        let sought = Sought::of(self, asked, (home, output));
        let place = self.place_where(&sought, trusted);
        let settled = place.is_some() || asked.sketch.is_held();
        if settled || self.table.rows.iter().all(trusted) {
            return place;
        }
        if self.is_well_served(asked, home, output) {
            return None;
        }
        self.place_where(&sought, |_| true)
    }

    fn place_where(
        &self,
        sought: &Sought<'_>,
        may_take: impl Fn(&Row) -> bool,
    ) -> Option<Placement> {
        let Sought { asked, home, .. } = *sought;
        let all = self.table.rows.iter().zip(self.backends);
        let may_go = |&(row, backend): &(&Row, &Backend)| {
            may_take(row) && sought.may_go(self, (row, backend))
        };
        let room = |row: &Row, backend: &Backend| self.room_for(sought, (row, backend));
        // While others wait most likely none has, and then which is best is not asked.
        if self.waiting.iter().any(|&waiting| waiting > 0) {
            let fitting = all.clone().filter(|(row, _)| sought.might_fit(self, row));
            let mut fitting = fitting.filter(may_go);
            if !fitting.any(|(row, backend)| room(row, backend).is_some()) {
                return None;
            }
        }
        // Those without room count for nothing but whether they would have been better.
        let (mut ranked, mut better, mut open) = (Vec::new(), None::<Rank>, 0);
        for (row, backend) in all.filter(may_go) {
            open += 1;
            let rank = self.rank((row, backend), sought);
            if sought.is_hopeless(self, row) {
                let best = better.filter(|best| best.order(&rank).is_lt());
                better = best.or(Some(rank));
            } else {
                ranked.push((rank, row, backend));
            }
        }
        // A fit is the costly question, so the first answer counts.
        while let Some(best) = first(&ranked) {
            let (rank, row, backend) = ranked.swap_remove(best);
            let Some(fit) = room(row, backend) else {
                let best = better.filter(|best| best.order(&rank).is_lt());
                better = best.or(Some(rank));
                continue;
            };
            if self.is_better_later(sought, (rank, backend)) {
                asked.sketch.hold();
                return None;
            }
            return Some(Placement {
                backend: backend.id,
                tier: backend.tier,
                blocks: fit.blocks,
                output: fit.output,
                home,
                choice: match better {
                    Some(better) if better.order(&rank).is_lt() => Choice::Next,
                    _ if open == 1 => Choice::Only,
                    _ => Choice::Best,
                },
            });
        }
        None
    }

    /// Whether `sought` does better to wait for a backend that has more of its
    /// beginning, and takes nobody for the moment, than to go to `best`, which has the
    /// best rank of those that may take it: the sooner there counts what is on its way
    /// there, and if that comes to nothing `best` must still do.
    fn is_better_later(&self, sought: &Sought<'_>, (rank, best): (Rank, &Backend)) -> bool {
        let Sought { asked, work, .. } = sought;
        if !work.is_shared() || !asked.sketch.is_patient() {
            return false;
        }
        let wanted = asked.demand.first_token_by;
        let otherwise = self.first_token_after(best, work.on(best.id));
        let cached = work.cached_on(best.id);
        let rows = &mut self.table.rows.iter().zip(self.backends);
        rows.any(|(row, backend)| {
            let wait = span(backend.ahead.remaining(self.now, &backend.pace));
            work.cached_on(backend.id) > cached
                && wanted.is_none_or(|wanted| self.now + wait + otherwise <= wanted)
                && sought.may_follow(self, (row, backend))
                && self.rank((row, backend), sought).order(&rank).is_lt()
        })
    }

    /// What `sought` would take on a backend, if there is room.
    fn room_for(&self, sought: &Sought<'_>, (row, backend): (&Row, &Backend)) -> Option<Fit> {
        if sought.is_hopeless(self, row) {
            return None;
        }
        let mut asked_of = sought.asked_of.borrow_mut();
        let known = asked_of.iter().find(|(id, _)| *id == backend.id);
        if let Some(&(_, fit)) = known {
            return fit;
        }
        let room = self.room(backend, sought.asked, (sought.home, sought.output));
        asked_of.push((backend.id, room.ok()));
        if room == Err(Barrier::Memory) && row.holds(self.now) {
            row.bar((backend, self.ledger.account(backend.id)), self.terms());
        }
        room.ok()
    }

    /// By what a backend is read now.
    fn terms(&self) -> Terms<'_> {
        Terms {
            now: self.now,
            dispatch: self.dispatch,
            reservation: self.reservation,
            observed_for: self.observed_for,
        }
    }

    /// Whether so little prefill is on its way to `backend` that it may take more.
    pub(super) fn is_open(&self, backend: &Backend) -> bool {
        let account = self.ledger.account(backend.id);
        backend.is_open(self.now, self.dispatch.late, account)
    }

    /// What a request that passes its tenant's gates waits for.
    pub(super) fn lacks(&self, asked: Asked<'_>, (home, output): (Tier, OutputLimit)) -> Hold {
        if asked.sketch.is_held() {
            Hold::Cached
        } else if !self.is_served(asked, home, output) {
            Hold::NoBackend
        } else if self.is_shut(asked, home) {
            Hold::Prefill
        } else {
            Hold::Memory
        }
    }

    /// Whether every backend that `asked` could be sent to has enough on its way:
    /// it waits for first tokens, not for memory.
    pub(super) fn is_shut(&self, asked: Asked<'_>, home: Tier) -> bool {
        let open = self.open_tiers(asked, home);
        let reach = |kind: &Kind| open[kind.tier as usize] && kind.may_serve(asked.demand);
        let reached: Vec<bool> = self.table.kinds.iter().map(reach).collect();
        let rows = &mut self.table.rows.iter().zip(self.backends);
        rows.filter(|(row, _)| row.admits && row.kind.is_some_and(|kind| reached[kind]))
            .all(|(row, backend)| self.is_row_shut(row, backend))
    }

    fn is_row_shut(&self, row: &Row, backend: &Backend) -> bool {
        if row.holds(self.now) {
            row.is_shut()
        } else {
            !self.is_open(backend)
        }
    }

    /// Whether a backend that takes `least` seconds of prefill could still give `asked`
    /// its first token in time, had it nothing else to do: if not, another may.
    pub(super) fn is_in_time(&self, asked: Asked<'_>, least: f64) -> bool {
        let wanted = asked.demand.first_token_by;
        wanted.is_none_or(|wanted| self.now + span(least) <= wanted)
    }

    /// Whether the promised time per token holds on `backend` with `asked` there:
    /// its decode step is meant, whatever prefill chunks add to it.
    pub(super) fn keeps_pace(&self, backend: &Backend, asked: Asked<'_>) -> bool {
        let Some(promised) = self.dispatch.token_pace else {
            return true;
        };
        let account = self.ledger.account(backend.id);
        let mut load = backend.load(account);
        load.context = load.context.saturating_add(asked.shape.prompt_total());
        load.sequences += asked.shape.sequences();
        let step = backend.pace.step(load).unwrap_or_default();
        account.sequences() == 0 || step <= promised.as_secs_f64()
    }

    /// How well `backend` suits `sought`.
    fn rank(&self, (row, backend): (&Row, &Backend), sought: &Sought<'_>) -> Rank {
        let Sought { asked, home, .. } = *sought;
        let aged;
        let row = if row.holds(self.now) {
            row
        } else {
            let account = self.ledger.account(backend.id);
            aged = Row::of((backend, account), row.kind, self.terms());
            &aged
        };
        let work = sought.work.on(backend.id);
        let first_token = row.first_token_after(self.now, work);
        let spared = row.prefill(sought.work.whole()) - row.prefill(work);
        let used = backend.capacity.as_ref().map_or(1.0, |capacity| {
            let prompt = asked.bulk(asked.demand.output, capacity).prompt;
            row.use_with(prompt, asked.shape.sequences())
        });
        let larger = if backend.tier > home {
            LARGER_TIER
        } else {
            0.0
        };
        Rank {
            // One on trial is taken for what it may be, or it would never be tried.
            degraded: row.degraded,
            slow: backend.tier == Tier::Offload && asked.demand.work != Work::Aside,
            cost: first_token.as_secs_f64() + PRESSURE * used * used + larger - SPARED * spared,
            sequences: row.sequences(),
            slot: backend.id.slot,
        }
    }

    /// Predicted time from now to the first token of `work`, sent to `backend` now.
    pub(super) fn first_token_after(&self, backend: &Backend, work: Prefill) -> Duration {
        let account = self.ledger.account(backend.id);
        backend.first_token_after(self.now, work, account)
    }

    /// Seconds of prefill that `demand` costs where it is computed fastest.
    pub(super) fn foreseen_prefill(&self, demand: &Demand, shape: &Shape) -> f64 {
        self.fastest((demand, shape), Row::prefill)
    }

    /// Seconds of prefill without which it cannot have a first token anywhere, on
    /// engines with nothing else to do; zero where they are not known well enough.
    pub(super) fn least_prefill(&self, demand: &Demand, shape: &Shape) -> f64 {
        self.fastest((demand, shape), Row::known_prefill)
    }

    /// The least of `seconds` over all backends that could ever hold it, up or not.
    fn fastest(
        &self,
        (demand, shape): (&Demand, &Shape),
        seconds: impl Fn(&Row, Prefill) -> f64,
    ) -> f64 {
        let work = self.overlap.uncached(demand);
        let is_able = |kind: &Kind| {
            let capacity = kind.capacity.as_ref();
            kind.may_serve(demand)
                && capacity.is_some_and(|capacity| could_hold(shape, demand.output, capacity))
        };
        let able: Vec<bool> = self.table.kinds.iter().map(is_able).collect();
        let rows = self.table.rows.iter().zip(self.backends);
        let able = rows.filter(|(row, _)| row.kind.is_some_and(|kind| able[kind]));
        let seconds = able.map(|(row, backend)| seconds(row, work.on(backend.id)));
        seconds.min_by(f64::total_cmp).unwrap_or_default()
    }
}
