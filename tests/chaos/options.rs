//! Flags of the chaos tool, and the figures of its bounded form.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::load::Temper;

/// Chaos for a gateway in a process of its own before simulated engines in theirs.
///
/// Without `--soak` the bounded scenarios run, as in `cargo test`.
#[derive(Clone, Debug, Parser)]
#[command(name = "chaos")]
pub(crate) struct Options {
    /// How long the load lasts, such as 30m.
    #[arg(long, value_parser = duration)]
    pub(crate) soak: Option<Duration>,
    /// Clients, each with one request at a time.
    #[arg(long, default_value_t = 96)]
    pub(crate) streams: u64,
    /// Processes the clients are spread over.
    #[arg(long, default_value_t = 2)]
    pub(crate) generators: u64,
    /// Engines; one of them comes and goes with the configuration.
    #[arg(long, default_value_t = 4)]
    pub(crate) engines: u64,
    /// Time between two deaths of engines.
    #[arg(long, default_value = "4s", value_parser = duration)]
    pub(crate) kill_every: Duration,
    /// Time between two rewritten configurations.
    #[arg(long, default_value = "3s", value_parser = duration)]
    pub(crate) reload_every: Duration,
    /// Time between two moments at which many clients leave together.
    #[arg(long, default_value = "7s", value_parser = duration)]
    pub(crate) storm_every: Duration,
    /// Time between two engines that stand still for a while.
    #[arg(long, default_value = "9s", value_parser = duration)]
    pub(crate) stall_every: Duration,
    /// Real seconds per second of the engines: slower engines, fewer tokens to carry.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) time_scale: f64,
    /// Longest answer asked for, in tokens.
    #[arg(long, default_value_t = 64)]
    pub(crate) longest_answer: u64,
    /// Seed of all that is drawn.
    #[arg(long, default_value_t = 7)]
    pub(crate) seed: u64,
    /// How clients are; set by the scenarios.
    #[arg(skip = Temper::Mixed)]
    pub(crate) temper: Temper,
    /// File to write all figures to, as JSON.
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
    /// Keep the directory of the run: configuration, logs.
    #[arg(long)]
    pub(crate) keep: bool,
    /// What a load generator is to do; set by the tool for its own processes.
    #[arg(long, hide = true)]
    pub(crate) generate: Option<String>,

    /// Scenarios to run, by a part of their names.
    pub(crate) filters: Vec<String>,
    /// Print the scenarios.
    #[arg(long)]
    pub(crate) list: bool,
    #[command(flatten)]
    pub(crate) _harness: Harness,
}

/// Flags `cargo test` hands to every test; they change nothing here.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Harness {
    #[arg(long, hide = true)]
    nocapture: bool,
    #[arg(long, hide = true)]
    exact: bool,
    #[arg(long, hide = true)]
    include_ignored: bool,
    #[arg(long, hide = true)]
    ignored: bool,
    #[arg(long, short, hide = true)]
    quiet: bool,
    #[arg(long, hide = true)]
    test_threads: Option<u32>,
    #[arg(long, hide = true)]
    format: Option<String>,
    #[arg(long, hide = true)]
    color: Option<String>,
}

/// "90s", "30m", "250ms".
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let amount: u64 = digits.parse().map_err(|_| format!("{text} is no time"))?;
    match &text[digits.len()..] {
        "ms" => Ok(Duration::from_millis(amount)),
        "s" => Ok(Duration::from_secs(amount)),
        "m" => Ok(Duration::from_secs(amount * 60)),
        "h" => Ok(Duration::from_secs(amount * 3600)),
        _ => Err(format!("{text} has no unit of ms, s, m or h")),
    }
}
