//! What the scrapes of an engine say of memory, against what the books foresaw.
//!
//! The books are compared with the moment a scrape was sent, never with now.

use super::{Admission, Effect};
use crate::core::backend::{BackendId, Observed};
use crate::core::ledger::InUse;
use crate::core::outlook::watch::{Fault, Reading};
use crate::core::placement::Reservation;
use crate::core::time::Time;
use crate::core::units::Tokens;

/// Tokens a sequence may be ahead of what has been seen of it, in seconds of steps.
const UNSEEN_FOR: f64 = 1.0;

// === impl Admission ===

impl Admission {
    /// A scrape came in. What the engine uses beyond what our own leases can
    /// account for belongs to somebody else, and counts until a scrape says
    /// otherwise or it is stale; what it has preempted goes to the
    /// watch on the forecast. A scrape older than the last
    /// one is ignored.
    pub fn on_observed(&mut self, now: Time, id: BackendId, seen: Observed, out: &mut Vec<Effect>) {
        let share = match &self.policy.reservation {
            Reservation::Strict => 1.0,
            Reservation::Forecast(policy) => policy.margin,
        };
        self.age(now, id);
        let usage = self.in_use(id, &seen);
        let Some(backend) = self.backend_mut(id) else {
            return;
        };
        if backend.observed.is_some_and(|last| last.at > seen.at) {
            return;
        }
        let before = (backend.foreign, backend.watch);
        let used = seen.used.believable();
        let foreign = used.saturating_sub(usage.known + usage.slack);
        backend.foreign = foreign;
        backend.observed = Some(seen);
        backend.watch.on_reading(Reading {
            at: seen.at,
            preemptions: seen.preemptions,
            fault: if usage.known.saturating_mul(2) >= used {
                Fault::Ours
            } else {
                Fault::Others
            },
            share,
        });
        let is_easier = foreign < before.0 || backend.watch.is_easier_than(&before.1);
        self.note(now, id);
        if is_easier {
            self.start_round(now, out);
        }
    }

    /// What our own leases used when `seen` was sent; nothing where the capacity
    /// is not known.
    fn in_use(&self, id: BackendId, seen: &Observed) -> InUse {
        let Some((backend, capacity)) = self
            .backend(id)
            .and_then(|backend| Some((backend, backend.capacity?)))
        else {
            return InUse::default();
        };
        let account = self.ledger.account(id);
        let ahead = backend.step(account).map_or(Tokens::ZERO, |step| {
            Tokens::new(1000).share(UNSEEN_FOR / step.as_secs_f64() / 1000.0)
        });
        account.usage(seen, &capacity, ahead)
    }

    /// What runs on `id` unseen goes on at the pace of what is seen.
    pub(super) fn age(&mut self, now: Time, id: BackendId) {
        // A scrape may come in after its backend has gone.
        let Some(backend) = self.backend(id) else {
            return;
        };
        let account = self.ledger.account(id);
        if account.is_aged_at(now) {
            return;
        }
        if let Some(step) = backend.step(account) {
            self.ledger.age(now, id, step);
            self.note(now, id);
        }
    }
}
