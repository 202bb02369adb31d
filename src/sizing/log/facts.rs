//! The figures a log tells, by name.
//!
//! Decides how each is named, read and, where several workers tell it, joined:
//! the worker with least room sets the size of the cache, the one with most
//! weights the need. Nothing is kept that no line told.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

/// One figure. Sizes are in GiB: what the engine prints as `GB` is 2^30 too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    /// Runs of the engine in the log.
    Runs,
    /// Engines that write into the log side by side.
    Instances,
    /// The model's name or path, as the engine was given it.
    Model,
    /// `GPU`, `CPU`, `XPU`, …
    Device,
    /// Type of the weights.
    Dtype,
    /// Quantisation of the weights.
    Quantization,
    /// Ranks of tensor parallelism.
    TensorParallel,
    /// Factor by which context parallelism multiplies the cache.
    ContextParallel,
    /// Memory of the device.
    Total,
    /// Free before the engine took any.
    FreeAtStart,
    /// Free after weights, cache and graphs were taken.
    FreeAfterStart,
    /// Share of the device the engine may take.
    Utilization,
    /// That share in GiB.
    Requested,
    /// Size of the model's files.
    Checkpoint,
    /// Weights on the device of one rank.
    Weights,
    /// Peak of activations in the profiling run.
    ActivationPeak,
    /// Memory outside PyTorch: NCCL, contexts, kernels.
    NonTorch,
    /// Graphs as they were captured.
    CudaGraphs,
    /// Graphs as they were foreseen.
    CudaGraphsEstimated,
    /// What is left for the cache, of the rank that has least.
    KvCache,
    /// What one request of full length needs.
    KvNeeded,
    /// Budget set by `--kv-cache-memory-bytes`.
    KvCacheMemoryBytes,
    /// The budget that would use up the requested memory.
    KvBytesWithinRequest,
    /// The budget that would use up the device.
    KvBytesWithinDevice,
    /// Type of the cache's values.
    KvCacheDtype,
    /// Tokens the cache holds.
    KvTokens,
    /// Blocks of the cache.
    KvBlocks,
    /// Blocks the memory would have held, where another number was set.
    ProfiledBlocks,
    /// Tokens of a block.
    BlockSize,
    /// Requests of full length that fit at once.
    MaxConcurrency,
    /// Longest context the engine was asked for or took.
    MaxModelLen,
    /// What was asked where the engine took less.
    AskedMaxModelLen,
    /// Longest context by the model's own configuration.
    DerivedMaxModelLen,
    /// Longest context that would fit, by the engine's own estimate.
    EstimatedMaxModelLen,
    /// Most requests of one step.
    MaxNumSeqs,
    /// Most tokens of one step.
    MaxNumBatchedTokens,
    /// Requests the sampler was warmed up with.
    SamplerRequests,
    /// Attention heads of the model.
    Heads,
    /// Highest use of the cache while serving, in percent.
    KvUsagePercent,
    /// The allocation that failed.
    Tried,
    /// Free at that moment.
    FreeThen,
    /// Held by this process at that moment.
    HeldByEngine,
    /// Held by others at that moment.
    HeldByOthers,
    /// Held by PyTorch for tensors at that moment.
    Allocated,
    /// Reserved by PyTorch and unused at that moment.
    Fragments,
    /// Memory that could hold cache and does not.
    Waste,
}

/// What of a field is kept when it is told again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Join {
    First,
    Last,
    Least,
    Most,
}

/// A figure as it stands in a log.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A count.
    Whole(u64),
    /// A size, a share, a factor.
    Real(f64),
    /// A name.
    Text(String),
}

/// What the log told, ordered from the device to the cache.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts(BTreeMap<Field, Value>);

// === impl Field ===

impl Field {
    /// The name in JSON; its last word is the unit.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.spec().0
    }

    fn spec(self) -> (&'static str, Join) {
        use Join::{First, Last, Least, Most};
        match self {
            Self::Runs => ("runs", Last),
            Self::Instances => ("instances", Last),
            Self::Model => ("model", First),
            Self::Device => ("device", Last),
            Self::Dtype => ("dtype", Last),
            Self::Quantization => ("quantization", Last),
            Self::TensorParallel => ("tensor_parallel_size", Last),
            Self::ContextParallel => ("context_parallel_size", Last),
            Self::Total => ("total_gib", Last),
            Self::FreeAtStart => ("free_at_start_gib", Least),
            Self::FreeAfterStart => ("free_after_start_gib", Least),
            Self::Utilization => ("gpu_memory_utilization", Last),
            Self::Requested => ("requested_gib", Last),
            Self::Checkpoint => ("checkpoint_gib", Most),
            Self::Weights => ("weights_gib", Most),
            Self::ActivationPeak => ("activation_peak_gib", Most),
            Self::NonTorch => ("non_torch_gib", Most),
            Self::CudaGraphs => ("cuda_graphs_gib", Most),
            Self::CudaGraphsEstimated => ("cuda_graphs_estimated_gib", Most),
            Self::KvCache => ("kv_cache_gib", Least),
            Self::KvNeeded => ("kv_needed_gib", Last),
            Self::KvCacheMemoryBytes => ("kv_cache_memory_bytes", Last),
            Self::KvBytesWithinRequest => ("kv_cache_memory_bytes_within_request", Least),
            Self::KvBytesWithinDevice => ("kv_cache_memory_bytes_within_device", Least),
            Self::KvCacheDtype => ("kv_cache_dtype", Last),
            Self::KvTokens => ("kv_tokens", Last),
            Self::KvBlocks => ("kv_blocks", Least),
            Self::ProfiledBlocks => ("profiled_kv_blocks", Least),
            Self::BlockSize => ("block_size", Last),
            Self::MaxConcurrency => ("max_concurrency", Last),
            Self::MaxModelLen => ("max_model_len", Last),
            Self::AskedMaxModelLen => ("asked_max_model_len", First),
            Self::DerivedMaxModelLen => ("derived_max_model_len", Last),
            Self::EstimatedMaxModelLen => ("estimated_max_model_len", Last),
            Self::MaxNumSeqs => ("max_num_seqs", Last),
            Self::MaxNumBatchedTokens => ("max_num_batched_tokens", Last),
            Self::SamplerRequests => ("sampler_requests", Last),
            Self::Heads => ("attention_heads", Last),
            Self::KvUsagePercent => ("kv_usage_percent", Most),
            Self::Tried => ("tried_gib", First),
            Self::FreeThen => ("free_then_gib", First),
            Self::HeldByEngine => ("held_by_engine_gib", First),
            Self::HeldByOthers => ("held_by_others_gib", First),
            Self::Allocated => ("allocated_gib", First),
            Self::Fragments => ("fragments_gib", First),
            Self::Waste => ("waste_gib", Last),
        }
    }

    fn is_text(self) -> bool {
        matches!(
            self,
            Self::Model | Self::Device | Self::Dtype | Self::Quantization | Self::KvCacheDtype
        )
    }

    fn is_size(self) -> bool {
        self.name().ends_with("_gib")
    }

    /// Reads a figure as the engine prints it; `None` for what is no figure.
    fn read(self, text: &str) -> Option<Value> {
        if self.is_text() {
            let name = text.trim_matches(['\'', '"']);
            return (name != "None").then(|| Value::Text(name.to_owned()));
        }
        if self.is_size() {
            return gib(text).map(Value::Real);
        }
        let plain: String = text.chars().filter(|c| *c != ',').collect();
        match plain.parse::<u64>() {
            Ok(whole) => Some(Value::Whole(whole)),
            Err(_) => {
                let real: f64 = plain.parse().ok()?;
                real.is_finite().then_some(Value::Real(real))
            }
        }
    }
}

/// A size in GiB: `1.06 GiB`, `505.81 MiB`, `448.00 KiB`, `0 bytes`; a number
/// without a unit is GiB, or bytes where it is far too large for that.
fn gib(text: &str) -> Option<f64> {
    let text = text.trim();
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic());
    let (number, unit) = text.split_at(unit_at.unwrap_or(text.len()));
    let number: f64 = number.trim().replace(',', "").parse().ok()?;
    let gib = match unit.to_ascii_lowercase().as_str() {
        "" if number > 1e6 => number / 1_073_741_824.0,
        "" | "gib" | "gb" => number,
        "mib" | "mb" => number / 1024.0,
        "kib" | "kb" => number / 1_048_576.0,
        "bytes" | "byte" => number / 1_073_741_824.0,
        _ => return None,
    };
    gib.is_finite().then(|| rounded(gib))
}

/// To the hundredth: what the engine prints.
pub(super) fn rounded(gib: f64) -> f64 {
    (gib * 100.0).round() / 100.0
}

// === impl Facts ===

impl Facts {
    /// A figure, whole or not; `None` for names and for what no line told.
    #[must_use]
    pub fn number(&self, field: Field) -> Option<f64> {
        match self.0.get(&field)? {
            #[expect(
                clippy::cast_precision_loss,
                reason = "counts of a log are far below 2^52"
            )]
            Value::Whole(whole) => Some(*whole as f64),
            Value::Real(real) => Some(*real),
            Value::Text(_) => None,
        }
    }

    /// A count.
    #[must_use]
    pub fn whole(&self, field: Field) -> Option<u64> {
        match self.0.get(&field)? {
            Value::Whole(whole) => Some(*whole),
            Value::Real(_) | Value::Text(_) => None,
        }
    }

    /// A name.
    #[must_use]
    pub fn text(&self, field: Field) -> Option<&str> {
        match self.0.get(&field)? {
            Value::Text(text) => Some(text),
            Value::Whole(_) | Value::Real(_) => None,
        }
    }

    /// Every figure told, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Field, &Value)> {
        self.0.iter().map(|(field, value)| (*field, value))
    }

    /// Keeps what `text` tells of `field`, joined with what was told before.
    pub(super) fn tell(&mut self, field: Field, text: &str) {
        if let Some(value) = field.read(text) {
            self.join(field, value);
        }
    }

    fn join(&mut self, field: Field, value: Value) {
        let Some(before) = self.0.get(&field) else {
            self.0.insert(field, value);
            return;
        };
        let number = |value: &Value| match value {
            #[expect(
                clippy::cast_precision_loss,
                reason = "counts of a log are far below 2^52"
            )]
            Value::Whole(whole) => *whole as f64,
            Value::Real(real) => *real,
            Value::Text(_) => 0.0,
        };
        let takes = match field.spec().1 {
            Join::First => false,
            Join::Last => true,
            Join::Least => number(&value) < number(before),
            Join::Most => number(&value) > number(before),
        };
        if takes {
            self.0.insert(field, value);
        }
    }

    /// Sets a size that follows from others, to the hundredth.
    pub(super) fn set_gib(&mut self, field: Field, gib: f64) {
        self.0.insert(field, Value::Real(rounded(gib)));
    }

    /// Sets a count that follows from the reading.
    pub(super) fn set_whole(&mut self, field: Field, whole: u64) {
        self.0.insert(field, Value::Whole(whole));
    }
}

impl Serialize for Facts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(field, value)| (field.name(), value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_every_unit_the_engine_and_pytorch_print() {
        for (text, expected) in [
            ("1.06 GiB", 1.06),
            ("505.81 MiB", 0.49),
            ("14737.2578 MB", 14.39),
            ("15.2075 GB", 15.21),
            ("448.00 KiB", 0.0),
            ("0 bytes", 0.0),
            ("9232221491 bytes", 8.6),
            ("84396867584", 78.6),
            ("-0.84", -0.84),
        ] {
            assert_eq!(gib(text), Some(expected), "{text}");
        }
        assert_eq!(gib("7 parsecs"), None);
        assert_eq!(gib("1e999"), None);
    }

    #[test]
    fn the_rank_with_least_room_and_the_one_with_most_weights_are_kept() {
        let mut facts = Facts::default();
        for (kv, weights) in [("19.27", "12.6"), ("17.14", "12.7"), ("18.0", "12.5")] {
            facts.tell(Field::KvCache, kv);
            facts.tell(Field::Weights, weights);
        }
        assert_eq!(facts.number(Field::KvCache), Some(17.14));
        assert_eq!(facts.number(Field::Weights), Some(12.7));
    }

    #[test]
    fn counts_with_thousands_are_counts_and_none_is_nothing() {
        let mut facts = Facts::default();
        facts.tell(Field::KvTokens, "4,194,304");
        facts.tell(Field::Quantization, "None");
        facts.tell(Field::Model, "'org/name'");
        assert_eq!(facts.whole(Field::KvTokens), Some(4_194_304));
        let json = serde_json::to_string(&facts).expect("it has a JSON form");
        assert_eq!(json, r#"{"model":"org/name","kv_tokens":4194304}"#);
    }
}
