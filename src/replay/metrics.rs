//! The figures of one run, from its record.
//!
//! Decides what each figure means and nothing else; equal records give equal figures.
//! *Good* is a call that was answered to its end, whose first token came within the SLO of
//! its arrival at the gateway and whose mean time between tokens keeps the SLO's pace.
//! Calls that went past the gateway count in no figure.

mod fairness;
mod reinsert;
pub mod stats;
#[cfg(test)]
mod tests;
mod waits;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::record::{Outcome, Record};
use super::setup::{Call, Fleet, Slo};
use crate::core::demand::TenantId;
use crate::core::units::Tokens;

pub use fairness::Fairness;
pub use waits::Audit;

/// Prompts up to this are short.
const SHORT: Tokens = Tokens::new(4096);
/// Prompts above this are long.
const LONG: Tokens = Tokens::new(32_768);

/// What is measured: a run and what came of it.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'a> {
    /// The calls of the run.
    pub calls: &'a [Call],
    /// Its fleet.
    pub fleet: &'a Fleet,
    /// What came of it.
    pub record: &'a Record,
    /// A tenant that surged: the others' goodput is told apart.
    pub surging: Option<TenantId>,
    /// Refusals that are looked into for [`Refusals::precision`], at most.
    pub sample: usize,
}

/// One run in figures. Shares are within 0 and 1; `None` where there is nothing to divide by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Calls that reached the gateway.
    pub offered: u64,
    /// Good calls over offered ones.
    pub goodput: f64,
    /// Tokens (prompt and output) of good calls over those of offered ones.
    pub token_goodput: f64,
    /// Tokens that preemptions discarded over prefill tokens executed.
    pub wasted: f64,
    /// Tokens computed again, prefix hits left out, over prefill tokens executed.
    pub recomputed: f64,
    /// Preemptions per 1,000 calls offered.
    pub preemptions_per_1000: f64,
    /// KV held by running sequences over the pools, integrated over the run.
    pub kv_utilisation: f64,
    /// Prompts of every length.
    pub all: Class,
    /// Prompts of at most 4,096 tokens.
    pub short: Class,
    /// Prompts between those.
    pub middle: Class,
    /// Prompts above 32,768 tokens.
    pub long: Class,
    /// What was refused.
    pub refusals: Refusals,
    /// How tenants fared beside each other.
    pub fairness: Fairness,
    /// Goodput of all tenants but the one that surged.
    pub others_goodput: Option<f64>,
    /// Waits foretold to those that queued, against real ones.
    pub foretold: Audit,
    /// `Retry-After` told to those refused, against what became of those who came back
    /// then; of a run in which some do.
    pub retry_after: Audit,
}

/// Calls with prompts of some length. Quantiles are over calls that got a first token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Class {
    /// Calls.
    pub offered: u64,
    /// Good ones over offered ones.
    pub goodput: Option<f64>,
    /// Seconds from arrival to the first token: median, 90 % and 99 % quantiles.
    pub ttft_s: [Option<f64>; 3],
    /// Milliseconds between tokens, mean of a call: the same quantiles.
    pub tpot_ms: [Option<f64>; 3],
}

/// What was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Refusals {
    /// Over offered calls.
    pub rejected: f64,
    /// Share of the refusals, of a sample, that were right: see `reinsert`.
    pub precision: Option<f64>,
    /// How many were looked into.
    pub sample: u64,
    /// Share of the calls that were not good that had been refused.
    pub recall: Option<f64>,
    /// Seconds from arrival to the refusal, median.
    pub after_s: Option<f64>,
}

// === impl Figures ===

impl Figures {
    /// Measures a run. Cost: what [`Refusals::precision`] plays again, at most as many
    /// stretches of one engine as `sample` × nodes × 4.
    pub fn of(measured: Measured<'_>) -> Self {
        let judged = measured.judged();
        let good = |judged: &&Judged<'_>| judged.good;
        let tokens = |judged: &Judged<'_>| (judged.call.prompt + judged.call.output).as_f64();
        let offered = judged.len();
        let class = |within: fn(Tokens) -> bool| {
            let calls = judged.iter().filter(|judged| within(judged.call.prompt));
            Class::of(&calls.collect::<Vec<_>>())
        };
        let others = measured.surging.and_then(|surging| {
            let others = judged.iter().filter(|judged| judged.call.tenant != surging);
            share(others.clone().filter(good).count(), others.count())
        });
        let engines = Engines::of(measured.record);
        let preempted = engines.preemptions / stats::count(offered).max(1.0);
        Self {
            offered: u64::try_from(offered).expect("a length fits"),
            goodput: share(judged.iter().filter(good).count(), offered).unwrap_or(0.0),
            token_goodput: stats::over(
                judged.iter().filter(good).map(tokens).sum(),
                judged.iter().map(tokens).sum(),
            ),
            wasted: stats::over(engines.discarded, engines.executed),
            recomputed: stats::over(engines.recomputed, engines.executed),
            preemptions_per_1000: 1000.0 * preempted,
            kv_utilisation: stats::over(engines.held, engines.room),
            all: class(|_| true),
            short: class(|prompt| prompt <= SHORT),
            middle: class(|prompt| prompt > SHORT && prompt <= LONG),
            long: class(|prompt| prompt > LONG),
            refusals: Refusals::of(&judged, measured),
            fairness: Fairness::of(&judged, measured),
            others_goodput: others,
            foretold: waits::foretold(measured),
            retry_after: waits::retry_after(measured),
        }
    }
}

/// A call, what became of it, and whether that is good.
#[derive(Clone, Copy, Debug)]
struct Judged<'a> {
    /// Its place among the calls.
    place: usize,
    call: &'a Call,
    outcome: &'a Outcome,
    good: bool,
}

impl<'a> Measured<'a> {
    /// The same calls in another run.
    pub(super) fn of(self, record: &'a Record) -> Self {
        Self { record, ..self }
    }

    /// What the refused were told, by those of them that came back.
    pub(super) fn retry_after(self) -> Audit {
        waits::retry_after(self)
    }

    /// The calls that reached the gateway.
    fn judged(self) -> Vec<Judged<'a>> {
        let calls = self.calls.iter().zip(&self.record.outcomes).enumerate();
        let ours = calls.filter(|(_, (_, outcome))| !matches!(outcome, Outcome::Foreign));
        ours.map(|(place, (call, outcome))| Judged {
            place,
            call,
            outcome,
            good: is_good(self.fleet.slo, call, outcome),
        })
        .collect()
    }
}

fn is_good(slo: Slo, call: &Call, outcome: &Outcome) -> bool {
    let Outcome::Finished { first_token, .. } = *outcome else {
        return false;
    };
    let in_time = first_token - call.at <= slo.first_token_within(call.prompt);
    in_time && pace(outcome).is_none_or(|pace| pace <= slo.token_pace)
}

/// Mean time between tokens; `None` for an answer of one token or no whole answer.
fn pace(outcome: &Outcome) -> Option<Duration> {
    let Outcome::Finished {
        first_token,
        end,
        generated,
        ..
    } = *outcome
    else {
        return None;
    };
    let gaps = u32::try_from(generated.get().saturating_sub(1)).unwrap_or(u32::MAX);
    (end - first_token).checked_div(gaps)
}

/// `part` of `whole`; `None` of nothing.
fn share(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| stats::count(part) / stats::count(whole))
}

// === impl Class ===

impl Class {
    fn of(calls: &[&Judged<'_>]) -> Self {
        let first = |judged: &&Judged<'_>| match *judged.outcome {
            Outcome::Finished { first_token, .. }
            | Outcome::Unfinished {
                first_token: Some(first_token),
            } => Some((first_token - judged.call.at).as_secs_f64()),
            _ => None,
        };
        let paces = calls.iter().filter_map(|judged| pace(judged.outcome));
        let quantiles = |values: Vec<f64>| [0.5, 0.9, 0.99].map(|q| stats::quantile(&values, q));
        Self {
            offered: u64::try_from(calls.len()).expect("a length fits"),
            goodput: share(
                calls.iter().filter(|judged| judged.good).count(),
                calls.len(),
            ),
            ttft_s: quantiles(calls.iter().filter_map(first).collect()),
            tpot_ms: quantiles(paces.map(|pace| pace.as_secs_f64() * 1e3).collect()),
        }
    }
}

// === impl Refusals ===

impl Refusals {
    fn of(judged: &[Judged<'_>], measured: Measured<'_>) -> Self {
        let after = |judged: &Judged<'_>| match *judged.outcome {
            Outcome::Refused { at, .. } => Some((at - judged.call.at).as_secs_f64()),
            _ => None,
        };
        let waited: Vec<f64> = judged.iter().filter_map(after).collect();
        let failed = judged.iter().filter(|judged| !judged.good).count();
        let (right, sample) = reinsert::right(judged, measured);
        Self {
            rejected: share(waited.len(), judged.len()).unwrap_or(0.0),
            precision: share(right, sample),
            sample: u64::try_from(sample).expect("a length fits"),
            recall: share(waited.len(), failed),
            after_s: stats::quantile(&waited, 0.5),
        }
    }
}

/// All engines together.
struct Engines {
    discarded: f64,
    recomputed: f64,
    executed: f64,
    preemptions: f64,
    held: f64,
    room: f64,
}

// === impl Engines ===

impl Engines {
    fn of(record: &Record) -> Self {
        let sum = |of: fn(&super::record::NodeRecord) -> f64| record.nodes.iter().map(of).sum();
        Self {
            discarded: sum(|node| node.stats.discarded.as_f64()),
            recomputed: sum(|node| node.stats.recomputed.as_f64()),
            executed: sum(|node| {
                let stats = node.stats;
                (stats.prompt + stats.recomputed).as_f64() - stats.prefix_hits.as_f64()
            }),
            preemptions: sum(|node| Tokens::new(node.stats.preemptions).as_f64()),
            held: sum(|node| node.kv_token_seconds),
            room: sum(|node| node.pool.as_f64() * node.up.as_secs_f64()),
        }
    }
}
