//! The report for people: three tables, one row for each policy at each load.

use std::io::Write;

use super::Failure;
use crate::cli::table::Table;
use crate::replay::metrics::stats::Estimate;
use crate::replay::metrics::{Class, Figures};
use crate::replay::report::Row;

type Figure = fn(&Figures) -> Option<f64>;
type ByClass = fn(&Figures) -> &Class;

/// Prints what was served, how fast, and what was refused and to whom.
pub(super) fn print(rows: &[Row], out: &mut impl Write) -> Result<(), Failure> {
    writeln!(out, "{}", served(rows))?;
    writeln!(out, "{}", latency(rows))?;
    writeln!(out, "{}", refused(rows))?;
    write!(out, "{}", fairness(rows))?;
    let capacities = capacities(rows);
    if !capacities.is_empty() {
        writeln!(out, "\n{capacities}")?;
    }
    Ok(())
}

fn served(rows: &[Row]) -> Table<8> {
    let mut table = Table::new([
        "POLICY",
        "LOAD",
        "GOODPUT %",
        "TOKENS %",
        "WASTED %",
        "PREEMPTED /1000",
        "KV %",
        "LONG %",
    ]);
    for row in rows {
        table.row([
            name(row),
            row.load.to_string(),
            with_ci(row.estimate(|figures| Some(100.0 * figures.goodput))),
            percent(row, |figures| Some(figures.token_goodput)),
            percent(row, |figures| Some(figures.wasted)),
            number(row, |figures| Some(figures.preemptions_per_1000)),
            percent(row, |figures| Some(figures.kv_utilisation)),
            percent(row, |figures| figures.long.goodput),
        ]);
    }
    table
}

fn latency(rows: &[Row]) -> Table<6> {
    let mut table = Table::new([
        "POLICY",
        "LOAD",
        "PROMPTS",
        "REQUESTS",
        "FIRST TOKEN s, p50 p90 p99",
        "PER TOKEN ms, p50 p90 p99",
    ]);
    let classes: [(&str, ByClass); 3] = [
        ("to 4K", |figures| &figures.short),
        ("to 32K", |figures| &figures.middle),
        ("above", |figures| &figures.long),
    ];
    for row in rows {
        for (prompts, class) in classes {
            let offered: u64 = row.seeds.iter().map(|figures| class(figures).offered).sum();
            if offered == 0 {
                continue;
            }
            let quantiles = |of: fn(&Class) -> &[Option<f64>; 3], digits: usize| {
                let one = |place: usize| {
                    let estimate = row.estimate(|figures| of(class(figures))[place]);
                    estimate.map_or("–".to_owned(), |estimate| {
                        format!("{:.digits$}", estimate.mean)
                    })
                };
                [one(0), one(1), one(2)].join(" ")
            };
            table.row([
                name(row),
                row.load.to_string(),
                prompts.to_owned(),
                offered.to_string(),
                quantiles(|class| &class.ttft_s, 2),
                quantiles(|class| &class.tpot_ms, 1),
            ]);
        }
    }
    table
}

fn refused(rows: &[Row]) -> Table<9> {
    let mut table = Table::new([
        "POLICY",
        "LOAD",
        "REFUSED %",
        "RIGHTLY %",
        "OF FAILURES %",
        "AFTER s",
        "RETRY-AFTER P80 %",
        "ERROR %",
        "60 s %",
    ]);
    for row in rows {
        table.row([
            name(row),
            row.load.to_string(),
            percent(row, |figures| Some(figures.refusals.rejected)),
            percent(row, |figures| figures.refusals.precision),
            percent(row, |figures| figures.refusals.recall),
            number(row, |figures| figures.refusals.after_s),
            percent(row, |figures| figures.retry_after.p80_coverage),
            percent(row, |figures| figures.retry_after.median_error),
            percent(row, |figures| figures.retry_after.capped),
        ]);
    }
    table
}

fn fairness(rows: &[Row]) -> Table<9> {
    let mut table = Table::new([
        "POLICY",
        "LOAD",
        "LIGHT TENANTS %",
        "WORST %",
        "JAIN",
        "SERVICE GAP",
        "OTHERS %",
        "FORETOLD P80 %",
        "ERROR %",
    ]);
    for row in rows {
        table.row([
            name(row),
            row.load.to_string(),
            percent(row, |figures| figures.fairness.light_mean),
            percent(row, |figures| figures.fairness.light_worst),
            mean(row, |figures| figures.fairness.jain, 3),
            mean(row, |figures| figures.fairness.service_gap, 0),
            percent(row, |figures| figures.others_goodput),
            percent(row, |figures| figures.foretold.p80_coverage),
            percent(row, |figures| figures.foretold.median_error),
        ]);
    }
    table
}

/// The largest load of each policy with a goodput of 95 %, where several loads were played.
fn capacities(rows: &[Row]) -> String {
    let mut kinds: Vec<_> = rows.iter().map(|row| row.kind).collect();
    kinds.dedup();
    if rows.len() <= kinds.len() {
        return String::new();
    }
    let told = kinds.iter().map(|kind| {
        let enough = rows
            .iter()
            .filter(|row| row.kind == *kind && row.goodput() >= 0.95);
        let most = enough.map(|row| row.load).reduce(f64::max);
        let most = most.map_or("none".to_owned(), |most| most.to_string());
        format!("{} {most}", kind.name())
    });
    let told: Vec<String> = told.collect();
    format!("largest load with a goodput of 95 %: {}", told.join(", "))
}

fn name(row: &Row) -> String {
    match &row.setting {
        Some(setting) => format!("{} ({setting})", row.kind.name()),
        None => row.kind.name().to_owned(),
    }
}

fn percent(row: &Row, figure: Figure) -> String {
    let hundredfold = row.estimate(|figures| figure(figures).map(|share| 100.0 * share));
    hundredfold.map_or("–".to_owned(), |estimate| format!("{:.1}", estimate.mean))
}

fn number(row: &Row, figure: Figure) -> String {
    mean(row, figure, 1)
}

fn mean(row: &Row, figure: Figure, digits: usize) -> String {
    let estimate = row.estimate(figure);
    estimate.map_or("–".to_owned(), |estimate| {
        format!("{:.digits$}", estimate.mean)
    })
}

fn with_ci(estimate: Option<Estimate>) -> String {
    match estimate {
        Some(Estimate {
            mean,
            ci95: Some(ci95),
        }) => format!("{mean:.1} ±{ci95:.1}"),
        Some(Estimate { mean, ci95: None }) => format!("{mean:.1}"),
        None => "–".to_owned(),
    }
}
