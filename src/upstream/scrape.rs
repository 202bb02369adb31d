//! What one scrape of an endpoint says of its engines, whatever their version.
//!
//! Decides which metric names count, over all their renamings, and which series
//! belong to an engine at all. Never decides capacity or health from them.

use std::collections::BTreeMap;

use super::prometheus::{Labels, Sample, samples};

/// Most data-parallel engines read from one endpoint; later ones are ignored.
pub const MAX_ENGINES: usize = 1024;

/// Figures above this are a broken exposition and read as absent: 2^40.
const SANE: u64 = 1 << 40;
/// The same for tokens in one block: 2^20. Times [`SANE`] it is still countable.
const SANE_BLOCK: u32 = 1 << 20;

/// One scrape of one endpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scrape {
    /// `process_start_time_seconds`, where it is exposed.
    pub process_start: Option<f64>,
    /// Engines by their `engine` label, 0 where the version has no such label.
    pub engines: BTreeMap<u32, Engine>,
    /// Whether series of a router were seen, which shows `vllm:` names too but
    /// with a `server` label.
    pub origin: Origin,
}

/// Who wrote the `vllm:` series of a scrape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// Nobody: statistics are off, or this is no engine.
    #[default]
    Nobody,
    /// A router in front of engines.
    Router,
    /// An engine.
    Engine,
}

/// Figures of one data-parallel engine; `None` where its version does not expose one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Engine {
    /// Sequences running.
    pub running: Option<u32>,
    /// Sequences waiting, for whatever reason.
    pub waiting: Option<u32>,
    /// Share of the KV pool in use, 0..=1; the largest where several are shown.
    pub kv_usage: Option<f64>,
    /// The same by its name before 0.12, until the whole scrape is read.
    old_kv_usage: Option<f64>,
    /// Whether the engine is awake; `None` in versions without sleep states.
    pub wakefulness: Option<Wakefulness>,
    /// Counters since the engine's start.
    pub counters: Counters,
    /// Draft positions of speculative decoding that have a counter: the number
    /// of speculative tokens a step may add.
    pub draft_positions: u32,
    /// Labels of `vllm:cache_config_info`.
    pub cache: Option<CacheConfig>,
}

/// Whether an engine answers requests or keeps them hanging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakefulness {
    /// It works.
    Awake,
    /// It sleeps: requests hang until it wakes.
    Asleep,
}

/// Counters that only a restart sets back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Tokens generated.
    pub generated: Option<u64>,
    /// Prompt tokens processed.
    pub prompt: Option<u64>,
    /// Requests finished, over all reasons.
    pub finished: Option<u64>,
    /// Tokens of all steps, chunks of a prefill included.
    pub stepped: Option<u64>,
    /// Preemptions.
    pub preemptions: Option<u64>,
}

/// The labels of `vllm:cache_config_info` that capacity depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheConfig {
    /// `block_size`.
    pub block_size: Label<u32>,
    /// `num_gpu_blocks`: summed over all data-parallel engines, null blocks included.
    pub num_gpu_blocks: Label<u64>,
    /// `kv_cache_size_tokens`: of one engine, null block included.
    pub kv_cache_size_tokens: Label<u64>,
    /// `effective_attention_block_size`: context parallelism included.
    pub effective_attention_block_size: Label<u32>,
    /// `sliding_window`.
    pub sliding_window: Label<u64>,
    /// `mamba_block_size`.
    pub mamba_block_size: Label<u64>,
    /// `enable_prefix_caching`.
    pub prefix_caching: Option<PrefixCachingLabel>,
}

/// A label holding a number: not there, there without one, or there with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Label<N> {
    /// This version does not write the label.
    #[default]
    Absent,
    /// Written as `None`.
    Unset,
    /// Written with a value.
    Value(N),
    /// Written with something that is no sane number.
    Odd,
}

/// The `enable_prefix_caching` label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixCachingLabel {
    /// `True`.
    On,
    /// `False`, or `None`, as old versions write it.
    Off,
}

/// Reads an exposition. O(bytes); bounded by [`super::prometheus::MAX_BYTES`].
pub fn read(text: &[u8]) -> Scrape {
    let mut scrape = Scrape::default();
    for sample in samples(text) {
        if sample.name == "process_start_time_seconds" {
            scrape.process_start = Some(sample.value).filter(|at| at.is_finite());
        } else if let Some(name) = sample.name.strip_prefix("vllm:") {
            scrape.take(name, &sample);
        }
    }
    for engine in scrape.engines.values_mut() {
        let old = engine.old_kv_usage.take();
        engine.kv_usage = engine.kv_usage.or(old);
    }
    scrape
}

// === impl Scrape ===

impl Scrape {
    fn take(&mut self, name: &str, sample: &Sample<'_>) {
        if !is_read(name) {
            return;
        }
        if sample.labels.get("server").is_some() {
            if self.origin == Origin::Nobody {
                self.origin = Origin::Router;
            }
            return;
        }
        let rank = match sample.labels.get("engine") {
            Some(engine) => engine.parse().ok(),
            None => Some(0),
        };
        let Some(rank) = rank else { return };
        if self.engines.len() >= MAX_ENGINES && !self.engines.contains_key(&rank) {
            return;
        }
        self.origin = Origin::Engine;
        self.engines.entry(rank).or_default().take(name, sample);
    }
}

/// Whether a name decides anything here. Names that carry no `engine` label
/// must not be read, or they would invent an engine 0.
fn is_read(name: &str) -> bool {
    matches!(
        name,
        "num_requests_running"
            | "num_requests_waiting"
            | "kv_cache_usage_perc"
            | "gpu_cache_usage_perc"
            | "engine_sleep_state"
            | "cache_config_info"
            | "generation_tokens_total"
            | "prompt_tokens_total"
            | "request_success_total"
            | "iteration_tokens_total_sum"
            | "num_preemptions_total"
            | "spec_decode_num_accepted_tokens_per_pos_total"
    )
}

// === impl Engine ===

impl Engine {
    /// Takes one series. Those that differ in labels nobody here knows (a reason,
    /// an adapter, another model) are parts of one figure.
    fn take(&mut self, name: &str, sample: &Sample<'_>) {
        let value = sample.value;
        match name {
            "num_requests_running" => add_small(&mut self.running, value),
            "num_requests_waiting" => add_small(&mut self.waiting, value),
            "kv_cache_usage_perc" => raise(&mut self.kv_usage, value),
            // The name before 0.12; where both are shown the current one holds.
            "gpu_cache_usage_perc" => raise(&mut self.old_kv_usage, value),
            "engine_sleep_state" => self.take_sleep(sample),
            "cache_config_info" => self.cache = Some(CacheConfig::read(sample.labels)),
            "generation_tokens_total" => add(&mut self.counters.generated, value),
            "prompt_tokens_total" => add(&mut self.counters.prompt, value),
            "iteration_tokens_total_sum" => add(&mut self.counters.stepped, value),
            "num_preemptions_total" => add(&mut self.counters.preemptions, value),
            "request_success_total" => add(&mut self.counters.finished, value),
            "spec_decode_num_accepted_tokens_per_pos_total" => {
                self.draft_positions = self.draft_positions.saturating_add(1);
            }
            _ => {}
        }
    }

    fn take_sleep(&mut self, sample: &Sample<'_>) {
        if sample.labels.get("sleep_state").as_deref() == Some("awake") {
            self.wakefulness = Some(if sample.value == 0.0 {
                Wakefulness::Asleep
            } else {
                Wakefulness::Awake
            });
        }
    }
}

// === impl CacheConfig ===

impl CacheConfig {
    fn read(labels: Labels<'_>) -> Self {
        let mut config = Self::default();
        for (name, value) in labels.iter() {
            match name {
                "block_size" => config.block_size = Label::small(&value),
                "num_gpu_blocks" => config.num_gpu_blocks = Label::read(&value),
                "kv_cache_size_tokens" => config.kv_cache_size_tokens = Label::read(&value),
                "effective_attention_block_size" => {
                    config.effective_attention_block_size = Label::small(&value);
                }
                "sliding_window" => config.sliding_window = Label::read(&value),
                "mamba_block_size" => config.mamba_block_size = Label::read(&value),
                "enable_prefix_caching" => config.prefix_caching = prefix_caching(&value),
                _ => {}
            }
        }
        config
    }
}

fn prefix_caching(value: &str) -> Option<PrefixCachingLabel> {
    match value {
        "True" | "true" => Some(PrefixCachingLabel::On),
        "False" | "false" | "None" => Some(PrefixCachingLabel::Off),
        _ => None,
    }
}

// === impl Label ===

impl Label<u64> {
    fn read(text: &str) -> Self {
        if text == "None" {
            return Self::Unset;
        }
        match text.parse() {
            Ok(number) if (1..=SANE).contains(&number) => Self::Value(number),
            _ => Self::Odd,
        }
    }
}

impl Label<u32> {
    /// A block size.
    fn small(text: &str) -> Self {
        match Label::read(text) {
            Label::Absent => Self::Absent,
            Label::Unset => Self::Unset,
            Label::Odd => Self::Odd,
            Label::Value(number) => match u32::try_from(number) {
                Ok(size) if size <= SANE_BLOCK => Self::Value(size),
                _ => Self::Odd,
            },
        }
    }
}

impl<N: Copy> Label<N> {
    /// The number, where there is one.
    pub fn value(self) -> Option<N> {
        match self {
            Self::Value(number) => Some(number),
            Self::Absent | Self::Unset | Self::Odd => None,
        }
    }
}

// === numbers of a sample ===

/// A count, rounded to the nearest; `None` for what is none.
fn count(value: f64) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "checked to lie between 0 and 2^63, where the cast is exact"
    )]
    let whole = (0.0..=(1_u64 << 62) as f64)
        .contains(&value)
        .then(|| value.round() as u64);
    whole
}

/// A count that fits 32 bits, clipped to them: more sequences than that mean only "full".
fn small(value: f64) -> Option<u32> {
    count(value).map(|count| u32::try_from(count).unwrap_or(u32::MAX))
}

/// Adds a count to what other series said; a value that is none adds nothing.
fn add(sum: &mut Option<u64>, value: f64) {
    if let Some(more) = count(value) {
        *sum = Some(sum.unwrap_or(0).saturating_add(more));
    }
}

fn add_small(sum: &mut Option<u32>, value: f64) {
    if let Some(more) = small(value) {
        *sum = Some(sum.unwrap_or(0).saturating_add(more));
    }
}

fn raise(most: &mut Option<f64>, value: f64) {
    if let Some(share) = share(value) {
        *most = Some(most.unwrap_or(0.0).max(share));
    }
}

/// A share of the pool. Slightly above 1 is rounding; far above or below 0 is no share.
fn share(value: f64) -> Option<f64> {
    (-0.001..=1.001)
        .contains(&value)
        .then(|| value.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests;
