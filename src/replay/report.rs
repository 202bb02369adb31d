//! What a study found: the best setting of each policy at each load, over its seeds.
//!
//! Decides which setting stands for a policy with several (the one with the highest mean
//! goodput at that load, the first of equals) and how figures are written for machines.

use serde::Serialize;

use super::cells::Played;
use super::metrics::Figures;
use super::metrics::stats::Estimate;
use super::policy::{Policy, PolicyKind};

/// One policy at one load.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The policy.
    pub kind: PolicyKind,
    /// The setting that stands for it, where it has several.
    pub setting: Option<String>,
    /// The load.
    pub load: f64,
    /// Its figures, by seed.
    pub seeds: Vec<Figures>,
}

/// A row as `--json` tells it: shares within 0 and 1, `null` where there is nothing to tell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    name: &'static str,
    load: f64,
    goodput: Option<f64>,
    goodput_ci95: Option<f64>,
    wasted: Option<f64>,
    preemptions_per_1000: Option<f64>,
    kv_utilisation: Option<f64>,
    short_ttft_p99_s: Option<f64>,
    long_goodput: Option<f64>,
    rejected: Option<f64>,
    rejection_precision: Option<f64>,
    light_tenant_goodput_mean: Option<f64>,
    light_tenant_goodput_worst: Option<f64>,
    retry_after_p80_coverage: Option<f64>,
}

/// Rows of all policies and loads, in the order in which they were played.
pub fn rows(played: &[Played]) -> Vec<Row> {
    let mut tried: Vec<(&Policy, Row)> = Vec::new();
    for Played { cell, figures } in played {
        let same = |(policy, row): &&mut (&Policy, Row)| {
            **policy == cell.policy && row.load.total_cmp(&cell.load).is_eq()
        };
        if let Some((_, row)) = tried.iter_mut().find(same) {
            row.seeds.push(figures.clone());
            continue;
        }
        let row = Row {
            kind: cell.policy.kind(),
            setting: cell.policy.setting(),
            load: cell.load,
            seeds: vec![figures.clone()],
        };
        tried.push((&cell.policy, row));
    }
    let mut best: Vec<Row> = Vec::new();
    for (_, row) in tried {
        let same =
            |known: &&mut Row| known.kind == row.kind && known.load.total_cmp(&row.load).is_eq();
        match best.iter_mut().find(same) {
            Some(known) if known.goodput() < row.goodput() => *known = row,
            Some(_) => {}
            None => best.push(row),
        }
    }
    best
}

/// Every cell with every figure, as comma-separated values with a header.
///
/// # Errors
/// The writer's.
pub fn write_csv(played: &[Played], out: impl std::io::Write) -> csv::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    for (number, Played { cell, figures }) in played.iter().enumerate() {
        let figures = serde_json::to_value(figures).expect("figures have a JSON form");
        let mut fields = Vec::new();
        flatten("", &figures, &mut fields);
        if number == 0 {
            let names = fields.iter().map(|(name, _)| name.as_str());
            writer.write_record(
                ["policy", "setting", "load", "seed"]
                    .into_iter()
                    .chain(names),
            )?;
        }
        let cell = [
            cell.policy.kind().name().to_owned(),
            cell.policy.setting().unwrap_or_default(),
            cell.load.to_string(),
            cell.seed.to_string(),
        ];
        let values = fields.into_iter().map(|(_, value)| value);
        writer.write_record(cell.into_iter().chain(values))?;
    }
    writer.flush()?;
    Ok(())
}

/// Names and values of the leaves, `null` as nothing.
fn flatten(name: &str, value: &serde_json::Value, fields: &mut Vec<(String, String)>) {
    use serde_json::Value;
    let under = |part: &str| match name {
        "" => part.to_owned(),
        name => format!("{name}_{part}"),
    };
    match value {
        Value::Object(parts) => {
            for (part, value) in parts {
                flatten(&under(part), value, fields);
            }
        }
        Value::Array(quantiles) => {
            for (part, value) in ["p50", "p90", "p99"].iter().zip(quantiles) {
                flatten(&under(part), value, fields);
            }
        }
        Value::Null => fields.push((name.to_owned(), String::new())),
        value => fields.push((name.to_owned(), value.to_string())),
    }
}

// === impl Row ===

impl Row {
    /// A figure over the seeds in which there is one.
    pub fn estimate(&self, figure: impl Fn(&Figures) -> Option<f64>) -> Option<Estimate> {
        let values: Vec<f64> = self.seeds.iter().filter_map(figure).collect();
        Estimate::of(&values)
    }

    /// Mean goodput.
    pub fn goodput(&self) -> f64 {
        self.estimate(|figures| Some(figures.goodput))
            .map_or(0.0, |goodput| goodput.mean)
    }

    /// The row for machines.
    pub fn summary(&self) -> Summary {
        let goodput = self.estimate(|figures| Some(figures.goodput));
        let mean = |figure: fn(&Figures) -> Option<f64>| {
            self.estimate(figure).map(|estimate| rounded(estimate.mean))
        };
        Summary {
            name: self.kind.name(),
            load: self.load,
            goodput: goodput.map(|goodput| rounded(goodput.mean)),
            goodput_ci95: goodput.and_then(|goodput| goodput.ci95).map(rounded),
            wasted: mean(|figures| Some(figures.wasted)),
            preemptions_per_1000: mean(|figures| Some(figures.preemptions_per_1000)),
            kv_utilisation: mean(|figures| Some(figures.kv_utilisation)),
            short_ttft_p99_s: mean(|figures| figures.short.ttft_s[2]),
            long_goodput: mean(|figures| figures.long.goodput),
            rejected: mean(|figures| Some(figures.refusals.rejected)),
            rejection_precision: mean(|figures| figures.refusals.precision),
            light_tenant_goodput_mean: mean(|figures| figures.fairness.light_mean),
            light_tenant_goodput_worst: mean(|figures| figures.fairness.light_worst),
            retry_after_p80_coverage: mean(|figures| figures.retry_after.p80_coverage),
        }
    }
}

/// To six places: what lies beyond is no figure.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests;
