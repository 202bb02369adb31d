//! What a changed fleet buys: the same requests before and after.

use serde::Serialize;

use crate::replay::report::Row;

/// One policy at one load, before and after.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Difference {
    name: &'static str,
    load: f64,
    /// Shares; negative for a loss.
    goodput: f64,
    long_goodput: Option<f64>,
    others_goodput: Option<f64>,
    wasted: f64,
    rejected: f64,
}

/// After less before, row by row. Rows are those of the same policies and loads.
pub(super) fn differences(before: &[Row], after: &[Row]) -> Vec<Difference> {
    before
        .iter()
        .zip(after)
        .map(|(before, after)| {
            let mean =
                |row: &Row, figure: Figure| row.estimate(figure).map(|estimate| estimate.mean);
            let apart =
                |figure: Figure| Some(rounded(mean(after, figure)? - mean(before, figure)?));
            Difference {
                name: before.kind.name(),
                load: before.load,
                goodput: apart(|figures| Some(figures.goodput)).unwrap_or(0.0),
                long_goodput: apart(|figures| figures.long.goodput),
                others_goodput: apart(|figures| figures.others_goodput),
                wasted: apart(|figures| Some(figures.wasted)).unwrap_or(0.0),
                rejected: apart(|figures| Some(figures.refusals.rejected)).unwrap_or(0.0),
            }
        })
        .collect()
}

type Figure = fn(&crate::replay::metrics::Figures) -> Option<f64>;

/// One sentence for each policy and load.
pub(super) fn told(before: &[Row], after: &[Row], changes: &str) -> String {
    let differences = differences(before, after);
    let lines = differences.iter().zip(before.iter().zip(after)).map(|(difference, (before, after))| {
        let offered = |row: &Row| row.estimate(|figures| Some(thousands(figures.offered))).map_or(0.0, |offered| offered.mean);
        let good = |row: &Row| 1000.0 * offered(row) * row.goodput();
        let verb = if difference.goodput < 0.0 { "costs" } else { "buys" };
        let mut line = format!(
            "{changes} {verb} {} at load {}: {:+.1} points of goodput ({:.1} to {:.1} %), {:+.0} good requests",
            before.kind.name(),
            before.load,
            100.0 * difference.goodput,
            100.0 * before.goodput(),
            100.0 * after.goodput(),
            good(after) - good(before),
        );
        if let Some(long) = difference.long_goodput {
            line += &format!(", {:+.1} points of long prompts", 100.0 * long);
        }
        line
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn thousands(count: u64) -> f64 {
    crate::core::units::Tokens::new(count).as_f64() / 1000.0
}

/// To six places.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}
