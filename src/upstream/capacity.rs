//! How much KV one engine can hold, from what it advertises and the operator knows.
//!
//! Pure rules over vLLM 0.6 to 0.33, in this order: the operator's figure; the
//! `kv_cache_size_tokens` label; `num_gpu_blocks`, only for a model known not to
//! be hybrid; else a configured conservative amount, marked as assumed. Never
//! zero, never infinite, never a guess that is not marked as one.
//!
//! Invariant: an advertised figure gives up one block, since every engine keeps
//! a null block back and counts it in both figures.

use crate::config::{KvLayout, KvOverrides};
use crate::core::backend::{Capacity, CapacitySource, PrefixCaching};
use crate::core::units::{BlockSize, Blocks, Tokens};

use super::scrape::{CacheConfig, Engine, Label, PrefixCachingLabel, Scrape};
use super::version::Version;

/// First release whose usage gauge leaves the null block out of its divisor.
const GAUGE_WITHOUT_NULL_BLOCK: Version = Version::new(0, 11);
/// First release in which asynchronous scheduling is on unless switched off.
const ASYNC_SCHEDULING: Version = Version::new(0, 14);
/// First release that takes [`RANK_HEADER`].
const RANK_HEADER_SINCE: Version = Version::new(0, 12);

/// Header that pins a request to a data-parallel rank of an endpoint.
pub const RANK_HEADER: http::HeaderName = http::HeaderName::from_static("x-data-parallel-rank");

/// vLLM's block size where nothing says otherwise.
const DEFAULT_BLOCK: u32 = 16;

/// What the operator says of a backend's KV.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    /// Figures that stand above whatever is advertised, each per rank.
    pub overrides: KvOverrides,
    /// Layout of the model's KV cache, where known.
    pub layout: Option<KvLayout>,
    /// Pool of an engine about which nothing trustworthy is known, in tokens.
    pub assumed: Tokens,
}

/// What an endpoint says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Its last scrape; empty where there is none.
    pub scrape: Scrape,
    /// `max_model_len` of its base model.
    pub max_model_len: Option<Tokens>,
    /// Its release.
    pub version: Option<Version>,
}

/// How many of the `configured` data-parallel ranks are booked apart and pinned.
///
/// All that show series, where the release takes [`RANK_HEADER`]; else 1: then
/// the engine spreads requests by itself and one rank's capacity is what counts.
pub fn ranks(evidence: &Evidence, configured: u32) -> u32 {
    let pins = evidence.version.is_some_and(|at| at >= RANK_HEADER_SINCE);
    if !pins {
        return 1;
    }
    match u32::try_from(evidence.scrape.engines.len()) {
        Ok(0) => configured.max(1),
        Ok(shown) => configured.clamp(1, shown),
        Err(_) => configured.max(1),
    }
}

/// KV capacity of one data-parallel engine of an endpoint.
///
/// Blocks are rounded **down**; the larger of two block sizes is taken, which
/// rounds each request up further.
pub fn capacity(rank: u32, evidence: &Evidence, operator: &Operator) -> Capacity {
    let overrides = &operator.overrides;
    let cache = cache_config(rank, &evidence.scrape);
    let block_size = overrides
        .block_size
        .or_else(|| cache.and_then(block_size))
        .unwrap_or_else(|| BlockSize::new(DEFAULT_BLOCK).expect("the default is not zero"));
    let (blocks, source) = pool(cache, evidence, operator, block_size);
    let engine = evidence.scrape.engines.get(&rank);
    Capacity {
        blocks,
        block_size,
        max_model_len: overrides
            .max_model_len
            .or(evidence.max_model_len)
            .unwrap_or_else(|| blocks.tokens(block_size)),
        max_num_seqs: overrides.max_num_seqs,
        lookahead: overrides
            .lookahead
            .unwrap_or_else(|| lookahead(engine, evidence.version)),
        prefix_caching: match cache.and_then(|cache| cache.prefix_caching) {
            Some(PrefixCachingLabel::On) => PrefixCaching::Shared,
            Some(PrefixCachingLabel::Off) | None => PrefixCaching::PerSequence,
        },
        source,
    }
}

/// KV blocks in use on one engine, in blocks of `capacity`, rounded **up**;
/// `None` where the scrape does not say.
///
/// The share applies to what the engine advertises, where that can be trusted,
/// and not to an override: the operator may have set a smaller pool than the
/// engine has.
pub fn used_blocks(
    rank: u32,
    evidence: &Evidence,
    operator: &Operator,
    capacity: &Capacity,
) -> Option<Blocks> {
    let usage = evidence.scrape.engines.get(&rank)?.kv_usage?;
    let advertised = cache_config(rank, &evidence.scrape)
        .and_then(|cache| advertised(cache, evidence, operator.layout))
        .map(|(tokens, _)| tokens.blocks_up(capacity.block_size));
    let pool = advertised.unwrap_or(capacity.blocks);
    let old_gauge = evidence
        .version
        .is_some_and(|at| at < GAUGE_WITHOUT_NULL_BLOCK);
    // Up to 0.10 the gauge divides by all blocks and counts the null block as
    // used. Taking the newer rule for an unknown release reads at most one block
    // too many.
    let used = if old_gauge && advertised.is_some() {
        usage * (pool.as_f64() + 1.0) - 1.0
    } else {
        usage * pool.as_f64()
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a sane pool lies between 0 and 2^40"
    )]
    let blocks = (used - 1e-3).ceil().max(0.0) as u64;
    Some(Blocks::new(blocks))
}

/// Labels of one engine; versions without the `engine` label on it show them once.
fn cache_config(rank: u32, scrape: &Scrape) -> Option<&CacheConfig> {
    let own = scrape.engines.get(&rank).and_then(|e| e.cache.as_ref());
    own.or_else(|| scrape.engines.values().find_map(|e| e.cache.as_ref()))
}

/// Tokens a block holds for one sequence: context parallelism makes it larger
/// than `block_size`, hybrid alignment the other way round.
fn block_size(cache: &CacheConfig) -> Option<BlockSize> {
    let plain = cache.block_size.value();
    let effective = cache.effective_attention_block_size.value();
    plain.max(effective).and_then(BlockSize::new)
}

fn pool(
    cache: Option<&CacheConfig>,
    evidence: &Evidence,
    operator: &Operator,
    size: BlockSize,
) -> (Blocks, CapacitySource) {
    let overrides = &operator.overrides;
    if let Some(blocks) = overrides.blocks {
        return (blocks, CapacitySource::Configured);
    }
    if let Some(tokens) = overrides.tokens {
        return (tokens.blocks_down(size), CapacitySource::Configured);
    }
    let advertised = cache
        .and_then(|cache| advertised(cache, evidence, operator.layout))
        .map(|(tokens, source)| (tokens.blocks_down(size), source))
        .filter(|(blocks, _)| !blocks.is_zero());
    advertised.unwrap_or_else(|| {
        let assumed = operator.assumed.blocks_down(size).max(Blocks::new(1));
        (assumed, CapacitySource::Assumed)
    })
}

/// What one engine advertises and can be trusted in, its null block left out:
/// the token label, else its part of the block count of a uniform model.
fn advertised(
    cache: &CacheConfig,
    evidence: &Evidence,
    told: Option<KvLayout>,
) -> Option<(Tokens, CapacitySource)> {
    let size = block_size(cache)?;
    if let Some(tokens) = cache.kv_cache_size_tokens.value() {
        // The label is the block count scaled down to whole requests of
        // `max_model_len`: rounding up never passes the engine's own count.
        let usable = less_null_block(Tokens::new(tokens).blocks_up(size))?;
        return Some((usable.tokens(size), CapacitySource::AdvertisedTokens));
    }
    if told.or_else(|| layout(cache)) != Some(KvLayout::Uniform) {
        return None;
    }
    // The front end adds up the blocks of all its engines and writes the sum on
    // every engine's series.
    let engines = u64::try_from(evidence.scrape.engines.len()).unwrap_or(u64::MAX);
    let blocks = Blocks::new(cache.num_gpu_blocks.value()? / engines.max(1));
    let usable = less_null_block(blocks)?;
    Some((usable.tokens(size), CapacitySource::AdvertisedBlocks))
}

/// The blocks a request may use; `None` where only the null block is there.
fn less_null_block(blocks: Blocks) -> Option<Blocks> {
    blocks
        .checked_sub(Blocks::new(1))
        .filter(|usable| !usable.is_zero())
}

/// The layout as far as the labels tell: uniform only where all three say so.
fn layout(cache: &CacheConfig) -> Option<KvLayout> {
    if cache.mamba_block_size.value().is_some() || cache.sliding_window.value().is_some() {
        return Some(KvLayout::Hybrid);
    }
    let told = cache.mamba_block_size == Label::Unset && cache.sliding_window == Label::Unset;
    let effective = cache.effective_attention_block_size.value()?;
    let same = cache.block_size.value() == Some(effective);
    (told && same).then_some(KvLayout::Uniform)
}

/// KV slots a running sequence takes ahead of its tokens: one where a step is
/// scheduled ahead (or may be), and one for each draft token.
fn lookahead(engine: Option<&Engine>, version: Option<Version>) -> Tokens {
    let ahead = u64::from(version.is_none_or(|at| at >= ASYNC_SCHEDULING));
    let drafts = engine.map_or(0, |engine| u64::from(engine.draft_positions));
    Tokens::new(ahead + drafts)
}

#[cfg(test)]
mod tests;
