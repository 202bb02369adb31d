//! Whose turn it is: virtual time between tenants, charged in the dominant resource.
//!
//! Each tenant has a clock that advances by what it was served, divided by its
//! weight; the backlogged tenant with the slowest clock is next (the virtual token
//! counter of Sheng et al., OSDI 2024), within a slack in which the requests decide
//! (`order`). What is charged is time of the whole pool (`cost`): the expected
//! cost when a request is admitted, so that what is in flight counts at once,
//! corrected to what it came to when it ends. A tenant that comes back from idling
//! is lifted to where the others are, so that idleness is not saved up; while
//! nobody waits that place moves with the time, so that nobody pays later for
//! having used what nobody wanted.
//!
//! Invariant: a tenant is in its band's line exactly while something of it waits.

use std::collections::{BTreeMap, BTreeSet};

use super::demand::TenantId;
use super::queue::Place;
use super::time::Time;
use super::units::Tokens;

pub(super) use cost::{Cost, Usage};
use order::Bands;
pub(super) use order::Turn;
pub(super) use shares::Claim;
use shares::Shortages;

mod ahead;
mod cost;
mod order;
mod shares;
#[cfg(test)]
mod tests;

/// Clock ticks per nanosecond of the pool at weight 1: keeps division by weights
/// precise.
const TICKS: u128 = 1 << 16;

/// What a tenant may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TenantPolicy {
    /// Its share against other tenants while all have work waiting; at least 1.
    pub weight: u32,
    /// Its band: those of smaller number go first, whatever their clocks. Those
    /// behind get a twentieth each while they wait. Default 0.
    pub priority: i32,
    /// Tokens of KV it may hold at one time in this pool; `None` for no limit.
    pub max_in_flight: Option<Tokens>,
    /// Share of the pool's KV that is its own, 0 to 1: while it holds less and
    /// waits for memory, nobody who holds more than its own takes any. Default 0.
    pub in_flight_share: f64,
    /// Requests it may have waiting in this pool; `None` for no limit.
    pub max_waiting: Option<u32>,
}

/// A tenant's virtual time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct VirtualTime(u128);

/// One tenant's line and account.
#[derive(Clone, Debug, Default)]
pub(super) struct Flow {
    pub(super) policy: TenantPolicy,
    pub(super) clock: VirtualTime,
    pub(super) waiting: BTreeSet<Place>,
    /// What it has waiting, altogether and by spans of its line.
    waiting_cost: Cost,
    spans: BTreeMap<u64, Cost>,
    pub(super) in_flight: Tokens,
    pub(super) leases: u32,
    pub(super) served: Tokens,
    membership: Membership,
}

/// Whether a tenant is still one of the configuration's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Membership {
    #[default]
    Stays,
    /// What it has ends by the limits it had, and what still comes of it too: a
    /// request may be on its way here for as long as its body takes.
    Left,
}

/// All tenants of a pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Flows {
    flows: BTreeMap<TenantId, Flow>,
    bands: Bands,
    shortages: Shortages,
    /// Where a tenant that comes back from idling starts.
    floor: VirtualTime,
    /// Since when nobody waits.
    quiet_since: Time,
}

/// What a request takes: charged while it is in flight, and while it waits what
/// those behind it wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Charge {
    /// Prompt and expected output, against the in-flight share.
    pub(super) tokens: Tokens,
    /// Against the clock.
    pub(super) cost: Cost,
}

// === impl TenantPolicy ===

impl Default for TenantPolicy {
    fn default() -> Self {
        Self {
            weight: 1,
            priority: 0,
            max_in_flight: None,
            in_flight_share: 0.0,
            max_waiting: None,
        }
    }
}

// === impl VirtualTime ===

impl VirtualTime {
    /// Where the clock of a tenant of weight 1 is that was served `cost` more.
    fn after(self, cost: Cost) -> Self {
        self.served(cost, 1)
    }

    fn served(self, cost: Cost, weight: u32) -> Self {
        Self(self.0.saturating_add(ticks(cost, weight)))
    }

    /// A correction may not run a clock below zero: nothing was served there.
    fn refunded(self, cost: Cost, weight: u32) -> Self {
        Self(self.0.saturating_sub(ticks(cost, weight)))
    }
}

fn ticks(cost: Cost, weight: u32) -> u128 {
    TICKS * u128::from(cost.nanos()) / u128::from(weight.max(1))
}

// === impl Flows ===

impl Flows {
    pub(super) fn set_policy(&mut self, tenant: TenantId, policy: TenantPolicy) {
        let weight = policy.weight.max(1);
        let flow = self.flows.entry(tenant).or_default();
        let was_waiting = self.bands.remove(flow.policy.priority, flow.clock, tenant);
        flow.policy = TenantPolicy { weight, ..policy };
        flow.membership = Membership::Stays;
        if was_waiting {
            self.bands.insert(policy.priority, flow.clock, tenant);
        }
    }

    /// The tenant is gone: what it has ends as if it were not. Its clock and its
    /// limits are kept for what comes late, and for when it comes back.
    pub(super) fn leave(&mut self, tenant: TenantId) {
        if let Some(flow) = self.flows.get_mut(&tenant) {
            flow.membership = Membership::Left;
        }
    }

    pub(super) fn get(&self, tenant: TenantId) -> Option<&Flow> {
        self.flows.get(&tenant)
    }

    /// Every tenant but those that left and have nothing here.
    pub(super) fn iter(&self) -> impl Iterator<Item = (TenantId, &Flow)> {
        let shown = |flow: &Flow| {
            let idle = flow.leases == 0 && flow.waiting.is_empty();
            flow.membership == Membership::Stays || !idle
        };
        let flows = self.flows.iter().filter(move |(_, flow)| shown(flow));
        flows.map(|(&tenant, flow)| (tenant, flow))
    }

    /// Puts a ticket in its place in its tenant's line.
    pub(super) fn enqueue(&mut self, now: Time, tenant: TenantId, place: Place, charge: Charge) {
        if self.bands.is_empty() {
            let quiet = Cost::of(now - self.quiet_since);
            self.floor = self.floor.after(quiet);
        }
        let flow = self.flows.entry(tenant).or_default();
        if flow.waiting.is_empty() {
            let band = flow.policy.priority;
            let others = self.bands.slowest(band).unwrap_or(self.floor);
            flow.clock = flow.clock.max(others);
            self.bands.insert(band, flow.clock, tenant);
        }
        flow.waiting.insert(place);
        flow.add_waiting(place, charge.cost);
    }

    /// Takes a ticket out of its tenant's line. Says whether that lets others borrow
    /// its share.
    pub(super) fn dequeue(
        &mut self,
        now: Time,
        (tenant, place): (TenantId, Place),
        charge: Charge,
    ) -> bool {
        let flow = self
            .flows
            .get_mut(&tenant)
            .expect("a waiting tenant has a line");
        flow.waiting.remove(&place);
        flow.remove_waiting(place, charge.cost);
        if !flow.waiting.is_empty() {
            return false;
        }
        let (band, clock) = (flow.policy.priority, flow.clock);
        self.bands.remove(band, clock, tenant);
        if self.bands.is_empty() {
            self.floor = self.floor.max(clock);
            self.quiet_since = now;
        }
        self.on_relieved(tenant)
    }

    /// The waiting tickets in the order they should be served, from `from` on.
    pub(super) fn in_order(&self, from: Option<Turn>) -> impl Iterator<Item = Turn> + '_ {
        self.bands.in_order(&self.flows, from)
    }

    /// The lines of tenants in which something waits: the more urgent band first,
    /// then the slower clock.
    pub(super) fn lines(&self) -> impl Iterator<Item = &BTreeSet<Place>> + '_ {
        let lines = self.bands.tenants().filter_map(|tenant| self.get(tenant));
        lines.map(|flow| &flow.waiting)
    }

    /// A request was admitted: charges what is expected of it.
    pub(super) fn on_admitted(&mut self, tenant: TenantId, charge: Charge) {
        let flow = self.flows.entry(tenant).or_default();
        flow.in_flight += charge.tokens;
        flow.leases += 1;
        let (band, weight) = (flow.policy.priority, flow.policy.weight);
        self.bands.on_granted(band, charge.cost);
        self.set_clock(tenant, |clock| clock.served(charge.cost, weight));
    }

    /// It ended: frees its share and corrects the charge to what it came to.
    pub(super) fn on_ended(&mut self, tenant: TenantId, charged: Charge, used: Charge) {
        let flow = self
            .flows
            .get_mut(&tenant)
            .expect("a tenant with a lease has a line");
        flow.in_flight -= charged.tokens;
        flow.leases -= 1;
        flow.served = flow.served.saturating_add(used.tokens);
        let weight = flow.policy.weight;
        self.set_clock(tenant, |clock| {
            let clock = clock.served(used.cost.less(charged.cost), weight);
            clock.refunded(charged.cost.less(used.cost), weight)
        });
    }

    fn set_clock(&mut self, tenant: TenantId, change: impl Fn(VirtualTime) -> VirtualTime) {
        let flow = self
            .flows
            .get_mut(&tenant)
            .expect("charged tenants have a line");
        let before = flow.clock;
        flow.clock = change(before);
        let (band, after) = (flow.policy.priority, flow.clock);
        self.bands.shift(band, (before, after), tenant);
    }
}
