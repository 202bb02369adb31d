//! `tidegate replay`: traces against a simulated fleet, in virtual time.
//!
//! Decides what is read, played and printed. Figures are `replay`'s; nothing is measured
//! here. stdout is the report, stderr what was read and how far it is.

mod bar;
mod inputs;
mod tables;
mod what_if;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;

use clap::Args;
use serde::Serialize;

use super::Failure;
use crate::replay::cells::{Played, Store, Study};
use crate::replay::fleet::{Change, FleetFile};
use crate::replay::plot;
use crate::replay::policy::PolicyKind;
use crate::replay::report::{Row, Summary, rows};
use crate::replay::traces::Format;
use bar::Bar;
use inputs::Inputs;
use what_if::Difference;

/// Refusals of one policy at one load that are looked into, over all seeds.
const SAMPLE: u64 = 200;

/// Flags of `tidegate replay`.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// Traces; several are merged in time. Mooncake's and Bailian's JSON lines, Azure's and
    /// BurstGPT's CSV, CSV with t_s, prompt_tokens, output_tokens and perhaps tenant and
    /// max_tokens, and tidegate's own access log.
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// The engines, as config/fleets has them.
    #[arg(long, value_name = "FILE")]
    fleet: PathBuf,
    /// The format of the traces [default: told by the first line of each].
    #[arg(long, value_name = "FORMAT", value_parser = read_format)]
    format: Option<Format>,
    /// How many times faster requests come than in the trace: time is compressed, none is
    /// left out. Several by comma.
    #[arg(long, value_name = "X", value_delimiter = ',', default_value = "1", value_parser = read_load)]
    load: Vec<f64>,
    /// Runs of each policy at each load, with seeds from 1 to N.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Policies by comma, or all.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = read_policy,
        default_value = "round-robin,least-outstanding,dynamo-like,ours")]
    policy: Vec<Policies>,
    /// First second of the trace that is played.
    #[arg(long, value_name = "S", default_value_t = 0.0, value_parser = read_second)]
    from: f64,
    /// Second of the trace at which it ends [default: its end].
    #[arg(long, value_name = "S", value_parser = read_second)]
    to: Option<f64>,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    json: bool,
    /// Write every figure of every run as comma-separated values.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw goodput over load.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Keep each run in this folder, and play only what is not there.
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,
    /// Runs at once [default: one for each processor].
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Change the fleet and say what that buys: add=NAME:COUNT, max_model_len=TOKENS,
    /// max_model_len=NAME:TOKENS, kv=fp8, tier=NAME:TIER, surge=TENANT*FACTOR@FROM-TO. All
    /// of them together are one change.
    #[arg(long, value_name = "CHANGE")]
    what_if: Vec<Change>,
}

/// What one word of `--policy` names.
#[derive(Clone, Debug, PartialEq)]
enum Policies {
    All,
    One(PolicyKind),
}

/// The report as `--json` prints it.
#[derive(Serialize)]
struct Report {
    policies: Vec<Summary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    what_if: Option<Changed>,
}

/// The report of a changed fleet.
#[derive(Serialize)]
struct Changed {
    changes: Vec<String>,
    policies: Vec<Summary>,
    difference: Vec<Difference>,
}

/// Plays and reports.
pub(super) fn replay(flags: &Flags, out: &mut impl Write) -> Result<(), Failure> {
    let fleet = read_fleet(&flags.fleet)?;
    let other = match flags.what_if.as_slice() {
        [] => None,
        changes => Some(fleet.changed(changes)),
    };
    let other = other.transpose();
    let other = other.map_err(|error| Failure::Configuration(format!("--what-if: {error}")))?;
    let inputs = Inputs::read(flags)?;
    let played = play(flags, &fleet, &inputs)?;
    let changed = match &other {
        Some(other) => Some(play(flags, other, &inputs)?),
        None => None,
    };
    let before = rows(&played);
    let after = changed.as_deref().map(rows);
    write_files(
        flags,
        (&played, changed.as_deref()),
        after.as_deref().unwrap_or(&before),
    )?;
    if flags.json {
        let report = report(flags, &before, after.as_deref());
        let text = serde_json::to_string_pretty(&report).expect("figures have a JSON form");
        writeln!(out, "{text}")?;
        return Ok(());
    }
    tables::print(&before, out)?;
    if let Some(after) = &after {
        let changes = written(&flags.what_if).join(", ");
        writeln!(out, "\nwhat if {changes}:\n")?;
        tables::print(after, out)?;
        writeln!(out, "\n{}", what_if::told(&before, after, &changes))?;
    }
    Ok(())
}

fn report(flags: &Flags, before: &[Row], after: Option<&[Row]>) -> Report {
    let summaries = |rows: &[Row]| rows.iter().map(Row::summary).collect();
    Report {
        policies: summaries(before),
        what_if: after.map(|after| Changed {
            changes: written(&flags.what_if),
            policies: summaries(after),
            difference: what_if::differences(before, after),
        }),
    }
}

fn written(changes: &[Change]) -> Vec<String> {
    changes.iter().map(ToString::to_string).collect()
}

fn read_fleet(path: &Path) -> Result<FleetFile, Failure> {
    let wrong = |problem: String| Failure::Configuration(format!("{}: {problem}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    FleetFile::read(&text).map_err(|error| wrong(error.to_string()))
}

/// Plays every cell on one fleet.
fn play(flags: &Flags, fleet: &FleetFile, inputs: &Inputs) -> Result<Vec<Played>, Failure> {
    let plan = fleet.plan().expect("a fleet that was read makes a plan");
    let (schedule, plan) = inputs.schedule(plan)?;
    let store = flags.resume.as_deref().map(Store::open).transpose();
    let store = store.map_err(|error| Failure::Run(format!("--resume: {error}")))?;
    let study = Study {
        schedule: &schedule,
        policies: inputs::policies(&flags.policy, &plan),
        plan: &plan,
        loads: flags.load.clone(),
        seeds: flags.seeds,
        conditions: crate::replay::Conditions::default(),
        sample: usize::try_from(SAMPLE.div_ceil(flags.seeds)).expect("at most 200"),
        identity: inputs.identity(store.is_some()),
    };
    let jobs = flags
        .jobs
        .or_else(|| thread::available_parallelism().ok().map(usize::from));
    let bar = Bar::new(&study);
    let played = study.play((store.as_ref(), jobs.unwrap_or(1)), &bar);
    bar.finish();
    played.map_err(|error| Failure::Run(format!("--resume: {error}")))
}

/// What `--csv` and `--plot` ask for; the drawing is of the changed fleet where there is one.
fn write_files(
    flags: &Flags,
    (played, changed): (&[Played], Option<&[Played]>),
    drawn: &[Row],
) -> Result<(), Failure> {
    let cannot = |path: &Path, error: String| {
        Failure::Run(format!("cannot write {}: {error}", path.display()))
    };
    if let Some(path) = &flags.csv {
        let mut text = Vec::new();
        let both = [played, changed.unwrap_or_default()];
        let lines = inputs::csv(&both, &mut text);
        lines.map_err(|error| cannot(path, error.to_string()))?;
        fs::write(path, text).map_err(|error| cannot(path, error.to_string()))?;
    }
    if let Some(path) = &flags.plot {
        let names: Vec<String> = flags.traces.iter().map(|path| inputs::name(path)).collect();
        let fleet = inputs::name(&flags.fleet);
        let text = plot::svg(drawn, &format!("{} on {fleet}", names.join(" + ")));
        let written =
            text.and_then(|text| fs::write(path, text).map_err(|error| error.to_string()));
        written.map_err(|error| cannot(path, error))?;
    }
    Ok(())
}

fn read_format(name: &str) -> Result<Format, String> {
    Format::parse(name)
        .ok_or_else(|| format!("known are {}", Format::ALL.map(Format::name).join(", ")))
}

fn read_policy(name: &str) -> Result<Policies, String> {
    if name == "all" {
        return Ok(Policies::All);
    }
    PolicyKind::parse(name).map(Policies::One).ok_or_else(|| {
        let names = PolicyKind::ALL.map(PolicyKind::name).join(", ");
        format!("known are all, {names}")
    })
}

fn read_load(text: &str) -> Result<f64, String> {
    let load = text
        .parse()
        .ok()
        .filter(|load| (0.001..=1000.0).contains(load));
    load.ok_or_else(|| "must be a number from 0.001 to 1000".to_owned())
}

fn read_second(text: &str) -> Result<f64, String> {
    let second = text
        .parse()
        .ok()
        .filter(|second| (0.0..=1e9).contains(second));
    second.ok_or_else(|| "must be seconds since the trace's first request".to_owned())
}
