//! What each mechanism of the admission buys, and what each wrong input costs.
//!
//! Measured: goodput, waste and preemptions of the shipped core on the traces beside this
//! file, against the fleets of config/fleets, as it ships and with one thing changed: a
//! mechanism at the setting that turns it off, or the gateway told something wrong.
//! Baseline: the first row. A mechanism whose row is no worse than the baseline on any
//! workload buys nothing and is to be taken out; a wrong input may cost three points of
//! goodput and three of waste.
//!
//! `cargo bench --bench replay [-- SEEDS [CASE,CASE…]]` prints the table and writes
//! benches/replay/results/ablations.csv.

mod cases;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use cases::{CASES, Case, Changed};
use tidegate::core::units::Tokens;
use tidegate::replay::Conditions;
use tidegate::replay::cells::{Cell, Kept, Played, Study, Watch};
use tidegate::replay::fleet::FleetFile;
use tidegate::replay::policy::{Ours, Policy};
use tidegate::replay::report::{Row, rows, write_csv};
use tidegate::replay::traces::schedule::{Part, Schedule};
use tidegate::replay::traces::{Trace, read};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// What every case is played on.
struct Workload {
    name: &'static str,
    traces: &'static [&'static str],
    fleet: &'static str,
    load: f64,
}

const WORKLOADS: [Workload; 3] = [
    Workload {
        name: "conv 1.5",
        traces: &["mooncake_conversation.jsonl"],
        fleet: "conv.toml",
        load: 1.5,
    },
    Workload {
        name: "mix 2.0",
        traces: &["azure2023_conv.csv", "mooncake_conversation.jsonl"],
        fleet: "mix.toml",
        load: 2.0,
    },
    Workload {
        name: "r1 0.9",
        traces: &["servegen_deepseek-r1.csv"],
        fleet: "r1.toml",
        load: 0.9,
    },
];

fn main() -> Outcome<()> {
    let mut words = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with("--"));
    let seeds: u64 = words.next().map_or(Ok(3), |seeds| seeds.parse())?;
    let wanted = words.next();
    let is_wanted = |case: &&Case| {
        let names = wanted.as_deref().map(|names| names.split(','));
        names.is_none_or(|mut names| names.any(|name| name == case.name))
    };
    let results = folder().join("results");
    fs::create_dir_all(&results)?;
    let mut csv = String::new();
    println!(
        "| case | {} |",
        WORKLOADS.map(|workload| workload.name).join(" | ")
    );
    println!("|---|{}", "---|".repeat(WORKLOADS.len()));
    for case in CASES.iter().filter(is_wanted) {
        let mut cells = Vec::new();
        for workload in &WORKLOADS {
            let played = workload.play(case, seeds)?;
            cells.push(cell(&rows(&played)));
            append(&mut csv, (case.name, workload.name), &played)?;
        }
        println!("| {} | {} |", case.name, cells.join(" | "));
        // After each case, so that a run that is ended early leaves what it found.
        fs::write(results.join("ablations.csv"), &csv)?;
    }
    Ok(())
}

/// Goodput with its interval, waste where there is any.
fn cell(rows: &[Row]) -> String {
    let Some(row) = rows.first() else {
        return String::new();
    };
    let goodput = row.estimate(|figures| Some(100.0 * figures.goodput));
    let wasted = row.estimate(|figures| Some(100.0 * figures.wasted));
    let goodput = goodput.map_or(String::new(), |goodput| match goodput.ci95 {
        Some(ci95) => format!("{:.1} ±{ci95:.1}", goodput.mean),
        None => format!("{:.1}", goodput.mean),
    });
    match wasted {
        Some(wasted) if wasted.mean >= 0.05 => format!("{goodput} ({:.1})", wasted.mean),
        _ => goodput,
    }
}

/// Adds the runs' lines, each after its case and workload; the header once.
fn append(csv: &mut String, (case, workload): (&str, &str), played: &[Played]) -> Outcome<()> {
    let mut lines = Vec::new();
    write_csv(played, &mut lines)?;
    let lines = String::from_utf8(lines)?;
    for (number, line) in lines.lines().enumerate() {
        match number {
            0 if csv.is_empty() => *csv += &format!("case,workload,{line}\n"),
            0 => {}
            _ => *csv += &format!("{case},{workload},{line}\n"),
        }
    }
    Ok(())
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/replay")
}

// === impl Workload ===

impl Workload {
    fn play(&self, case: &Case, seeds: u64) -> Outcome<Vec<Played>> {
        let fleet = folder().join("../../config/fleets").join(self.fleet);
        let mut plan = FleetFile::read(&fs::read_to_string(fleet)?)?.plan()?;
        let traces: Vec<Trace> = self
            .traces
            .iter()
            .map(|name| trace(name))
            .collect::<Outcome<_>>()?;
        let mut changed = Changed {
            ours: Ours::default(),
            conditions: Conditions::default(),
            traces,
        };
        changed.ours.pool.tiers = plan.tiers;
        (case.change)(&mut changed, &mut plan);
        let least = |trace: &Trace| plan.least_prompt.get(&trace.format).copied();
        let part = Part {
            least_prompt: changed
                .traces
                .iter()
                .map(|trace| least(trace).unwrap_or(Tokens::ZERO))
                .collect(),
            ..Part::whole()
        };
        let schedule = Schedule::new(&changed.traces, &part)?;
        let study = Study {
            schedule: &schedule,
            plan: &plan,
            policies: vec![Policy::Ours(Box::new(changed.ours))],
            loads: vec![self.load],
            seeds,
            conditions: changed.conditions,
            sample: 0,
            identity: String::new(),
        };
        let jobs = thread::available_parallelism().map_or(1, usize::from);
        Ok(study.play((None, jobs), &Silent)?)
    }
}

fn trace(name: &str) -> Outcome<Trace> {
    let bytes = fs::read(folder().join("traces").join(name))?;
    Ok(read(bytes.as_slice(), name, None)?)
}

/// Nobody watches.
struct Silent;

impl Watch for Silent {
    fn moved(&self, _: u64) {}

    fn done(&self, _: &Cell, _: Kept) {}
}
