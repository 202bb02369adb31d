//! Cells: one policy with its settings, at one load, with one seed; played once and kept.
//!
//! Decides which cells a study has and whether one must be played. A cell is kept under
//! everything that decides its figures: the study's identity (traces, fleet, part, program),
//! policy with its settings, conditions, load, seed and sample. Invariant: figures read back
//! are those of the same key, whatever the file is called.

use std::fs;
use std::hash::Hasher as _;
use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde::{Deserialize, Serialize};
use siphasher::sip128::{Hasher128 as _, SipHasher13};
use thiserror::Error;

use super::Run;
use super::fleet::Plan;
use super::metrics::{Figures, Measured};
use super::policy::Policy;
use super::setup::Conditions;
use super::traces::schedule::Schedule;
use crate::core::demand::TenantId;
use crate::core::time::Time;

/// Of so many refused calls one comes back in the run that audits what they were told:
/// few enough to leave the load what it is.
const RETURNING: Option<NonZeroU32> = NonZeroU32::new(4);

/// What is compared.
#[derive(Clone, Debug)]
pub struct Study<'a> {
    /// The calls.
    pub schedule: &'a Schedule,
    /// The fleet, and the rules of its tiers, which hold for ours.
    pub plan: &'a Plan,
    /// Every policy, with its settings.
    pub policies: Vec<Policy>,
    /// Every load; positive.
    pub loads: Vec<f64>,
    /// Seeds from 1 to this.
    pub seeds: u64,
    /// What is not as the gateway believes.
    pub conditions: Conditions,
    /// Refusals of a cell that are looked into.
    pub sample: usize,
    /// What else decides the figures: traces, part of them, fleet, program.
    pub identity: String,
}

/// One cell of a study.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The policy.
    pub policy: Policy,
    /// The load.
    pub load: f64,
    /// The seed.
    pub seed: u64,
}

/// A cell and its figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Played {
    /// The cell.
    pub cell: Cell,
    /// Its figures.
    pub figures: Figures,
}

/// What a study is told while it runs; called from several threads.
pub trait Watch: Sync {
    /// So many seconds of the trace have been played, or were kept, since the last call.
    fn moved(&self, seconds: u64);
    /// A cell is done.
    fn done(&self, cell: &Cell, kept: Kept);
}

/// Whether a cell had been played before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It was read.
    Before,
    /// It was played.
    Now,
}

/// A folder of cells.
#[derive(Clone, Debug)]
pub struct Store(PathBuf);

/// A cell that cannot be kept.
#[derive(Debug, Error)]
#[error("{}: {error}", path.display())]
pub struct StoreError {
    path: PathBuf,
    error: io::Error,
}

/// A cell as it is kept.
#[derive(Serialize, Deserialize)]
struct KeptCell {
    key: String,
    figures: Figures,
}

// === impl Study ===

impl Study<'_> {
    /// Its cells: by policy, then load, then seed.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for policy in &self.policies {
            for load in &self.loads {
                cells.extend((1..=self.seeds).map(|seed| Cell {
                    policy: policy.clone(),
                    load: *load,
                    seed,
                }));
            }
        }
        cells
    }

    /// Plays what `store` does not have, on `jobs` threads; the order is that of
    /// [`Study::cells`].
    ///
    /// # Errors
    /// A cell cannot be kept; what was played before is.
    pub fn play(
        &self,
        (store, jobs): (Option<&Store>, usize),
        watch: &dyn Watch,
    ) -> Result<Vec<Played>, StoreError> {
        let cells = self.cells();
        let next = AtomicUsize::new(0);
        let results = Mutex::new(Vec::new());
        let work = || {
            while let Some((place, cell)) = {
                let place = next.fetch_add(1, Ordering::Relaxed);
                cells.get(place).map(|cell| (place, cell))
            } {
                let figures = self.cell(cell, store, watch);
                let failed = figures.is_err();
                let mut results = results.lock().expect("no thread panics with the lock held");
                results.push((place, figures));
                if failed {
                    next.store(cells.len(), Ordering::Relaxed);
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..jobs.max(1) {
                scope.spawn(work);
            }
            work();
        });
        let mut results = results.into_inner().expect("every thread has ended");
        results.sort_by_key(|(place, _)| *place);
        let played = results.into_iter().map(|(place, figures)| {
            let cell = cells[place].clone();
            figures.map(|figures| Played { cell, figures })
        });
        played.collect()
    }

    /// One cell: read where it is kept, else played and kept.
    fn cell(
        &self,
        cell: &Cell,
        store: Option<&Store>,
        watch: &dyn Watch,
    ) -> Result<Figures, StoreError> {
        let key = self.key(cell);
        if let Some(figures) = store.and_then(|store| store.read(cell, &key)) {
            watch.moved(self.seconds(cell));
            watch.done(cell, Kept::Before);
            return Ok(figures);
        }
        let figures = self.measure(cell, watch);
        if let Some(store) = store {
            store.write(
                cell,
                KeptCell {
                    key,
                    figures: figures.clone(),
                },
            )?;
        }
        watch.done(cell, Kept::Now);
        Ok(figures)
    }

    /// Seconds of the trace that a cell of this load plays.
    pub fn seconds(&self, cell: &Cell) -> u64 {
        self.schedule.span().div_f64(cell.load).as_secs()
    }

    /// Plays the cell; a second time, with some who come back, where ours told them when.
    fn measure(&self, cell: &Cell, watch: &dyn Watch) -> Figures {
        let calls = self.schedule.calls(cell.load, cell.seed);
        let all = self.seconds(cell);
        let mut told = 0;
        let run = Run {
            calls: &calls,
            fleet: &self.plan.fleet,
            policy: &cell.policy,
            conditions: &self.conditions,
            seed: cell.seed,
        };
        let record = run.play(&mut |now: Time| {
            let now = (now - Time::ZERO).as_secs().min(all);
            watch.moved(now.saturating_sub(told));
            told = told.max(now);
        });
        watch.moved(all.saturating_sub(told));
        let measured = Measured {
            calls: &calls,
            fleet: &self.plan.fleet,
            record: &record,
            surging: self.surging(),
            sample: self.sample,
        };
        let mut figures = Figures::of(measured);
        if figures.refusals.rejected > 0.0 && matches!(cell.policy, Policy::Ours(_)) {
            let conditions = Conditions {
                returning: RETURNING,
                ..self.conditions.clone()
            };
            let conditions = &conditions;
            let record = Run { conditions, ..run }.play(&mut |_| {});
            figures.retry_after = measured.of(&record).retry_after();
        }
        figures
    }

    fn surging(&self) -> Option<TenantId> {
        let surge = self.plan.surge.as_ref()?;
        let place = self
            .schedule
            .tenants
            .iter()
            .position(|name| *name == surge.tenant)?;
        u32::try_from(place).ok().map(TenantId)
    }

    fn key(&self, cell: &Cell) -> String {
        let Cell { policy, load, seed } = cell;
        let (conditions, sample) = (&self.conditions, self.sample);
        format!(
            "{}\n{:?}\n{conditions:?}\n{policy:?}\nload {load} seed {seed} sample {sample}",
            self.identity, self.plan
        )
    }
}

// === impl Store ===

impl Store {
    /// The folder, made if it is not there.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let made = fs::create_dir_all(folder);
        made.map_err(|error| StoreError {
            path: folder.to_owned(),
            error,
        })?;
        Ok(Self(folder.to_owned()))
    }

    /// The figures of `key`; a file that cannot be read as such is as if it were not there.
    fn read(&self, cell: &Cell, key: &str) -> Option<Figures> {
        let text = fs::read_to_string(self.path(cell, key)).ok()?;
        let kept: KeptCell = serde_json::from_str(&text).ok()?;
        (kept.key == key).then_some(kept.figures)
    }

    /// Writes beside, then renames: a file is whole or not there.
    fn write(&self, cell: &Cell, kept: KeptCell) -> Result<(), StoreError> {
        let path = self.path(cell, &kept.key);
        let beside = path.with_extension("part");
        let text = serde_json::to_string_pretty(&kept).expect("figures have a JSON form");
        let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, &path));
        written.map_err(|error| StoreError { path, error })
    }

    fn path(&self, cell: &Cell, key: &str) -> PathBuf {
        let name = cell.policy.kind().name();
        let name = match cell.policy.setting() {
            Some(setting) => format!("{name}-{}", setting.replace('/', "-")),
            None => name.to_owned(),
        };
        let hash = &digest(key.as_bytes())[..16];
        self.0
            .join(format!("{name}-{}-{}-{hash}.json", cell.load, cell.seed))
    }
}

/// 128 bits that stand for `bytes`, hexadecimal.
pub fn digest(bytes: &[u8]) -> String {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    let hash = hasher.finish128();
    format!("{:016x}{:016x}", hash.h1, hash.h2)
}

#[cfg(test)]
mod tests;
