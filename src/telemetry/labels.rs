//! Bounded label values.
//!
//! Decides which tenants have a label of their own: the first so many that the
//! configuration ever named; the others share [`OTHER`]. A label once given is
//! kept over reloads, so the number of series never grows past the bound.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use crate::config::Config;

/// The label of everything that has none of its own.
pub(super) const OTHER: &str = "other";

/// Label values that may be used.
#[derive(Debug)]
pub(super) struct Labels {
    max_tenants: usize,
    known: ArcSwap<Known>,
    /// Serialises reloads; held for as long as the names take to copy.
    reload: Mutex<()>,
}

#[derive(Clone, Debug, Default)]
struct Known {
    models: BTreeSet<Arc<str>>,
    tenants: BTreeSet<Arc<str>>,
}

// === impl Labels ===

impl Labels {
    pub(super) fn new(max_tenants: usize) -> Self {
        Self {
            max_tenants,
            known: ArcSwap::from_pointee(Known::default()),
            reload: Mutex::new(()),
        }
    }

    /// Learns the names of a configuration. Those of earlier ones stay.
    pub(super) fn know(&self, config: &Config) {
        let _one_at_a_time = self.reload.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = Known::clone(&self.known.load());
        known.models.extend(
            config
                .models
                .iter()
                .map(|model| Arc::from(model.name.as_str())),
        );
        for tenant in &config.tenants {
            if known.tenants.len() < self.max_tenants {
                known.tenants.insert(Arc::from(tenant.name.as_str()));
            }
        }
        self.known.store(Arc::new(known));
    }

    /// The label of a model; [`OTHER`] for one the configuration does not name.
    pub(super) fn model(&self, name: Option<&str>) -> Arc<str> {
        label(&self.known.load().models, name)
    }

    /// The label of a tenant; [`OTHER`] for those beyond the bound.
    pub(super) fn tenant(&self, name: Option<&str>) -> Arc<str> {
        label(&self.known.load().tenants, name)
    }
}

fn label(known: &BTreeSet<Arc<str>>, name: Option<&str>) -> Arc<str> {
    name.and_then(|name| known.get(name))
        .map_or_else(|| Arc::from(OTHER), Arc::clone)
}
