//! What the core knows of one backend: its identity, tier, capacity and state.
//!
//! A backend of the core is one engine: an endpoint and, with data parallelism,
//! a rank on it. Everything here is told from outside (the probe, the operator,
//! the configuration); the core never asks.

use std::fmt;

use super::time::Time;
use super::units::{BlockSize, Blocks, Tokens};

/// Identity of a backend within its pool.
///
/// The slot names the place; the generation changes when the engine behind it
/// restarts or is removed, so that a lease releases against the books it was
/// taken from and never against those of a successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BackendId {
    /// Place in the pool; stable over restarts.
    pub slot: u32,
    /// Which life of the engine at that place.
    pub generation: u32,
}

/// Context class of a backend, smallest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Ordinary GPU memory: the home of short traffic.
    Standard,
    /// More KV memory and a longer `max_model_len`: the home of long documents.
    Large,
    /// Slow, large: weights or KV in CPU memory, or a CPU engine.
    Offload,
}

/// A set of tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TierSet(u8);

/// Which models a backend serves: an index into the pool's table of served ids
/// (base name, aliases, LoRA adapters), kept by whoever builds the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServedId(pub u32);

/// Where a capacity figure comes from; shown to the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CapacitySource {
    /// The operator's override in the configuration.
    Configured,
    /// The `kv_cache_size_tokens` label of `vllm:cache_config_info`.
    AdvertisedTokens,
    /// `(num_gpu_blocks − 1) × block_size` of a model known not to be hybrid.
    AdvertisedBlocks,
    /// Nothing trustworthy was found: a configured conservative amount stands in.
    Assumed,
}

/// Whether n samples of one prompt share its full blocks on this backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PrefixCaching {
    /// The engine's prefix cache is on: full prompt blocks are held once.
    Shared,
    /// It is off or unknown: every sample holds its own copy.
    PerSequence,
}

/// KV capacity and limits of one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Usable KV blocks, the null block already left out.
    pub blocks: Blocks,
    /// Tokens per block.
    pub block_size: BlockSize,
    /// The engine's `max_model_len`, prompt plus output.
    pub max_model_len: Tokens,
    /// The engine's `max_num_seqs`; `None` while unknown.
    pub max_num_seqs: Option<u32>,
    /// Extra KV slots a running sequence may take beyond its tokens
    /// (asynchronous scheduling, speculative tokens).
    pub lookahead: Tokens,
    /// Whether samples of one prompt share its blocks.
    pub prefix_caching: PrefixCaching,
    /// Where `blocks` comes from.
    pub source: CapacitySource,
}

/// State of a backend as the probe and the operator see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    /// Not seen up yet: refused connections are normal while weights load.
    Starting,
    /// Serving.
    Up,
    /// Serving, but slow or shedding: used only when nothing better can.
    Degraded,
    /// Told to finish what it has and take nothing new.
    Draining,
    /// The engine sleeps; requests would hang.
    Sleeping,
    /// Not reachable or dead.
    Down,
}

/// How much is sent to a backend, by how requests have gone there.
///
/// It never leaves a request without a backend: where none in whole trust could
/// serve it, every backend that admits is used alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trust {
    /// Whatever fits.
    Whole,
    /// One request at a time, until it is known how that went.
    Trial,
    /// Nothing.
    Withheld,
}

/// What one scrape of the engine's metrics said.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observed {
    /// When the scrape was sent: books are compared with this moment.
    pub at: Time,
    /// KV blocks in use by anyone.
    pub used: Blocks,
    /// Sequences running in the engine.
    pub running: u32,
    /// Sequences waiting in the engine.
    pub waiting: u32,
    /// The engine's preemption counter since its start.
    pub preemptions: u64,
}

/// Everything that describes a backend when it joins a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendFacts {
    /// Place in the pool.
    pub slot: u32,
    /// Context class.
    pub tier: Tier,
    /// Model ids it serves.
    pub serves: Vec<ServedId>,
    /// Capacity, or `None` until the probe or the operator has said.
    pub capacity: Option<Capacity>,
    /// State at the start.
    pub health: Health,
}

// === impl Tier ===

impl Tier {
    /// All tiers, smallest first.
    pub const ALL: [Self; 3] = [Self::Standard, Self::Large, Self::Offload];

    /// The name in configuration, headers, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Large => "large",
            Self::Offload => "offload",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

// === impl TierSet ===

impl TierSet {
    /// Every tier.
    pub const ALL: Self = Self(0b111);
    /// No tier.
    pub const NONE: Self = Self(0);

    /// This set and `tier`.
    #[must_use]
    pub const fn with(self, tier: Tier) -> Self {
        Self(self.0 | 1 << tier as u8)
    }

    /// This set without `tier`.
    #[must_use]
    pub const fn without(self, tier: Tier) -> Self {
        Self(self.0 & !(1 << tier as u8))
    }

    /// Whether `tier` is in the set.
    pub const fn contains(self, tier: Tier) -> bool {
        self.0 & 1 << tier as u8 != 0
    }

    /// Whether no tier is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<Tier> for TierSet {
    fn from_iter<I: IntoIterator<Item = Tier>>(tiers: I) -> Self {
        tiers.into_iter().fold(Self::NONE, Self::with)
    }
}

// === impl Capacity ===

impl Capacity {
    /// This capacity with every figure held to what can be counted with: part
    /// of it is what an engine says of itself.
    #[must_use]
    pub fn believable(self) -> Self {
        Self {
            blocks: self.blocks.believable(),
            block_size: self.block_size.believable(),
            max_model_len: self.max_model_len.believable(),
            lookahead: self.lookahead.believable(),
            ..self
        }
    }

    /// The KV pool in tokens.
    pub fn pool(&self) -> Tokens {
        self.blocks.tokens(self.block_size)
    }

    /// The largest context one request may reach here: the smaller of
    /// `max_model_len` and the pool of one engine.
    pub fn context_limit(&self) -> Tokens {
        self.max_model_len.min(self.pool())
    }
}

// === impl Health ===

impl Health {
    /// Whether new work may be sent.
    pub const fn admits(self) -> bool {
        matches!(self, Self::Up | Self::Degraded)
    }

    /// The name in logs, metrics and `/state`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Up => "up",
            Self::Degraded => "degraded",
            Self::Draining => "draining",
            Self::Sleeping => "sleeping",
            Self::Down => "down",
        }
    }
}

// === impl Trust ===

impl Trust {
    /// The name in logs and `/state`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Trial => "trial",
            Self::Withheld => "withheld",
        }
    }
}

// === impl CapacitySource ===

impl CapacitySource {
    /// The name in logs, metrics and `/state`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::AdvertisedTokens => "advertised_tokens",
            Self::AdvertisedBlocks => "advertised_blocks",
            Self::Assumed => "assumed",
        }
    }
}
