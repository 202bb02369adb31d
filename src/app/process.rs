//! The `serve` command's whole life: limits, runtime, signals.
//!
//! Decides what a signal means: SIGTERM or ctrl-c drains, a second one cuts,
//! SIGHUP reads the configuration and loads tokenizers and templates anew. A
//! service manager is told of each.

use std::path::Path;
use std::sync::Arc;

use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

use crate::config::Config;
use crate::telemetry::start_diagnostics;

use super::error::Error;
use super::given::Given;
use super::manager;
use super::running::{Running, start_on};

/// Runs a gateway until a signal ends it. Blocks; makes its own runtime.
///
/// SIGTERM or ctrl-c drains: nothing new is taken, running requests finish
/// within the drain timeout. A second one cuts at once. SIGHUP reads the
/// configuration anew, which was read from `file`, and loads tokenizers and
/// templates anew; without a signal the file is followed.
///
/// # Errors
/// It cannot start. Once it runs it ends without an error.
pub fn serve(config: Config, file: &Path) -> Result<(), Error> {
    start_diagnostics(&config.log)?;
    for advice in config.advice() {
        tracing::warn!("{advice}");
    }
    raise_file_limit();
    let given = Given::from_environment()?;
    let runtime = Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Error::Runtime)?;
    let ended = runtime.block_on(run(config, file, given));
    // A load that is under way, perhaps from a hub that does not answer, is not
    // waited for.
    runtime.shutdown_background();
    ended
}

async fn run(config: Config, file: &Path, given: Given) -> Result<(), Error> {
    let mut signals = Signals::new()?;
    let mut running = start_on(config, given).await?;
    running.follow(file);
    tracing::info!(addr = %running.addr(), admin = %running.admin_addr(), "listening");
    manager::ready();
    let mut attending = JoinSet::new();
    attending.spawn(manager::attend(Arc::clone(running.gateway())));
    until_the_end(&running, &mut signals).await;
    tracing::info!("draining; a second signal cuts");
    let limit = running.gateway().snapshot().config.server.drain_timeout;
    manager::stopping(limit);
    tokio::select! {
        () = running.shutdown() => tracing::info!("drained"),
        // Dropping the shutdown cuts what is left.
        () = signals.end() => tracing::warn!("cut by a second signal"),
    }
    Ok(())
}

/// Returns with the first signal to end, which is not kept waiting by files that
/// are slow to read.
async fn until_the_end(running: &Running, signals: &mut Signals) {
    let mut reloads = JoinSet::new();
    while signals.next().await == Meaning::Reload {
        tracing::info!("configuration, tokenizers and templates are read anew");
        manager::reloading();
        let taken = running.reload();
        reloads.spawn(async move {
            taken.await;
            manager::ready();
        });
        while reloads.try_join_next().is_some() {}
    }
}

/// Every stream takes two descriptors, and the usual soft limit is 1024.
fn raise_file_limit() {
    match rlimit::increase_nofile_limit(u64::MAX) {
        Ok(limit) => tracing::debug!(limit, "file descriptors"),
        Err(error) => tracing::warn!(%error, "the file descriptor limit stays as it is"),
    }
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    End,
    Reload,
}

/// SIGTERM, SIGINT and SIGHUP.
struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self, Error> {
        let listen = |kind| signal(kind).map_err(Error::Signals);
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Meaning {
        tokio::select! {
            _ = self.terminate.recv() => Meaning::End,
            _ = self.interrupt.recv() => Meaning::End,
            _ = self.hangup.recv() => Meaning::Reload,
        }
    }

    /// The next signal to end; on the way out there is nothing to load.
    async fn end(&mut self) {
        while self.next().await != Meaning::End {}
    }
}
