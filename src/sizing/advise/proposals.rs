//! Proposed flags, each as a difference from what is set at present.
//!
//! Decides which findings are worth a change. Never proposes what is set already, and
//! nothing on few requests: [`ENOUGH`] whole answers, for a P99 of fewer is hardly more
//! than their longest.

use serde::Serialize;

use super::lengths::{ENOUGH, Quantiles};
use super::limits::roundest;
use super::log::{Entry, Log};
use super::present::{Present, Reservation};
use super::{ModelAdvice, TierAdvice};
use crate::core::units::Tokens;

/// A shorter limit is worth a restart from this share of the present one.
const WORTH: (u64, u64) = (9, 10);
/// Share of prompt tokens seen before from which a prefix cache is worth a flag.
const SEEN: f64 = 0.1;
/// Share of a strict reservation that is never used, from which it is worth a forecast.
const IDLE: f64 = 0.5;
/// Prompts whose engine told what its cache had, from which nothing had is a finding.
const TOLD: u64 = 20;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Proposal {
    /// Where it is set: engines of a model and tier, or a table of tidegate.toml.
    pub place: String,
    /// The flag, or the key.
    pub flag: &'static str,
    /// What it is at present; `None` where unknown or not set.
    pub from: Option<String>,
    /// What it should be.
    pub to: String,
    /// Why, with the figures it follows from.
    pub why: String,
}

/// All of them: engines' flags first, then the gateway's.
pub(super) fn propose(models: &[ModelAdvice], log: &Log, present: &Present) -> Vec<Proposal> {
    let mut proposals: Vec<Proposal> = models
        .iter()
        .flat_map(|model| {
            let limits = model.tiers.iter().filter_map(|tier| limit(model, tier));
            limits.chain(cache(model)).collect::<Vec<_>>()
        })
        .collect();
    proposals.extend(reservation(models, present));
    proposals.extend(open_output(log, present));
    proposals
}

fn limit(model: &ModelAdvice, tier: &TierAdvice) -> Option<Proposal> {
    let limit = tier.limit.filter(|_| tier.context.count >= ENOUGH)?;
    let shorter = |now: u64| limit.proposed.saturating_mul(WORTH.1) <= now.saturating_mul(WORTH.0);
    if !tier.max_model_len.is_none_or(shorter) {
        return None;
    }
    let mut why = format!(
        "the P99 of {} contexts is {}, and 10-20 % more is {} to {}",
        tier.context.count, tier.context.p99, limit.low, limit.high
    );
    if limit.longer > 0 {
        why += &format!(
            "; {} were longer, up to {}, and need a larger tier or are refused",
            limit.longer, tier.context.max
        );
    }
    Some(Proposal {
        place: format!("engines of {}, tier {}", model.model, tier.tier),
        flag: "--max-model-len",
        from: tier.max_model_len.map(|now| now.to_string()),
        to: limit.proposed.to_string(),
        why,
    })
}

fn cache(model: &ModelAdvice) -> Option<Proposal> {
    let told = model.prefix.reported_prompts >= TOLD && model.prefix.cached_tokens == 0;
    let seen = model
        .prefix_seen_share
        .filter(|share| told && *share >= SEEN)?;
    Some(Proposal {
        place: format!("engines of {}", model.model),
        flag: "--enable-prefix-caching",
        from: None,
        to: "on".to_owned(),
        why: format!(
            "{:.0} % of prompt tokens had been seen before, and the engines took none of {} prompts' from a cache",
            100.0 * seen,
            model.prefix.reported_prompts
        ),
    })
}

fn reservation(models: &[ModelAdvice], present: &Present) -> Option<Proposal> {
    if present.reservation != Some(Reservation::Strict) {
        return None;
    }
    let freed = models.iter().flat_map(|model| &model.tiers);
    let freed: Vec<_> = freed.filter_map(|tier| tier.freed).collect();
    let reserved: f64 = freed.iter().map(|freed| freed.reserved_from).sum();
    let used: f64 = freed.iter().map(|freed| freed.used).sum();
    let idle = 1.0 - used / reserved;
    (reserved > 0.0 && idle >= IDLE).then(|| Proposal {
        place: "tidegate.toml [admission]".to_owned(),
        flag: "reservation",
        from: Some("\"strict\"".to_owned()),
        to: "\"forecast\"".to_owned(),
        why: format!(
            "{:.0} % of the KV token-seconds that were reserved were never used",
            100.0 * idle
        ),
    })
}

fn open_output(log: &Log, present: &Present) -> Option<Proposal> {
    let now = present.open_output?.get();
    let is_open = |entry: &&Entry| {
        entry.is_whole() && entry.asked.is_none() && entry.output.is_some_and(|o| !o.is_zero())
    };
    let open = log.entries.iter().filter(is_open);
    let outputs = Quantiles::of(open.map(|entry| entry.output_each().get()).collect());
    let to = roundest(outputs.p90, outputs.p90.saturating_add(outputs.p90 / 5));
    let near = now.abs_diff(to).saturating_mul(4) <= now;
    (outputs.count >= ENOUGH && !near).then(|| Proposal {
        place: "tidegate.toml [admission]".to_owned(),
        flag: "open_output_tokens",
        from: Some(now.to_string()),
        to: Tokens::new(to).to_string(),
        why: format!(
            "nine of ten of {} answers without max_tokens had at most {} tokens",
            outputs.count, outputs.p90
        ),
    })
}
