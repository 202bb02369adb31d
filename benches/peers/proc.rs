//! Processor time and memory of a process and all its descendants.
//!
//! Time is read from each thread's `schedstat`, in nanoseconds. Where a thread has
//! ended between two readings its time is lost there, so then the whole process's
//! `stat` is taken, which is exact to a hundredth of a second.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// The unit of processor time in `stat`: a hundredth of a second on Linux.
const TICK: Duration = Duration::from_millis(10);

/// What a tree of processes has used up to a moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Used {
    processes: BTreeMap<u32, Process>,
}

#[derive(Clone, Debug, Default)]
struct Process {
    threads: BTreeMap<u32, Duration>,
    all: Duration,
}

/// A process and its descendants, itself first.
fn tree(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&process) = found.get(next) {
        next += 1;
        for thread in threads(process) {
            let path = format!("/proc/{process}/task/{thread}/children");
            let children = fs::read_to_string(path).unwrap_or_default();
            found.extend(
                children
                    .split_whitespace()
                    .filter_map(|id| id.parse::<u32>().ok()),
            );
        }
    }
    found
}

fn threads(process: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{process}/task"));
    let names = entries.into_iter().flatten().flatten();
    names
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Resident memory of the tree under `root`, in bytes. Pages that processes share
/// count once for each.
pub(crate) fn resident(root: u32) -> u64 {
    let kib = tree(root).into_iter().filter_map(|process| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    });
    kib.sum::<u64>() * 1024
}

// === impl Used ===

impl Used {
    /// Reads what the tree under `root` has used.
    pub(crate) fn of(root: u32) -> Self {
        let processes = tree(root).into_iter();
        Self {
            processes: processes.map(|id| (id, Process::read(id))).collect(),
        }
    }

    /// Processor time since an `earlier` reading. A process that has ended is left out.
    pub(crate) fn since(&self, earlier: &Self) -> Duration {
        let none = Process::default();
        let spent = self
            .processes
            .iter()
            .map(|(id, process)| process.since(earlier.processes.get(id).unwrap_or(&none)));
        spent.sum()
    }
}

// === impl Process ===

impl Process {
    fn read(id: u32) -> Self {
        let threads = threads(id).into_iter().filter_map(|thread| {
            let text = fs::read_to_string(format!("/proc/{id}/task/{thread}/schedstat")).ok()?;
            let nanos = text.split_whitespace().next()?.parse().ok()?;
            Some((thread, Duration::from_nanos(nanos)))
        });
        Self {
            threads: threads.collect(),
            all: whole(id).unwrap_or_default(),
        }
    }

    fn since(&self, earlier: &Self) -> Duration {
        let sum = |process: &Self| process.threads.values().sum::<Duration>();
        if earlier
            .threads
            .keys()
            .all(|thread| self.threads.contains_key(thread))
        {
            sum(self).saturating_sub(sum(earlier))
        } else {
            self.all.saturating_sub(earlier.all)
        }
    }
}

/// User and system time of a process, ended threads included.
fn whole(id: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let fields = stat.rsplit_once(')')?.1;
    let ticks = fields.split_whitespace().skip(11).take(2);
    Some(TICK * ticks.filter_map(|ticks| ticks.parse::<u32>().ok()).sum())
}
