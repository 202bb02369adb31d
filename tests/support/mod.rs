//! What socket tests are made of: a gateway in this process, engines that do as
//! they are told, and clients that see every byte.
//!
//! Nothing here waits for time to pass: everything waits for an event, and a
//! [`Guard`] ends a test that waits for one that never comes.

pub(crate) mod client;
pub(crate) mod collector;
pub(crate) mod engine;
pub(crate) mod fake;
pub(crate) mod h2;
pub(crate) mod memory;
pub(crate) mod promises;
pub(crate) mod refusal;
pub(crate) mod secrets;
pub(crate) mod setup;
pub(crate) mod stand;
pub(crate) mod tls;
pub(crate) mod wire;

use std::io::{Write, stderr};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Real time after which a test hangs: far above what the slowest needs on one
/// busy core.
const HANG: Duration = Duration::from_secs(120);

/// Ends the process when a test hangs; real time, whatever its clock does.
pub(crate) struct Guard(
    #[expect(dead_code, reason = "its drop tells that the test is over")] Sender<()>,
);

impl Guard {
    pub(crate) fn new() -> Self {
        secrets::forget();
        promises::listen();
        let (alive, over) = channel();
        let test = std::thread::current().name().unwrap_or("?").to_owned();
        drop(std::thread::spawn(move || {
            if over.recv_timeout(HANG) == Err(RecvTimeoutError::Timeout) {
                // Not by eprintln, which a test's output capture would keep.
                let told = writeln!(stderr(), "{test}: waits for what does not come");
                drop(told);
                std::process::abort();
            }
        }));
        Self(alive)
    }
}

/// A count for every run, or the large one where `TIDEGATE_FULL` is 1.
pub(crate) fn full(usual: usize, large: usize) -> usize {
    let asked = std::env::var("TIDEGATE_FULL").is_ok_and(|value| value == "1");
    if asked { large } else { usual }
}
