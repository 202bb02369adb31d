//! One model's pool with everything that runs behind it.
//!
//! Decides which endpoints stay, come and go. Invariant: an endpoint is watched
//! as long as its pool's gate knows a backend of it.

use std::sync::Arc;

use tokio::task::{AbortHandle, JoinSet};

use crate::config::{Backend, Config, Model, TokenizerChoice};
use crate::core::admission::Admission;
use crate::core::backend::ServedId;
use crate::core::stats::Totals;
use crate::gate::Gate;
use crate::layers::pool::{Counting, CountingPlace, Pool, PoolParts, PoolRules};
use crate::layers::seat::Seat;
use crate::tenants::Tenants;
use crate::upstream::client::Connector;
use crate::upstream::probe::{Handle, Probe, Target};

use super::{Planned, Tools};
use crate::app::checkup;
use crate::app::loading::{self, Keeper};

/// A pool and its tasks, which end with it.
pub(super) struct Line {
    pool: Arc<Pool>,
    model: Arc<Model>,
    /// Ids it was ever asked by; a place in the list is a [`ServedId`].
    ids: Vec<Arc<str>>,
    watched: Vec<Watched>,
    next_slot: u32,
    standing: Standing,
    /// Loads the counter and compares it; begun anew when that changes.
    counting: Vec<AbortHandle>,
    tasks: JoinSet<()>,
}

/// An endpoint and the task that watches it.
struct Watched {
    backend: Backend,
    handle: Handle,
    task: AbortHandle,
    standing: Standing,
}

/// Whether the configuration still names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Stays,
    /// It ends when nothing is held there any more.
    Leaves,
}

// === impl Line ===

impl Line {
    /// Makes a pool and starts its tasks. `past` is what was counted of the
    /// model before it was gone.
    pub(super) fn start<C: Connector>(
        (model, planned): (&Model, Vec<Planned>),
        (config, tenants): (&Config, &Tenants),
        past: Totals,
        tools: &Tools<C>,
    ) -> Self {
        let admission = Admission::new(config.pool_policy(model)).counting_on(past);
        let gate = Gate::new(admission, tools.clock);
        let ids: Vec<Arc<str>> = Vec::new();
        let pool = Arc::new(Pool::new(PoolParts {
            name: Arc::from(model.name.as_str()),
            gate: gate.clone(),
            counter: loading::estimate(model),
            source: model.tokenizer.to_string(),
            seats: Vec::new(),
            rules: rules(model, config, &ids),
        }));
        let mut tasks = JoinSet::new();
        tasks.spawn(gate.drive());
        let mut line = Self {
            pool,
            model: Arc::new(model.clone()),
            ids,
            watched: Vec::new(),
            next_slot: 0,
            standing: Standing::Stays,
            counting: Vec::new(),
            tasks,
        };
        line.remake((model, planned), (config, tenants), tools);
        line.count(tools);
        line
    }

    pub(super) const fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The endpoint of `backend`, if one is watched that is reached in the same way.
    pub(super) fn target_of(&self, backend: &Backend) -> Option<Arc<Target>> {
        let watched = self.watched.iter().find(|w| is_same(&w.backend, backend))?;
        let same_way = Backend {
            name: backend.name.clone(),
            tier: backend.tier,
            kv: backend.kv.clone(),
            ..watched.backend.clone()
        };
        (same_way == *backend).then(|| watched.handle.target())
    }

    /// Changes everything that stays or is new to what `config` says.
    pub(super) fn remake<C: Connector>(
        &mut self,
        (model, planned): (&Model, Vec<Planned>),
        (config, tenants): (&Config, &Tenants),
        tools: &Tools<C>,
    ) {
        for id in model.served_ids() {
            if !self.ids.iter().any(|known| **known == *id) {
                self.ids.push(Arc::from(id));
            }
        }
        self.set_policies(model, config, tenants);
        for mut planned in planned {
            // Ids no longer asked by are served on, for who waits by one.
            planned.target.serves = (0..).map(ServedId).take(self.ids.len()).collect();
            planned.target.ids = self.ids.clone();
            self.place(planned, config, tools);
        }
        let mut rules = rules(model, config, &self.ids);
        rules.endpoints = self.endpoints_of(model);
        self.pool = Arc::new(self.pool.by(rules));
        let counts_anew =
            self.standing == Standing::Leaves || counts_by(&self.model) != counts_by(model);
        self.standing = Standing::Stays;
        self.model = Arc::new(model.clone());
        if counts_anew {
            self.count(tools);
        }
    }

    /// Tenants first: the policy then looks at their waiters anew.
    fn set_policies(&self, model: &Model, config: &Config, tenants: &Tenants) {
        let policy = config.pool_policy(model);
        let present: Vec<_> = tenants.all().collect();
        let known = self.pool.gate().state().tenants;
        self.pool.gate().update(|admission, now, out| {
            for found in &present {
                admission.set_tenant(found.id, found.tenant.policy());
            }
            for gone in known {
                if !present.iter().any(|found| found.id == gone.tenant) {
                    admission.remove_tenant(gone.tenant);
                }
            }
            admission.set_policy(now, policy, out);
        });
    }

    /// Gives a configured endpoint its place: the one it has, or the next.
    fn place<C: Connector>(&mut self, planned: Planned, config: &Config, tools: &Tools<C>) {
        let Planned {
            backend,
            mut target,
        } = planned;
        let rules = config.probe.clone();
        let known = self
            .watched
            .iter_mut()
            .find(|w| is_same(&w.backend, &backend));
        if let Some(watched) = known {
            target.first_slot = watched.handle.target().first_slot;
            self.pool.seat_at(seats(&target, &watched.handle));
            watched.handle.retarget(target, rules);
            watched.backend = backend;
            watched.standing = Standing::Stays;
            return;
        }
        target.first_slot = self.next_slot;
        self.next_slot += target.ranks;
        let gate = self.pool.gate().clone();
        let probe = Probe::new(target, &tools.client, gate, rules);
        let handle = probe.handle();
        // Nothing is granted on a backend that is starting, and only the probe
        // finds out that it has: its seats are in time.
        self.pool.seat_at(seats(&handle.target(), &handle));
        let task = self.tasks.spawn(probe.run());
        self.watched.push(Watched {
            backend,
            handle,
            task,
            standing: Standing::Stays,
        });
    }

    fn endpoints_of(&self, model: &Model) -> Vec<Handle> {
        let watched =
            |backend: &Backend| self.watched.iter().find(|w| is_same(&w.backend, backend));
        let configured = model.backends.iter().filter_map(watched);
        configured.map(|watched| watched.handle.clone()).collect()
    }

    /// Loads the counter that the model names, in the background. Until that is
    /// done, and where it fails, the one in use stays.
    fn count<C: Connector>(&mut self, tools: &Tools<C>) {
        for task in self.counting.drain(..) {
            task.abort();
        }
        let source = self.model.tokenizer.to_string();
        self.pool
            .note_provenance(|provenance| provenance.source = source);
        let keeper = Keeper {
            pool: Arc::clone(&self.pool),
            model: Arc::clone(&self.model),
            shared: tools.counters.clone(),
        };
        let compared = checkup::look_at(
            Arc::clone(&self.pool),
            tools.client.clone(),
            Arc::clone(&tools.counters.metrics),
        );
        self.counting = vec![self.tasks.spawn(keeper.keep()), self.tasks.spawn(compared)];
    }

    /// Takes out the endpoints that `model` does not name, all where it is gone.
    pub(super) fn retire(&mut self, model: Option<&Model>) {
        let named = |watched: &Watched| {
            let mut backends = model.iter().flat_map(|model| &model.backends);
            backends.any(|backend| is_same(&watched.backend, backend))
        };
        for watched in &mut self.watched {
            if watched.standing == Standing::Stays && !named(watched) {
                watched.standing = Standing::Leaves;
                watched.handle.leave();
                tracing::info!(backend = watched.backend.name, "backend leaves");
            }
        }
        if model.is_none() && self.standing == Standing::Stays {
            self.standing = Standing::Leaves;
            for task in self.counting.drain(..) {
                task.abort();
            }
            tracing::info!(model = self.model.name, "model leaves");
        }
        self.tidy();
    }

    /// Ends the watch over endpoints that left and hold nothing any more.
    pub(super) fn tidy(&mut self) {
        // A task that has ended is kept until somebody asks for it.
        while self.tasks.try_join_next().is_some() {}
        if self.watched.iter().all(|w| w.standing == Standing::Stays) {
            return;
        }
        let state = self.pool.gate().state();
        let pool = &self.pool;
        self.watched.retain(|watched| {
            let slots = watched.handle.target().slots();
            let mut backends = state.backends.iter();
            let holds = backends.any(|backend| slots.contains(&backend.id.slot));
            let stays = watched.standing == Standing::Stays || holds;
            if !stays {
                watched.task.abort();
                slots.for_each(|slot| pool.unseat(slot));
                tracing::info!(backend = watched.backend.name, "backend has left");
            }
            stays
        });
    }

    /// What was counted of the model since the process began.
    pub(super) fn totals(&self) -> Totals {
        self.pool.gate().state().totals
    }

    /// Whether the model is gone and nothing is left of it.
    pub(super) fn is_over(&self) -> bool {
        self.standing == Standing::Leaves
            && self.watched.is_empty()
            && self.pool.gate().state().is_idle()
    }
}

/// Whether two backends are one endpoint: what one holds is then held there.
fn is_same(one: &Backend, other: &Backend) -> bool {
    one.url == other.url && one.data_parallel_ranks == other.data_parallel_ranks
}

fn rules(model: &Model, config: &Config, ids: &[Arc<str>]) -> PoolRules {
    let place = |id: &str| ids.iter().position(|known| **known == *id);
    let served = model.served_ids().filter_map(place);
    let served = served.filter_map(|place| u32::try_from(place).ok().map(ServedId));
    PoolRules {
        served: served.collect(),
        ids: ids.to_vec(),
        counting: Counting {
            place: match model.tokenizer {
                TokenizerChoice::Engine => CountingPlace::Engine,
                _ => CountingPlace::Here,
            },
            on_uncountable: model.on_uncountable,
            stored_history: model.stored_history,
        },
        queue: config.queue.clone(),
        endpoints: Vec::new(),
    }
}

/// What a model's counter is made of.
fn counts_by(model: &Model) -> impl PartialEq + '_ {
    (
        &model.tokenizer,
        &model.chat_template_file,
        &model.template_kwargs,
    )
}

/// One seat for each rank of an endpoint, by slot.
fn seats(target: &Target, handle: &Handle) -> Vec<(u32, Arc<Seat>)> {
    let seat = |rank| {
        let name = if target.ranks > 1 {
            Arc::from(format!("{}/{rank}", target.name))
        } else {
            Arc::clone(&target.name)
        };
        let reporter = handle.clone();
        let seat = Seat::new(
            name,
            target.endpoint_of(rank),
            handle.running(),
            Arc::new(move |outcome| reporter.report(outcome)),
        );
        (target.first_slot + rank, Arc::new(seat))
    };
    (0..target.ranks).map(seat).collect()
}
