//! A backend as the pool keeps it: what was told, and whether it takes part.

use std::time::Duration;

use super::ahead::{Ahead, span};
use super::backend::{BackendFacts, BackendId, Capacity, Health, Observed, ServedId, Tier, Trust};
use super::demand::{Demand, OutputLimit, Work};
use super::footprint::Shape;
use super::ledger::{Account, LeaseId};
use super::outlook::watch::Watch;
use super::pace::{Load, Pace, Prefill};
use super::queue::TicketId;
use super::time::Time;
use super::units::{Blocks, Tokens};

/// Prefill that may be on its way to a backend, in delays before a prefill: an
/// engine fills its next step from what is there, and each step costs the same time
/// whatever is in it, so with less than this a slow engine would stand half empty.
const DELAYS_AHEAD: f64 = 4.0;

/// A backend as placement sees it.
#[derive(Clone, Debug)]
pub(super) struct Backend {
    pub(super) id: BackendId,
    pub(super) tier: Tier,
    pub(super) serves: Vec<ServedId>,
    pub(super) capacity: Option<Capacity>,
    pub(super) health: Health,
    pub(super) trust: Trust,
    /// The one request that a backend on trial has.
    pub(super) trial: Option<LeaseId>,
    pub(super) observed: Option<Observed>,
    /// Blocks used by traffic that is not ours, by the last scrape.
    pub(super) foreign: Blocks,
    /// How its forecast has fared.
    pub(super) watch: Watch,
    pub(super) standing: Standing,
    /// How fast it works.
    pub(super) pace: Pace,
    /// The prefill on its way to it.
    pub(super) ahead: Ahead,
    /// Whether that was too much for one more when last looked at.
    pub(super) shut: bool,
    /// Its free blocks are kept for this waiter.
    pub(super) set_aside: Option<TicketId>,
}

/// Whether a backend takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Active,
    /// Taken out by the operator: kept until its leases end, and taken up again
    /// with its books if the same place is added before that.
    Removed,
    /// Its engine restarted: kept until its leases end; their KV is gone.
    Restarted,
}

// === impl Backend ===

impl Backend {
    pub(super) fn new(id: BackendId, facts: BackendFacts) -> Self {
        Self {
            id,
            tier: facts.tier,
            serves: facts.serves,
            capacity: facts.capacity.map(Capacity::believable),
            health: facts.health,
            trust: Trust::Whole,
            trial: None,
            observed: None,
            foreign: Blocks::ZERO,
            watch: Watch::default(),
            standing: Standing::Active,
            pace: Pace::of_tier(facts.tier),
            ahead: Ahead::default(),
            shut: false,
            set_aside: None,
        }
    }

    /// Whether little prefill is on its way to it, where `account` is held: at most
    /// `late`, or what takes as long as a few steps where its steps are long.
    pub(super) fn is_open(&self, now: Time, late: Duration, account: &Account) -> bool {
        let ahead = self.ahead.seconds(now, &self.pace);
        let delays = DELAYS_AHEAD * self.pace.delay(self.load(account));
        ahead <= late.as_secs_f64().max(delays)
    }

    /// Predicted time from now to the first token of `work`, sent there now, where
    /// `account` is held.
    pub(super) fn first_token_after(
        &self,
        now: Time,
        work: Prefill,
        account: &Account,
    ) -> Duration {
        let ahead = self.ahead.remaining(now, &self.pace);
        span(ahead + self.pace.prefill(work) + self.pace.delay(self.load(account)))
    }

    /// What is being decoded there, by `account`.
    pub(super) fn load(&self, account: &Account) -> Load {
        let size = self.capacity.map(|capacity| capacity.block_size);
        Load {
            context: size.map_or(Tokens::ZERO, |size| account.held().tokens(size)),
            sequences: account.sequences(),
        }
    }

    pub(super) fn is_active(&self) -> bool {
        self.standing == Standing::Active
    }

    /// Whether new work may be sent there now.
    pub(super) fn admits(&self) -> bool {
        self.is_active() && self.health.admits()
    }

    /// Whether its trust lets one more request go there. What is answered beside
    /// the engine proves nothing and takes no trial.
    pub(super) fn is_trusted_with(&self, work: Work) -> bool {
        match self.trust {
            Trust::Whole => true,
            Trust::Trial => self.trial.is_none() || work == Work::Aside,
            Trust::Withheld => false,
        }
    }

    /// Whether the model, the tenant and the request allow this backend.
    pub(super) fn may_serve(&self, demand: &Demand) -> bool {
        self.forbids(demand).is_none()
    }

    /// Whether the whole request fits this backend when it is empty.
    pub(super) fn could_hold(&self, shape: &Shape, output: OutputLimit) -> bool {
        let capacity = self.capacity.as_ref();
        capacity.is_some_and(|capacity| could_hold(shape, output, capacity))
    }

    /// Foreign blocks by a scrape that is still fresh; zero otherwise, since a
    /// stale scrape must not hold traffic back.
    pub(super) fn foreign(&self, now: Time, observed_for: Duration) -> Blocks {
        let fresh = self
            .observed
            .is_some_and(|seen| now - seen.at <= observed_for);
        if fresh { self.foreign } else { Blocks::ZERO }
    }
}

/// Whether the whole request fits an empty backend of `capacity`.
pub(super) fn could_hold(shape: &Shape, output: OutputLimit, capacity: &Capacity) -> bool {
    let least = match output {
        OutputLimit::Asked(bound) => bound,
        OutputLimit::Open { .. } => Tokens::ZERO,
    };
    shape.could_emit(least, capacity)
}
