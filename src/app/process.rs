//! The `serve` command's whole life: limits, runtime, signals.
//!
//! Decides what a signal means: the first drains, the second cuts.

use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::Config;
use crate::telemetry::start_diagnostics;

use super::error::Error;
use super::running::start;

/// Runs a gateway until a signal ends it. Blocks; makes its own runtime.
///
/// SIGTERM or ctrl-c drains: nothing new is taken, running requests finish
/// within the drain timeout. A second one cuts at once.
///
/// # Errors
/// It cannot start. Once it runs it ends without an error.
pub fn serve(config: Config) -> Result<(), Error> {
    start_diagnostics(&config.log)?;
    for advice in config.advice() {
        tracing::warn!("{advice}");
    }
    raise_file_limit();
    let runtime = Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Error::Runtime)?;
    runtime.block_on(run(config))
}

async fn run(config: Config) -> Result<(), Error> {
    let mut signals = Signals::new()?;
    let running = start(config).await?;
    tracing::info!(addr = %running.addr(), admin = %running.admin_addr(), "listening");
    signals.next().await;
    tracing::info!("draining; a second signal cuts");
    tokio::select! {
        () = running.shutdown() => tracing::info!("drained"),
        // Dropping the shutdown cuts what is left.
        () = signals.next() => tracing::warn!("cut by a second signal"),
    }
    Ok(())
}

/// Every stream takes two descriptors, and the usual soft limit is 1024.
fn raise_file_limit() {
    match rlimit::increase_nofile_limit(u64::MAX) {
        Ok(limit) => tracing::debug!(limit, "file descriptors"),
        Err(error) => tracing::warn!(%error, "the file descriptor limit stays as it is"),
    }
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self, Error> {
        let listen = |kind| signal(kind).map_err(Error::Signals);
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
