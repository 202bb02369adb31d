//! Makes the pools of a configuration and watches their backends.
//!
//! Decides how a configured model becomes a gate with backends, one per
//! endpoint and data-parallel rank. Slots are given in that order and are what
//! ties a seat to its place in the gate. The tasks that keep a pool going
//! (deadlines, probes, loading) belong to one set, aborted with the gateway.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::config::{Backend, Config, Model, TokenizerChoice};
use crate::core::admission::Admission;
use crate::gate::{Clock, Gate};
use crate::layers::pool::{Counting, CountingPlace, Pool, PoolParts, Pools};
use crate::layers::seat::Seat;
use crate::tenants::Tenants;
use crate::upstream::client::{Client, Connector};
use crate::upstream::probe::{Handle, Probe, Target};

use super::checkup;
use super::error::Error;
use super::loading::{self, Keeper, Shared};

/// What runs behind the pools.
pub(super) struct Works<C> {
    pub(super) client: Client<C>,
    pub(super) clock: Clock,
    pub(super) counters: Shared,
    pub(super) tasks: JoinSet<()>,
}

// === impl Works ===

impl<C: Connector> Works<C> {
    /// Makes every pool of `config` and starts the tasks behind it.
    pub(super) fn start(&mut self, config: &Config, tenants: &Tenants) -> Result<Pools, Error> {
        let pools = config
            .models
            .iter()
            .map(|model| self.pool(config, model, tenants));
        Ok(Pools::new(pools.collect::<Result<_, Error>>()?))
    }

    fn pool(
        &mut self,
        config: &Config,
        model: &Model,
        tenants: &Tenants,
    ) -> Result<Arc<Pool>, Error> {
        let mut admission = Admission::new(config.pool_policy(model));
        for found in tenants.all() {
            admission.set_tenant(found.id, found.tenant.policy());
        }
        let gate = Gate::new(admission, self.clock);
        let (mut seats, mut endpoints) = (Vec::new(), Vec::new());
        for backend in &model.backends {
            let target = target(config, model, (backend, seats.len()))?;
            let probe = Probe::new(target, &self.client, gate.clone(), config.probe.clone());
            seats.extend(take_seats(&probe.handle()));
            endpoints.push(probe.handle());
            self.tasks.spawn(probe.run());
        }
        let pool = Arc::new(Pool::new(PoolParts {
            name: Arc::from(model.name.as_str()),
            served: model.served_ids().map(Arc::from).collect(),
            gate: gate.clone(),
            counter: loading::estimate(model),
            source: model.tokenizer.to_string(),
            counting: Counting {
                place: match model.tokenizer {
                    TokenizerChoice::Engine => CountingPlace::Engine,
                    _ => CountingPlace::Here,
                },
                on_uncountable: model.on_uncountable,
                stored_history: model.stored_history,
            },
            queue: config.queue.clone(),
            seats,
            endpoints,
        }));
        self.tasks.spawn(gate.drive());
        let keeper = Keeper {
            pool: Arc::clone(&pool),
            model: Arc::new(model.clone()),
            shared: self.counters.clone(),
        };
        self.tasks.spawn(keeper.keep());
        self.tasks.spawn(checkup::look_at(
            Arc::clone(&pool),
            self.client.clone(),
            Arc::clone(&self.counters.metrics),
        ));
        Ok(pool)
    }
}

fn target(
    config: &Config,
    model: &Model,
    (backend, first): (&Backend, usize),
) -> Result<Target, Error> {
    let first = u32::try_from(first).expect("a configuration has fewer than 2^32 backends");
    Target::new(backend, model, config.admission.assumed_kv_tokens, first).map_err(|source| {
        Error::Backend {
            backend: backend.name.clone(),
            source,
        }
    })
}

/// One seat for each rank of an endpoint, in the order of their slots.
fn take_seats(handle: &Handle) -> Vec<Arc<Seat>> {
    let target = handle.target();
    let seat = |rank| {
        let name = if target.ranks > 1 {
            Arc::from(format!("{}/{rank}", target.name))
        } else {
            Arc::clone(&target.name)
        };
        let reporter = handle.clone();
        Arc::new(Seat::new(
            name,
            target.endpoint_of(rank),
            handle.running(),
            Arc::new(move |outcome| reporter.report(outcome)),
        ))
    };
    (0..target.ranks).map(seat).collect()
}
