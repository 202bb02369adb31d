//! Watches one endpoint and tells its pool what it finds.
//!
//! One task per endpoint asks in turn, never twice at once; whoever forwards
//! requests adds what it sees through a [`Handle`]. [`state`] decides what that
//! means, [`super::capacity`] how much fits. Never halts dispatch for want of
//! metrics and never judges by what clients do wrong.
//!
//! Invariant: what the pool was told last is what the last event meant, since
//! each event is taken and told under one lock.

mod book;
mod gather;
mod leaving;
mod progress;
pub mod state;
mod view;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::config;
use crate::core::backend::{BackendFacts, Capacity, Health, ServedId, Tier};
use crate::core::time::Time;
use crate::core::units::Tokens;
use crate::gate::Gate;

use super::capacity::{self, Evidence, Operator};
use super::client::{Client, Connector, Endpoint, EndpointError};

use book::{Book, Found, Rank};
use gather::Asker;
use state::{Event, Failure, Thresholds};

pub use state::{Duty, Outcome, Problem};
pub use view::{EndpointView, RankView};

/// How often the static facts of a healthy endpoint are read again: adapters
/// come and go, and an engine may be replaced behind a name.
const FACTS_EVERY: Duration = Duration::from_secs(30);

/// One endpoint to watch.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its configured name.
    pub name: Arc<str>,
    /// Where it is, not pinned to a rank.
    pub endpoint: Endpoint,
    /// Its tier.
    pub tier: Tier,
    /// Models of the pool it serves.
    pub serves: Vec<ServedId>,
    /// Their names, in the same order.
    pub ids: Vec<Arc<str>>,
    /// Slot of its first rank; the others follow.
    pub first_slot: u32,
    /// Data-parallel ranks the operator names; at least 1.
    pub ranks: u32,
    /// What the operator says of its KV.
    pub operator: Operator,
}

/// The task that watches one endpoint.
pub struct Probe<C> {
    shared: Arc<Shared>,
    client: Client<C>,
}

/// An endpoint as everybody else sees it; cheap to clone.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

struct Shared {
    /// Replaced under the lock of the book.
    plan: ArcSwap<Plan>,
    gate: Gate,
    /// Protects what is known of the endpoint. The longest work done under it is
    /// one update of the gate, whose lock is taken inside and never around.
    book: Mutex<Book>,
    /// Told to running requests; down means that their engine is gone.
    running: watch::Sender<Health>,
    /// Asks the task to look again at once.
    look: Notify,
}

/// What is watched, and how.
struct Plan {
    target: Arc<Target>,
    rules: config::Probe,
}

// === impl Target ===

impl Target {
    /// The target a configured backend of `model` stands for.
    ///
    /// # Errors
    /// Where its address or key cannot be used.
    pub fn new(
        backend: &config::Backend,
        model: &config::Model,
        assumed: Tokens,
        first_slot: u32,
    ) -> Result<Self, EndpointError> {
        let served = u32::try_from(model.served_ids().count()).unwrap_or(u32::MAX);
        Ok(Self {
            name: backend.name.as_str().into(),
            endpoint: Endpoint::of(backend)?,
            tier: backend.tier,
            serves: (0..served).map(ServedId).collect(),
            ids: model.served_ids().map(Arc::from).collect(),
            first_slot,
            ranks: backend.data_parallel_ranks.max(1),
            operator: Operator {
                overrides: backend.kv.clone(),
                layout: model.kv_layout,
                assumed,
            },
        })
    }

    /// Where requests to a rank go. A single rank is not pinned: an engine of
    /// its own need not be rank 0.
    pub fn endpoint_of(&self, rank: u32) -> Endpoint {
        if self.ranks > 1 {
            self.endpoint.pinned_to(rank)
        } else {
            self.endpoint.clone()
        }
    }

    /// The slots of its ranks.
    pub fn slots(&self) -> std::ops::Range<u32> {
        self.first_slot..self.first_slot + self.ranks
    }

    fn facts_of(&self, rank: u32, health: Health, capacity: Option<Capacity>) -> BackendFacts {
        BackendFacts {
            slot: self.first_slot + rank,
            tier: self.tier,
            serves: self.serves.clone(),
            capacity,
            health,
        }
    }

    /// The capacity that is known without asking: only where the operator has
    /// set the pool, so that a node that has never been up can be counted on.
    fn capacity_unasked(&self) -> Option<Capacity> {
        let overrides = &self.operator.overrides;
        let told = overrides.tokens.is_some() || overrides.blocks.is_some();
        told.then(|| capacity::capacity(0, &Evidence::default(), &self.operator))
    }
}

// === impl Probe ===

impl<C: Connector> Probe<C> {
    /// Joins the pool behind `gate` as a backend that is starting.
    pub fn new(target: Target, client: &Client<C>, gate: Gate, rules: config::Probe) -> Self {
        let capacity = target.capacity_unasked();
        let facts = target.facts_of(0, Health::Starting, capacity);
        let id = gate.update(|admission, now, out| admission.add_backend(now, facts, out));
        let book = Book::new(thresholds(&rules), Rank { id, capacity });
        let target = Arc::new(target);
        let shared = Shared {
            plan: ArcSwap::from_pointee(Plan { target, rules }),
            gate,
            book: Mutex::new(book),
            running: watch::Sender::new(Health::Starting),
            look: Notify::new(),
        };
        Self {
            shared: Arc::new(shared),
            // An engine told to stop closes its port and keeps open connections
            // open and silent: only a new connection shows it.
            client: client.unpooled(),
        }
    }

    /// A handle for everybody else.
    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.shared))
    }

    /// Watches for ever; run it as one owned task and abort it with the pool.
    ///
    /// Rounds never overlap. One that takes longer than half the interval is
    /// followed by a pause as long as itself, so that a slow engine spends at
    /// most half its time on being watched.
    pub async fn run(self) {
        let mut facts_read = None;
        loop {
            let interval = self.shared.plan.load().rules.interval;
            let began = Instant::now();
            self.round(&mut facts_read).await;
            let took = began.elapsed();
            let pause = interval.saturating_sub(took).max(took);
            let asked = async {
                // However often somebody asks, the endpoint gets a breath.
                tokio::time::sleep(interval / 10).await;
                self.shared.look.notified().await;
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = asked => {}
            }
        }
    }

    async fn round(&self, facts_read: &mut Option<Instant>) {
        let plan = self.shared.plan.load_full();
        let asker = Asker {
            client: &self.client,
            endpoint: &plan.target.endpoint,
            timeout: plan.rules.timeout,
        };
        let sent = self.shared.gate.clock().now();
        let pulse = match asker.pulse().await {
            Ok(pulse) => pulse,
            Err(failure) => return self.shared.on_failure(failure),
        };
        let (wanted, doubted) = {
            let book = self.shared.lock();
            let wanted = book.machine.wants_facts(pulse.scrape.as_ref());
            (wanted, book.is_in_doubt())
        };
        let old = facts_read.is_none_or(|at| at.elapsed() >= FACTS_EVERY);
        let facts = match (wanted || doubted || old).then(|| asker.facts()) {
            Some(asking) => match asking.await {
                Ok(facts) if !facts.lists_any(&plan.target.ids) => {
                    // Once it may be on its way; twice in a row it is gone.
                    if wanted || doubted {
                        return self.shared.on_failure(Failure::WrongModel);
                    }
                    self.shared.lock().doubt();
                    None
                }
                Ok(facts) => Some(facts),
                // Told once that it works, an endpoint is not given up for a
                // list that did not come; but no request passes with a wrong key.
                Err(failure) if wanted || failure == Failure::Unauthorized => {
                    return self.shared.on_failure(failure);
                }
                Err(_) => None,
            },
            None => None,
        };
        if facts.is_some() {
            *facts_read = Some(Instant::now());
        }
        self.shared.on_answer(Found {
            sent,
            latency: pulse.latency,
            scrape: pulse.scrape,
            facts,
        });
    }
}

// === impl Handle ===

impl Handle {
    /// Tells how a request went. Never blocks on anything but short locks and
    /// never panics: destructors call it.
    pub fn report(&self, outcome: Outcome) {
        self.0.on_event(Event::Passive(outcome));
        if matches!(
            outcome,
            Outcome::Refused
                | Outcome::Unreachable
                | Outcome::Unauthorized
                | Outcome::Failed
                | Outcome::UnknownModel(_)
        ) {
            self.0.look.notify_one();
        }
    }

    /// The state running requests go by: down means that their engine is gone
    /// and nothing more will come. An endpoint that only fails its probes is not
    /// down here.
    pub fn running(&self) -> watch::Receiver<Health> {
        self.0.running.subscribe()
    }

    /// Lets the endpoint finish what it has and gives it nothing new.
    pub fn drain(&self) {
        self.0.on_event(Event::Duty(Duty::Drain));
    }

    /// Gives the endpoint work again.
    pub fn undrain(&self) {
        self.0.on_event(Event::Duty(Duty::Serve));
    }

    /// The endpoint it stands for.
    pub fn target(&self) -> Arc<Target> {
        self.0.target()
    }

    /// What is known of the endpoint now.
    pub fn view(&self) -> EndpointView {
        let now = self.0.gate.clock().now();
        let book = self.0.lock();
        book.view(&self.0.target(), now)
    }
}

// === impl Shared ===

impl Shared {
    /// Takes the lock. What it protects decides where requests go: poisoned, it
    /// cannot be trusted, and the process aborts as it does for the books.
    fn lock(&self) -> MutexGuard<'_, Book> {
        match self.book.lock() {
            Ok(book) => book,
            Err(_) => std::process::abort(),
        }
    }

    fn target(&self) -> Arc<Target> {
        Arc::clone(&self.plan.load().target)
    }

    fn on_failure(&self, failure: Failure) {
        self.on_event(Event::Failed(failure));
    }

    /// Takes an event that brings no new evidence.
    fn on_event(&self, event: Event<'_>) {
        let now = self.gate.clock().now();
        let mut book = self.lock();
        book.on_event(self, now, event);
        self.publish(&book, now);
    }

    /// Takes what a good round found.
    fn on_answer(&self, found: Found) {
        let now = self.gate.clock().now();
        let mut book = self.lock();
        book.on_answer(self, now, found);
        self.publish(&book, now);
    }

    fn publish(&self, book: &Book, now: Time) {
        let health = book.machine.health_of_running(now);
        self.running.send_if_modified(|told| {
            let changed = *told != health;
            *told = health;
            changed
        });
    }
}

fn thresholds(rules: &config::Probe) -> Thresholds {
    Thresholds {
        down_after: rules.down_after,
        slow: rules.timeout / 2,
    }
}

#[cfg(test)]
mod tests;
