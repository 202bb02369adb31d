//! What a reload does to an endpoint that is watched: it leaves, comes back, or
//! is another in name, key, tier or size. Its state and its books stay.

use std::sync::Arc;

use super::book::{Book, Presence};
use super::{Handle, Plan, Target, thresholds};
use crate::config;
use crate::core::backend::{Capacity, Health};

impl Handle {
    /// Takes the endpoint out of its pool: nothing new goes there, what runs ends
    /// by itself. It must be watched until the gate has forgotten its backends.
    pub fn leave(&self) {
        let shared = &self.0;
        let mut book = shared.lock();
        book.presence = Presence::Leaves;
        let ranks = &book.ranks;
        shared.gate.update(|admission, now, out| {
            for rank in ranks {
                admission.remove_backend(now, rank.id, out);
            }
        });
    }

    /// Watches it as `target` and by `rules` from now on, and puts it back into
    /// its pool where it had left. `target` must be the same address with the
    /// same slots; what is held there stays held.
    pub fn retarget(&self, target: Target, rules: config::Probe) {
        let shared = &self.0;
        let mut book = shared.lock();
        book.machine.set_thresholds(thresholds(&rules));
        let before = shared.target();
        if !target.endpoint.has_key_of(&before.endpoint) {
            book.doubt();
        }
        let target = Arc::new(target);
        shared.plan.store(Arc::new(Plan {
            target: Arc::clone(&target),
            rules,
        }));
        let came_back = std::mem::replace(&mut book.presence, Presence::Stays);
        let capacities = capacities(&book, &target);
        let role = book.role(&target);
        let (health, trust) = book.told;
        let ranks = &mut book.ranks;
        shared.gate.update(|admission, now, out| {
            for (place, rank) in (0..).zip(ranks.iter_mut()) {
                let capacity = capacities.get(usize::try_from(place).unwrap_or(usize::MAX));
                rank.capacity = capacity.copied().flatten().or(rank.capacity);
                if came_back == Presence::Leaves {
                    let facts = target.facts_of(place, Health::Starting, rank.capacity);
                    rank.id = admission.add_backend(now, facts, out);
                }
                // Each step lets waiters in: the size comes first, so that nothing
                // is granted by the one before.
                if let Some(capacity) = rank.capacity {
                    admission.set_capacity(now, rank.id, capacity, out);
                }
                admission.set_role(now, rank.id, role.clone(), out);
                admission.set_trust(now, rank.id, trust, out);
                admission.set_health(now, rank.id, health, out);
            }
        });
        drop(book);
        shared.look.notify_one();
    }
}

/// What each rank can hold as far as that is known: by what the endpoint has
/// said, or by what the operator says alone.
fn capacities(book: &Book, target: &Target) -> Vec<Option<Capacity>> {
    if !book.has_answered() {
        return vec![target.capacity_unasked()];
    }
    let weights = book.weigh(target, None);
    weights.iter().map(|weight| Some(weight.capacity)).collect()
}
