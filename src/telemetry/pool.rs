//! Levels of a pool, set from a snapshot when `/metrics` is read.
//!
//! Nothing here is kept between two readings except the engines' preemption
//! counters, which start anew with every engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::metric::Metric;
use super::metrics::Metrics;
use super::zero::routes;
use crate::core::backend::{BackendId, CapacitySource, Health};
use crate::core::stats::{BackendState, PoolState, Totals};
use crate::core::time::Time;
use crate::core::units::{Blocks, Tokens};
use crate::tokenize::Demotion;

/// A pool at one moment, with the names of what it holds.
#[derive(Clone, Copy, Debug)]
pub struct PoolView<'a> {
    /// Base model of the pool.
    pub model: &'a str,
    /// Its books.
    pub state: &'a PoolState,
    /// Its backends by slot; books of other slots are left out.
    pub backends: &'a [BackendView<'a>],
    /// Kinds of request whose counts are no longer called exact.
    pub demotions: &'a [Demotion],
    /// Names of the tenants in the books, by id.
    pub tenants: &'a [Arc<str>],
    /// When the snapshot was taken.
    pub now: Time,
}

/// The connections of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crowd {
    /// Connections now.
    pub open: u64,
    /// Those of them that ask for nothing, or have not yet said for what.
    pub silent: u64,
    /// Ended to make room, since the start.
    pub crowded_out: u64,
    /// Closed at once, since every place was taken by one that asks.
    pub turned_away: u64,
}

/// What is known of a backend outside of the books.
#[derive(Clone, Copy, Debug)]
pub struct BackendView<'a> {
    /// Its place in the pool.
    pub slot: u32,
    /// Its name; the rank is part of it where there are several.
    pub name: &'a str,
    /// Reads of its metrics that failed since the start.
    pub scrapes_failed: u64,
}

/// An engine's preemption counter when it was last looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Preemptions {
    generation: u32,
    counted: u64,
}

/// Books of one place in the pool, over the lives of the engine there.
#[derive(Default)]
struct Place<'a> {
    newest: Option<&'a BackendState>,
    held: Blocks,
    leases: u32,
}

const HEALTH: [Health; 6] = [
    Health::Starting,
    Health::Up,
    Health::Degraded,
    Health::Draining,
    Health::Sleeping,
    Health::Down,
];

const SOURCES: [CapacitySource; 4] = [
    CapacitySource::Configured,
    CapacitySource::AdvertisedTokens,
    CapacitySource::AdvertisedBlocks,
    CapacitySource::Assumed,
];

impl Metrics {
    /// Sets every level of a pool. Call it for each pool before [`Metrics::render`].
    pub fn show_pool(&self, view: &PoolView<'_>) {
        let queue = view.state.queue;
        self.set(
            Metric::WaitingRequests,
            &[view.model],
            f64::from(queue.requests),
        );
        self.set(Metric::WaitingTokens, &[view.model], queue.tokens.as_f64());
        self.set(
            Metric::OldestWait,
            &[view.model],
            queue.oldest.as_secs_f64(),
        );
        for route in routes() {
            let demoted = view.demotions.iter().any(|found| found.kind == route);
            let value = f64::from(u8::from(demoted));
            self.set(Metric::CountDemoted, &[view.model, route], value);
        }
        self.show_totals(view.model, &view.state.totals);
        self.show_tenants(view);
        for (backend, place) in places(view) {
            self.show_backend(view, backend, &place);
        }
    }

    /// Sets the bytes of request bodies held in memory.
    pub fn show_bodies(&self, bytes: u64) {
        let bytes = Tokens::new(bytes).as_f64();
        self.set(Metric::BodyBytes, &[], bytes);
    }

    /// Sets what there is to say of clients' connections.
    pub fn show_crowd(&self, crowd: &Crowd) {
        let asking = crowd.open.saturating_sub(crowd.silent);
        for (state, count) in [("asking", asking), ("silent", crowd.silent)] {
            let count = Tokens::new(count).as_f64();
            self.set(Metric::Connections, &[state], count);
        }
        let ends = [
            ("crowded_out", crowd.crowded_out),
            ("turned_away", crowd.turned_away),
        ];
        for (reason, total) in ends {
            self.counter(Metric::ConnectionsCut, &[reason])
                .absolute(total);
        }
    }

    fn show_totals(&self, model: &str, totals: &Totals) {
        let outcomes = [
            ("admitted", totals.admitted),
            ("refused", totals.refused),
            ("expired", totals.expired),
            ("left", totals.left),
            ("finished", totals.finished),
            ("failed", totals.failed),
            ("cancelled", totals.cancelled),
        ];
        for (outcome, total) in outcomes {
            self.counter(Metric::Admissions, &[model, outcome])
                .absolute(total);
        }
        let longer = totals.promised.saturating_sub(totals.kept);
        for (outcome, total) in [("kept", totals.kept), ("longer", longer)] {
            self.counter(Metric::Waits, &[model, outcome])
                .absolute(total);
        }
        let judged = [
            (Metric::AnswersMeasured, totals.measured),
            (Metric::MeasuredOutput, totals.measured_output.get()),
            (Metric::ForecastError, totals.output_error.get()),
        ];
        for (metric, total) in judged {
            self.counter(metric, &[model]).absolute(total);
        }
    }

    fn show_tenants(&self, view: &PoolView<'_>) {
        let mut held: BTreeMap<Arc<str>, f64> = BTreeMap::new();
        for state in &view.state.tenants {
            let index = usize::try_from(state.tenant.0).expect("a tenant index fits memory");
            let name = view.tenants.get(index).map(|name| &**name);
            *held.entry(self.labels().tenant(name)).or_default() += state.in_flight.as_f64();
        }
        for (tenant, tokens) in held {
            self.set(Metric::TenantInFlight, &[view.model, &tenant], tokens);
        }
    }

    fn show_backend(&self, view: &PoolView<'_>, backend: &BackendView<'_>, place: &Place<'_>) {
        let Some(newest) = place.newest else {
            return;
        };
        let labels = [view.model, backend.name, newest.tier.name()];
        self.set(Metric::InFlightRequests, &labels, f64::from(place.leases));
        self.begin_backend(labels);
        self.counter(Metric::ScrapesFailed, &labels)
            .absolute(backend.scrapes_failed);
        for health in HEALTH {
            let value = f64::from(u8::from(newest.health == health));
            self.set(Metric::BackendState, &with(labels, health.name()), value);
        }
        if let Some(observed) = newest.observed {
            let age = view.now.since(observed.at).as_secs_f64();
            self.set(Metric::MetricsAge, &labels, age);
            let new = self.new_preemptions(view.model, newest.id, observed.preemptions);
            self.counter(Metric::EnginePreemptions, &labels)
                .increment(new);
        }
        self.show_plan(labels, newest);
        self.show_memory(labels, newest, place.held);
    }

    fn show_plan(&self, labels: [&str; 3], newest: &BackendState) {
        let ahead = newest.prefill_ahead.as_secs_f64();
        self.set(Metric::PrefillAhead, &labels, ahead);
        if let Some(plan) = newest.plan {
            self.set(Metric::PlanConfidence, &labels, plan.confidence);
            self.set(Metric::PlanShare, &labels, plan.share);
        }
    }

    fn show_memory(&self, labels: [&str; 3], newest: &BackendState, held: Blocks) {
        let Some(capacity) = newest.capacity else {
            return;
        };
        let tokens = |blocks: Blocks| blocks.tokens(capacity.block_size).as_f64();
        self.set(Metric::KvCapacity, &labels, capacity.pool().as_f64());
        self.set(Metric::KvHeld, &labels, tokens(held));
        self.set(Metric::KvForeign, &labels, tokens(newest.foreign));
        for source in SOURCES {
            let value = f64::from(u8::from(capacity.source == source));
            self.set(
                Metric::KvCapacitySource,
                &with(labels, source.name()),
                value,
            );
        }
        if let Some(observed) = newest.observed {
            self.set(
                Metric::KvDrift,
                &labels,
                tokens(observed.used) - tokens(held),
            );
        }
    }

    /// Preemptions since the last look at this life of the engine; none at the first.
    fn new_preemptions(&self, model: &str, id: BackendId, total: u64) -> u64 {
        let first = Preemptions {
            generation: id.generation,
            counted: total,
        };
        let place = (Arc::from(model), id.slot);
        let mut last = self.preemptions().entry(place).or_insert(first);
        if last.generation != id.generation {
            *last = Preemptions {
                generation: id.generation,
                counted: 0,
            };
        }
        let new = total.saturating_sub(last.counted);
        last.counted = total;
        new
    }
}

/// The books of each named backend: sums over the lives of its engine, state of the last.
fn places<'a>(view: &PoolView<'a>) -> Vec<(&'a BackendView<'a>, Place<'a>)> {
    let place = |backend: &'a BackendView<'a>| {
        let mut place = Place::default();
        for state in view
            .state
            .backends
            .iter()
            .filter(|state| state.id.slot == backend.slot)
        {
            place.held += state.held;
            place.leases += state.leases;
            if place
                .newest
                .is_none_or(|newest| newest.id.generation < state.id.generation)
            {
                place.newest = Some(state);
            }
        }
        (backend, place)
    };
    view.backends.iter().map(place).collect()
}

fn with<'a>([model, backend, tier]: [&'a str; 3], last: &'a str) -> [&'a str; 4] {
    [model, backend, tier, last]
}
