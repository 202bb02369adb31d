//! What tidegate is to reach beside the others, and whether it does.

use std::fmt::Write as _;

use super::report::{Column, Results, rounded};

/// Proxies that know what an LLM request is.
const ROUTERS: &[&str] = &["vllm-router", "sglang-router"];
const NGINX: &[&str] = &["nginx"];
/// All that this compares with.
const EVERY: &[&str] = &[
    "nginx",
    "haproxy",
    "vllm-router",
    "sglang-router",
    "litellm",
    "portkey",
];

/// One goal: a figure of at most so much.
struct Goal {
    column: Column,
    most: Most,
}

/// The bound of a goal.
#[derive(Clone, Copy)]
enum Most {
    /// A number of the figure's own unit.
    Of(f64),
    /// So many times the least of these proxies' figures.
    Times(f64, &'static [&'static str]),
}

const fn goal(column: Column, most: Most) -> Goal {
    Goal { column, most }
}

const GOALS: [Goal; 11] = [
    goal(Column::PerRequest, Most::Times(1.5, NGINX)),
    goal(Column::PerRequest, Most::Times(0.5, ROUTERS)),
    goal(Column::PerChunk("paced100"), Most::Times(1.0, NGINX)),
    goal(Column::PerChunk("paced2000"), Most::Times(1.0, NGINX)),
    goal(Column::PerChunk("fast100"), Most::Times(1.2, NGINX)),
    goal(Column::PerChunk("fast2000"), Most::Times(1.2, NGINX)),
    goal(Column::PerChunk("fast100"), Most::Times(1.0, ROUTERS)),
    goal(Column::PerChunk("fast2000"), Most::Times(1.0, ROUTERS)),
    goal(Column::HalfP99, Most::Times(1.0, EVERY)),
    goal(Column::Idle, Most::Of(40.0)),
    goal(Column::Long, Most::Of(10.0)),
];

/// A table of the goals: what, at most how much, what was measured, whether that is met.
/// A goal of which a figure is missing is not called met.
pub(crate) fn table(results: &Results) -> String {
    let mut text = "| goal | at most | tidegate | |\n|---|---|---|---|\n".to_owned();
    for goal in GOALS {
        let ours = results.figure("tidegate", goal.column);
        let ours = ours.map(|figure| figure.median);
        let most = goal.most.value(results, goal.column);
        let verdict = match ours.zip(most) {
            Some((ours, most)) if ours <= most => "met",
            Some(_) => "missed",
            None => "not measured",
        };
        let told = |figure: Option<f64>| figure.map_or_else(|| "–".to_owned(), rounded);
        writeln!(
            text,
            "| {}, {} | {} | {} | {verdict} |",
            goal.column.title(results),
            goal.most.told(),
            told(most),
            told(ours)
        )
        .expect("a string takes all");
    }
    text
}

// === impl Most ===

impl Most {
    fn value(self, results: &Results, column: Column) -> Option<f64> {
        match self {
            Self::Of(most) => Some(most),
            Self::Times(factor, peers) => {
                let theirs = peers.iter().map(|peer| results.figure(peer, column));
                let theirs = theirs.flatten().map(|figure| figure.median);
                Some(factor * theirs.min_by(f64::total_cmp)?)
            }
        }
    }

    fn told(self) -> String {
        match self {
            Self::Of(_) => "in all".to_owned(),
            Self::Times(factor, peers) => format!("{factor} times {}", least(peers)),
        }
    }
}

/// Whose figure is meant.
fn least(peers: &[&str]) -> String {
    match peers {
        [one] => format!("{one}'s"),
        [one, other] => format!("the lower of {one}'s and {other}'s"),
        _ => "the lowest other's".to_owned(),
    }
}
