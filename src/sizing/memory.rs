//! A card's memory, and what of it is left for the pool.
//!
//! Decides what an engine takes of a card as vLLM's `v1/worker/gpu_worker.py`
//! does: utilisation of the *whole* memory, less weights, less what a step needs
//! beside them. The last is an estimate, and said to be one: an engine's own log
//! has the figure.

use super::bytes::{GIB, MIB};
use super::engine::{Engine, Version};
use super::model::Model;

/// A card, with the memory an engine sees of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Card {
    /// Its name here.
    pub name: &'static str,
    /// MiB that PyTorch reports as total capacity, in engines' public logs:
    /// less than on the box, since the driver and error correction keep some.
    pub mib: u64,
}

/// What a step needs beside weights and pool, per GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// Peak of activations at the largest batch, logits among them, in bytes.
    pub activation: u64,
    /// CUDA's context, libraries, communication, in bytes.
    pub other: u64,
    /// CUDA graphs, in bytes; 0 where the version does not set them aside or
    /// they are off.
    pub graphs: u64,
}

/// How the memory for the pool is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// `gpu_memory_utilization`, in ten-thousandths.
    Utilization(u64),
    /// `kv_cache_memory_bytes`: the utilisation no longer counts.
    KvBytes(u64),
    /// What a log says is available, in bytes.
    Logged(u64),
    /// `num_gpu_blocks_override`.
    Blocks(u64),
}

/// Whether CUDA graphs are captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Graphs {
    /// They are.
    Captured,
    /// `--enforce-eager`.
    Off,
}

/// Cards that are known by name.
pub const CARDS: &[Card] = &[
    Card::new("t4", 14_910),
    Card::new("v100-16g", 16_140),
    Card::new("v100-32g", 32_490),
    Card::new("l4", 22_560),
    Card::new("a10", 22_510),
    Card::new("a10g", 22_510),
    Card::new("a40", 45_400),
    Card::new("l40", 45_460),
    Card::new("l40s", 45_460),
    Card::new("rtx3090", 24_140),
    Card::new("rtx4090", 24_080),
    Card::new("rtx5090", 32_110),
    Card::new("a6000", 48_530),
    Card::new("rtx6000-ada", 48_510),
    Card::new("rtx-pro-6000", 97_240),
    Card::new("a100-40g", 40_330),
    Card::new("a100-80g", 81_030),
    Card::new("h100-80g", 81_000),
    Card::new("h100-nvl", 95_240),
    Card::new("h20", 97_280),
    Card::new("h200", 143_070),
    Card::new("gh200-96g", 96_760),
    Card::new("b200", 182_630),
    Card::new("mi300x", 196_590),
];

// === impl Card ===

impl Card {
    const fn new(name: &'static str, mib: u64) -> Self {
        Self { name, mib }
    }

    /// The card of a name such as `h100-80g`, `H100` or `rtx-4090`; a name that
    /// leaves the memory open means the smaller one.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let plain = |name: &str| -> String {
            let kept = name.chars().filter(char::is_ascii_alphanumeric);
            let kept: String = kept.collect();
            kept.to_ascii_lowercase().replace("gb", "g")
        };
        let asked = plain(name);
        let exact = CARDS.iter().find(|card| plain(card.name) == asked);
        let family = |card: &&Card| {
            let base = card
                .name
                .split_once('-')
                .map_or(card.name, |(base, _)| base);
            plain(base) == asked
        };
        exact.or_else(|| CARDS.iter().find(family)).copied()
    }

    /// Its memory in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.mib * MIB
    }
}

// === impl Overhead ===

impl Overhead {
    /// An estimate, from what engines have published of themselves.
    ///
    /// The peak is the larger of two: a step, in which `batched` tokens pass the
    /// widest feed-forward (three times its width is alive) and four residual
    /// streams in 16 bits, and sampling, in which each of `sequences` rows of
    /// logits takes 39 bytes per entry up to 0.18 and 16 from 0.19 on. Beside it
    /// the context takes 0.25 GiB, and tensor parallel ranks' communication 0.3
    /// more up to 0.18, 1.85 more from 0.19 on; graphs that are set aside take
    /// half a GiB. Sources: llm-d-benchmark's
    /// config_explorer/empirical-vllm-memory-results.md (0.11, H100) and
    /// llm-d-planner's docs/accuracy/vllm-v0.19.0-accuracy-report.md.
    #[must_use]
    pub fn estimate(model: &Model, engine: &Engine, graphs: Graphs) -> Self {
        let newer = engine.version >= Version::new(19);
        let tensor = engine.parallel.tensor;
        let alive = 3 * model.widest / tensor + 4 * model.hidden;
        let step = engine.batched.saturating_mul(2 * alive);
        let entry = if newer { 16 } else { 39 };
        let logits = engine.sequences.saturating_mul(entry * model.vocabulary);
        let talk = match (tensor, newer) {
            (1, _) => 0,
            (_, false) => 3 * GIB / 10,
            (_, true) => 37 * GIB / 20,
        };
        let reserved = engine.version.reserves_graphs() && graphs == Graphs::Captured;
        Self {
            activation: step.max(logits),
            other: GIB / 4 + talk,
            graphs: if reserved { GIB / 2 } else { 0 },
        }
    }

    /// All of it.
    #[must_use]
    pub fn total(self) -> u64 {
        self.activation
            .saturating_add(self.other)
            .saturating_add(self.graphs)
    }
}

/// Tokens of one step by default (`--max-num-batched-tokens`) of a server on a
/// card of `memory` bytes: 16,384 from 160 GB, 8,192 from 70 GiB, else 2,048.
/// vLLM makes an exception of the A100, which has 2,048 too.
#[must_use]
pub fn default_batched(memory: u64, card: Option<Card>) -> u64 {
    match memory {
        memory if memory >= 160_000_000_000 => 16_384,
        _ if card.is_some_and(|card| card.name.starts_with("a100")) => 2_048,
        memory if memory >= 70 * GIB => 8_192,
        _ => 2_048,
    }
}

/// Sequences at one time by default (`--max-num-seqs`): 1,024 where a step has
/// more than 2,048 tokens, else 256.
#[must_use]
pub fn default_sequences(memory: u64, card: Option<Card>, version: Version) -> u64 {
    if version >= Version::new(9) && default_batched(memory, card) > 2_048 {
        1_024
    } else {
        256
    }
}
