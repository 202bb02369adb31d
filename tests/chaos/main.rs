//! Chaos and soak: a real gateway before simulated engines while everything around it fails.
//!
//! Every gateway, engine and load generator is a process of its own. Engines are
//! killed and come back with another KV pool, stand still, and come and go with the
//! configuration; clients leave one by one and in storms, read slowly, send what is
//! no request. Checked: each client has its full answer or an error it can see, and
//! when all is over the books are at zero, nothing has panicked, and memory,
//! descriptors and threads are where they were.
//!
//! `cargo test` runs the bounded scenarios. The long run:
//!
//! ```sh
//! cargo test --test chaos -- --soak 30m --streams 2000 --kill-every 20s --reload-every 30s \
//!     --engines 5 --generators 4 --time-scale 20 --longest-answer 120 --seed 7 --json soak.json
//! ```

mod books;
mod fleet;
mod load;
mod options;
mod process;
mod report;
mod run;
mod settings;
mod tally;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use load::Temper;
use options::Options;
use report::Report;
use run::Run;

/// Real time after which the bounded form hangs.
const HANG: Duration = Duration::from_secs(300);

/// A bounded scenario of `cargo test`.
type Scenario = (&'static str, fn(&Options) -> Report);

const SCENARIOS: [Scenario; 2] = [
    (
        "every_client_gets_its_answer_or_an_error_while_engines_die",
        engines_die,
    ),
    ("a_reload_under_load_drops_no_stream", reloads),
];

/// Streams that run while the configuration changes.
const STREAMS: u64 = 500;

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(duty) = &options.generate {
        load::generate(&serde_json::from_str(duty).expect("the tool writes its own duty"));
        return ExitCode::SUCCESS;
    }
    if options.list {
        for (name, _) in SCENARIOS {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    let limit = rlimit::increase_nofile_limit(u64::MAX);
    println!("chaos: {} file descriptors", limit.unwrap_or_default());
    let reports: Vec<Report> = match options.soak {
        Some(length) => vec![soak(&options, length)],
        None => chosen(&options)
            .map(|(_, scenario)| scenario(&options))
            .collect(),
    };
    if let Some(file) = &options.json {
        let text = serde_json::to_string_pretty(&reports).expect("figures have a JSON form");
        std::fs::write(file, text).expect("the file of --json is writable");
    }
    let failed = reports.iter().any(|report| !report.faults.is_empty());
    if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn chosen(options: &Options) -> impl Iterator<Item = Scenario> {
    let filters = &options.filters;
    let wanted = move |name: &str| {
        filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()))
    };
    SCENARIOS.into_iter().filter(move |(name, _)| wanted(name))
}

/// The long run: as long as it is told.
fn soak(options: &Options, length: Duration) -> Report {
    let mut run = Run::start(options);
    run.play(|run| run.elapsed() >= length);
    finish(run, "soak")
}

/// The same until enough has happened.
fn engines_die(options: &Options) -> Report {
    let mut run = Run::start(options);
    run.play(|run| {
        assert!(
            run.elapsed() < HANG,
            "it does not come to enough: {:?}",
            run.tally()
        );
        let deeds = run.deeds();
        deeds.engines_started_again >= 4
            && deeds.reloads >= 5
            && deeds.storms >= 2
            && deeds.engines_stopped_for_a_while >= 2
            && run.tally().of("full") >= 300
    });
    finish(run, SCENARIOS[0].0)
}

/// Five hundred streams, none of which may notice that tenants and an engine come
/// and go: an engine that is removed finishes what it has.
fn reloads(options: &Options) -> Report {
    let never = Duration::from_secs(86_400);
    let options = Options {
        streams: STREAMS,
        kill_every: never,
        storm_every: never,
        stall_every: never,
        reload_every: Duration::from_secs(1),
        time_scale: options.time_scale.max(6.0),
        temper: Temper::Calm,
        ..options.clone()
    };
    let mut run = Run::start(&options);
    run.play(|run| {
        assert!(
            run.elapsed() < HANG,
            "it does not come to enough: {:?}",
            run.tally()
        );
        let full = run.tally().of("full");
        run.deeds().reloads >= 8 && run.most_leases() * 10 >= STREAMS * 9 && full >= 2 * STREAMS
    });
    let mut report = run.reckon(SCENARIOS[1].0);
    let (requests, full) = (report.requests, report.tally.of("full"));
    if full != requests {
        report
            .faults
            .push(format!("{full} of {requests} streams are full"));
    }
    report.print();
    report
}

fn finish(run: Run, scenario: &'static str) -> Report {
    let report = run.reckon(scenario);
    report.print();
    report
}
