//! What to change, in the order it is to be tried.
//!
//! Decides values from the log's own figures: first the context's length, then
//! requests and tokens of a step, then small steps of the share of memory, then
//! the cache's type, then a fixed budget or memory of the host. Where the log
//! gives no figure a step stands without a value rather than with a guess of the
//! machine. Lengths are multiples of the block, rounded down; shares of memory
//! are hundredths, rounded away from the failure.

mod general;
mod steps;

use serde::Serialize;

use super::Kind;
use super::facts::{Facts, Value};
use super::verdict::Verdict;

/// One change.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fix {
    /// The flag, or the environment variable; none for what is done outside.
    pub flag: Option<&'static str>,
    /// Its value now, where the log tells.
    pub from: Option<Value>,
    /// Its value then; none where only the direction is known.
    pub to: Option<Value>,
    /// Why.
    pub why: String,
}

/// What the values are computed from.
pub(super) struct Known<'a> {
    pub(super) facts: &'a Facts,
    pub(super) version: Option<&'a str>,
    pub(super) verdict: &'a Verdict,
}

// === impl Known ===

impl Known<'_> {
    /// The changes for this verdict, the first to be tried first.
    pub(super) fn fixes(&self) -> Vec<Fix> {
        match self.verdict.kind {
            Kind::Healthy => self.unused().into_iter().collect(),
            Kind::WeightsDoNotFit => self.for_weights(),
            Kind::NoCacheBlocks => self.for_cache(),
            Kind::MaxModelLenExceedsKv => self.for_length(),
            Kind::ActivationPeak => self.for_peak(),
            Kind::MemoryInUse | Kind::MemoryNotReleased => self.for_neighbours(),
            Kind::Unsupported | Kind::ConfigError => self.for_flags(),
            Kind::EngineDied => self.advised().into_iter().collect(),
            Kind::NotRecognised => Vec::new(),
        }
    }

    fn for_length(&self) -> Vec<Fix> {
        let mut fixes = vec![self.length()];
        fixes.extend(self.override_off());
        if self.on_cpu() {
            fixes.push(self.host_budget());
            return fixes;
        }
        fixes.extend([self.seqs(), self.batched()]);
        if let Some(budget) = self.budget_up() {
            fixes.push(budget);
            fixes.extend(self.cache_dtype());
            return fixes;
        }
        fixes.push(self.share_up());
        fixes.extend(self.cache_dtype());
        fixes.extend(self.budget());
        fixes.push(self.offload());
        fixes
    }

    fn for_cache(&self) -> Vec<Fix> {
        if self.on_cpu() {
            return vec![self.share_up(), self.host_budget()];
        }
        let mut fixes = vec![self.length(), self.seqs(), self.batched(), self.share_up()];
        fixes.extend(self.cache_dtype());
        fixes.push(self.offload());
        fixes.push(self.ranks());
        fixes
    }

    fn for_peak(&self) -> Vec<Fix> {
        let mut fixes: Vec<Fix> = self.fragments().into_iter().collect();
        fixes.extend([
            self.length(),
            self.seqs(),
            self.batched(),
            self.share_down(),
        ]);
        fixes.extend(self.eager());
        fixes.extend(self.cache_dtype());
        fixes.extend(self.budget());
        fixes
    }

    fn for_weights(&self) -> Vec<Fix> {
        vec![self.quantized(), self.ranks(), self.offload()]
    }

    fn for_neighbours(&self) -> Vec<Fix> {
        let mut fixes = vec![self.neighbour()];
        if self.on_cpu() {
            fixes.extend([self.share_to_free(), self.host_budget()]);
            return fixes;
        }
        fixes.push(self.share_to_free());
        fixes.extend(self.budget());
        fixes
    }
}
