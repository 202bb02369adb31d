//! Distributions of real lengths.
//!
//! Decides which requests speak: prompts of everybody who was counted, outputs and
//! contexts of answers that are whole, since a part of an answer says nothing of its
//! length. Quantiles are by nearest rank, so each is a length that was really there.

use serde::Serialize;

use super::log::{Entry, Log};
use crate::core::units::{BlockSize, Tokens};

/// Answers below which a P99 is hardly more than the longest of them.
pub const ENOUGH: u64 = 100;

/// Quantiles of some lengths, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Quantiles {
    /// Lengths there are.
    pub count: u64,
    /// Half are not longer.
    pub p50: u64,
    /// Nine of ten are not longer.
    pub p90: u64,
    /// 99 of a hundred are not longer.
    pub p99: u64,
    /// The longest.
    pub max: u64,
}

/// Lengths of one model's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lengths {
    /// Prompts.
    pub prompt: Quantiles,
    /// Outputs of one sequence.
    pub output: Quantiles,
    /// Prompt and output of one sequence: what `max_model_len` bounds.
    pub context: Quantiles,
    /// KV tokens at the end of all sequences, rounded **up** to blocks.
    pub footprint: Quantiles,
}

// === impl Quantiles ===

impl Quantiles {
    /// Of lengths in any order; all zero without any. O(n log n).
    pub fn of(mut lengths: Vec<u64>) -> Self {
        lengths.sort_unstable();
        let rank = |percent: usize| {
            let rank = (lengths.len() * percent).div_ceil(100);
            lengths.get(rank.saturating_sub(1)).copied().unwrap_or(0)
        };
        Self {
            count: u64::try_from(lengths.len()).unwrap_or(u64::MAX),
            p50: rank(50),
            p90: rank(90),
            p99: rank(99),
            max: rank(100),
        }
    }
}

// === impl Lengths ===

impl Lengths {
    /// Of the requests of the model at that place, with KV in blocks of `size`.
    pub fn of(log: &Log, model: usize, size: BlockSize) -> Self {
        let of_model = || log.entries.iter().filter(move |entry| entry.model == model);
        let whole = || of_model().filter(|entry| entry.is_whole());
        let outputs = whole().filter(|entry| entry.output.is_some());
        Self {
            prompt: Quantiles::of(of_model().map(|entry| entry.prompt.get()).collect()),
            output: Quantiles::of(outputs.map(|entry| entry.output_each().get()).collect()),
            context: Quantiles::of(whole().map(|entry| entry.context().get()).collect()),
            footprint: Quantiles::of(whole().map(|entry| footprint(entry, size).get()).collect()),
        }
    }
}

/// KV tokens that `entry` holds at its end: its prompt once, the output of each sample,
/// each rounded **up** to blocks; the last token has no KV (vLLM `kv_cache_manager.py`).
/// An upper bound where samples share more.
pub fn footprint(entry: &Entry, size: BlockSize) -> Tokens {
    booked(entry, entry.output_each(), size)
}

/// The same had each sample `output` tokens.
pub(super) fn booked(entry: &Entry, output: Tokens, size: BlockSize) -> Tokens {
    let grown = output.saturating_sub(Tokens::new(1));
    let whole = entry.prompt.saturating_add(grown).blocks_up(size);
    let shared = entry.prompt.blocks_down(size);
    let own = whole - shared;
    let blocks = shared.saturating_add(own.saturating_mul(entry.samples));
    blocks.tokens(size)
}
