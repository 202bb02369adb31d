//! Who is at the head of the line, what each waits for, and until when.
//!
//! For people who look: a bounded number, read off what the drain has noted and
//! the waits have learned. Changes nothing and decides nothing.

use super::Admission;
use crate::core::demand::OutputLimit;
use crate::core::fit::Sketch;
use crate::core::placement::Asked;
use crate::core::queue::{Lacked, TicketId, Waiter};
use crate::core::stats::{Hold, WaitingHead};
use crate::core::time::Time;

// === impl Admission ===

impl Admission {
    /// The first in line of each tenant that waits, those whose turn is sooner
    /// first, and where fewer than `most` wait some of those behind them too: the
    /// same number of each tenant. Sorted by the wait that is foreseen.
    ///
    /// O(`most` × (backends + tenants that wait)).
    pub fn heads(&self, now: Time, most: usize) -> Vec<WaitingHead> {
        let lines: Vec<_> = self.flows.lines().take(most).collect();
        let each = most.checked_div(lines.len()).unwrap_or(0);
        let firsts = lines.iter().flat_map(|line| line.iter().take(each));
        let mut heads: Vec<_> = firsts
            .filter_map(|place| {
                let waiter = self.queue.get(place.ticket)?;
                Some(self.head(now, place.ticket, waiter))
            })
            .collect();
        heads.sort_by_key(|head| {
            let expected = head.expected.map(|expected| expected.q50);
            (expected.is_none(), expected)
        });
        heads
    }

    fn head(&self, now: Time, ticket: TicketId, waiter: &Waiter) -> WaitingHead {
        let promise = self.promise(waiter.demand.tenant, waiter.key, waiter.cost);
        let hold = self.hold(now, ticket, waiter);
        WaitingHead {
            tenant: waiter.demand.tenant,
            prompt: waiter.demand.prompt_total(),
            max_output: match waiter.output {
                OutputLimit::Asked(bound) => Some(bound),
                OutputLimit::Open { at_most } => at_most,
            },
            tokens: waiter.tokens,
            home: waiter.home,
            waited: now - waiter.since,
            leaves_in: waiter.demand.deadline - now,
            hold,
            expected: (hold != Hold::TenantLimit).then_some(promise.predicted),
            promised: waiter.promise.predicted,
        }
    }

    /// What keeps a waiter from being let in. No waiter passes every gate, so what
    /// no other keeps out waits for memory.
    fn hold(&self, now: Time, ticket: TicketId, waiter: &Waiter) -> Hold {
        if self.has_set_aside(ticket) {
            return Hold::SetAside;
        }
        let asked = Asked {
            demand: &waiter.demand,
            shape: &waiter.shape,
            ticket: Some(ticket),
            sketch: &Sketch::default(),
        };
        let fleet = self.fleet(now);
        let lacks = fleet.lacks(asked, (waiter.home, waiter.output));
        let claim = self.claim(waiter.demand.tenant, waiter.home, waiter.tokens);
        match (lacks, self.flows.withholds(claim)) {
            (Hold::NoBackend, _) => return Hold::NoBackend,
            (_, Some(withheld)) => return withheld,
            (Hold::Memory, None) if self.is_held(now, ticket, waiter) => return Hold::Cached,
            (Hold::Memory, None) => {}
            (other, None) => return other,
        }
        let mut open = self.backends.iter().filter(|backend| {
            backend.admits()
                && backend.may_serve(&waiter.demand)
                && fleet.tier_is_open(asked, waiter.home, backend.tier)
        });
        let unseen = self.round.unfinished && self.queue.lacks(waiter) == Lacked::Nothing;
        if unseen || open.all(|backend| backend.set_aside.is_some()) {
            return Hold::Turn;
        }
        Hold::Memory
    }

    /// Whether it waits for a backend that has its beginning.
    fn is_held(&self, now: Time, ticket: TicketId, waiter: &Waiter) -> bool {
        let sketch = Sketch::leaving(self.trunk.left_by(now, waiter.size)).patient();
        let asked = Asked {
            demand: &waiter.demand,
            shape: &waiter.shape,
            ticket: Some(ticket),
            sketch: &sketch,
        };
        let place = self.fleet(now).place(asked, waiter.home, waiter.output);
        place.is_none() && sketch.is_held()
    }
}
