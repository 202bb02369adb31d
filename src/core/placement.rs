//! Where a request may go: tiers, live fit, and the choice between backends.
//!
//! Three questions, in this order. Could anything *ever* hold it, at configured
//! or last known capacity, up or not? Which tier is its *home*? Which backend
//! can take it *now* without passing its limit? Live fit decides, never a fixed
//! length. Nothing is changed here.

use super::backend::{BackendId, Tier, TierSet};
use super::demand::{Demand, Length, OffloadRule, OutputLimit, Work};
use super::dispatch::DispatchPolicy;
use super::fit::{Fit, Sketch};
use super::footprint::Shape;
use super::gates::{Barrier, Choice};
use super::ledger::Ledger;
use super::lengths::Lengths;
use super::overlap::Overlap;
use super::queue::TicketId;
use super::roster::Backend;
use super::table::{Kind, Table};
use super::time::Time;
use super::units::{Blocks, Tokens};
use super::waits::Drain;
use std::time::Duration;

/// How much is reserved for a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reservation {
    /// Prompt and output bound from the start: the engine never preempts, and
    /// memory that a request does not come to use stays idle.
    Strict,
    /// What a request holds now, admitted only if the future peak stays within
    /// the planned share of the pool.
    Forecast(ForecastPolicy),
}

/// Settings of [`Reservation::Forecast`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ForecastPolicy {
    /// Output expected of a request that sets no limit.
    pub open_output: Tokens,
    /// Share of a pool that may be planned, 0.5 to 1. The rest takes up what
    /// the forecast cannot see: tokens on their way, uneven steps.
    pub margin: f64,
    /// How sure it must be that the peak stays within that, in standard deviations
    /// of it, 0 to 4. Each preemption seen raises it for a while. 1.64 is one peak
    /// in twenty too high; 0 plans by the mean, and preempts; 4 idles.
    pub confidence: f64,
}

/// Settings of the tiers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TierPolicy {
    /// A request is long when it would fill more than this share of the
    /// smallest tier's pool.
    pub long_share: f64,
    /// Share of a larger tier that short traffic must leave free.
    pub free_reserve: f64,
    /// Whether long requests may use the standard tier at all.
    pub long_on_standard: LongOnStandard,
}

/// What long-document traffic may do when no larger tier is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongOnStandard {
    /// It waits or is refused.
    Never,
    /// It uses the standard tier.
    WhenNothingLarger,
}

/// A place found for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Where.
    pub backend: BackendId,
    /// The tier there.
    pub tier: Tier,
    /// Blocks to take now.
    pub blocks: Blocks,
    /// Output bound per sequence to write into the request, where it is not as sent.
    pub output: OutputLimit,
    /// The tier it belongs to.
    pub home: Tier,
    /// Why there and not elsewhere.
    pub choice: Choice,
}

/// What can be said of a request before asking whether it fits now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prospect {
    /// Something can hold it: its home tier, and its output after clamping.
    Possible { home: Tier, output: OutputLimit },
    /// Nothing known can, but a backend of unknown capacity might.
    Unknown,
    /// Nothing can, ever; the largest context that could be served, and the most
    /// that sequences may have together.
    TooLong { limit: Tokens, pool: Tokens },
    /// No backend serves this model to this tenant.
    Nowhere,
}

/// A request under examination.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) demand: &'a Demand,
    pub(super) shape: &'a Shape,
    /// Its ticket, once it waits.
    pub(super) ticket: Option<TicketId>,
    /// What the forecast has worked out of it.
    pub(super) sketch: &'a Sketch,
}

/// The pool as placement sees it.
#[derive(Clone, Copy)]
pub(super) struct Fleet<'a> {
    pub(super) backends: &'a [Backend],
    /// Their figures, in the same order.
    pub(super) table: &'a Table,
    pub(super) ledger: &'a Ledger,
    pub(super) lengths: &'a Lengths,
    /// What they have cached.
    pub(super) overlap: &'a Overlap,
    pub(super) reservation: &'a Reservation,
    pub(super) tiers: &'a TierPolicy,
    pub(super) dispatch: &'a DispatchPolicy,
    /// Waiters by home tier.
    pub(super) waiting: [u32; Tier::ALL.len()],
    /// How fast memory comes free, and tokens that wait for it.
    pub(super) drain: (&'a Drain, Tokens),
    /// Scrapes older than this say nothing.
    pub(super) observed_for: Duration,
    pub(super) now: Time,
}

// === impl Reservation ===

impl Reservation {
    /// Output expected of a sequence nobody has set a limit to, before any was seen.
    pub(super) fn open_output(&self) -> Tokens {
        match self {
            Self::Strict => ForecastPolicy::STRICT_OPEN_OUTPUT,
            Self::Forecast(policy) => policy.open_output,
        }
    }

    /// Output tokens expected of one sequence: for shares, charges and length.
    pub(super) fn expected_output(&self, output: OutputLimit) -> Tokens {
        let open = self.open_output();
        match output {
            OutputLimit::Asked(bound) => bound,
            OutputLimit::Open { at_most } => at_most.unwrap_or(open).min(open),
        }
    }
}

impl Default for ForecastPolicy {
    /// A thousand tokens for an open answer, 3 % of the pool for what cannot be
    /// seen, and one peak in twenty that is higher than planned.
    fn default() -> Self {
        Self {
            open_output: Tokens::new(1024),
            margin: 0.97,
            confidence: 1.64,
        }
    }
}

impl Default for TierPolicy {
    /// Long from a quarter of the smallest pool on; 15 % of a larger tier is left to long ones.
    fn default() -> Self {
        Self {
            long_share: 0.25,
            free_reserve: 0.15,
            long_on_standard: LongOnStandard::WhenNothingLarger,
        }
    }
}

impl ForecastPolicy {
    /// What strict charges a tenant for an output nobody bounded.
    const STRICT_OPEN_OUTPUT: Tokens = Tokens::new(1024);
}

// === impl Fleet ===

impl Fleet<'_> {
    /// Whether and where `asked` could ever be served.
    pub(super) fn prospect(&self, asked: Asked<'_>) -> Prospect {
        let mut possible = TierSet::NONE;
        let (mut some, mut unknown) = (false, false);
        let (mut limit, mut pool) = (Tokens::ZERO, Tokens::ZERO);
        let mut clamp: Option<(Tier, Tokens)> = None;
        let kinds = self.table.kinds.iter();
        for kind in kinds.filter(|kind| kind.may_serve(asked.demand)) {
            some = true;
            let Some(capacity) = &kind.capacity else {
                unknown = true;
                continue;
            };
            limit = limit.max(capacity.context_limit());
            pool = pool.max(capacity.pool());
            let bulk = asked.bulk(asked.demand.output, capacity);
            let Some(room) = bulk.largest else {
                continue;
            };
            match asked.demand.output {
                OutputLimit::Asked(bound) if bound > room => {
                    let clampable =
                        asked.demand.work == Work::Generate && bound <= capacity.max_model_len;
                    clamp = clamp.max(clampable.then_some((kind.tier, room)));
                }
                _ => possible = possible.with(kind.tier),
            }
        }
        if !possible.is_empty() {
            return Prospect::Possible {
                home: self.home(asked, possible),
                output: asked.demand.output,
            };
        }
        match (clamp, some) {
            (Some((home, room)), _) if !unknown => Prospect::Possible {
                home,
                output: OutputLimit::Asked(room),
            },
            _ if unknown => Prospect::Unknown,
            (_, true) => Prospect::TooLong { limit, pool },
            (_, false) => Prospect::Nowhere,
        }
    }

    /// The smallest tier that can hold it; for long documents the large one.
    fn home(&self, asked: Asked<'_>, possible: TierSet) -> Tier {
        if possible.contains(Tier::Large) && self.is_long(asked) {
            return Tier::Large;
        }
        let mut tiers = Tier::ALL
            .into_iter()
            .filter(|&tier| possible.contains(tier));
        tiers
            .next()
            .expect("a possible request has a possible tier")
    }

    fn is_long(&self, asked: Asked<'_>) -> bool {
        if asked.demand.length == Length::Long {
            return true;
        }
        let known = self.table.kinds.iter();
        let known = known.filter_map(|kind| Some((kind.tier, kind.capacity?.pool())));
        let smallest = known.clone().map(|(tier, _)| tier).min();
        let pools = known.filter(|&(tier, _)| Some(tier) == smallest);
        let pool = pools.map(|(_, pool)| pool).max();
        let expected =
            self.reservation.expected_output(asked.demand.output) * asked.shape.sequences();
        pool.is_some_and(|pool| {
            asked.shape.prompt_total() + expected > pool.share(self.tiers.long_share)
        })
    }

    /// Whether a backend that is up could hold it in a tier that is open to it:
    /// if not, waiting is for a backend to come back, not for memory.
    pub(super) fn is_served(&self, asked: Asked<'_>, home: Tier, output: OutputLimit) -> bool {
        let kinds = &mut self.table.kinds.iter();
        kinds.any(|kind| kind.admitting > 0 && self.serves(kind, asked, (home, output)))
    }

    /// Whether one of those is in whole trust: if so, what is not takes no more
    /// than its trial.
    pub(super) fn is_well_served(&self, asked: Asked<'_>, home: Tier, output: OutputLimit) -> bool {
        let kinds = &mut self.table.kinds.iter();
        kinds.any(|kind| kind.trusted > 0 && self.serves(kind, asked, (home, output)))
    }

    fn serves(&self, kind: &Kind, asked: Asked<'_>, (home, output): (Tier, OutputLimit)) -> bool {
        let reachable = match kind.tier {
            tier if tier == home || asked.demand.work == Work::Aside => true,
            Tier::Standard => self.tier_is_open(asked, home, Tier::Standard),
            Tier::Large => home < Tier::Large,
            Tier::Offload => asked.demand.offload == OffloadRule::WhenFaster,
        };
        reachable
            && kind.may_serve(asked.demand)
            && kind
                .capacity
                .is_some_and(|capacity| asked.bulk(output, &capacity).is_possible)
    }

    /// What `asked`, at home in `home`, would take on `backend`, if there is room.
    ///
    /// # Errors
    /// What there is too little of.
    pub(super) fn room(
        &self,
        backend: &Backend,
        asked: Asked<'_>,
        (home, output): (Tier, OutputLimit),
    ) -> Result<Fit, Barrier> {
        let fit = self.fits(backend, asked, output)?;
        let lends = backend.tier > home;
        if lends && !self.keeps_reserve(backend, (fit.blocks, asked.sketch.more())) {
            return Err(Barrier::Reserve);
        }
        Ok(fit)
    }

    fn keeps_reserve(&self, backend: &Backend, (taken, more): (Blocks, Blocks)) -> bool {
        let capacity = backend
            .capacity
            .as_ref()
            .expect("only backends of known capacity fit");
        let used = self.ledger.account(backend.id).held()
            + backend.foreign(self.now, self.observed_for)
            + taken;
        // The reserve is rounded up: what is kept free is never less than asked.
        let reserve = capacity.blocks - capacity.blocks.share(1.0 - self.tiers.free_reserve);
        used + reserve <= capacity.blocks + more
    }
}
