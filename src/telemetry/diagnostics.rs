//! Diagnostics on stderr, by `tracing`.

use std::io::{self, IsTerminal as _};

use thiserror::Error;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::time::SystemTime;
use tracing_subscriber::util::TryInitError;

use crate::config::{Log, LogFormat};

/// Why diagnostics could not be set up.
#[derive(Debug, Error)]
pub enum DiagnosticsError {
    /// The level is not a filter.
    #[error("{level:?} is not a log filter")]
    Filter {
        /// What the configuration says.
        level: String,
        /// What is wrong with it.
        source: tracing_subscriber::filter::ParseError,
    },
    /// Something else has set them up in this process.
    #[error("diagnostics are set up already")]
    SetUp(#[from] TryInitError),
}

/// Sends this process's diagnostics to stderr as `log` says. Once per process.
///
/// # Errors
///
/// The level is no filter, or diagnostics are set up already.
pub fn start_diagnostics(log: &Log) -> Result<(), DiagnosticsError> {
    use tracing_subscriber::util::SubscriberInitExt as _;

    let filter = EnvFilter::try_new(&log.level).map_err(|source| DiagnosticsError::Filter {
        level: log.level.clone(),
        source,
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_timer(SystemTime)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr);
    match log.format {
        LogFormat::Text => builder.finish().try_init()?,
        LogFormat::Json => builder.json().flatten_event(true).finish().try_init()?,
    }
    Ok(())
}
