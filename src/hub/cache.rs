//! Where fetched files are kept.
//!
//! ```text
//! models--org--model/refs/main                 the commit that `main` was
//! models--org--model/snapshots/COMMIT/…        its files
//! models--org--model/snapshots/.COMMIT-PID-N/  files on their way there
//! ```
//!
//! A file enters a snapshot by a rename once it is whole, and a reference is
//! written last, so that what it names is complete.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::config::HubModel;

use super::HubError;
use super::listing::{is_plain, is_vocabulary};

/// Tells the stages of one process apart.
static STAGES: AtomicU64 = AtomicU64::new(0);

/// Age at which a stage is nobody's any more: no fetch takes so long.
const STALE: Duration = Duration::from_secs(24 * 60 * 60);

/// Digits of a commit's full name.
const COMMIT_DIGITS: usize = 40;

/// The files of one model.
#[derive(Debug)]
pub(super) struct Cache {
    root: PathBuf,
    revision: String,
}

/// A directory for files on their way; removed when dropped.
#[derive(Debug)]
pub(super) struct Stage {
    path: PathBuf,
    commit: String,
}

// === impl Cache ===

impl Cache {
    pub(super) fn new(directory: &Path, model: &HubModel) -> Self {
        Self {
            root: directory.join(format!("models--{}", model.id.replace('/', "--"))),
            revision: model.revision.clone(),
        }
    }

    /// The directory of the revision, if it holds a vocabulary.
    pub(super) fn snapshot(&self) -> Option<PathBuf> {
        let commit = match fs::read_to_string(self.reference()) {
            Ok(commit) => commit.trim().to_owned(),
            Err(_) if is_commit(&self.revision) => self.revision.clone(),
            Err(_) => return None,
        };
        let path = is_plain(&commit).then(|| self.path_of(&commit))?;
        let mut names = path
            .read_dir()
            .ok()?
            .flatten()
            .map(|entry| entry.file_name());
        names
            .any(|name| name.to_str().is_some_and(is_vocabulary))
            .then_some(path)
    }

    /// Whether a file of the commit is there.
    pub(super) fn has(&self, commit: &str, name: &str) -> bool {
        self.path_of(commit).join(name).is_file()
    }

    /// Makes a directory for files of `commit`.
    pub(super) fn stage(&self, commit: &str) -> Result<Stage, HubError> {
        // Relaxed: the number alone matters, and each is taken once.
        let number = STAGES.fetch_add(1, Ordering::Relaxed);
        let name = format!(".{commit}-{}-{number}", std::process::id());
        let stage = Stage {
            path: self.root.join("snapshots").join(name),
            commit: commit.to_owned(),
        };
        self.clear_away();
        create(&stage.path)?;
        Ok(stage)
    }

    /// Removes stages that a process left behind when it was killed. What cannot be
    /// removed does no harm.
    fn clear_away(&self) {
        let entries = self.root.join("snapshots").read_dir();
        for entry in entries.into_iter().flatten().flatten() {
            let modified = entry.metadata().and_then(|metadata| metadata.modified());
            let age = modified.ok().and_then(|at| at.elapsed().ok());
            let staged = entry
                .file_name()
                .to_str()
                .is_some_and(|name| name.starts_with('.'));
            if staged && age.is_some_and(|age| age > STALE) {
                drop(fs::remove_dir_all(entry.path()));
            }
        }
    }

    /// Moves staged files to their place and lets the revision mean them.
    pub(super) fn publish(&self, stage: Stage) -> Result<PathBuf, HubError> {
        let target = self.path_of(&stage.commit);
        if fs::rename(&stage.path, &target).is_err() {
            // It is there already, complete or in part.
            move_files(&stage.path, &target).map_err(|source| at(&target, source))?;
        }
        let reference = self.reference();
        create(&self.root.join("refs"))?;
        let draft =
            self.root
                .join("refs")
                .join(format!(".{}-{}", self.revision, std::process::id()));
        fs::write(&draft, &stage.commit)
            .and_then(|()| fs::rename(&draft, &reference))
            .map_err(|source| at(&reference, source))?;
        Ok(target)
    }

    fn path_of(&self, commit: &str) -> PathBuf {
        self.root.join("snapshots").join(commit)
    }

    fn reference(&self) -> PathBuf {
        self.root.join("refs").join(&self.revision)
    }
}

fn is_commit(revision: &str) -> bool {
    revision.len() == COMMIT_DIGITS && revision.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn create(directory: &Path) -> Result<(), HubError> {
    fs::create_dir_all(directory).map_err(|source| at(directory, source))
}

fn at(path: &Path, source: io::Error) -> HubError {
    HubError::Cache {
        path: path.to_owned(),
        source,
    }
}

/// Moves every file below `from` to the same place below `to`.
fn move_files(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in from.read_dir()? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            move_files(&entry.path(), &target)?;
        } else {
            fs::rename(entry.path(), target)?;
        }
    }
    Ok(())
}

// === impl Stage ===

impl Stage {
    /// Where a file is put; its directory is made.
    pub(super) fn place(&self, name: &str) -> Result<PathBuf, HubError> {
        let place = self.path.join(name);
        if let Some(directory) = place.parent() {
            create(directory)?;
        }
        Ok(place)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::warn!(path = %self.path.display(), %error, "files on their way stay behind");
            }
            _ => {}
        }
    }
}
