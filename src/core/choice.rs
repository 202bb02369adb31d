//! Which of the backends that have room a request goes to, and whether one may be
//! sent anything at all.
//!
//! The work gate keeps an engine's own line short: a backend takes nobody while
//! more prefill than `late` is on its way to it. Among the rest the smallest of
//! expected wait and pressure wins. Looks at no memory beyond its share in use,
//! and changes nothing.

use std::time::Duration;

use super::ahead::span;
use super::backend::{Health, Tier, Trust};
use super::demand::{Demand, OutputLimit, Work};
use super::footprint::Shape;
use super::pace::Prefill;
use super::placement::{Asked, Fleet};
use super::roster::Backend;
use super::stats::Hold;
use super::units::Tokens;

/// Seconds of first token that a full pool is worth against an empty one, growing
/// with the square of its use: a pool half full hardly counts, the last tenth
/// does, since what comes next may need it.
const PRESSURE: f64 = 0.6;

/// Seconds that a larger tier than the request needs must bring: what is taken
/// there is missed by those who fit nowhere else. No less than [`PRESSURE`], so
/// that pressure at home alone sends nobody there who still fits.
const LARGER_TIER: f64 = 0.6;

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
    /// Whether so little prefill is on its way to `backend` that it may take more.
    pub(super) fn is_open(&self, backend: &Backend) -> bool {
        let account = self.ledger.account(backend.id);
        backend.is_open(self.now, self.dispatch.late, account)
    }

    /// What a request that passes its tenant's gates waits for.
    pub(super) fn lacks(&self, asked: Asked<'_>, (home, output): (Tier, OutputLimit)) -> Hold {
        if !self.is_served(asked, home, output) {
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
        let reached = |backend: &&Backend| {
            backend.admits()
                && backend.may_serve(asked.demand)
                && self.tier_is_open(asked, home, backend.tier)
        };
        self.backends
            .iter()
            .filter(reached)
            .all(|backend| !self.is_open(backend))
    }

    /// Whether `backend` could still give `asked` its first token in time, had it
    /// nothing else to do: if not, another may.
    pub(super) fn is_in_time(&self, backend: &Backend, asked: Asked<'_>, work: Prefill) -> bool {
        let least = backend.pace.known_prefill(work);
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

    /// How well `backend` suits `asked`, at home in `home`, whose prefill is `work`.
    pub(super) fn rank(
        &self,
        backend: &Backend,
        asked: Asked<'_>,
        (home, work): (Tier, Prefill),
    ) -> Rank {
        let first_token = self.first_token_after(backend, work);
        let used = self.use_with(backend, asked);
        let larger = if backend.tier > home {
            LARGER_TIER
        } else {
            0.0
        };
        Rank {
            // One on trial is taken for what it may be, or it would never be tried.
            degraded: backend.health == Health::Degraded && backend.trust != Trust::Trial,
            slow: backend.tier == Tier::Offload && asked.demand.work != Work::Aside,
            cost: first_token.as_secs_f64() + PRESSURE * used * used + larger,
            sequences: self.ledger.account(backend.id).sequences(),
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
        let work = Prefill::of(demand);
        self.fastest((demand, shape), |backend| backend.pace.prefill(work))
    }

    /// Seconds of prefill without which it cannot have a first token anywhere, on
    /// engines with nothing else to do; zero where they are not known well enough.
    pub(super) fn least_prefill(&self, demand: &Demand, shape: &Shape) -> f64 {
        let work = Prefill::of(demand);
        self.fastest((demand, shape), |backend| backend.pace.known_prefill(work))
    }

    /// The least of `seconds` over all backends that could ever hold it, up or not.
    fn fastest(
        &self,
        (demand, shape): (&Demand, &Shape),
        seconds: impl Fn(&Backend) -> f64,
    ) -> f64 {
        // Backends are mostly alike: what one could hold the next could.
        let mut last = None;
        let mut could_hold = |backend: &Backend| {
            let Some((_, could)) = last.filter(|&(size, _)| size == backend.capacity) else {
                let could = backend.could_hold(shape, demand.output);
                last = Some((backend.capacity, could));
                return could;
            };
            could
        };
        let able = self
            .backends
            .iter()
            .filter(|backend| backend.may_serve(demand) && could_hold(backend));
        able.map(seconds).min_by(f64::total_cmp).unwrap_or_default()
    }

    /// Share of the pool in use once the prompt is there, or of the places for
    /// sequences, whichever is the greater.
    fn use_with(&self, backend: &Backend, asked: Asked<'_>) -> f64 {
        let Some(capacity) = &backend.capacity else {
            return 1.0;
        };
        let prompt = asked.bulk(asked.demand.output, capacity).prompt;
        let held = self.ledger.account(backend.id).held();
        let used = held
            .saturating_add(backend.foreign(self.now, self.observed_for))
            .saturating_add(prompt);
        let memory = used.as_f64() / capacity.blocks.as_f64().max(1.0);
        let places = capacity.max_num_seqs.map_or(0.0, |most| {
            let sequences = self.ledger.account(backend.id).sequences() + asked.shape.sequences();
            Tokens::new(sequences).as_f64() / f64::from(most.max(1))
        });
        memory.max(places)
    }
}
