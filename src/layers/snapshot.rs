//! What a reload replaces, as one piece.
//!
//! Decides nothing. A request takes the [`Snapshot`] of the moment once, at the
//! tenant step, and runs whole under it: its tenant, its limits, its pool and its
//! time limits come from one configuration, whatever is loaded meanwhile. What
//! must outlive a reload (books, windows, what probes know) is shared by the
//! snapshots, not part of them. Invariant: a snapshot never changes.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::config::Config;
use crate::tenants::Tenants;

use super::pool::Pools;

/// One configuration in force, with what was made of it.
pub struct Snapshot {
    /// What the operator wrote.
    pub config: Arc<Config>,
    /// Its tenants.
    pub tenants: Tenants,
    /// The pools of its models.
    pub pools: Arc<Pools>,
}

/// The snapshot of the moment; clones share it.
#[derive(Clone)]
pub struct Current(Arc<ArcSwap<Snapshot>>);

// === impl Current ===

impl Current {
    /// Starts with `first`.
    pub fn new(first: Snapshot) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(first)))
    }

    /// The snapshot of the moment. Never blocks.
    pub fn load(&self) -> Arc<Snapshot> {
        self.0.load_full()
    }

    /// Puts `next` in force for the requests that come from now on.
    pub fn store(&self, next: Snapshot) {
        self.0.store(Arc::new(next));
    }
}
