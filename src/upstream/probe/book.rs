//! What is known of an endpoint, and the one place from which the pool is told.
//!
//! Invariant: the gate's view of every rank is what the last event meant.

use std::sync::Arc;
use std::time::Duration;

use super::gather::Facts;
use super::state::{Event, Failure, Machine, Outcome, Problem, Step, Thresholds};
use super::view::{EndpointView, RankView};
use super::{Shared, Target};
use crate::core::backend::{
    BackendId, Capacity, CapacitySource, Health, Observed, ServedId, Tier, Trust,
};
use crate::core::time::Time;
use crate::core::units::Blocks;
use crate::upstream::capacity::{self, Evidence};
use crate::upstream::scrape::Scrape;
use crate::upstream::version::Version;

/// First release whose gauges follow when everything running was aborted.
const GAUGES_FOLLOW_ABORTS: Version = Version::new(0, 11);

/// What is known of one endpoint.
pub(super) struct Book {
    pub(super) machine: Machine,
    evidence: Evidence,
    facts: Facts,
    pub(super) ranks: Vec<Rank>,
    pub(super) presence: Presence,
    /// What the gate was told last.
    pub(super) told: (Health, Trust),
    /// What the log was told last to be wrong.
    complained: Option<Problem>,
    scraped_at: Option<Time>,
    scrapes_failed: u64,
    restarts: u64,
    /// When the models were read last.
    listed_at: Option<Time>,
    /// Whether the models must be read anew: a listing lacked all that are
    /// served, or the engine denied one, or the key.
    in_doubt: bool,
    /// Models the engine said it does not serve and has not listed since.
    denied: Vec<ServedId>,
}

/// Whether the endpoint is one of its pool's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    Stays,
    /// It finishes what it has and is given nothing; no rank joins any more.
    Leaves,
}

/// One data-parallel engine, by its place in the list.
#[derive(Clone, Copy)]
pub(super) struct Rank {
    pub(super) id: BackendId,
    pub(super) capacity: Option<Capacity>,
}

/// What one good round found.
pub(super) struct Found {
    /// When the round began, which is before its scrape was sent.
    pub(super) sent: Time,
    pub(super) latency: Duration,
    pub(super) scrape: Option<Scrape>,
    pub(super) facts: Option<Facts>,
}

/// What the pool is told of one rank.
#[derive(Clone, Copy)]
pub(super) struct Weight {
    pub(super) capacity: Capacity,
    observed: Option<Observed>,
}

// === impl Book ===

impl Book {
    pub(super) fn new(thresholds: Thresholds, first: Rank) -> Self {
        Self {
            machine: Machine::new(thresholds),
            evidence: Evidence::default(),
            facts: Facts::default(),
            ranks: vec![first],
            presence: Presence::Stays,
            told: (Health::Starting, Trust::Whole),
            complained: None,
            scraped_at: None,
            scrapes_failed: 0,
            restarts: 0,
            listed_at: None,
            in_doubt: false,
            denied: Vec::new(),
        }
    }

    /// Takes an event that brings no evidence, and tells the pool what changed.
    pub(super) fn on_event(&mut self, shared: &Shared, now: Time, event: Event<'_>) {
        self.machine.on_event(now, event);
        match event {
            Event::Failed(Failure::WrongModel) => {}
            Event::Failed(_) => self.scrapes_failed += 1,
            Event::Passive(Outcome::UnknownModel(id)) => self.deny(shared, id),
            Event::Passive(Outcome::Unauthorized) => self.in_doubt = true,
            _ => {}
        }
        let (health, trust) = self.judgement(now);
        if (health, trust) == self.told {
            // One that never comes up changes no state, and must not be silent.
            let problem = self.machine.problem(now);
            if health == Health::Starting && problem != self.complained {
                self.log_health(&shared.target(), now);
            }
            return;
        }
        self.told = (health, trust);
        self.log_health(&shared.target(), now);
        let ranks = &self.ranks;
        shared.gate.update(|admission, now, out| {
            for rank in ranks {
                admission.set_trust(now, rank.id, trust, out);
                admission.set_health(now, rank.id, health, out);
            }
        });
    }

    /// Takes what a good round found, and tells the pool all of it in one step.
    pub(super) fn on_answer(&mut self, shared: &Shared, now: Time, found: Found) {
        let event = Event::Answered {
            latency: found.latency,
            scrape: found.scrape.as_ref(),
        };
        let step = self.machine.on_event(now, event);
        let scraped = found.scrape.as_ref().map(|_| found.sent);
        if step == Step::Restarted {
            self.denied.clear();
        }
        let plan = shared.plan.load_full();
        self.learn(&plan.target, found);
        let fresh = scraped.filter(|_| !self.gauges_froze(now, plan.rules.stale_after));
        let weights = self.weigh(&plan.target, fresh);
        self.log_weights(&plan.target, &weights);
        let judgement = self.judgement(now);
        let told = std::mem::replace(&mut self.told, judgement);
        self.tell(shared, step, &weights);
        if told != self.told || step == Step::Restarted {
            self.log_health(&plan.target, now);
        }
    }

    /// Whether the next good round must read the models.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// A listing lacked every model of the pool, or another key is sent.
    pub(super) fn doubt(&mut self) {
        self.in_doubt = true;
    }

    /// The engine denied a model: nothing more of it goes there until it lists it.
    fn deny(&mut self, shared: &Shared, id: ServedId) {
        self.in_doubt = true;
        if self.denied.contains(&id) {
            return;
        }
        self.denied.push(id);
        let target = shared.target();
        let backend = &*target.name;
        tracing::warn!(backend, "backend does not know a model it should serve");
        let (ranks, role) = (&self.ranks, self.role(&target));
        shared.gate.update(|admission, now, out| {
            for rank in ranks {
                admission.set_role(now, rank.id, role.clone(), out);
            }
        });
    }

    pub(super) fn role(&self, target: &Target) -> (Tier, Vec<ServedId>) {
        let known = |id: &&ServedId| !self.denied.contains(id);
        let serves = target.serves.iter().filter(known).copied();
        (target.tier, serves.collect())
    }

    fn judgement(&self, now: Time) -> (Health, Trust) {
        (self.machine.health(now), self.machine.trust(now))
    }

    fn learn(&mut self, target: &Target, found: Found) {
        if let Some(facts) = found.facts {
            let named: Vec<_> = target.serves.iter().zip(&target.ids).collect();
            let lists = |id: &ServedId| {
                named
                    .iter()
                    .any(|&(of, name)| of == id && facts.lists(name))
            };
            self.denied.retain(|id| !lists(id));
            self.listed_at = Some(found.sent);
            self.in_doubt = false;
            self.evidence.version = facts.version();
            self.evidence.max_model_len = facts.max_model_len();
            self.facts = facts;
        }
        match found.scrape {
            Some(scrape) => {
                self.evidence.scrape = scrape;
                self.scraped_at = Some(found.sent);
            }
            None => self.scrapes_failed += 1,
        }
    }

    /// Whether the endpoint has ever said what it is.
    pub(super) fn has_answered(&self) -> bool {
        let evidence = &self.evidence;
        let stated = evidence.version.is_some() || evidence.max_model_len.is_some();
        stated || self.scraped_at.is_some()
    }

    /// Whether the gauges may be left over from work that was aborted: old
    /// releases renew them only with the next output.
    fn gauges_froze(&self, now: Time, stale_after: Duration) -> bool {
        let old = self
            .evidence
            .version
            .is_some_and(|at| at < GAUGES_FOLLOW_ABORTS);
        let unmoved = self.machine.unmoved_since();
        old && unmoved.is_some_and(|since| now - since >= stale_after)
    }

    /// Capacity and use of each rank that is booked apart; use only by a fresh scrape.
    pub(super) fn weigh(&self, target: &Target, fresh: Option<Time>) -> Vec<Weight> {
        let booked = capacity::ranks(&self.evidence, target.ranks);
        let weigh = |rank| {
            let capacity = capacity::capacity(rank, &self.evidence, &target.operator);
            let engines = &self.evidence.scrape.engines;
            let observed = fresh.and_then(|at| {
                if booked > 1 {
                    return self.observe(target, rank, &capacity, at);
                }
                // The engine spreads requests over ranks nobody here can name:
                // the fullest of them is what the next request may meet.
                let all = engines.keys();
                all.filter_map(|&rank| self.observe(target, rank, &capacity, at))
                    .reduce(fuller)
            });
            Weight { capacity, observed }
        };
        (0..booked).map(weigh).collect()
    }

    fn observe(
        &self,
        target: &Target,
        rank: u32,
        capacity: &Capacity,
        at: Time,
    ) -> Option<Observed> {
        let used = capacity::used_blocks(rank, &self.evidence, &target.operator, capacity)?;
        let engine = self.evidence.scrape.engines.get(&rank)?;
        Some(Observed {
            at,
            used,
            running: engine.running.unwrap_or(0),
            waiting: engine.waiting.unwrap_or(0),
            preemptions: engine.counters.preemptions.unwrap_or(0),
        })
    }

    /// Tells the pool. Capacity and use come before health, so that nothing is
    /// granted by figures of an earlier life.
    fn tell(&mut self, shared: &Shared, step: Step, weights: &[Weight]) {
        let (health, trust) = self.told;
        let target = shared.target();
        let role = self.role(&target);
        let (ranks, restarts) = (&mut self.ranks, &mut self.restarts);
        let joins = match self.presence {
            Presence::Stays => weights.len(),
            Presence::Leaves => 0,
        };
        if step == Step::Restarted {
            *restarts += 1;
        }
        shared.gate.update(|admission, now, out| {
            while ranks.len() > weights.len() {
                let gone = ranks.pop().expect("longer than another list");
                admission.remove_backend(now, gone.id, out);
            }
            for (rank, weight) in ranks.iter_mut().zip(weights) {
                if step == Step::Restarted {
                    rank.id = admission.on_restart(now, rank.id, out);
                }
                rank.capacity = Some(weight.capacity);
                admission.set_capacity(now, rank.id, weight.capacity, out);
            }
            for (place, weight) in (0..).zip(weights).take(joins).skip(ranks.len()) {
                let capacity = Some(weight.capacity);
                let facts = target.facts_of(place, Health::Starting, capacity);
                let id = admission.add_backend(now, facts, out);
                ranks.push(Rank { id, capacity });
            }
            for (rank, weight) in ranks.iter().zip(weights) {
                if let Some(seen) = weight.observed {
                    admission.on_observed(now, rank.id, seen, out);
                }
                admission.set_role(now, rank.id, role.clone(), out);
                admission.set_trust(now, rank.id, trust, out);
                admission.set_health(now, rank.id, health, out);
            }
        });
    }

    pub(super) fn view(&self, target: &Target, now: Time) -> EndpointView {
        let ranks = self.ranks.iter().map(|rank| RankView {
            backend: rank.id,
            capacity: rank.capacity,
        });
        EndpointView {
            name: Arc::clone(&target.name),
            authority: target.endpoint.authority().to_string(),
            tier: target.tier,
            version: self.facts.release.clone(),
            models: self.facts.models.clone(),
            health: self.machine.health(now),
            trust: self.machine.trust(now),
            duty: self.machine.duty(),
            problem: self.machine.problem(now),
            ranks: ranks.collect(),
            engines_shown: self.evidence.scrape.engines.len(),
            metrics: self.evidence.scrape.origin,
            scrape_age: self.scraped_at.map(|at| now - at),
            models_age: self.listed_at.map(|at| now - at),
            scrapes_failed: self.scrapes_failed,
            restarts: self.restarts,
        }
    }

    fn log_health(&mut self, target: &Target, now: Time) {
        self.complained = self.machine.problem(now);
        let backend = &*target.name;
        let (health, trust) = self.judgement(now);
        let (state, trust) = (health.name(), trust.name());
        match self.complained {
            Some(problem) => {
                tracing::warn!(
                    backend,
                    state,
                    trust,
                    problem = problem.name(),
                    "backend is not as it should be"
                );
            }
            None => tracing::info!(backend, state, "backend changed state"),
        }
    }

    /// Says where capacity comes from when that changes.
    fn log_weights(&self, target: &Target, weights: &[Weight]) {
        let Some(weight) = weights.first() else {
            return;
        };
        let before = self.ranks.first().and_then(|rank| rank.capacity);
        if before == Some(weight.capacity) {
            return;
        }
        let backend = &*target.name;
        let tokens = weight.capacity.pool().get();
        let source = weight.capacity.source.name();
        if weight.capacity.source == CapacitySource::Assumed {
            tracing::warn!(
                backend,
                tokens,
                "backend does not say its capacity, assuming little"
            );
        } else {
            tracing::info!(backend, tokens, source, "backend capacity");
        }
        let (shown, booked) = (self.evidence.scrape.engines.len(), weights.len());
        if shown > booked {
            tracing::warn!(backend, shown, booked, "more engines than booked ranks");
        }
        if weight.capacity.pool() < weight.capacity.max_model_len {
            let max_model_len = weight.capacity.max_model_len.get();
            tracing::warn!(
                backend,
                tokens,
                max_model_len,
                "pool is below max_model_len"
            );
        }
    }
}

/// The observation with more blocks in use, and all preemptions.
fn fuller(one: Observed, other: Observed) -> Observed {
    Observed {
        at: one.at,
        used: Blocks::max(one.used, other.used),
        running: one.running.max(other.running),
        waiting: one.waiting.max(other.waiting),
        preemptions: one.preemptions.saturating_add(other.preemptions),
    }
}
