//! Where a pool's counter comes from, and how its last load went.
//!
//! For the operator alone: nothing here decides how a prompt is counted.

use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;

/// What is known of a counter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    /// The source, as the configuration spells it.
    pub source: String,
    /// When the counter in use was loaded; `None` before the first.
    pub loaded_at: Option<SystemTime>,
    /// Why the counter in use estimates what it should count, such as a template
    /// that does not compile.
    pub problem: Option<String>,
    /// How the last load failed, where it did; the counter before it is in use.
    pub failure: Option<Failure>,
}

/// A load that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// When.
    pub at: SystemTime,
    /// Why.
    pub error: String,
}

/// The provenance of the moment, read without a lock.
#[derive(Debug)]
pub(super) struct Notes(ArcSwap<Provenance>);

// === impl Provenance ===

impl Provenance {
    /// What keeps prompts from being counted as they should be, if anything does.
    pub fn complaint(&self) -> Option<&str> {
        let failure = self.failure.as_ref().map(|failure| failure.error.as_str());
        failure.or(self.problem.as_deref())
    }
}

// === impl Notes ===

impl Notes {
    pub(super) fn new(source: String) -> Self {
        Self(ArcSwap::from_pointee(Provenance {
            source,
            ..Provenance::default()
        }))
    }

    pub(super) fn read(&self) -> Arc<Provenance> {
        self.0.load_full()
    }

    /// One writer at a time: the keeper of the pool's counter.
    pub(super) fn note(&self, change: impl FnOnce(&mut Provenance)) {
        let mut next = Provenance::clone(&self.0.load());
        change(&mut next);
        self.0.store(Arc::new(next));
    }
}
