//! The figures of a run, as a table for people and JSON for machines.

use std::time::Duration;

use serde::Serialize;

use crate::process::Weight;
use crate::tally::Tally;

/// A look at the gateway under load.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// Since the load began.
    pub(crate) at: Duration,
    pub(crate) weight: Weight,
    pub(crate) leases: u64,
    pub(crate) waiting: u64,
    pub(crate) tasks: u64,
    /// Engines in the configuration in force.
    pub(crate) engines: u64,
}

/// What was done to the fleet.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Deeds {
    pub(crate) engines_killed: u64,
    pub(crate) engines_started_again: u64,
    pub(crate) engines_stopped_for_a_while: u64,
    pub(crate) reloads: u64,
    pub(crate) reloads_of_a_bad_file: u64,
    pub(crate) storms: u64,
}

/// The same figure before, under and after the load.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Course {
    pub(crate) idle_before: u64,
    pub(crate) after_a_minute: u64,
    pub(crate) at_the_end: u64,
    pub(crate) most: u64,
    pub(crate) idle_after: u64,
}

/// Everything there is to say of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) scenario: &'static str,
    pub(crate) seed: u64,
    pub(crate) clients: u64,
    pub(crate) load_seconds: u64,
    pub(crate) deeds: Deeds,
    pub(crate) requests: u64,
    pub(crate) most_leases: u64,
    /// The middle of all samples after the first minute, or of all of a shorter run.
    pub(crate) median_leases: u64,
    pub(crate) most_waiting: u64,
    /// The fewest engines that a configuration in force had.
    pub(crate) fewest_engines: u64,
    pub(crate) tally: Tally,
    pub(crate) rss_kib: Course,
    /// Every ten seconds.
    pub(crate) rss_kib_series: Vec<u64>,
    /// From after the first minute to the end of the load; `None` for a shorter run.
    pub(crate) rss_growth_percent: Option<f64>,
    pub(crate) fds: Course,
    pub(crate) threads: Course,
    pub(crate) tasks: Course,
    /// What is wrong; empty is good.
    pub(crate) faults: Vec<String>,
}

// === impl Course ===

impl Course {
    /// The course of `figure` over samples; the idle ends are given.
    pub(crate) fn of(samples: &[Sample], ends: (u64, u64), figure: fn(&Sample) -> u64) -> Self {
        let end = samples.last().map_or(Duration::ZERO, |last| last.at);
        let minute = Duration::from_secs(60);
        // A reload, and a few deaths, are in each window alike.
        let window = Duration::from_secs(60);
        let mean = |from: Duration, to: Duration| {
            let within = samples
                .iter()
                .filter(|sample| sample.at >= from && sample.at < to);
            let (sum, number) = within.fold((0, 0), |(sum, number), sample| {
                (sum + figure(sample), number + 1)
            });
            sum / u64::max(number, 1)
        };
        Self {
            idle_before: ends.0,
            after_a_minute: mean(minute, minute + window),
            at_the_end: mean(end.saturating_sub(window), end + window),
            most: samples.iter().map(figure).max().unwrap_or_default(),
            idle_after: ends.1,
        }
    }

    /// Growth from after the first minute to the end, in percent; `None` where
    /// the load was too short to tell.
    pub(crate) fn growth(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
        let (minute, end) = (self.after_a_minute as f64, self.at_the_end as f64);
        (minute > 0.0).then(|| (end / minute - 1.0) * 100.0)
    }

    fn row(&self, name: &str) -> String {
        format!(
            "  {name:<10} {:>9} idle {:>9} after 1 min {:>9} at the end {:>9} most {:>9} idle after",
            self.idle_before, self.after_a_minute, self.at_the_end, self.most, self.idle_after
        )
    }
}

// === impl Report ===

impl Report {
    pub(crate) fn print(&self) {
        let deeds = &self.deeds;
        println!(
            "{}: seed {}, {} clients, {} s of load",
            self.scenario, self.seed, self.clients, self.load_seconds
        );
        println!(
            "  engines killed {}, started again {}, stopped for a while {}; reloads {} and {} of a bad file; storms {}",
            deeds.engines_killed,
            deeds.engines_started_again,
            deeds.engines_stopped_for_a_while,
            deeds.reloads,
            deeds.reloads_of_a_bad_file,
            deeds.storms
        );
        println!(
            "  requests {}; streams in flight: median {}, most {}; most waiting {}; fewest engines configured {}",
            self.requests,
            self.median_leases,
            self.most_leases,
            self.most_waiting,
            self.fewest_engines
        );
        for (ending, number) in &self.tally.endings {
            println!("  {number:>9}  {ending}");
        }
        println!("  {:>9}  violations", self.tally.violations);
        for told in &self.tally.told {
            println!("             {told}");
        }
        println!("{}", self.rss_kib.row("RSS KiB"));
        println!("{}", self.fds.row("fds"));
        println!("{}", self.threads.row("threads"));
        println!("{}", self.tasks.row("tasks"));
        if let Some(growth) = self.rss_growth_percent {
            println!("  RSS growth after the first minute: {growth:.1} %");
        }
        for fault in &self.faults {
            println!("  FAULT: {fault}");
        }
        println!(
            "  {}",
            if self.faults.is_empty() {
                "ok"
            } else {
                "FAILED"
            }
        );
    }
}
