//! `tidegate advise`: what real requests ask for, from access logs or a running gateway.
//!
//! Decides what is read and printed; every figure is `sizing::advise`'s. Never changes a
//! setting: it prints the difference. stdout is the advice, stderr what was read and what
//! could not be.

mod gateway;
mod present;
mod told;

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use super::Failure;
use super::plain::say;
use super::remote::RemoteFlags;
use super::rounds;
use super::words::several;
use crate::config::{AccessLog, Config, load_file};
use crate::core::units::Tokens;
use crate::sizing::advise::log::Log;
use crate::sizing::advise::watched::advise_watched;
use crate::sizing::advise::{Advice, advise as advised};
use gateway::Counted;
use present::Known;

/// Flags of `tidegate advise`.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// Access logs of tidegate, oldest first; - is standard input [default: what the gateway
    /// of --from has counted, else the log that --config names].
    #[arg(value_name = "LOG")]
    logs: Vec<PathBuf>,
    #[command(flatten)]
    remote: RemoteFlags,
    /// The gateway's configuration: its settings and backends are those at present.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Ask the backends of --config for their capacity and longest context.
    #[arg(long, requires = "config")]
    live: bool,
    /// The engines' max_model_len, where nobody is asked for it.
    #[arg(long, value_name = "TOKENS")]
    max_model_len: Option<u64>,
    /// The engines' KV tokens together, where nobody is asked for them.
    #[arg(long, value_name = "TOKENS")]
    kv_tokens: Option<u64>,
    /// Note the figures of this round of tuning under this name; see `tidegate rounds`.
    #[arg(long, value_name = "NAME")]
    record: Option<String>,
    /// The file that rounds are noted in.
    #[arg(long, value_name = "FILE", default_value = rounds::FILE, requires = "record")]
    rounds: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Reads, computes, prints, and notes where that is asked.
pub(super) fn advise(flags: &Flags, out: &mut impl Write) -> Result<(), Failure> {
    let config = flags.config.as_deref().map(configuration).transpose()?;
    let (advice, known) = if flags.logs.is_empty() && flags.remote.from.is_some() {
        of_gateway(flags, config)?
    } else {
        let log = read(&logs(flags, config.as_ref())?)?;
        let known = known(flags, config, log.models.all())?;
        (advised(&log, &known.present()), known)
    };
    if flags.json {
        let text = serde_json::to_string_pretty(&advice).expect("figures have a JSON form");
        writeln!(out, "{text}")?;
    } else {
        told::print(&advice, out)?;
    }
    if let Some(name) = &flags.record {
        let round = rounds::round(name, &advice, &known.flags());
        rounds::note(&round, &flags.rounds)?;
        say(format_args!(
            "noted as {name:?} in {}",
            flags.rounds.display()
        ));
    }
    Ok(())
}

/// Without a log: from what a running gateway has counted.
fn of_gateway(flags: &Flags, config: Option<Config>) -> Result<(Advice, Known), Failure> {
    let remote = flags.remote.remote()?;
    let counted = Counted::of(&remote.text("/metrics")?);
    if counted.lengths.is_empty() {
        return Err(Failure::Run(format!(
            "{} has answered no request since it was started: wait for traffic, or name an access log",
            remote.url()
        )));
    }
    let models: Vec<String> = counted
        .lengths
        .keys()
        .map(|(model, _)| model.clone())
        .collect();
    let known = known(flags, config, &models)?;
    let present = known.present();
    let figures = counted.figures(&remote.json("/history")?, &present);
    say(format_args!(
        "lengths are read from histograms, off by less than a half; an access log has them exactly, and prefixes, splits and peaks too"
    ));
    Ok((advise_watched(&counted.lengths, figures, &present), known))
}

fn configuration(path: &Path) -> Result<Config, Failure> {
    load_file(path).map_err(|problems| Failure::Configuration(problems.to_string()))
}

/// The logs named, else the configuration's.
fn logs(flags: &Flags, config: Option<&Config>) -> Result<Vec<PathBuf>, Failure> {
    if !flags.logs.is_empty() {
        return Ok(flags.logs.clone());
    }
    match config.map(|config| &config.log.access) {
        Some(AccessLog::File(path)) => Ok(vec![path.clone()]),
        Some(AccessLog::Stdout) => Err(Failure::Configuration(
            "the access log of this configuration goes to standard output: name the file it was kept in, or - and pipe it in".to_owned(),
        )),
        Some(AccessLog::Off) => Err(Failure::Configuration(
            "this configuration keeps no access log: set log.access_log, let it run, and ask again".to_owned(),
        )),
        None => Err(Failure::Configuration(
            "name an access log, a configuration that does, or a running gateway: tidegate advise LOG, --config FILE or --from URL".to_owned(),
        )),
    }
}

/// Reads them all; bad lines are told and passed over.
fn read(paths: &[PathBuf]) -> Result<Log, Failure> {
    let mut log = Log::default();
    for path in paths {
        let name = path.display().to_string();
        let failed = |error: io::Error| Failure::Configuration(format!("{name}: {error}"));
        if path.as_os_str() == "-" {
            log.read(io::stdin().lock(), "standard input")
                .map_err(failed)?;
        } else {
            let file = File::open(path).map_err(failed)?;
            log.read(BufReader::new(file), &name).map_err(failed)?;
        }
    }
    say(format_args!("{}", described(&log)));
    if log.entries.is_empty() {
        let names: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        return Err(Failure::Configuration(format!(
            "no request whose prompt was counted is in {}: is this tidegate's access log (log.access_log), and has traffic passed?",
            names.join(", ")
        )));
    }
    Ok(log)
}

fn described(log: &Log) -> String {
    let (requests, lines) = (log.entries.len() as u64, log.lines);
    let mut text = format!(
        "{} in {}",
        several(requests, "request"),
        several(lines, "line")
    );
    for (reason, lines) in &log.skipped {
        text += &format!(", {lines} {reason}");
    }
    if let Some(first) = &log.first_bad {
        text += &format!(", {} that are no record, the first {first}", log.bad);
    }
    text
}

/// What runs at present: as the gateway says, else as its engines say, else as its
/// configuration says, else as flags say.
fn known(flags: &Flags, config: Option<Config>, models: &[String]) -> Result<Known, Failure> {
    let mut known = Known::default();
    if let Some(config) = config {
        known = Known::of_config(&config);
        if flags.live {
            let seen = super::live::engines(config)?;
            for seen in &seen {
                for problem in &seen.errors {
                    say(format_args!("{}: {problem}", seen.backend));
                }
            }
            known.engines_say(&seen);
        }
    }
    if flags.remote.from.is_some() {
        let remote = flags.remote.remote()?;
        known.gateway_says(&remote.json("/state")?)?;
    }
    let told = [flags.max_model_len, flags.kv_tokens].map(|told| told.map(Tokens::new));
    known.flags_say(models, told);
    Ok(known)
}

#[cfg(test)]
mod tests;
