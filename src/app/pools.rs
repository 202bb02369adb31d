//! Makes the pools of a configuration, and makes them over for the next one.
//!
//! Decides how a configured model becomes a gate with backends, one per
//! endpoint and data-parallel rank, and what of them stays in a reload: a model
//! is known by its name, an endpoint by its address and ranks. What is gone goes
//! on being watched until its last lease has ended. The tasks that keep a pool
//! going (deadlines, probes, loading) belong to the pool's set and end with it.
//! Invariants: everything that can fail is in [`Works::prepare`], which changes
//! nothing; a slot stands for one endpoint as long as the process lives.

mod line;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::{Backend, Config, Model};
use crate::core::stats::Totals;
use crate::gate::Clock;
use crate::layers::pool::Pools;
use crate::tenants::Tenants;
use crate::upstream::client::{Client, Connector};
use crate::upstream::probe::Target;

use super::error::Error;
use super::loading::Shared;

use line::Line;

/// What runs behind the pools.
pub(super) struct Works<C> {
    tools: Tools<C>,
    /// By model, those that are on their way out too.
    lines: BTreeMap<String, Line>,
    /// What was counted of models that are gone: totals only grow, and go on
    /// where they were when a model comes back.
    past: BTreeMap<String, Totals>,
}

/// What the tasks of all pools share.
#[derive(Clone)]
pub(super) struct Tools<C> {
    pub(super) client: Client<C>,
    pub(super) clock: Clock,
    pub(super) counters: Shared,
}

/// The pools of the next configuration, ready to be put in force.
pub(super) struct Plan {
    /// By model, in the order of the configuration.
    models: Vec<(Model, Vec<Planned>)>,
}

/// A configured endpoint that can be addressed. Slots and ids are filled in when
/// it takes its place.
pub(super) struct Planned {
    backend: Backend,
    target: Target,
}

/// The pools as something that can be made over, whatever reaches the backends.
pub(super) trait Remake: Send {
    /// Finds out whether the pools of `config` can be made. Changes nothing.
    fn prepare(&self, config: &Config) -> Result<Plan, Vec<Error>>;

    /// Makes them: adds what is new and changes what stays. What is gone stays
    /// too, until [`Self::retire`]. Cannot fail.
    fn make(&mut self, plan: Plan, config: &Config, tenants: &Tenants) -> Pools;

    /// Takes out what `config` does not name, once nobody is let in by an older
    /// one: waiters of a model that is gone get `no_backend`, streams go on.
    fn retire(&mut self, config: &Config);

    /// Ends the tasks of what is gone and holds nothing any more.
    fn tidy(&mut self);
}

// === impl Works ===

impl<C: Connector> Works<C> {
    /// No pools yet.
    pub(super) fn new(tools: Tools<C>) -> Self {
        Self {
            tools,
            lines: BTreeMap::new(),
            past: BTreeMap::new(),
        }
    }
}

impl<C: Connector> Remake for Works<C> {
    fn prepare(&self, config: &Config) -> Result<Plan, Vec<Error>> {
        let mut problems = Vec::new();
        let mut models = Vec::new();
        for model in &config.models {
            let line = self.lines.get(&model.name);
            let mut planned = Vec::new();
            for backend in &model.backends {
                let known = line.and_then(|line| line.target_of(backend));
                match plan(config, model, (backend, known)) {
                    Ok(target) => planned.push(Planned {
                        backend: backend.clone(),
                        target,
                    }),
                    Err(problem) => problems.push(problem),
                }
            }
            models.push((model.clone(), planned));
        }
        if problems.is_empty() {
            Ok(Plan { models })
        } else {
            Err(problems)
        }
    }

    fn make(&mut self, plan: Plan, config: &Config, tenants: &Tenants) -> Pools {
        let mut pools = Vec::new();
        for (model, planned) in plan.models {
            let line = match self.lines.remove(&model.name) {
                Some(mut line) => {
                    line.remake((&model, planned), (config, tenants), &self.tools);
                    line
                }
                None => {
                    let past = self.past.remove(&model.name).unwrap_or_default();
                    Line::start((&model, planned), (config, tenants), past, &self.tools)
                }
            };
            pools.push(Arc::clone(line.pool()));
            self.lines.insert(model.name, line);
        }
        Pools::new(pools)
    }

    fn retire(&mut self, config: &Config) {
        for (name, line) in &mut self.lines {
            let model = config.models.iter().find(|model| model.name == *name);
            line.retire(model);
        }
    }

    fn tidy(&mut self) {
        for line in self.lines.values_mut() {
            line.tidy();
        }
        let over = self.lines.extract_if(.., |_, line| line.is_over());
        self.past
            .extend(over.map(|(name, line)| (name, line.totals())));
    }
}

/// The endpoint of a backend: the one that is `known`, where it is reached in the
/// same way, so that its connections are kept.
fn plan(
    config: &Config,
    model: &Model,
    (backend, known): (&Backend, Option<Arc<Target>>),
) -> Result<Target, Error> {
    let assumed = config.admission.assumed_kv_tokens;
    let mut target = Target::new(backend, model, assumed, 0).map_err(|source| Error::Backend {
        backend: backend.name.clone(),
        source,
    })?;
    if let Some(known) = known {
        target.endpoint = known.endpoint.clone();
    }
    Ok(target)
}
