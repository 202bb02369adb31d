//! A backend as the pool keeps it: what was told, and whether it takes part.

use std::time::Duration;

use super::backend::{BackendFacts, BackendId, Capacity, Health, Observed, ServedId, Tier, Trust};
use super::demand::{Demand, OffloadRule, OutputLimit, Work};
use super::footprint::Shape;
use super::ledger::LeaseId;
use super::queue::TicketId;
use super::time::Time;
use super::units::{Blocks, Tokens};

/// Taken where nothing was measured: a CPU engine prefills some 500 tokens a second.
const UNKNOWN_PACE: Duration = Duration::from_millis(2);

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
    pub(super) standing: Standing,
    /// Time from admission to the first token for each prompt token, measured.
    pub(super) pace: Option<Duration>,
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
            standing: Standing::Active,
            pace: None,
            set_aside: None,
        }
    }

    /// A prompt of `prompt` tokens had its first token after `passed`.
    pub(super) fn on_first_token(&mut self, prompt: Tokens, passed: Duration) {
        let sample = passed / u32::try_from(prompt.get().max(1)).unwrap_or(u32::MAX);
        // An eighth of each new sample: a few requests make it, one cannot.
        self.pace = Some(self.pace.map_or(sample, |pace| pace * 7 / 8 + sample / 8));
    }

    /// Predicted time to the first token of a prompt of `prompt` tokens.
    pub(super) fn first_token_after(&self, prompt: Tokens) -> Duration {
        let tokens = u32::try_from(prompt.get()).unwrap_or(u32::MAX);
        self.pace.unwrap_or(UNKNOWN_PACE).saturating_mul(tokens)
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
        let offload = self.tier != Tier::Offload || demand.offload != OffloadRule::Never;
        self.is_active()
            && offload
            && demand.tiers.contains(self.tier)
            && self.serves.contains(&demand.served)
    }

    /// Whether the whole request fits this backend when it is empty.
    pub(super) fn could_hold(&self, shape: &Shape, output: OutputLimit) -> bool {
        let room = self
            .capacity
            .as_ref()
            .and_then(|capacity| shape.largest_output(capacity));
        match output {
            OutputLimit::Asked(bound) => room.is_some_and(|room| bound <= room),
            OutputLimit::Open { .. } => room.is_some(),
        }
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
