//! The four figures of a tuning round: KV tokens, time to first token, tokens a second,
//! peak KV usage.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::held::Level;
use super::limits::holdings;
use super::log::{Entry, Log};
use super::present::Present;
use crate::core::units::Tokens;

/// What one round of tuning is judged by; `None` where it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// KV tokens of all engines.
    pub kv_tokens: Option<u64>,
    /// Median time to the first token of streams and answers that told one, in seconds.
    pub ttft_p50_seconds: Option<f64>,
    /// Its P99, in seconds.
    pub ttft_p99_seconds: Option<f64>,
    /// Output tokens a second, from the first arrival to the last end.
    pub output_tokens_per_second: Option<f64>,
    /// Most of the KV that was held at one time, as a share of `kv_tokens`.
    pub peak_kv_usage: Option<f64>,
}

// === impl Figures ===

impl Figures {
    /// Of all models together.
    pub fn of(log: &Log, present: &Present) -> Self {
        let kv = kv_tokens(present);
        let firsts = log.entries.iter().filter_map(|entry| entry.first_token);
        let mut firsts: Vec<Duration> = firsts.collect();
        firsts.sort_unstable();
        let rank = |percent: usize| {
            let rank = (firsts.len() * percent).div_ceil(100).checked_sub(1)?;
            Some(firsts.get(rank)?.as_secs_f64())
        };
        Self {
            kv_tokens: kv.map(Tokens::get),
            ttft_p50_seconds: rank(50),
            ttft_p99_seconds: rank(99),
            output_tokens_per_second: throughput(&log.entries),
            peak_kv_usage: kv.and_then(|kv| peak(log, present).usage(kv)),
        }
    }
}

/// `None` unless every engine's pool is known.
fn kv_tokens(present: &Present) -> Option<Tokens> {
    let mut engines = present.engines.iter();
    let sum = engines.try_fold(Tokens::ZERO, |sum, engine| {
        Some(sum.saturating_add(engine.pool?))
    })?;
    (!sum.is_zero()).then_some(sum)
}

fn peak(log: &Log, present: &Present) -> Level {
    let models = log.models.all().iter().enumerate();
    let held = models.flat_map(|(place, name)| {
        let entries = log.entries.iter().filter(move |entry| entry.model == place);
        holdings(entries, present.block_size(name))
    });
    Level::of(&held.collect::<Vec<_>>())
}

fn throughput(entries: &[Entry]) -> Option<f64> {
    let first = entries.iter().map(|entry| entry.arrival).min()?;
    let last = entries
        .iter()
        .filter_map(|entry| Some(entry.held?.to))
        .max()?;
    let outputs = entries.iter().filter_map(|entry| entry.output);
    let output = outputs.fold(Tokens::ZERO, Tokens::saturating_add);
    let span = last.saturating_sub(first).as_secs_f64();
    (span > 0.0).then(|| output.as_f64() / span)
}
