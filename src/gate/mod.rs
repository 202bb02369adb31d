//! Floor 2: the async door of a pool: one small lock around the pure core.
//!
//! Every call locks, decides, unlocks and only then delivers. Delivery hands a
//! ready [`Lease`] down the waiter's channel; if the waiter has left, the send
//! fails, the lease drops, and its drop takes the same lock, which is free by
//! then. Cancellation is `Drop`: dropping a [`Ticket`] leaves the queue,
//! dropping a [`Lease`] gives its memory back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{Notify, oneshot};

use crate::core::admission::{Admission, Decision, Effect, Explanation, Verdict, Would};
use crate::core::demand::{Demand, TenantId};
use crate::core::queue::TicketId;
use crate::core::reject::Reject;
use crate::core::stats::{PoolState, WaitingHead};
use crate::core::time::Time;

mod clock;
mod driver;
mod lease;
mod ticket;

#[cfg(test)]
mod tests;

pub use clock::Clock;
pub use lease::Lease;
pub use ticket::{Foreseen, Ticket};

/// The door of one model pool; clones share it.
#[derive(Clone)]
pub struct Gate {
    shared: Arc<Shared>,
}

/// What happened to a submitted demand.
pub enum Submission {
    /// It holds a lease.
    Admitted(Lease),
    /// It waits; await the ticket.
    Waiting(Ticket),
    /// It is refused.
    Rejected(Reject),
}

/// Whether the driver must wake before it meant to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Due {
    AsPlanned,
    Sooner,
}

type Outcome = Result<Lease, Reject>;

struct Shared {
    /// Protects the books and the channels of those who wait. The longest work
    /// done under it is one step of the drain: at most eight candidates.
    inner: Mutex<Inner>,
    /// Wakes the driver when the next timeout has moved.
    retimed: Notify,
    clock: Clock,
}

struct Inner {
    admission: Admission,
    /// When the driver will wake by itself; it is notified only for sooner.
    wakes: Time,
    waiters: HashMap<TicketId, oneshot::Sender<Outcome>>,
}

// === impl Gate ===

impl Gate {
    /// A door around `admission`, keeping time by `clock`.
    pub fn new(admission: Admission, clock: Clock) -> Self {
        let inner = Mutex::new(Inner {
            admission,
            wakes: Time::NEVER,
            waiters: HashMap::new(),
        });
        Self {
            shared: Arc::new(Shared {
                inner,
                retimed: Notify::new(),
                clock,
            }),
        }
    }

    /// Admits `demand`, puts it in line or refuses it. Never blocks on anything
    /// but the lock.
    pub fn submit(&self, demand: Demand) -> Submission {
        let mut inner = self.shared.lock();
        let now = self.shared.clock.now();
        let decision = inner.admission.decide(now, &demand);
        match inner.admission.commit(now, demand, decision) {
            Verdict::Admit(grant) => {
                drop(inner);
                Submission::Admitted(Lease::new(self.clone(), grant))
            }
            Verdict::Reject(reject) => Submission::Rejected(reject),
            Verdict::Wait(ticket) => {
                let (sender, outcome) = oneshot::channel();
                inner.waiters.insert(ticket, sender);
                let sooner = inner.is_due_sooner(now);
                drop(inner);
                self.shared.wake_driver(sooner);
                let foreseen = match decision {
                    Decision::Wait {
                        predicted, hold, ..
                    } => Some(Foreseen { predicted, hold }),
                    Decision::Admit(_) | Decision::Reject(_) => None,
                };
                Submission::Waiting(Ticket::new(self.clone(), ticket, outcome, foreseen))
            }
        }
    }

    /// Sends `demand` at once wherever it can be sent at all, and says what
    /// [`submit`](Self::submit) would have done; what cannot be is submitted.
    pub fn shadow(&self, demand: Demand) -> (Submission, Option<Would>) {
        let mut inner = self.shared.lock();
        let now = self.shared.clock.now();
        let sent = inner.admission.shadow(now, &demand);
        drop(inner);
        match sent {
            Some((grant, would)) => {
                let lease = Lease::new(self.clone(), grant);
                (Submission::Admitted(lease), Some(would))
            }
            None => (self.submit(demand), None),
        }
    }

    /// What [`submit`](Self::submit) would do with `demand` now, and why; nothing
    /// changes. O(backends) under the lock.
    pub fn explain(&self, demand: &Demand) -> Explanation {
        let inner = self.shared.lock();
        inner.admission.explain(self.shared.clock.now(), demand)
    }

    /// Whether the line has a place left for `tenant`, whatever it asks; cheap.
    ///
    /// # Errors
    ///
    /// The refusal that a request would get, had it to wait.
    pub fn has_room(&self, tenant: TenantId) -> Result<(), Reject> {
        let inner = self.shared.lock();
        inner.admission.has_room(self.shared.clock.now(), tenant)
    }

    /// Tells the pool a fact and delivers what follows from it.
    ///
    /// `fact` runs under the lock: it must only call the admission.
    pub fn update<R>(&self, fact: impl FnOnce(&mut Admission, Time, &mut Vec<Effect>) -> R) -> R {
        let mut effects = Vec::new();
        let (result, sooner) = self.step(fact, &mut effects);
        self.shared.wake_driver(sooner);
        while effects.pop().is_some() {
            let ((), sooner) = self.step(Admission::handle_timeout, &mut effects);
            self.shared.wake_driver(sooner);
        }
        result
    }

    /// One lock hold and the deliveries after it. Leaves one [`Effect::Again`]
    /// in `effects` where the drain wants to go on.
    fn step<R>(
        &self,
        fact: impl FnOnce(&mut Admission, Time, &mut Vec<Effect>) -> R,
        effects: &mut Vec<Effect>,
    ) -> (R, Due) {
        let mut inner = self.shared.lock();
        let now = self.shared.clock.now();
        let result = fact(&mut inner.admission, now, effects);
        let deliveries = inner.collect(self, effects);
        let due = inner.is_due_sooner(now);
        drop(inner);
        deliver(deliveries);
        (result, due)
    }

    /// The pool as plain data.
    pub fn state(&self) -> PoolState {
        self.shared.lock().admission.state(self.shared.clock.now())
    }

    /// The pool as plain data, and at most `most` requests at the head of its line,
    /// both of the same moment.
    pub fn overview(&self, most: usize) -> (PoolState, Vec<WaitingHead>) {
        let inner = self.shared.lock();
        let now = self.shared.clock.now();
        (inner.admission.state(now), inner.admission.heads(now, most))
    }

    /// A waiter's client has left.
    fn leave(&self, ticket: TicketId) {
        self.update(|admission, now, out| admission.cancel(now, ticket, out));
        // Only now: a grant that crossed with the leaving still finds its channel.
        drop(self.shared.lock().waiters.remove(&ticket));
    }

    /// The clock this pool lives by.
    pub fn clock(&self) -> Clock {
        self.shared.clock
    }
}

// === impl Shared ===

impl Shared {
    /// Takes the lock. A poisoned lock means that the books may be wrong, and a
    /// gateway with wrong books overflows engines: the process aborts, here.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        match self.inner.lock() {
            Ok(inner) => inner,
            Err(_) => std::process::abort(),
        }
    }

    fn wake_driver(&self, due: Due) {
        if due == Due::Sooner {
            self.retimed.notify_one();
        }
    }
}

// === impl Inner ===

impl Inner {
    fn is_due_sooner(&self, now: Time) -> Due {
        let due = self.admission.poll_timeout(now);
        if due.is_some_and(|due| due < self.wakes) {
            Due::Sooner
        } else {
            Due::AsPlanned
        }
    }

    /// Pairs each effect with the channel of its waiter, and leaves one
    /// [`Effect::Again`] in `effects` where the drain wants to go on.
    fn collect(&mut self, gate: &Gate, effects: &mut Vec<Effect>) -> Vec<Delivery> {
        let mut again = false;
        let mut deliveries = Vec::with_capacity(effects.len());
        for effect in effects.drain(..) {
            let (ticket, outcome) = match effect {
                Effect::Grant { ticket, grant } => (ticket, Ok(Lease::new(gate.clone(), grant))),
                Effect::Refuse { ticket, reject } => (ticket, Err(reject)),
                Effect::Again => {
                    again = true;
                    continue;
                }
            };
            let waiter = self
                .waiters
                .remove(&ticket)
                .expect("a waiter has a channel until it is answered");
            deliveries.push((waiter, outcome));
        }
        effects.extend(again.then_some(Effect::Again));
        deliveries
    }
}

type Delivery = (oneshot::Sender<Outcome>, Outcome);

/// Hands each waiter its outcome. The lock must be free: a waiter that has left
/// refuses its lease, and dropping that lease takes the lock.
fn deliver(deliveries: Vec<Delivery>) {
    for (waiter, outcome) in deliveries {
        drop(waiter.send(outcome));
    }
}
