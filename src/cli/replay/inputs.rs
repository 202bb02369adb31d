//! Traces as files, the part of them that is played, and what identifies them.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use super::{Failure, Flags, Policies};
use crate::cli::plain::say;
use crate::core::units::Tokens;
use crate::replay::cells::{Played, digest};
use crate::replay::fleet::Plan;
use crate::replay::policy::{Policy, PolicyKind};
use crate::replay::report::write_csv;
use crate::replay::traces::schedule::{Part, Schedule};
use crate::replay::traces::{Trace, read};

/// What is read before anything is played.
pub(super) struct Inputs {
    traces: Vec<Trace>,
    digests: Vec<String>,
    window: Range<Duration>,
}

// === impl Inputs ===

impl Inputs {
    /// Reads all traces and tells on stderr what is in them.
    pub(super) fn read(flags: &Flags) -> Result<Self, Failure> {
        let to = flags.to.map_or(Duration::MAX, Duration::from_secs_f64);
        let window = Duration::from_secs_f64(flags.from)..to;
        if window.is_empty() {
            let problem = "--from must come before --to".to_owned();
            return Err(Failure::Configuration(problem));
        }
        let mut inputs = Self {
            traces: Vec::new(),
            digests: Vec::new(),
            window,
        };
        for path in &flags.traces {
            let name = path.display().to_string();
            let bytes = fs::read(path);
            let bytes =
                bytes.map_err(|error| Failure::Configuration(format!("{name}: {error}")))?;
            let trace = read(bytes.as_slice(), &name, flags.format);
            let trace = trace.map_err(|error| Failure::Configuration(error.to_string()))?;
            say(format_args!("{}", described(&trace)));
            inputs.digests.push(digest(&bytes));
            inputs.traces.push(trace);
        }
        Ok(inputs)
    }

    /// What is played on the fleet of `plan`. A surge of a tenant that no trace has is left
    /// out, and said.
    pub(super) fn schedule(&self, mut plan: Plan) -> Result<(Schedule, Plan), Failure> {
        let tenants: BTreeSet<&String> = self
            .traces
            .iter()
            .flat_map(|trace| &trace.tenants)
            .collect();
        if let Some(surge) = plan.surge.take_if(|surge| !tenants.contains(&surge.tenant)) {
            say(format_args!(
                "no tenant {:?} in the trace, so no surge",
                surge.tenant
            ));
        }
        let least = |trace: &Trace| plan.least_prompt.get(&trace.format).copied();
        let part = Part {
            window: self.window.clone(),
            least_prompt: self
                .traces
                .iter()
                .map(|trace| least(trace).unwrap_or(Tokens::ZERO))
                .collect(),
            surge: plan.surge.clone(),
        };
        let schedule = Schedule::new(&self.traces, &part).map_err(Failure::Configuration)?;
        let nodes = plan.fleet.nodes.len();
        say(format_args!(
            "{} requests of {} tenants over {:.0} s at load 1, on {nodes} engines ({} outside the window, {} with too short a prompt, {} with a drawn answer)",
            schedule.len(),
            schedule.tenants.len(),
            schedule.span().as_secs_f64(),
            schedule.outside,
            schedule.too_short,
            schedule.unanswered,
        ));
        Ok((schedule, plan))
    }

    /// Everything but the fleet that decides the figures. The program is a part of it where
    /// figures are kept: another build may decide otherwise.
    pub(super) fn identity(&self, kept: bool) -> String {
        let program = if kept { program() } else { String::new() };
        let formats: Vec<&str> = self
            .traces
            .iter()
            .map(|trace| trace.format.name())
            .collect();
        format!(
            "tidegate {} {program}\n{:?} {formats:?}\n{:?}",
            env!("CARGO_PKG_VERSION"),
            self.digests,
            self.window
        )
    }
}

/// What a trace holds, for people.
fn described(trace: &Trace) -> String {
    let mut text = format!(
        "{}: {}, {} requests",
        trace.name,
        trace.format,
        trace.rows.len()
    );
    for (reason, rows) in &trace.skipped {
        text += &format!(", {rows} skipped ({reason})");
    }
    text
}

/// The running program's digest; empty where it cannot be read.
fn program() -> String {
    let bytes = std::env::current_exe().and_then(fs::read);
    bytes.map_or_else(|_| String::new(), |bytes| digest(&bytes))
}

/// Every setting of every policy named, ours with the fleet's rules for tiers.
pub(super) fn policies(named: &[Policies], plan: &Plan) -> Vec<Policy> {
    let mut kinds: Vec<PolicyKind> = Vec::new();
    let named = named.iter().flat_map(|named| match named {
        Policies::All => PolicyKind::ALL.to_vec(),
        Policies::One(kind) => vec![*kind],
    });
    for kind in named {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let mut policies: Vec<Policy> = kinds.into_iter().flat_map(PolicyKind::candidates).collect();
    for policy in &mut policies {
        if let Policy::Ours(ours) = policy {
            ours.pool.tiers = plan.tiers;
        }
    }
    policies
}

/// A file's name without its folders.
pub(super) fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

/// One table for each fleet, an empty line between them.
pub(super) fn csv(fleets: &[&[Played]], mut out: &mut impl Write) -> csv::Result<()> {
    for (place, played) in fleets
        .iter()
        .filter(|played| !played.is_empty())
        .enumerate()
    {
        if place > 0 {
            writeln!(out)?;
        }
        write_csv(played, &mut out)?;
    }
    Ok(())
}
