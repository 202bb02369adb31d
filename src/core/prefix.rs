//! Handles of shared prompt prefixes: which full blocks of a prompt are known by hash.
//!
//! A block that several live leases of one backend pin is held once. The books
//! give no discount for a block that is merely cached: an engine counts
//! unreferenced cached blocks as free and takes them when they are hit.

use std::sync::Arc;

use super::units::Blocks;

/// Hash of one full KV block and everything before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrefixHash(pub u64);

/// Tokens of one step of a [`PrefixTrail`].
pub const TRAIL_STEP: u64 = 512;

/// Hashes of a prompt's beginnings of [`TRAIL_STEP`], twice as many, three times
/// as many tokens, shortest first: enough to guess what an engine need not compute
/// again, and cheap for prompts of any length. Says nothing of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefixTrail(Option<Arc<[PrefixHash]>>);

/// The hashes of a prompt's leading full blocks, first block first.
///
/// Empty where the gateway does not know the prompt's tokens: then every lease
/// holds its own copy, which can only be too careful.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefixChain(Option<Arc<[PrefixHash]>>);

impl PrefixChain {
    /// A chain of these block hashes.
    pub fn new(hashes: impl Into<Arc<[PrefixHash]>>) -> Self {
        Self(Some(hashes.into()))
    }

    /// How many blocks it has.
    pub fn blocks(&self) -> Blocks {
        Blocks::new(u64::try_from(self.hashes().len()).unwrap_or(u64::MAX))
    }

    /// The hashes, first block first.
    pub fn hashes(&self) -> &[PrefixHash] {
        self.0.as_deref().unwrap_or_default()
    }
}

// === impl PrefixTrail ===

impl PrefixTrail {
    /// A trail of these hashes.
    pub fn new(hashes: impl Into<Arc<[PrefixHash]>>) -> Self {
        Self(Some(hashes.into()))
    }

    /// The hashes, shortest beginning first.
    pub fn hashes(&self) -> &[PrefixHash] {
        self.0.as_deref().unwrap_or_default()
    }
}
