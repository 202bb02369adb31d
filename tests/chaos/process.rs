//! A process of the run: how it is told things, and what it weighs.
//!
//! Dropping one kills it.

use std::fs;
use std::io;
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process};

/// A child that does not outlive its owner.
pub(crate) struct Process(pub(crate) Child);

/// What a process takes of the machine at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weight {
    /// Resident memory in KiB.
    pub(crate) rss_kib: u64,
    /// Open file descriptors.
    pub(crate) fds: u64,
    /// Threads.
    pub(crate) threads: u64,
}

// === impl Process ===

impl Process {
    pub(crate) fn spawn(command: &mut Command) -> io::Result<Self> {
        command.spawn().map(Self)
    }

    /// Sends a signal; one to a process that has ended is lost.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        let pid = pid.expect("a child has an id");
        if kill_process(pid, signal).is_err() {
            eprintln!("chaos: {signal:?} reached nobody");
        }
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// Memory, descriptors and threads; zero where the process has ended.
    pub(crate) fn weigh(&self) -> Weight {
        let place = format!("/proc/{}", self.0.id());
        let status = fs::read_to_string(format!("{place}/status")).unwrap_or_default();
        let figure = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let word = line.and_then(|line| line.split_whitespace().next());
            word.and_then(|word| word.parse().ok()).unwrap_or_default()
        };
        Weight {
            rss_kib: figure("VmRSS:"),
            fds: fs::read_dir(format!("{place}/fd")).map_or(0, |fds| count(fds.count())),
            threads: figure("Threads:"),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already; either way it is waited for.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

pub(crate) fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
