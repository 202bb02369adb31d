//! Where a request stands in its tenant's line, and until when it is worth serving.
//!
//! It stands by the last instant at which its prefill must begin to be in time,
//! plus a multiple of the time it takes an engine, its compute or the whole of its
//! memory: of two that are as urgent the smaller goes first, and both grow older
//! alike. A request that cannot have its first token in
//! time any more, even on the fastest engine with nothing else to do, is refused
//! at that instant: it would only take the place of those that can. It is never
//! refused before, and without a wish for its first token only at its deadline.

use std::time::Duration;

use super::outcome::Standing;
use super::refuse::too_late;
use super::{Admission, Effect};
use crate::core::ahead::span;
use crate::core::backend::Tier;
use crate::core::demand::{Demand, OutputLimit};
use crate::core::footprint::Shape;
use crate::core::queue::{Lacked, TicketId, Waiter};
use crate::core::time::Time;
use crate::core::waits::Backlog;

impl Admission {
    /// `demand` as a waiter that joins the line now, where it was found to stand.
    pub(super) fn line_up(
        &self,
        now: Time,
        demand: Demand,
        (home, output): (Tier, OutputLimit),
        standing: Standing,
    ) -> Waiter {
        let Standing {
            weight,
            key,
            coming,
            ahead,
            in_vain,
        } = standing;
        let cost = self.cost_of(weight.usage);
        Waiter {
            cost,
            promise: self.waits.promise(ahead.plus(cost)),
            tokens: self.tokens_of(&demand, output),
            key,
            in_vain,
            size: weight.usage.size(),
            lacked: Lacked::Nothing,
            arrived: self.queue.arrived(now, demand.tenant, demand.arrival),
            since: now,
            mark: 0,
            coming,
            home,
            output,
            shape: Shape::of(&demand),
            demand,
        }
    }

    /// Where `demand` of that size stands in its tenant's line, had it joined now.
    /// O(backends).
    pub(super) fn key_of(&self, now: Time, (demand, shape): (&Demand, &Shape), size: f64) -> Time {
        let rules = &self.policy.dispatch;
        let arrived = self.queue.arrived(now, demand.tenant, demand.arrival);
        let wanted = demand.first_token_by.unwrap_or(arrived + rules.patience);
        let prefill = self.fleet(now).foreseen_prefill(demand, shape);
        // Whatever it takes more of an engine: its compute, or its memory.
        let memory = size / self.largest_pool();
        wanted + span(prefill.max(memory) * (rules.order_weight - 1.0))
    }

    /// The first instant at which `demand` cannot be served in time any more.
    pub(super) fn in_vain_from(&self, now: Time, demand: &Demand, shape: &Shape) -> Option<Time> {
        let wanted = demand.first_token_by?;
        let least = span(self.fleet(now).least_prefill(demand, shape));
        // At the very instant it still can.
        Some(wanted.before(least) + Duration::from_nanos(1))
    }

    /// Takes a waiter out of the line, with whatever was set aside for it.
    pub(super) fn drop_waiter(&mut self, now: Time, ticket: TicketId) -> Option<Waiter> {
        let waiter = self.queue.remove(ticket, &self.policy.queue)?;
        let place = waiter.place(ticket);
        let tenant = waiter.demand.tenant;
        self.round.again |= self.flows.dequeue(now, (tenant, place), waiter.charge());
        self.round.again |= self.queue.of_home(waiter.home) == 0;
        if self.queue.is_empty() {
            self.set_backlogged(now, Backlog::None);
        }
        for (row, backend) in self.table.rows.iter_mut().zip(&mut self.backends) {
            if row.set_aside == Some(ticket) {
                row.set_aside = None;
                backend.set_aside = None;
                self.round.again = true;
            }
        }
        Some(waiter)
    }

    /// Refuses, if it is the next and still has no chance, a waiter that had none
    /// from `now` on when last looked at. Whether there was one to look at.
    pub(super) fn drop_in_vain(&mut self, now: Time, out: &mut Vec<Effect>) -> bool {
        let Some(ticket) = self.queue.in_vain(now) else {
            return false;
        };
        let from = self.waits_in_vain_from(now, ticket);
        if from.is_none_or(|from| from <= now) {
            self.refuse_in_vain(now, ticket, out);
        } else {
            // The engines have turned out to be faster.
            self.queue.set_in_vain(ticket, from);
        }
        true
    }

    pub(super) fn waits_in_vain_from(&self, now: Time, ticket: TicketId) -> Option<Time> {
        let waiter = self
            .queue
            .get(ticket)
            .expect("a timed ticket is in the queue");
        self.in_vain_from(now, &waiter.demand, &waiter.shape)
    }

    pub(super) fn refuse_in_vain(&mut self, now: Time, ticket: TicketId, out: &mut Vec<Effect>) {
        let waiter = self
            .drop_waiter(now, ticket)
            .expect("whoever waits in vain is in the queue");
        self.totals.refused += 1;
        if waiter.lacked == Lacked::Memory {
            self.trunk.on_lost(now, waiter.size);
        }
        let reject = too_late(self.send_away(now, &waiter));
        out.push(Effect::Refuse { ticket, reject });
    }
}
