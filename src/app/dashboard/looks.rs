//! What the last hour is made of: a look at every pool at the end of each step.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::app::gateway::Gateway;
use crate::core::stats::BackendState;
use crate::core::units::Blocks;
use crate::layers::pool::Pool;
use crate::telemetry::{BackendSample, PoolSample};

/// How often it is seen whether a step has ended.
const LOOK: Duration = Duration::from_secs(1);

/// Keeps the last hour of `gateway`. Ends when dropped.
pub(in crate::app) async fn keep_history(gateway: Arc<Gateway>) {
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let history = gateway.telemetry().history();
        let now = gateway.clock().now();
        if history.is_due(now) {
            let pools = gateway.pools();
            let samples: Vec<_> = pools.all().iter().map(|pool| sample(pool)).collect();
            history.look(now, &samples);
        }
    }
}

fn sample(pool: &Pool) -> PoolSample {
    let state = pool.gate().state();
    let backends = state.backends.iter().filter_map(|backend| {
        let seat = pool.seat_of(backend.id)?;
        let whole = backend.capacity?.blocks;
        let share = |part: Blocks| part.as_f64() / whole.as_f64().max(1.0);
        Some(BackendSample {
            name: Arc::clone(seat.name()),
            held: share(backend.held),
            foreign: share(backend.foreign),
        })
    });
    let leases = |backend: &BackendState| backend.leases;
    PoolSample {
        model: Arc::clone(pool.name()),
        totals: state.totals,
        running: state.backends.iter().map(leases).sum(),
        waiting: state.queue.requests,
        backends: backends.collect(),
    }
}
