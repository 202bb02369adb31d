//! What runs at present, as far as it is known: the other side of every proposal.

use crate::core::backend::Tier;
use crate::core::units::{BlockSize, Tokens};

/// The fleet and the gateway's settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Present {
    /// Engines, each data-parallel rank by itself.
    pub engines: Vec<Engine>,
    /// The gateway's `admission.reservation`, where known.
    pub reservation: Option<Reservation>,
    /// Its `admission.open_output_tokens`, where known.
    pub open_output: Option<Tokens>,
}

/// One engine, or one rank of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    /// The backend's name.
    pub name: String,
    /// Its model's.
    pub model: String,
    /// Its tier.
    pub tier: Tier,
    /// Its KV pool, where known.
    pub pool: Option<Tokens>,
    /// Tokens per KV block, where known.
    pub block_size: Option<BlockSize>,
    /// Longest context of one request, where known.
    pub max_model_len: Option<Tokens>,
}

/// What a request holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reservation {
    /// Its prompt and its bound.
    Strict,
    /// What it uses, and is expected to.
    Forecast,
}

// === impl Reservation ===

impl Reservation {
    /// Its name in the configuration and in `/state`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Forecast => "forecast",
        }
    }

    /// The one of that name.
    pub fn parse(name: &str) -> Option<Self> {
        let both = [Self::Strict, Self::Forecast];
        both.into_iter().find(|one| one.name() == name)
    }
}

// === impl Present ===

impl Present {
    /// vLLM's block size on GPUs (`CacheConfig.DEFAULT_BLOCK_SIZE`), where an engine's is
    /// not known.
    pub const BLOCK: BlockSize = BlockSize::new(16).expect("16 is not zero");

    /// Engines of `model` in `tier`.
    pub fn in_tier(&self, model: &str, tier: Tier) -> impl Iterator<Item = &Engine> {
        let engines = self.engines.iter();
        engines.filter(move |engine| engine.model == model && engine.tier == tier)
    }

    /// The block size of `model`: its engines' largest.
    pub fn block_size(&self, model: &str) -> BlockSize {
        let engines = self.engines.iter().filter(|engine| engine.model == model);
        let largest = engines.filter_map(|engine| engine.block_size).max();
        largest.unwrap_or(Self::BLOCK)
    }

    /// KV tokens of `model` in `tier` together; `None` unless each engine's is known.
    pub fn pool(&self, model: &str, tier: Tier) -> Option<Tokens> {
        let mut engines = self.in_tier(model, tier).peekable();
        engines.peek()?;
        engines.try_fold(Tokens::ZERO, |sum, engine| {
            Some(sum.saturating_add(engine.pool?))
        })
    }

    /// The shortest `max_model_len` of `model` in `tier`, where any is known.
    pub fn max_model_len(&self, model: &str, tier: Tier) -> Option<Tokens> {
        let engines = self.in_tier(model, tier);
        engines.filter_map(|engine| engine.max_model_len).min()
    }
}
