//! How much of the memory a tenant may hold: a cap, and a share that is its own.
//!
//! The cap holds always. A share is lent out while nobody needs it: whoever holds
//! more than its own, or has none, may go on taking memory until a tenant below its
//! share waits for memory. From then on it waits too, and what it has borrowed comes
//! back as its leases end.

use std::collections::BTreeSet;

use super::{Flow, Flows};
use crate::core::backend::Tier;
use crate::core::demand::TenantId;
use crate::core::stats::Hold;
use crate::core::units::Tokens;

/// Tenants below their share that wait for memory, by the tier they wait for.
#[derive(Clone, Debug, Default)]
pub(super) struct Shortages(BTreeSet<(Tier, TenantId)>);

/// A request that would hold memory.
#[derive(Clone, Copy, Debug)]
pub(in crate::core) struct Claim {
    /// Whose it is.
    pub(in crate::core) tenant: TenantId,
    /// The tier it belongs to.
    pub(in crate::core) home: Tier,
    /// What it would hold.
    pub(in crate::core) tokens: Tokens,
    /// What the pool holds altogether.
    pub(in crate::core) pool: Tokens,
}

// === impl Flow ===

impl Flow {
    /// Whether `more` tokens stay within the cap.
    fn is_capped(&self, more: Tokens) -> bool {
        let cap = self.policy.max_in_flight;
        cap.is_some_and(|cap| self.in_flight + more > cap)
    }

    fn is_own(&self, claim: Claim) -> bool {
        self.in_flight + claim.tokens <= claim.pool.share(self.policy.in_flight_share)
    }
}

// === impl Flows ===

impl Flows {
    /// Whether the shares let a request hold what it asks.
    pub(in crate::core) fn may_hold(&self, claim: Claim) -> bool {
        self.withholds(claim).is_none()
    }

    /// Which share does not let a request hold what it asks.
    pub(in crate::core) fn withholds(&self, claim: Claim) -> Option<Hold> {
        let flow = self.flows.get(&claim.tenant);
        if flow.is_some_and(|flow| flow.is_capped(claim.tokens)) {
            return Some(Hold::TenantLimit);
        }
        let mut others = self.shortages.of(claim.home);
        let lent = others.all(|tenant| tenant == claim.tenant);
        let free = lent || flow.is_some_and(|flow| flow.is_own(claim));
        (!free).then_some(Hold::OthersShare)
    }

    /// A waiter found no memory. What others have borrowed is wanted back, if it is
    /// within its share.
    pub(in crate::core) fn on_short(&mut self, claim: Claim) {
        let flow = self.flows.get(&claim.tenant);
        if flow.is_some_and(|flow| flow.policy.in_flight_share > 0.0 && flow.is_own(claim)) {
            self.shortages.0.insert((claim.home, claim.tenant));
        }
    }

    /// It was let in, or waits for something else than memory. Says whether that
    /// lets others borrow.
    pub(in crate::core) fn on_relieved(&mut self, tenant: TenantId) -> bool {
        let before = self.shortages.0.len();
        self.shortages.0.retain(|&(_, short)| short != tenant);
        self.shortages.0.len() < before
    }
}

// === impl Shortages ===

impl Shortages {
    fn of(&self, tier: Tier) -> impl Iterator<Item = TenantId> + '_ {
        let all = self
            .0
            .range((tier, TenantId(0))..=(tier, TenantId(u32::MAX)));
        all.map(|&(_, tenant)| tenant)
    }
}
