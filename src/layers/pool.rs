//! The pools: one per base model, with its gate, its counter and its backends.
//!
//! Holds what is shared between requests of a model; decides which pool and
//! served id a model name means. Never admits (the gate does) and never sends.
//! Invariant: seat `n` is the backend whose slot in the gate is `n`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::config::{OnUncountable, Queue};
use crate::core::backend::{BackendId, ServedId};
use crate::core::stats::BackendState;
use crate::core::units::Tokens;
use crate::gate::Gate;
use crate::tenants::TenantRef;
use crate::tokenize::ModelCounter;
use crate::upstream::probe::Handle;

use super::outputs::Outputs;
use super::provenance::{Notes, Provenance};
use super::seat::Seat;
use super::seldom::Seldom;

/// One base model.
pub struct Pool {
    name: Arc<str>,
    served: Vec<Arc<str>>,
    gate: Gate,
    counter: ArcSwap<ModelCounter>,
    counting: Counting,
    queue: Queue,
    seats: Vec<Arc<Seat>>,
    endpoints: Vec<Handle>,
    /// Set once the counter is in place, or known not to come.
    counter_settled: AtomicBool,
    overruns: Seldom,
    differences: Seldom,
    outputs: Outputs,
    notes: Notes,
}

/// How prompts of a pool are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counting {
    /// Whether the engine is asked.
    pub place: CountingPlace,
    /// What happens where no exact count can be had.
    pub on_uncountable: OnUncountable,
    /// Tokens charged for a conversation that only the engine has.
    pub stored_history: Tokens,
}

/// Where prompts of a pool are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountingPlace {
    /// In this process.
    Here,
    /// By the engine's `/tokenize`, and here where it does not answer.
    Engine,
}

/// What a pool is made of.
pub struct PoolParts {
    /// The base model's name.
    pub name: Arc<str>,
    /// Ids it is asked by; the index is the [`ServedId`].
    pub served: Vec<Arc<str>>,
    /// Its door.
    pub gate: Gate,
    /// Its counter until a better one is loaded.
    pub counter: Arc<ModelCounter>,
    /// Where that will come from, for the operator.
    pub source: String,
    /// How prompts are counted.
    pub counting: Counting,
    /// Bounds of its line.
    pub queue: Queue,
    /// Its backends, by slot.
    pub seats: Vec<Arc<Seat>>,
    /// The watched endpoints behind them, in the order of the configuration.
    pub endpoints: Vec<Handle>,
}

/// Every pool of a configuration.
#[derive(Default)]
pub struct Pools {
    pools: Vec<Arc<Pool>>,
    by_id: HashMap<Arc<str>, (usize, ServedId)>,
}

// === impl Pool ===

impl Pool {
    /// A pool of these parts.
    pub fn new(parts: PoolParts) -> Self {
        Self {
            name: parts.name,
            served: parts.served,
            gate: parts.gate,
            counter: ArcSwap::new(parts.counter),
            counting: parts.counting,
            queue: parts.queue,
            seats: parts.seats,
            endpoints: parts.endpoints,
            counter_settled: AtomicBool::new(false),
            overruns: Seldom::default(),
            differences: Seldom::default(),
            outputs: Outputs::default(),
            notes: Notes::new(parts.source),
        }
    }

    /// The base model's name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Ids it is asked by; the index is the [`ServedId`].
    pub fn served(&self) -> &[Arc<str>] {
        &self.served
    }

    /// The id behind `served`.
    pub fn id(&self, served: ServedId) -> &str {
        let index = usize::try_from(served.0).expect("an index fits memory");
        &self.served[index]
    }

    /// Its door.
    pub const fn gate(&self) -> &Gate {
        &self.gate
    }

    /// The counter of the moment.
    pub fn counter(&self) -> Arc<ModelCounter> {
        self.counter.load_full()
    }

    /// Counts with `counter` from now on.
    pub fn use_counter(&self, counter: Arc<ModelCounter>) {
        self.counter.store(counter);
    }

    /// Where the counter comes from, and how its last load went.
    pub fn provenance(&self) -> Arc<Provenance> {
        self.notes.read()
    }

    /// Notes what is new about that. For the one task that loads the counter.
    pub fn note_provenance(&self, change: impl FnOnce(&mut Provenance)) {
        self.notes.note(change);
    }

    /// The first load is over, however it went.
    pub fn settle_counter(&self) {
        // Release pairs with the load in `is_ready`: who sees the pool ready
        // counts with the counter stored before.
        self.counter_settled.store(true, Ordering::Release);
    }

    /// Whether requests can be served: the counter is settled and a backend is
    /// usable.
    pub fn is_ready(&self) -> bool {
        let usable = |backend: &BackendState| backend.health.admits() && backend.capacity.is_some();
        self.counter_settled.load(Ordering::Acquire)
            && self.gate.state().backends.iter().any(usable)
    }

    /// How prompts are counted.
    pub const fn counting(&self) -> Counting {
        self.counting
    }

    /// When the log may say that counts were cut.
    pub const fn overruns(&self) -> &Seldom {
        &self.overruns
    }

    /// When the log may say that counts differ.
    pub const fn differences(&self) -> &Seldom {
        &self.differences
    }

    /// What texts are worth that an engine gave no account of.
    pub const fn outputs(&self) -> &Outputs {
        &self.outputs
    }

    /// The longest `tenant` may wait here.
    pub fn max_wait(&self, tenant: &TenantRef) -> Duration {
        let own = tenant.tenant.limits.max_queue_wait;
        own.unwrap_or(self.queue.max_wait).min(self.queue.max_wait)
    }

    /// Its backends, by slot.
    pub fn seats(&self) -> &[Arc<Seat>] {
        &self.seats
    }

    /// The watched endpoints behind them, in the order of the configuration.
    pub fn endpoints(&self) -> &[Handle] {
        &self.endpoints
    }

    /// The seat of a backend of this pool's gate.
    pub fn seat(&self, backend: BackendId) -> Arc<Seat> {
        let slot = usize::try_from(backend.slot).expect("a slot fits memory");
        let seat = self.seats.get(slot);
        Arc::clone(seat.expect("every slot of the gate has a seat"))
    }
}

// === impl Pools ===

impl Pools {
    /// These pools; where two serve the same id the first has it.
    pub fn new(pools: Vec<Arc<Pool>>) -> Self {
        let mut by_id = HashMap::new();
        for (index, pool) in pools.iter().enumerate() {
            for (served, id) in (0..).map(ServedId).zip(pool.served()) {
                by_id.entry(Arc::clone(id)).or_insert((index, served));
            }
        }
        Self { pools, by_id }
    }

    /// All pools, in the order of the configuration.
    pub fn all(&self) -> &[Arc<Pool>] {
        &self.pools
    }

    /// The pools `tenant` may use.
    pub fn of(&self, tenant: &TenantRef) -> impl Iterator<Item = &Arc<Pool>> {
        self.pools.iter().filter(|pool| tenant.may_use(&pool.name))
    }

    /// The pool that serves `id` to `tenant`, if there is one.
    pub fn find(&self, tenant: &TenantRef, id: &str) -> Option<(Arc<Pool>, ServedId)> {
        let &(index, served) = self.by_id.get(id)?;
        let pool = &self.pools[index];
        tenant
            .may_use(&pool.name)
            .then(|| (Arc::clone(pool), served))
    }

    /// The pool of a request that names no model: the tenant's only one.
    pub fn only(&self, tenant: &TenantRef) -> Option<(Arc<Pool>, ServedId)> {
        let mut pools = self.of(tenant);
        let first = pools.next()?;
        pools
            .next()
            .is_none()
            .then(|| (Arc::clone(first), ServedId(0)))
    }
}
