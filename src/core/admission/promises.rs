//! What is foreseen of waits, told, and held against what came.

use std::time::Duration;

use super::Admission;
use super::outcome::{Standing, Weight};
use crate::core::demand::{Demand, OutputLimit, TenantId};
use crate::core::fairness::Cost;
use crate::core::footprint::Shape;
use crate::core::queue::{Coming, Waiter};
use crate::core::time::Time;
use crate::core::waits::{Backlog, Caller, Promise, Waited};

// === impl Admission ===

impl Admission {
    /// From `now` on something waits, or nothing does.
    pub(super) fn set_backlogged(&mut self, now: Time, backlog: Backlog) {
        self.drain.set_backlogged(now, backlog);
        self.waits.set_backlogged(now, backlog);
    }

    /// A wait ended in a grant: compares it with what was foreseen.
    pub(super) fn keep_promise(&mut self, promise: Promise, waited: Duration) {
        let q80 = promise.predicted.q80;
        self.totals.promised += 1;
        self.totals.kept += u64::from(waited <= q80);
        self.totals.waited += waited;
        self.totals.foreseen_wait += promise.predicted.q50;
        self.totals.wait_error += promise.predicted.q50.abs_diff(waited);
        self.waits.learn(promise, Waited::In(waited));
    }

    /// The wait of a request of `tenant` at `key` in its line, with its own cost.
    pub(super) fn promise(&self, tenant: TenantId, key: Time, cost: Cost) -> Promise {
        self.waits
            .promise(self.flows.ahead_of(tenant, key).plus(cost))
    }

    /// The wait of a newcomer.
    pub(super) fn promise_to(
        &self,
        now: Time,
        (demand, shape): (&Demand, &Shape),
        output: OutputLimit,
    ) -> Promise {
        let weight = self.weigh_again(self.weigh(demand), demand, output);
        let standing = self.standing_of(now, (demand, shape), (weight, None));
        self.promise_at(&standing)
    }

    /// Where a newcomer would stand in line.
    pub(super) fn standing_of(
        &self,
        now: Time,
        (demand, shape): (&Demand, &Shape),
        (weight, in_vain): (Weight, Option<Time>),
    ) -> Standing {
        let key = self.key_of(now, (demand, shape), weight.size);
        let coming = self.coming(now, demand);
        let key = match coming {
            Coming::First => key,
            Coming::Back(kept) => kept.key.min(key),
        };
        Standing {
            weight,
            key,
            coming,
            ahead: self.flows.ahead_of(demand.tenant, key),
            in_vain,
        }
    }

    /// The wait of one that stands there.
    pub(super) fn promise_at(&self, standing: &Standing) -> Promise {
        let cost = self.cost_of(standing.weight.usage);
        self.waits.promise(standing.ahead.plus(cost))
    }

    /// When a waiter that is sent away now should come back. What comes of it is
    /// compared with what it is told.
    pub(super) fn send_away(&mut self, now: Time, waiter: &Waiter) -> Duration {
        let promise = self.promise(waiter.demand.tenant, waiter.key, waiter.cost);
        self.waits
            .learn(waiter.promise, Waited::Longer(now - waiter.since));
        self.on_returned(waiter.demand.tenant, (waiter.coming, None));
        self.note_refused(now, &waiter.demand, (promise, waiter.key))
    }

    /// Keeps in mind who was refused, where it stood and what it was told.
    pub(super) fn note_refused(
        &mut self,
        now: Time,
        demand: &Demand,
        promise: (Promise, Time),
    ) -> Duration {
        self.returns
            .on_refused(now, Caller::of(demand, now), promise)
    }

    /// A request of `tenant` was let in after that time in line, or refused; if it had
    /// come back, that says whether what it was told was true.
    pub(super) fn on_returned(
        &mut self,
        tenant: TenantId,
        (coming, waited): (Coming, Option<Duration>),
    ) {
        if let Coming::Back(kept) = coming {
            self.returns.on_returned(tenant, kept.held(waited));
        }
    }

    /// Whether `demand` comes back as it was told, with the place it had.
    pub(super) fn coming(&self, now: Time, demand: &Demand) -> Coming {
        let kept = self.returns.kept_for(now, Caller::of(demand, now));
        kept.map_or(Coming::First, Coming::Back)
    }
}
