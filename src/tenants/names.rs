//! Tenant names → ids.
//!
//! An id belongs to a name for as long as the process lives: books and windows
//! are kept by id, and must stay a tenant's own when a reload puts others before
//! it or takes it away for a while. Invariant: no id ever stands for two names.

use std::collections::HashMap;
use std::sync::Arc;

use crate::config::Tenant;
use crate::core::demand::TenantId;

/// Every tenant name the process has ever been given, by id.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    ids: HashMap<Arc<str>, TenantId>,
    names: Vec<Arc<str>>,
}

// === impl Names ===

impl Names {
    /// These names, and those of `tenants` behind them.
    pub(super) fn and(&self, tenants: &[Tenant]) -> Self {
        let mut names = self.clone();
        for tenant in tenants {
            names.learn(&tenant.name);
        }
        names
    }

    /// The id of a name that is known.
    pub(super) fn id(&self, name: &str) -> Option<TenantId> {
        self.ids.get(name).copied()
    }

    /// Every name, by id.
    pub(super) fn all(&self) -> &[Arc<str>] {
        &self.names
    }

    fn learn(&mut self, name: &str) {
        if self.ids.contains_key(name) {
            return;
        }
        let next = u32::try_from(self.names.len()).expect("a process sees fewer than 2^32 names");
        let name = Arc::<str>::from(name);
        self.ids.insert(Arc::clone(&name), TenantId(next));
        self.names.push(name);
    }
}
