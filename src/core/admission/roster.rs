//! Backends coming, going and changing, as the probe and the operator tell it.

use std::time::Duration;

use super::{Admission, Effect};
use crate::core::ahead::span;
use crate::core::backend::{
    BackendFacts, BackendId, Capacity, Health, PrefixCaching, ServedId, Tier, Trust,
};
use crate::core::ledger::{Entry, LeaseId};
use crate::core::pace::Prefill;
use crate::core::placement::Reservation;
use crate::core::roster::{Backend, Standing};
use crate::core::stats::{BackendState, Plan, PoolState, TenantState};
use crate::core::time::Time;
use crate::core::units::{Blocks, Tokens};

impl Admission {
    /// A backend joins, on books of its own. A place that was removed and still
    /// holds leases is taken up again with what is held there.
    pub fn add_backend(
        &mut self,
        now: Time,
        facts: BackendFacts,
        out: &mut Vec<Effect>,
    ) -> BackendId {
        let removed = |b: &&mut Backend| b.id.slot == facts.slot && b.standing == Standing::Removed;
        if let Some(backend) = self.backends.iter_mut().find(removed) {
            let id = backend.id;
            let capacity = facts.capacity.or(backend.capacity);
            *backend = Backend {
                capacity,
                pace: backend.pace.clone(),
                ahead: std::mem::take(&mut backend.ahead),
                ..Backend::new(id, facts)
            };
            self.size(id);
            self.recheck(now, out);
            return id;
        }
        let generation = self.next_generation;
        self.next_generation += 1;
        let id = BackendId {
            slot: facts.slot,
            generation,
        };
        self.ledger.open(id);
        let pace = self.paces.of(facts.tier).clone();
        self.backends.push(Backend {
            pace,
            ..Backend::new(id, facts)
        });
        self.size(id);
        self.recheck(now, out);
        id
    }

    /// Tells the books how large a backend is, where that is known.
    fn size(&mut self, id: BackendId) {
        if let Some(capacity) = self.backend(id).and_then(|backend| backend.capacity) {
            self.ledger.on_capacity(id, capacity);
            if capacity.prefix_caching == PrefixCaching::PerSequence {
                self.overlap.forget(id);
            }
        }
    }

    /// A backend leaves: nothing new goes there, and its books stay open until
    /// the last lease on them ends.
    pub fn remove_backend(&mut self, now: Time, id: BackendId, out: &mut Vec<Effect>) {
        self.retire(now, id, Standing::Removed);
        self.recheck(now, out);
    }

    /// The engine behind `id` has restarted: its KV is empty, so a new
    /// generation starts with empty books and the last known capacity, in state
    /// [`Health::Starting`]. Leases of the old generation end on the old books. A
    /// backend that was removed stays so, and is not taken up again.
    pub fn on_restart(&mut self, now: Time, id: BackendId, out: &mut Vec<Effect>) -> BackendId {
        let Some(old) = self.backend(id).cloned() else {
            return id;
        };
        if !old.is_active() {
            self.retire(now, id, Standing::Restarted);
            return id;
        }
        let facts = BackendFacts {
            slot: id.slot,
            tier: old.tier,
            serves: old.serves,
            capacity: old.capacity,
            health: Health::Starting,
        };
        self.retire(now, id, Standing::Restarted);
        let new = self.add_backend(now, facts, out);
        if let Some(backend) = self.backend_mut(new) {
            backend.pace = old.pace;
        }
        self.note(now, new);
        new
    }

    /// The capacity of a backend is known, or has changed. If it fell below
    /// what is in flight, nothing is admitted until it is below.
    pub fn set_capacity(
        &mut self,
        now: Time,
        id: BackendId,
        capacity: Capacity,
        out: &mut Vec<Effect>,
    ) {
        let capacity = capacity.believable();
        let Some(backend) = self.backend_mut(id) else {
            return;
        };
        if backend.capacity != Some(capacity) {
            backend.capacity = Some(capacity);
            self.size(id);
            self.recheck(now, out);
        }
    }

    /// A backend is of another tier or serves other ids; what it holds stays on
    /// its books.
    pub fn set_role(
        &mut self,
        now: Time,
        id: BackendId,
        (tier, serves): (Tier, Vec<ServedId>),
        out: &mut Vec<Effect>,
    ) {
        let Some(backend) = self.backend_mut(id) else {
            return;
        };
        if backend.tier != tier || backend.serves != serves {
            backend.tier = tier;
            backend.serves = serves;
            backend.set_aside = None;
            self.recheck(now, out);
        }
    }

    /// A backend changes state.
    pub fn set_health(&mut self, now: Time, id: BackendId, health: Health, out: &mut Vec<Effect>) {
        let Some(backend) = self.backend_mut(id) else {
            return;
        };
        if backend.health != health {
            backend.health = health;
            if !health.admits() {
                backend.set_aside = None;
            }
            self.recheck(now, out);
        }
    }

    /// How much may be sent to a backend has changed. Calling it with what holds
    /// already changes nothing: a trial under way goes on.
    pub fn set_trust(&mut self, now: Time, id: BackendId, trust: Trust, out: &mut Vec<Effect>) {
        let Some(backend) = self.backend_mut(id) else {
            return;
        };
        if backend.trust != trust {
            backend.trust = trust;
            backend.trial = None;
            if trust != Trust::Whole {
                backend.set_aside = None;
            }
            self.recheck(now, out);
        }
    }

    fn plan_of(&self, backend: &Backend) -> Option<Plan> {
        let watch = &backend.watch;
        match &self.policy.reservation {
            Reservation::Strict => None,
            Reservation::Forecast(policy) => Some(Plan {
                confidence: watch.confidence(policy.confidence),
                share: watch.share(policy.margin),
            }),
        }
    }

    /// Blocks of a backend that are kept for what runs there.
    fn growing_on(&self, backend: &Backend) -> Blocks {
        let plan = self.plan_of(backend);
        let account = self.ledger.account(backend.id);
        account.growing(plan.map_or(0.0, |plan| plan.confidence))
    }

    /// Blocks of a backend that are to stay free.
    fn reserve_of(&self, backend: &Backend) -> Blocks {
        let Some(capacity) = backend.capacity else {
            return Blocks::ZERO;
        };
        let planned = self.plan_of(backend).map_or(1.0, |plan| plan.share);
        let active = self.backends.iter().filter(|other| other.is_active());
        let is_lent = active.map(|other| other.tier).min() < Some(backend.tier);
        let lent = if is_lent {
            1.0 - self.policy.tiers.free_reserve
        } else {
            1.0
        };
        capacity.blocks - capacity.blocks.share(planned.min(lent))
    }

    /// The pool as plain data.
    pub fn state(&self, now: Time) -> PoolState {
        let thousand = Prefill::new(Tokens::new(1000), Tokens::ZERO);
        let backends = self.backends.iter().map(|backend| {
            let account = self.ledger.account(backend.id);
            BackendState {
                id: backend.id,
                tier: backend.tier,
                health: if backend.is_active() {
                    backend.health
                } else {
                    Health::Draining
                },
                capacity: backend.capacity,
                held: account.held(),
                growing: self.growing_on(backend),
                foreign: backend.foreign(now, self.policy.observed_for),
                reserve: self.reserve_of(backend),
                leases: account.leases(),
                sequences: account.sequences(),
                set_aside: backend.set_aside.is_some(),
                observed: backend.observed,
                plan: self.plan_of(backend),
                prefill_ahead: span(backend.ahead.seconds(now, &backend.pace)),
                prefill_of_1000: span(backend.pace.prefill(thousand)),
            }
        });
        let tenants = self.flows.iter().map(|(tenant, flow)| TenantState {
            tenant,
            leases: flow.leases,
            in_flight: flow.in_flight,
            waiting: u32::try_from(flow.waiting.len()).unwrap_or(u32::MAX),
            served: flow.served,
        });
        PoolState {
            backends: backends.collect(),
            queue: self.queue.state(now),
            tenants: tenants.collect(),
            totals: self.totals,
            drain_tokens_per_second: self.drain.rate(now),
        }
    }

    /// A backend on trial has its one request.
    pub(super) fn on_taken(&mut self, id: BackendId, lease: LeaseId) {
        let on_trial = |backend: &&mut Backend| backend.trust == Trust::Trial;
        if let Some(backend) = self.backend_mut(id).filter(on_trial) {
            backend.trial.get_or_insert(lease);
        }
    }

    /// If that was the trial, another may follow.
    pub(super) fn on_given_back(
        &mut self,
        now: Time,
        (id, lease): (BackendId, LeaseId),
        entry: &Entry,
    ) {
        let size = self.backend(id).and_then(|backend| backend.capacity);
        if let Some(size) = size.map(|capacity| capacity.block_size) {
            let own = entry.own.tokens(size);
            self.overlap.on_ended(id, &entry.trail, own);
        }
        if let Some(backend) = self.backend_mut(id) {
            backend.ahead.on_ended(now, lease);
            backend.trial = backend.trial.filter(|&trial| trial != lease);
        }
    }

    pub(super) fn backend(&self, id: BackendId) -> Option<&Backend> {
        self.place_of(id).map(|place| &self.backends[place])
    }

    pub(super) fn backend_mut(&mut self, id: BackendId) -> Option<&mut Backend> {
        self.place_of(id).map(|place| &mut self.backends[place])
    }

    fn retire(&mut self, now: Time, id: BackendId, standing: Standing) {
        if let Some(backend) = self.backend_mut(id) {
            backend.standing = standing;
            backend.set_aside = None;
        }
        if standing == Standing::Restarted {
            self.overlap.forget(id);
        }
        self.close_retired(now, id);
        self.survey(now);
    }

    /// Forgets a retired backend once nothing is held on its books.
    pub(super) fn close_retired(&mut self, now: Time, id: BackendId) {
        let retired = self.backend(id).is_some_and(|backend| !backend.is_active());
        if retired && self.ledger.close_if_empty(id) {
            self.backends.retain(|backend| backend.id != id);
            self.overlap.forget(id);
            self.survey(now);
        }
    }

    /// When the oldest scrape that holds traffic back stops doing so.
    pub(super) fn next_staleness(&self, now: Time) -> Option<Time> {
        let holding = self
            .backends
            .iter()
            .filter(|backend| !backend.foreign.is_zero());
        let ends =
            holding.filter_map(|backend| Some(backend.observed?.at + self.policy.observed_for));
        let just_after = Duration::from_nanos(1);
        ends.map(|end| end + just_after)
            .filter(|&end| end > now)
            .min()
    }
}
