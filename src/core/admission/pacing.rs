//! What grants, first tokens and growth say of how fast each backend works.
//!
//! Keeps the prefill on its way to each backend, and hands every observation to
//! the pace of the backend and of its tier. Never decides who goes where.

use super::Admission;
use crate::core::ahead::FirstToken;
use crate::core::backend::{BackendId, Tier};
use crate::core::demand::{Demand, Progress, Work};
use crate::core::ledger::LeaseId;
use crate::core::pace::{Load, Pace, Prefill, Sample};
use crate::core::time::Time;
use crate::core::units::Tokens;

/// The paces of all tiers, as learned from all their backends.
#[derive(Clone, Debug)]
pub(super) struct TierPaces([Pace; Tier::ALL.len()]);

impl Default for TierPaces {
    fn default() -> Self {
        Self(Tier::ALL.map(Pace::of_tier))
    }
}

impl TierPaces {
    /// What a backend of `tier` starts from.
    pub(super) fn of(&self, tier: Tier) -> &Pace {
        &self.0[tier as usize]
    }
}

impl Admission {
    /// A request is on its way to `id`.
    pub(super) fn on_sent(
        &mut self,
        now: Time,
        (id, lease): (BackendId, LeaseId),
        demand: &Demand,
    ) {
        let work = Prefill::of(demand);
        let seen = demand.progress == Progress::Streamed && demand.work == Work::Generate;
        let first_token = if seen {
            FirstToken::Seen
        } else {
            FirstToken::Unseen
        };
        if let Some(backend) = self.backend_mut(id) {
            backend
                .ahead
                .on_sent(now, &backend.pace, lease, (work, first_token));
        }
    }

    /// Each sequence of `lease` has emitted `generated` tokens.
    pub(super) fn on_emitted(&mut self, now: Time, lease: LeaseId, generated: Tokens) {
        let id = self.ledger.home(lease);
        let account = self.ledger.account(id);
        let (held, sequences) = (account.held(), account.sequences());
        let Some(backend) = self.backend_mut(id) else {
            return;
        };
        let context = backend
            .capacity
            .map_or(Tokens::ZERO, |capacity| held.tokens(capacity.block_size));
        let load = Load { context, sequences };
        let first = backend.ahead.on_first_token(now, lease);
        let grown = backend.ahead.on_growth(now, lease, generated, load);
        for sample in first.into_iter().chain(grown) {
            self.learn(id, sample);
        }
    }

    fn learn(&mut self, id: BackendId, sample: Sample) {
        let Some(tier) = self.backend(id).map(|backend| backend.tier) else {
            return;
        };
        let paces = &mut self.paces.0[tier as usize];
        paces.learn(sample, None);
        for backend in self.backends.iter_mut().filter(|b| b.tier == tier) {
            if backend.id == id {
                backend.pace.learn(sample, Some(paces));
            } else {
                backend.pace.follow(paces);
            }
        }
    }
}
