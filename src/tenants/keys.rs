//! API key digests → tenants.
//!
//! Digests are found through a randomly keyed hash and compared in constant
//! time, so how long a look-up takes says nothing about a stored digest.
//! Invariant: no key is held, only digests.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};

use subtle::ConstantTimeEq;

use crate::config::Tenant;

/// Which tenant each digest belongs to, by its place in the configuration.
#[derive(Debug)]
pub(super) struct KeyTable(HashMap<Stored, usize>);

/// A digest whose equality takes the same time wherever two differ.
struct Stored([u8; 32]);

// === impl KeyTable ===

impl KeyTable {
    /// The keys of all tenants. The configuration has refused a digest that two of them share.
    pub(super) fn new(tenants: &[Tenant]) -> Self {
        let keys = tenants
            .iter()
            .enumerate()
            .flat_map(|(index, tenant)| tenant.keys.iter().map(move |key| (Stored(key.0), index)));
        Self(keys.collect())
    }

    /// Whether no tenant has a key.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The tenant of the key with this SHA-256 digest.
    pub(super) fn find(&self, digest: &[u8; 32]) -> Option<usize> {
        self.0.get(&Stored(*digest)).copied()
    }
}

// === impl Stored ===

impl PartialEq for Stored {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Stored {}

impl Hash for Stored {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl std::fmt::Debug for Stored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[digest]")
    }
}
