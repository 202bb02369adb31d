//! What real requests ask of a fleet: lengths, limits, tiers, caches, peaks.
//!
//! Decides by arithmetic on the gateway's access log, each formula told where it is used,
//! and proposes flags as differences from what runs at present. Never reads a clock or a
//! file, never changes anything, and proposes nothing that its input does not show.

pub mod diff;
pub mod figures;
pub mod held;
pub mod lengths;
mod limits;
pub mod log;
pub mod prefixes;
pub mod present;
pub mod proposals;
pub mod rounds;
#[cfg(test)]
mod tests;
pub mod watched;

use serde::Serialize;

use crate::core::backend::Tier;
use crate::core::units::{BlockSize, Tokens};

use figures::Figures;
use held::{Level, TenantUse, tenants};
use lengths::{Lengths, Quantiles};
use limits::{Change, holdings, roundest};
pub use limits::{Freed, LimitAdvice, Split};
use log::{End, Entry, Log};
use prefixes::PrefixBenefit;
use present::Present;
use proposals::Proposal;

/// Everything that is told of a log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// Lines that were read.
    pub lines: u64,
    /// Requests among them whose prompt was counted.
    pub requests: u64,
    /// Lines that are no record.
    pub bad_lines: u64,
    /// The first of them.
    pub first_bad_line: Option<String>,
    /// Records of no use here, by reason.
    pub skipped: std::collections::BTreeMap<&'static str, u64>,
    /// By model, in the order in which the log names them.
    pub models: Vec<ModelAdvice>,
    /// The four figures of a tuning round.
    pub figures: Figures,
    /// What to set otherwise.
    pub proposals: Vec<Proposal>,
}

/// What is told of one model.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ModelAdvice {
    /// Its name.
    pub model: String,
    /// Requests whose prompt was counted.
    pub requests: u64,
    /// Those that were refused for their length: of them no output is known.
    pub too_long: u64,
    /// Those refused for another reason.
    pub refused: u64,
    /// Those whose client left or that failed: no length is taken from them.
    pub broken: u64,
    /// Tokens per KV block that everything is rounded up to.
    pub block_size: u32,
    /// Lengths.
    pub lengths: Lengths,
    /// By the tier that served, smallest first.
    pub tiers: Vec<TierAdvice>,
    /// Other lengths at which two tiers could part.
    pub splits: Vec<Split>,
    /// What prefix caches have to gain.
    pub prefix: PrefixBenefit,
    /// Share of prompt tokens seen before, 0..=1.
    pub prefix_seen_share: Option<f64>,
    /// Share of prompt tokens that engines took from their caches, 0..=1.
    pub prefix_cached_share: Option<f64>,
    /// KV held by all its requests.
    pub held: Level,
    /// Who held it: most at the peak first.
    pub tenants: Vec<TenantUse>,
}

/// What is told of a model's requests in one tier.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TierAdvice {
    /// The tier.
    pub tier: &'static str,
    /// Contexts of whole answers.
    pub context: Quantiles,
    /// The limit they ask for.
    pub limit: Option<LimitAdvice>,
    /// The limit at present, where known.
    pub max_model_len: Option<u64>,
    /// What the other limit frees, where the present one is known and longer.
    pub freed: Option<Freed>,
    /// KV held.
    pub held: Level,
    /// KV tokens of its engines, where known.
    pub pool_tokens: Option<u64>,
    /// Share of them held at the peak; above 1 where requests were held to be longer
    /// than they were at that moment.
    pub peak_usage: Option<f64>,
}

/// Computes everything. O(n log n) in requests; a few words for each.
pub fn advise(log: &Log, present: &Present) -> Advice {
    let places = 0..log.models.all().len();
    let models: Vec<ModelAdvice> = places.map(|place| model(log, place, present)).collect();
    let figures = Figures::of(log, present);
    Advice {
        lines: log.lines,
        requests: count(log.entries.iter()),
        bad_lines: log.bad,
        first_bad_line: log.first_bad.clone(),
        skipped: log.skipped.clone(),
        proposals: proposals::propose(&models, log, present),
        models,
        figures,
    }
}

fn model(log: &Log, place: usize, present: &Present) -> ModelAdvice {
    let name = &log.models.all()[place];
    let size = present.block_size(name);
    let entries: Vec<&Entry> = log
        .entries
        .iter()
        .filter(|entry| entry.model == place)
        .collect();
    let ended = |end: End| count(entries.iter().filter(|entry| entry.end == end));
    let lengths = Lengths::of(log, place, size);
    let held = holdings(entries.iter().copied(), size);
    let level = Level::of(&held);
    let prefix = log.prefixes.of(place);
    let tiers = Tier::ALL.into_iter();
    let tiers = tiers.filter_map(|tier| tier_advice(name, (tier, size), &entries, present));
    ModelAdvice {
        model: name.clone(),
        requests: count(entries.iter()),
        too_long: ended(End::TooLong),
        refused: ended(End::Refused),
        broken: ended(End::Broken),
        block_size: size.get(),
        tiers: tiers.collect(),
        splits: splits(&lengths.context, &entries, size),
        prefix,
        prefix_seen_share: prefix.seen_share(),
        prefix_cached_share: prefix.cached_share(),
        tenants: tenants(&held, &level, log.tenants.all()),
        held: level,
        lengths,
    }
}

/// Of a tier that served whole answers.
fn tier_advice(
    model: &str,
    (tier, size): (Tier, BlockSize),
    entries: &[&Entry],
    present: &Present,
) -> Option<TierAdvice> {
    let served = || {
        let entries = entries.iter().copied();
        entries.filter(move |entry| entry.tier == Some(tier))
    };
    let contexts = || {
        let whole = served().filter(|entry| entry.is_whole());
        whole.map(|entry| entry.context().get())
    };
    let context = Quantiles::of(contexts().collect());
    let limit = LimitAdvice::of(&context, contexts());
    let pool = present.pool(model, tier);
    let from = present.max_model_len(model, tier);
    let held = Level::of(&holdings(served(), size));
    let freed = limit
        .zip(from)
        .filter(|(limit, from)| limit.proposed < from.get());
    let freed = freed.and_then(|(limit, from)| {
        let to = Tokens::new(limit.proposed);
        let engine = present
            .in_tier(model, tier)
            .filter_map(|engine| engine.pool)
            .min();
        let change = Change {
            from,
            to,
            size,
            pool: engine,
        };
        Freed::of(served(), &change)
    });
    (context.count > 0).then(|| TierAdvice {
        tier: tier.name(),
        context,
        limit,
        max_model_len: from.map(Tokens::get),
        freed,
        peak_usage: pool.and_then(|pool| held.usage(pool)),
        held,
        pool_tokens: pool.map(Tokens::get),
    })
}

/// At about the median, the P90 and the P99 of contexts, and none that parts nothing.
fn splits(contexts: &Quantiles, entries: &[&Entry], size: BlockSize) -> Vec<Split> {
    let Quantiles {
        p50, p90, p99, max, ..
    } = *contexts;
    let round = |length: u64| roundest(length, length.saturating_add(length / 5));
    let mut cuts = [p50, p90, p99].map(round).to_vec();
    cuts.dedup();
    cuts.retain(|cut| *cut < max);
    let split = |cut| Split::at(cut, entries, size);
    cuts.into_iter().filter_map(split).collect()
}

fn count<T>(items: impl Iterator<Item = T>) -> u64 {
    u64::try_from(items.count()).unwrap_or(u64::MAX)
}
