//! The pools: one per base model, with its gate, its counter and its backends.
//!
//! Holds what is shared between requests of a model; decides which pool and
//! served id a model name means. Never admits (the gate does) and never sends.
//! Invariant: seat `n` is the backend whose slot in the gate is `n`, for as long
//! as the gate knows one there.

use std::collections::{BTreeMap, HashMap};
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

/// One base model, by the rules of one configuration.
pub struct Pool {
    kept: Arc<Kept>,
    rules: PoolRules,
}

/// What stays when a model's rules change.
struct Kept {
    name: Arc<str>,
    gate: Gate,
    counter: ArcSwap<ModelCounter>,
    /// By slot. Written by whoever adds and removes backends, one at a time.
    seats: ArcSwap<BTreeMap<u32, Arc<Seat>>>,
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
    /// Its door.
    pub gate: Gate,
    /// Its counter until a better one is loaded.
    pub counter: Arc<ModelCounter>,
    /// Where that will come from, for the operator.
    pub source: String,
    /// Its backends, from slot 0 on.
    pub seats: Vec<Arc<Seat>>,
    /// What the configuration says of it.
    pub rules: PoolRules,
}

/// What a reload may change of a pool.
pub struct PoolRules {
    /// Ids it was ever asked by; the index is the [`ServedId`].
    pub ids: Vec<Arc<str>>,
    /// Those it is asked by.
    pub served: Vec<ServedId>,
    /// How prompts are counted.
    pub counting: Counting,
    /// Bounds of its line.
    pub queue: Queue,
    /// The watched endpoints of its backends, in the order of the configuration.
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
        let kept = Kept {
            name: parts.name,
            gate: parts.gate,
            counter: ArcSwap::new(parts.counter),
            seats: ArcSwap::from_pointee((0..).zip(parts.seats).collect()),
            counter_settled: AtomicBool::new(false),
            overruns: Seldom::default(),
            differences: Seldom::default(),
            outputs: Outputs::default(),
            notes: Notes::new(parts.source),
        };
        Self {
            kept: Arc::new(kept),
            rules: parts.rules,
        }
    }

    /// The same pool by other rules: its books, its counter, its backends.
    #[must_use]
    pub fn by(&self, rules: PoolRules) -> Self {
        Self {
            kept: Arc::clone(&self.kept),
            rules,
        }
    }

    /// The base model's name.
    pub fn name(&self) -> &Arc<str> {
        &self.kept.name
    }

    /// Ids it is asked by.
    pub fn served(&self) -> impl Iterator<Item = (ServedId, &Arc<str>)> {
        let named = |&served| (served, &self.rules.ids[index(served)]);
        self.rules.served.iter().map(named)
    }

    /// The id behind `served`.
    pub fn id(&self, served: ServedId) -> &str {
        &self.rules.ids[index(served)]
    }

    /// Its door.
    pub fn gate(&self) -> &Gate {
        &self.kept.gate
    }

    /// The counter of the moment.
    pub fn counter(&self) -> Arc<ModelCounter> {
        self.kept.counter.load_full()
    }

    /// Counts with `counter` from now on.
    pub fn use_counter(&self, counter: Arc<ModelCounter>) {
        self.kept.counter.store(counter);
    }

    /// Where the counter comes from, and how its last load went.
    pub fn provenance(&self) -> Arc<Provenance> {
        self.kept.notes.read()
    }

    /// Notes what is new about that. For the one task that loads the counter.
    pub fn note_provenance(&self, change: impl FnOnce(&mut Provenance)) {
        self.kept.notes.note(change);
    }

    /// The first load is over, however it went.
    pub fn settle_counter(&self) {
        // Release pairs with the load in `is_ready`: who sees the pool ready
        // counts with the counter stored before.
        self.kept.counter_settled.store(true, Ordering::Release);
    }

    /// Whether requests can be served: the counter is settled and a backend is
    /// usable.
    pub fn is_ready(&self) -> bool {
        let usable = |backend: &BackendState| backend.health.admits() && backend.capacity.is_some();
        self.kept.counter_settled.load(Ordering::Acquire)
            && self.gate().state().backends.iter().any(usable)
    }

    /// How prompts are counted.
    pub const fn counting(&self) -> Counting {
        self.rules.counting
    }

    /// When the log may say that counts were cut.
    pub fn overruns(&self) -> &Seldom {
        &self.kept.overruns
    }

    /// When the log may say that counts differ.
    pub fn differences(&self) -> &Seldom {
        &self.kept.differences
    }

    /// What texts are worth that an engine gave no account of.
    pub fn outputs(&self) -> &Outputs {
        &self.kept.outputs
    }

    /// The longest `tenant` may wait here.
    pub fn max_wait(&self, tenant: &TenantRef) -> Duration {
        let own = tenant.tenant.limits.max_queue_wait;
        let longest = self.rules.queue.max_wait;
        own.unwrap_or(longest).min(longest)
    }

    /// Its backends by slot, those that are on their way out too.
    pub fn seats(&self) -> Arc<BTreeMap<u32, Arc<Seat>>> {
        self.kept.seats.load_full()
    }

    /// Puts `seats` at their slots, in place of those there, before the gate is
    /// told of any new one. For the one who adds and removes backends.
    pub fn seat_at(&self, seats: impl IntoIterator<Item = (u32, Arc<Seat>)>) {
        let mut all = BTreeMap::clone(&self.seats());
        all.extend(seats);
        self.kept.seats.store(Arc::new(all));
    }

    /// Takes the seat at `slot` away, once the gate knows no backend there.
    pub fn unseat(&self, slot: u32) {
        let mut all = BTreeMap::clone(&self.seats());
        all.remove(&slot);
        self.kept.seats.store(Arc::new(all));
    }

    /// The watched endpoints of its backends, in the order of the configuration.
    pub fn endpoints(&self) -> &[Handle] {
        &self.rules.endpoints
    }

    /// The seat of a backend on which a lease is held.
    pub fn seat(&self, backend: BackendId) -> Arc<Seat> {
        let seat = self.seat_of(backend);
        seat.expect("a slot of the gate has a seat until its last lease has ended")
    }

    /// The seat of a backend, if it is there still.
    pub fn seat_of(&self, backend: BackendId) -> Option<Arc<Seat>> {
        self.kept.seats.load().get(&backend.slot).map(Arc::clone)
    }
}

fn index(served: ServedId) -> usize {
    usize::try_from(served.0).expect("an index fits memory")
}

// === impl Pools ===

impl Pools {
    /// These pools; where two serve the same id the first has it.
    pub fn new(pools: Vec<Arc<Pool>>) -> Self {
        let mut by_id = HashMap::new();
        for (index, pool) in pools.iter().enumerate() {
            for (served, id) in pool.served() {
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
        self.pools.iter().filter(|pool| tenant.may_use(pool.name()))
    }

    /// The pool that serves `id` to `tenant`, if there is one.
    pub fn find(&self, tenant: &TenantRef, id: &str) -> Option<(Arc<Pool>, ServedId)> {
        let &(index, served) = self.by_id.get(id)?;
        let pool = &self.pools[index];
        tenant
            .may_use(pool.name())
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
