//! Advice for people: tables of what is, sentences of what follows, and a diff.

use std::io::Write;

use crate::cli::Failure;
use crate::cli::plain::one_line;
use crate::cli::table::Table;
use crate::cli::words::several;
use crate::sizing::advise::diff::Diff;
use crate::sizing::advise::figures::Figures;
use crate::sizing::advise::lengths::{ENOUGH, Quantiles};
use crate::sizing::advise::{Advice, Freed, ModelAdvice, TierAdvice};

/// Tenants that are told of.
const TENANTS: usize = 8;

/// Prints all of it.
pub(super) fn print(advice: &Advice, out: &mut impl Write) -> Result<(), Failure> {
    for model in &advice.models {
        writeln!(out, "{}\n", head(model))?;
        writeln!(out, "{}", lengths(model))?;
        writeln!(out, "{}", tiers(model))?;
        for tier in &model.tiers {
            tier.freed
                .iter()
                .try_for_each(|freed| writeln!(out, "{}\n", freed_by(tier, freed)))?;
        }
        if !model.splits.is_empty() {
            writeln!(out, "{}", splits(model))?;
        }
        if model.prefix.prompts > 0 {
            writeln!(out, "{}", prefix(model))?;
        }
        if model.held.requests_at_peak > 0 {
            writeln!(out, "{}\n\n{}", held(model), tenants(model))?;
        }
    }
    writeln!(out, "{}", figures(&advice.figures))?;
    match advice.proposals.as_slice() {
        [] if advice.models.iter().all(has_too_few) => writeln!(
            out,
            "too few whole answers to propose a change: {ENOUGH} of a model are wanted"
        )?,
        [] => writeln!(out, "nothing to change on these figures")?,
        proposals => {
            let mut lines = proposals.to_vec();
            for one in &mut lines {
                one.place = one_line(&one.place).into_owned();
                one.why = one_line(&one.why).into_owned();
            }
            write!(out, "\n{}", Diff(&lines))?;
        }
    }
    Ok(())
}

fn has_too_few(model: &ModelAdvice) -> bool {
    model.lengths.context.count < ENOUGH
}

fn head(model: &ModelAdvice) -> String {
    let (name, requests) = (one_line(&model.model), several(model.requests, "request"));
    let mut text = format!("{name}: {requests}");
    let parts = [
        (model.too_long, "refused for their length"),
        (model.refused, "refused for other reasons"),
        (model.broken, "broken off"),
    ];
    for (requests, what) in parts.into_iter().filter(|(requests, _)| *requests > 0) {
        text += &format!(", {requests} {what}");
    }
    if has_too_few(model) {
        text += &format!(
            "; fewer than {ENOUGH} whole answers, so a P99 is hardly more than the longest"
        );
    }
    text
}

fn lengths(model: &ModelAdvice) -> Table<6> {
    let mut table = Table::new(["TOKENS", "COUNT", "P50", "P90", "P99", "MAX"]);
    let lengths = &model.lengths;
    let footprint = format!("KV, blocks of {}", model.block_size);
    let rows = [
        ("prompt", lengths.prompt),
        ("output", lengths.output),
        ("context", lengths.context),
        (footprint.as_str(), lengths.footprint),
    ];
    for (name, quantiles) in rows.into_iter().filter(|row| row.1.count > 0) {
        let Quantiles {
            count,
            p50,
            p90,
            p99,
            max,
        } = quantiles;
        let [count, p50, p90, p99, max] = [count, p50, p90, p99, max].map(|n| n.to_string());
        table.row([name.to_owned(), count, p50, p90, p99, max]);
    }
    table
}

fn tiers(model: &ModelAdvice) -> Table<8> {
    let mut table = Table::new([
        "TIER",
        "ANSWERS",
        "P99 CONTEXT",
        "+10 TO 20 %",
        "MAX_MODEL_LEN",
        "PROPOSED",
        "LONGER",
        "PEAK KV %",
    ]);
    for tier in &model.tiers {
        let limit = tier.limit;
        table.row([
            tier.tier.to_owned(),
            tier.context.count.to_string(),
            tier.context.p99.to_string(),
            limit.map_or_else(none, |limit| format!("{} to {}", limit.low, limit.high)),
            tier.max_model_len
                .map_or_else(none, |limit| limit.to_string()),
            limit.map_or_else(none, |limit| limit.proposed.to_string()),
            limit.map_or_else(none, |limit| limit.longer.to_string()),
            tier.peak_usage.map_or_else(none, percent),
        ]);
    }
    table
}

fn freed_by(tier: &TierAdvice, freed: &Freed) -> String {
    let mut text = format!(
        "tier {}: prompt and bound, reserved for as long as each request ran, are {:.3e} token-seconds at {}\n\
         and {:.3e} at {}: a shorter limit frees {} % of what is reserved. {} % of it was never used ({:.3e}).",
        tier.tier,
        freed.reserved_from,
        freed.from,
        freed.reserved_to,
        freed.to,
        percent(freed.share),
        percent(freed.idle_share),
        freed.used,
    );
    if let (Some(from), Some(to)) = (freed.concurrency_from, freed.concurrency_to) {
        text += &format!(
            "\nWhole contexts in one engine's pool: {from:.1} at {}, {to:.1} at {} (pool / limit).",
            freed.from, freed.to
        );
    }
    text
}

fn splits(model: &ModelAdvice) -> Table<6> {
    let mut table = Table::new([
        "SPLIT AT",
        "REQUESTS BELOW %",
        "KV BELOW %",
        "PEAK KV BELOW",
        "PEAK KV ABOVE",
        "LONGEST",
    ]);
    for split in &model.splits {
        table.row([
            split.up_to.to_string(),
            percent(split.short_requests),
            percent(split.short_kv),
            split.short_peak_tokens.to_string(),
            split.long_peak_tokens.to_string(),
            split.longest.to_string(),
        ]);
    }
    table
}

fn prefix(model: &ModelAdvice) -> String {
    let seen = model.prefix_seen_share.map_or_else(none, percent);
    let told = &model.prefix;
    let mut text = format!(
        "prefix cache: {seen} % of {} prompt tokens had been seen before, in whole steps of 512",
        told.prompt_tokens
    );
    text += &match model.prefix_cached_share {
        Some(share) => format!(
            "; engines took {} % from their caches in {} prompts",
            percent(share),
            told.reported_prompts
        ),
        None => "; no engine told what its cache had (--enable-prompt-tokens-details)".to_owned(),
    };
    text
}

fn held(model: &ModelAdvice) -> String {
    let held = &model.held;
    let at = held.peak_at.as_deref().unwrap_or("no time");
    format!(
        "KV held: at most {} tokens, by {} at {at}; not more than {} for 99 % of the time; {:.0} on average",
        held.peak_tokens,
        several(held.requests_at_peak, "request"),
        held.p99_tokens,
        held.mean_tokens
    )
}

fn tenants(model: &ModelAdvice) -> Table<5> {
    let mut table = Table::new([
        "TENANT",
        "REQUESTS",
        "KV AT PEAK",
        "AT PEAK %",
        "OVER TIME %",
    ]);
    for one in model.tenants.iter().take(TENANTS) {
        table.row([
            one.tenant.clone(),
            one.requests.to_string(),
            one.tokens_at_peak.to_string(),
            percent(one.share_at_peak),
            percent(one.share),
        ]);
    }
    table
}

fn figures(figures: &Figures) -> String {
    let seconds = |figure: Option<f64>| figure.map_or_else(none, |s| format!("{s:.3} s"));
    format!(
        "round: KV tokens {}, first token {} p50 {} p99, output tokens/s {}, peak KV {} %",
        figures.kv_tokens.map_or_else(none, |kv| kv.to_string()),
        seconds(figures.ttft_p50_seconds),
        seconds(figures.ttft_p99_seconds),
        figures
            .output_tokens_per_second
            .map_or_else(none, |rate| format!("{rate:.1}")),
        figures.peak_kv_usage.map_or_else(none, percent),
    )
}

fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

fn none() -> String {
    "–".to_owned()
}
