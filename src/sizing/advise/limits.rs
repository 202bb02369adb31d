//! The `max_model_len` that real contexts ask for, and what a shorter one frees.
//!
//! Decides by the rule of thumb of vLLM's tuning guides: the P99 of prompt plus output,
//! and 10 to 20 % above it, as the roundest number in between. Never proposes more than
//! is set: what was refused for length is told beside it, and no length is known of it.

use serde::Serialize;

use super::held::{Holding, Level};
use super::lengths::{Quantiles, booked, footprint};
use super::log::Entry;
use crate::core::units::{BlockSize, Tokens};

/// A limit by real contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LimitAdvice {
    /// The P99 of contexts, plus 10 %.
    pub low: u64,
    /// The same plus 20 %.
    pub high: u64,
    /// The roundest number from `low` to `high`.
    pub proposed: u64,
    /// Requests whose context was longer than that.
    pub longer: u64,
}

/// What a limit does to reservations, in KV token-seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Freed {
    /// The limit at present.
    pub from: u64,
    /// The other limit.
    pub to: u64,
    /// What reservations of prompt and bound held at present. The bound is what the client
    /// asked, or where it asked nothing what the limit leaves.
    pub reserved_from: f64,
    /// What they would have held.
    pub reserved_to: f64,
    /// What the same requests came to use.
    pub used: f64,
    /// `1 - reserved_to / reserved_from`.
    pub share: f64,
    /// `1 - used / reserved_from`: reserved and never used at present.
    pub idle_share: f64,
    /// KV pool over `from`: whole contexts at one time, as vLLM prints at its start.
    pub concurrency_from: Option<f64>,
    /// KV pool over `to`.
    pub concurrency_to: Option<f64>,
}

/// Two limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) from: Tokens,
    pub(super) to: Tokens,
    pub(super) size: BlockSize,
    pub(super) pool: Option<Tokens>,
}

// === impl LimitAdvice ===

impl LimitAdvice {
    /// From the quantiles of contexts and the contexts themselves; `None` without any.
    pub(super) fn of(quantiles: &Quantiles, contexts: impl Iterator<Item = u64>) -> Option<Self> {
        let mut limit = Self::above(quantiles)?;
        let longer = contexts.filter(|context| *context > limit.proposed).count();
        limit.longer = u64::try_from(longer).unwrap_or(u64::MAX);
        Some(limit)
    }

    /// The same, with nobody longer; `None` without any context.
    pub(super) fn above(quantiles: &Quantiles) -> Option<Self> {
        let low = plus(quantiles.p99, 10);
        let high = plus(quantiles.p99, 20);
        (quantiles.count > 0).then(|| Self {
            low,
            high,
            proposed: roundest(low, high),
            longer: 0,
        })
    }
}

/// `tokens` and so many percent, rounded **up**.
fn plus(tokens: u64, percent: u64) -> u64 {
    let more = u128::from(tokens) * u128::from(100 + percent);
    u64::try_from(more.div_ceil(100)).unwrap_or(u64::MAX)
}

/// The multiple of the largest power of two from `low` to `high`; for all but the
/// smallest that is a whole number of blocks.
pub(super) fn roundest(low: u64, high: u64) -> u64 {
    let steps = (0..40).rev().map(|power| 1_u64 << power);
    let up = |step: u64| low.max(1).div_ceil(step) * step;
    steps.map(up).find(|round| *round <= high).unwrap_or(low)
}

// === impl Freed ===

impl Freed {
    /// By the requests that held KV under the first limit; `None` where none did.
    pub(super) fn of<'a>(
        entries: impl Iterator<Item = &'a Entry>,
        change: &Change,
    ) -> Option<Self> {
        let (mut from, mut to, mut used) = (0.0, 0.0, 0.0);
        for entry in entries {
            let Some(held) = entry.held else { continue };
            let seconds = held.time().as_secs_f64();
            from += seconds * change.reserved(entry, change.from).as_f64();
            to += seconds * change.reserved(entry, change.to).as_f64();
            used += seconds * footprint(entry, change.size).as_f64();
        }
        if from <= 0.0 {
            return None;
        }
        let whole = |limit: Tokens| {
            let pool = change.pool?;
            (!limit.is_zero()).then(|| pool.as_f64() / limit.as_f64())
        };
        Some(Self {
            from: change.from.get(),
            to: change.to.get(),
            reserved_from: from,
            reserved_to: to,
            used,
            share: 1.0 - to / from,
            idle_share: (1.0 - used / from).max(0.0),
            concurrency_from: whole(change.from),
            concurrency_to: whole(change.to),
        })
    }
}

// === impl Change ===

impl Change {
    /// KV that a reservation of `entry` holds under `limit`: longer prompts hold as much
    /// as they do, since they would be elsewhere.
    fn reserved(&self, entry: &Entry, limit: Tokens) -> Tokens {
        let left = limit.saturating_sub(entry.prompt);
        let bound = entry.asked.map_or(left, |asked| asked.min(left));
        // What was generated had room, whatever the log says was asked.
        booked(entry, bound.max(entry.output_each().min(left)), self.size)
    }
}

/// What each request held at its end, of those that held KV.
pub(super) fn holdings<'a>(
    entries: impl Iterator<Item = &'a Entry>,
    size: BlockSize,
) -> Vec<Holding> {
    let holding = |entry: &'a Entry| {
        Some(Holding {
            held: entry.held?,
            tokens: footprint(entry, size),
            tenant: entry.tenant,
        })
    };
    entries.filter_map(holding).collect()
}

/// Requests up to a length, and those beyond it, as two tiers would have them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Split {
    /// Contexts up to this are short.
    pub up_to: u64,
    /// Share of requests that are short, 0..=1.
    pub short_requests: f64,
    /// Share of KV token-seconds that they hold, 0..=1.
    pub short_kv: f64,
    /// The most KV tokens that short requests held at one time.
    pub short_peak_tokens: u64,
    /// The most KV tokens that the others held at one time.
    pub long_peak_tokens: u64,
    /// The longest context of all, which the other tier must take.
    pub longest: u64,
}

// === impl Split ===

impl Split {
    /// At `up_to`; `None` where nothing held KV.
    pub(super) fn at(up_to: u64, entries: &[&Entry], size: BlockSize) -> Option<Self> {
        let is_short = |entry: &&Entry| entry.context().get() <= up_to;
        let held = || entries.iter().copied().filter(|entry| entry.held.is_some());
        let (all, short) = (held().count(), held().filter(is_short).count());
        if all == 0 {
            return None;
        }
        let below = Level::of(&holdings(held().filter(is_short), size));
        let above = Level::of(&holdings(held().filter(|entry| !is_short(entry)), size));
        let seconds = below.token_seconds + above.token_seconds;
        let float = |count: usize| Tokens::new(u64::try_from(count).unwrap_or(u64::MAX)).as_f64();
        Some(Self {
            up_to,
            short_requests: float(short) / float(all),
            short_kv: if seconds > 0.0 {
                below.token_seconds / seconds
            } else {
                0.0
            },
            short_peak_tokens: below.peak_tokens,
            long_peak_tokens: above.peak_tokens,
            longest: held().map(|entry| entry.context().get()).max().unwrap_or(0),
        })
    }
}
