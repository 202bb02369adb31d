//! How an engine is started, as far as memory goes.
//!
//! Decides what a version of vLLM does by default and what a `--kv-cache-dtype`
//! costs. Versions are those whose source was read: 0.6.6 to 0.33; a rule that
//! came between two of them is said to hold from the later one.

use std::fmt;

use super::model::{Kind, Model};

/// A version of vLLM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// 0 to this day.
    pub major: u16,
    /// What versions are told apart by.
    pub minor: u16,
}

/// The type keys and values are kept in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvDtype {
    /// The model's: 16 bits, or 32 where it runs in 32.
    Auto,
    /// 16 bits.
    Half,
    /// 32 bits.
    Single,
    /// 8 bits, one scale per layer.
    Fp8,
    /// 8 bits, and a 32-bit scale per token and head.
    ByteScaled,
    /// 4 bits, and a 32-bit scale per token and head.
    NibbleScaled,
    /// 4 bits, and an 8-bit scale per 16.
    Nvfp4,
    /// DeepSeek's sparse layout: 656 bytes per token and layer.
    Fp8DsMla,
}

/// How the model is spread over GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parallel {
    /// Tensor parallel ranks.
    pub tensor: u64,
    /// Pipeline stages.
    pub pipeline: u64,
    /// Data parallel engines, each with a pool of its own.
    pub data: u64,
    /// Ranks a sequence's tokens are spread over (decode context parallel).
    pub context: u64,
}

/// Whether prefix caching is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixCaching {
    /// As the version does by default.
    Default,
    /// On.
    On,
    /// Off.
    Off,
}

/// Where it runs; decides the block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// On GPUs.
    Gpu,
    /// On processors.
    Cpu,
}

/// One engine's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    /// Its version.
    pub version: Version,
    /// Its `--kv-cache-dtype`.
    pub kv: KvDtype,
    /// Its `--block-size`, where given.
    pub block: Option<u64>,
    /// How it is spread.
    pub parallel: Parallel,
    /// Its `--max-num-batched-tokens`.
    pub batched: u64,
    /// Its `--max-num-seqs`.
    pub sequences: u64,
    /// Whether prefixes are cached: a hybrid's sequences then hold two states.
    pub prefix: PrefixCaching,
    /// Where it runs.
    pub device: Device,
}

// === impl Version ===

impl Version {
    /// The newest that was read.
    pub const NEWEST: Self = Self::new(33);

    /// The oldest.
    pub const OLDEST: Self = Self::new(6);

    /// Version 0.`minor`.
    #[must_use]
    pub const fn new(minor: u16) -> Self {
        Self { major: 0, minor }
    }

    /// Reads `0.20.1`, `v0.11.0rc2` or `0.33`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().trim_start_matches('v').split('.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?;
        let digits = minor.find(|c: char| !c.is_ascii_digit());
        let minor = minor[..digits.unwrap_or(minor.len())].parse().ok()?;
        Some(Self { major, minor })
    }

    /// `gpu_memory_utilization` where none is given, in hundredths: 0.90 up to
    /// 0.18, 0.92 from 0.20 on.
    #[must_use]
    pub fn utilization(self) -> u64 {
        if self < Self::new(20) { 90 } else { 92 }
    }

    /// Whether layers with windows keep windows (the hybrid KV cache manager);
    /// up to 0.9 they keep everything.
    #[must_use]
    pub fn keeps_windows(self) -> bool {
        self >= Self::new(10)
    }

    /// Whether the logged size is concurrency times length. Logs of 0.24 agree
    /// with it, the source of 0.20 does not have it.
    #[must_use]
    pub fn logs_by_concurrency(self) -> bool {
        self >= Self::new(21)
    }

    /// Whether the longest context must fit without the null block.
    #[must_use]
    pub fn checks_null_block(self) -> bool {
        self >= Self::new(29)
    }

    /// Whether the graphs' memory is set aside before the pool is sized.
    #[must_use]
    pub fn reserves_graphs(self) -> bool {
        self >= Self::new(20)
    }

    /// Whether `--kv-cache-memory-bytes` is there.
    #[must_use]
    pub fn takes_kv_bytes(self) -> bool {
        self >= Self::new(11)
    }

    /// Whether hybrids cache prefixes unless told otherwise: not in 0.19, so in
    /// 0.32.
    fn caches_hybrids(self) -> bool {
        self >= Self::new(25)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

// === impl KvDtype ===

impl KvDtype {
    /// Reads the value of `--kv-cache-dtype`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "auto" => Self::Auto,
            "bfloat16" | "float16" | "half" | "bf16" | "fp16" => Self::Half,
            "float32" | "float" => Self::Single,
            "fp8" | "fp8_e4m3" | "fp8_e5m2" | "fp8_inc" => Self::Fp8,
            "int8_per_token_head" | "fp8_per_token_head" => Self::ByteScaled,
            "int4_per_token_head" => Self::NibbleScaled,
            "nvfp4" => Self::Nvfp4,
            "fp8_ds_mla" => Self::Fp8DsMla,
            _ => return None,
        })
    }

    /// What `auto` becomes for a model.
    #[must_use]
    pub fn resolve(self, model: &Model, version: Version) -> Self {
        let told = model.kv_dtype.filter(|_| version >= Version::new(12));
        match (self, told) {
            (Self::Auto, Some("fp8")) => Self::Fp8,
            (Self::Auto, Some("nvfp4")) => Self::Nvfp4,
            (Self::Auto, _) => Self::Half,
            (dtype, _) => dtype,
        }
    }

    /// Bytes of `width` elements of keys and values of one head and token.
    pub(super) fn bytes(self, width: u64) -> u64 {
        match self {
            Self::Single => 4 * width,
            Self::Auto | Self::Half => 2 * width,
            Self::Fp8 | Self::Fp8DsMla => width,
            Self::ByteScaled => width + 8,
            Self::NibbleScaled => width.div_ceil(2) + 8,
            Self::Nvfp4 => width.div_ceil(2) + width.div_ceil(16),
        }
    }

    /// Bytes of one latent vector.
    pub(super) fn latent_bytes(self, width: u64, index: u64) -> u64 {
        let vector = match self {
            Self::Fp8DsMla => 656,
            Self::Fp8 if index > 0 => 656,
            dtype => dtype.bytes(width),
        };
        // The index key has 8 bits and a 32-bit scale per 128.
        vector + index + 4 * index.div_ceil(128)
    }
}

// === impl Parallel ===

impl Parallel {
    /// One GPU.
    pub const ONE: Self = Self {
        tensor: 1,
        pipeline: 1,
        data: 1,
        context: 1,
    };

    /// GPUs of one instance.
    #[must_use]
    pub const fn gpus(self) -> u64 {
        self.tensor * self.pipeline * self.data
    }

    /// Why vLLM would not start a model so, if it would not.
    #[must_use]
    pub fn objection(self, model: &Model) -> Option<String> {
        let Self {
            tensor,
            pipeline,
            context,
            ..
        } = self;
        if !model.heads.is_multiple_of(tensor) {
            let heads = model.heads;
            return Some(format!(
                "{heads} attention heads do not divide by a tensor parallel size of {tensor}"
            ));
        }
        if pipeline > model.layers {
            let layers = model.layers;
            return Some(format!("{pipeline} pipeline stages for {layers} layers"));
        }
        let kv = model.caches.iter().find_map(|cache| match cache.kind {
            Kind::Attention { kv_heads, .. } => Some(kv_heads),
            Kind::Latent { .. } => Some(1),
            Kind::State(_) => None,
        });
        let most = tensor / kv.unwrap_or(1).min(tensor);
        (context > 1 && (context > most || !tensor.is_multiple_of(context))).then(|| {
            format!(
                "a decode context parallel size of {context}: with {tensor} tensor parallel ranks \
                 keys and values are held {most} times, and only copies can be spread"
            )
        })
    }
}

// === impl Engine ===

impl Engine {
    /// Tokens in flight at one time, for which a window's blocks are kept: two
    /// steps from 0.26 on, where steps are scheduled ahead; not on CPUs.
    pub(super) fn in_flight(&self) -> u64 {
        let ahead = self.version >= Version::new(26) && self.device == Device::Gpu;
        self.batched.saturating_mul(if ahead { 2 } else { 1 })
    }

    /// Blocks of state one sequence holds.
    pub(super) fn states(&self) -> u64 {
        match self.prefix {
            PrefixCaching::On => 2,
            PrefixCaching::Off => 1,
            PrefixCaching::Default => 1 + u64::from(self.version.caches_hybrids()),
        }
    }
}
