//! What will be served before a request, as cost.
//!
//! Of its own tenant, all that stands before it. Of every other, what that one's
//! clock lets pass: its clock starts behind, or at most the slack ahead, and it has no
//! more than what it has waiting. Who comes later and passes is not foreseen.

use std::time::Duration;

use super::cost::Cost;
use super::order::SLACK;
use super::{Flow, Flows, TICKS, VirtualTime};
use crate::core::demand::TenantId;
use crate::core::queue::Place;
use crate::core::time::Time;

/// Others that are looked at, the slowest clocks first; few are behind one's own.
const LOOKED_AT: usize = 64;

/// A line is summed up in spans of 2^28 nanoseconds, a quarter of a second, of which so
/// many are added up from its end.
const SPAN: u32 = 28;
const SPANS: usize = 256;

// === impl Flow ===

impl Flow {
    pub(super) fn add_waiting(&mut self, place: Place, cost: Cost) {
        self.waiting_cost = self.waiting_cost.plus(cost);
        let span = self.spans.entry(place.key.nanos() >> SPAN).or_default();
        *span = span.plus(cost);
    }

    pub(super) fn remove_waiting(&mut self, place: Place, cost: Cost) {
        self.waiting_cost = self.waiting_cost.less(cost);
        let number = place.key.nanos() >> SPAN;
        let left = self.spans.get(&number).map(|span| span.less(cost));
        match left {
            Some(left) if left > Cost::ZERO => self.spans.insert(number, left),
            _ => self.spans.remove(&number),
        };
    }

    /// What stands before `key`, or as good as beside it.
    fn before(&self, key: Time) -> Cost {
        let own = key.nanos() >> SPAN;
        let behind = self.spans.range(own.saturating_add(1)..).rev().take(SPANS);
        let behind = behind.fold(Cost::ZERO, |sum, (_, &span)| sum.plus(span));
        self.waiting_cost.less(behind)
    }
}

// === impl Flows ===

impl Flows {
    /// What will be served before a request of `tenant` that stands at `key`.
    pub(in crate::core) fn ahead_of(&self, tenant: TenantId, key: Time) -> Cost {
        let flow = self.flows.get(&tenant);
        let (band, weight) = flow.map_or((0, 1), |flow| (flow.policy.priority, flow.policy.weight));
        let own = flow.map_or(Cost::ZERO, |flow| flow.before(key));
        let start = self.bands.slowest(band).unwrap_or(self.floor);
        let clock = flow.map_or(start, |flow| flow.clock.max(start));
        let turn = clock.served(own, weight).after(SLACK);
        let others = self.bands.before(band, turn).take(LOOKED_AT);
        others
            .filter(|&(_, other)| other != tenant)
            .fold(own, |sum, (clock, other)| {
                let other = self
                    .flows
                    .get(&other)
                    .expect("a backlogged tenant has a line");
                let gap = match clock {
                    Some(clock) => cost_between(clock, turn, other.policy.weight),
                    None => other.waiting_cost,
                };
                sum.plus(gap.min(other.waiting_cost))
            })
    }
}

/// What a tenant of that weight is served from one instant of its clock to another.
fn cost_between(from: VirtualTime, to: VirtualTime, weight: u32) -> Cost {
    let ticks =
        to.0.saturating_sub(from.0)
            .saturating_mul(u128::from(weight));
    let nanos = u64::try_from(ticks / TICKS).unwrap_or(u64::MAX);
    Cost::of(Duration::from_nanos(nanos))
}
