//! Floor 6: flags; one function per command.
//!
//! Exit codes: 2 where the command line or the configuration is wrong, 1 where
//! the run failed. stdout is data, stderr is talk.

mod advise;
mod check;
mod count;
mod demo;
mod doctor;
mod explain;
mod health;
mod live;
mod pages;
mod plain;
mod plan;
mod remote;
mod replay;
mod rounds;
mod serve;
mod table;
mod top;
mod words;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};
use thiserror::Error;

use plain::{Plain, say};

/// Admission gateway for vLLM clusters: counts tokens, tracks KV memory,
/// queues, rejects and routes.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version = env!("TIDEGATE_VERSION"))]
struct Flags {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a configuration until a signal ends it.
    Serve(serve::Flags),
    /// Tell every problem of a configuration; with --live, ask the backends too.
    Check(check::Flags),
    /// Count the tokens of a request body or a text, in all and by part.
    Count(count::Flags),
    /// Tell what a running gateway would do with a request body, and why, without sending it.
    Explain(explain::Flags),
    /// Show what the gateway changes: the same load at simulated engines, without and with it.
    Demo(demo::Flags),
    /// Play a trace against a simulated fleet, under this gateway's admission and under others'.
    Replay(replay::Flags),
    /// Watch a running gateway in the terminal: memory, the line, tenants, the last hour.
    Top(top::Flags),
    /// Tell what real requests ask for: lengths, limits, tiers, caches and peaks, as flags to change.
    Advise(advise::Flags),
    /// Compare the rounds of tuning that `advise --record` has noted.
    Rounds(rounds::Flags),
    /// Ask a running gateway whether it can serve; exit code 0 if so.
    Health(health::Flags),
    /// Say what a vLLM log means: which failure, the line that proves it, what to change.
    Doctor(doctor::Flags),
    /// Size a model's KV cache on a card from its config.json, and say the flags to start it with.
    Plan(Box<plan::Flags>),
    /// Print the completions of this command line for a shell.
    Completions(pages::CompletionsFlags),
    /// Print the manual page of tidegate or of one of its commands.
    Man(pages::ManFlags),
}

/// The configuration a command is about, in either spelling.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct ConfigFile {
    /// The configuration file; config/tidegate.toml explains every key.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The same.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Why a command ends with an exit code other than 0.
#[derive(Debug, Error)]
enum Failure {
    /// The configuration is wrong.
    #[error("{0}")]
    Configuration(String),
    /// The run failed.
    #[error("{0}")]
    Run(String),
    /// Whoever read the output has enough of it, as `head` does.
    #[error("nobody reads the output any more")]
    NotRead,
}

/// Runs the command of this process's command line. A wrong one ends the
/// process with exit code 2.
pub fn run() -> ExitCode {
    let flags = Flags::parse();
    let mut out = Plain::new(io::stdout());
    let ended = match flags.command {
        Command::Serve(flags) => serve::serve(&flags),
        Command::Check(flags) => check::check(&flags, &mut out),
        Command::Count(flags) => count::count(&flags, &mut io::stdin(), &mut out),
        Command::Explain(flags) => explain::explain(&flags, io::stdin(), &mut out),
        Command::Demo(flags) => demo::demo(&flags, &mut out),
        Command::Replay(flags) => replay::replay(&flags, &mut out),
        Command::Top(flags) => top::top(&flags, &mut out),
        Command::Advise(flags) => advise::advise(&flags, &mut out),
        Command::Rounds(flags) => rounds::rounds(&flags, &mut out),
        Command::Health(flags) => health::health(&flags, &mut out),
        Command::Doctor(flags) => doctor::doctor(&flags, io::stdin(), &mut out),
        Command::Plan(flags) => plan::plan(&flags, &mut out),
        Command::Completions(flags) => pages::completions(&flags, command(), &mut out),
        Command::Man(flags) => pages::man(&flags, command(), &mut out),
    };
    let flushed = out.flush().map_err(Failure::from);
    match ended.and(flushed) {
        Ok(()) | Err(Failure::NotRead) => ExitCode::SUCCESS,
        Err(failure) => {
            say(format_args!("tidegate: {failure}"));
            failure.exit_code()
        }
    }
}

/// The command line, for those who describe it.
fn command() -> clap::Command {
    Flags::command()
}

// === impl ConfigFile ===

impl ConfigFile {
    fn path(&self) -> &Path {
        let path = self.file.as_deref().or(self.config.as_deref());
        path.expect("one of the two is required")
    }
}

// === impl Failure ===

impl Failure {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Configuration(_) => ExitCode::from(2),
            Self::Run(_) => ExitCode::from(1),
            Self::NotRead => ExitCode::SUCCESS,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::NotRead,
            _ => Self::Run(format!("cannot write the output: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_do_not_contradict_each_other() {
        Flags::command().debug_assert();
    }

    #[test]
    fn the_version_is_that_of_the_package_and_names_a_commit_in_brackets() {
        let told = command().render_version();
        let rest = told.trim_end().strip_prefix("tidegate ").unwrap();
        let rest = rest.strip_prefix(env!("CARGO_PKG_VERSION")).unwrap();
        let commit = rest
            .strip_prefix(" (")
            .and_then(|rest| rest.strip_suffix(')'));
        assert!(
            rest.is_empty() || commit.is_some_and(|commit| commit.len() <= 12),
            "{told}"
        );
    }

    #[test]
    fn a_configuration_is_named_with_and_without_its_flag_and_not_twice() {
        for command in ["check", "serve"] {
            let parse = |rest: &[&str]| {
                let line = ["tidegate", command].into_iter();
                let line = line.chain(rest.iter().copied());
                Flags::try_parse_from(line).map(|flags| match flags.command {
                    Command::Check(flags) => flags.config.path().to_owned(),
                    Command::Serve(flags) => flags.config.path().to_owned(),
                    other => panic!("{other:?}"),
                })
            };
            for good in [
                &["a.toml"][..],
                &["--config", "a.toml"],
                &["--config=a.toml"],
            ] {
                assert_eq!(parse(good).unwrap(), Path::new("a.toml"), "{good:?}");
            }
            for wrong in [&[][..], &["a.toml", "--config", "a.toml"], &["a", "b"]] {
                assert!(parse(wrong).is_err(), "{wrong:?}");
            }
        }
    }
}
