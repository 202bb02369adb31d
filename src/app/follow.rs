//! Follows the configuration file and the files it names.
//!
//! Decides when they have changed: by what is in them, looked at only where what
//! the system says of them has changed. Symbolic links are followed, so a file
//! that is moved, linked or mounted in place of another counts as changed. What
//! is read must be the same at two looks in a row before it is taken: a file that
//! is still being written is not. One that is refused is tried again.
//! Never takes anything but whole files, and never ends by itself.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;

use crate::config::load_file;
use crate::telemetry::Reload;

use super::gateway::Gateway;

/// Time between two looks. A change is in force after two or three.
const LOOK: Duration = Duration::from_millis(500);

/// Looks after which a refused configuration is tried again though its files
/// seem the same: it may name one that was not there.
const TRY_AGAIN: u32 = 10;

/// A configuration file that is followed.
pub(super) struct Follower {
    gateway: Arc<Gateway>,
    path: PathBuf,
    /// What was found just before the configuration in force was read; `None`
    /// where that may be something else, so that it is read once more.
    taken: Option<Contents>,
    /// What the last look found.
    seen: Look,
    /// Looks since a configuration was refused; `None` where none is.
    refused: Option<u32>,
}

/// The files of a configuration at one look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Look {
    stamps: BTreeMap<PathBuf, Option<Stamp>>,
    contents: Contents,
}

/// What is in the files: a digest of all of them, those that are not there too.
type Contents = [u8; 32];

/// What the system says of a file: it changes whenever the content does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

// === impl Follower ===

impl Follower {
    /// Follows the file at `path`, which the gateway's configuration was read from.
    pub(super) fn new(gateway: Arc<Gateway>, path: PathBuf) -> Self {
        gateway.reloads().set_followed();
        let mut follower = Self {
            gateway,
            path,
            taken: None,
            seen: Look::default(),
            refused: None,
        };
        follower.compare();
        follower
    }

    /// Looks for ever, and reads everything anew when `asked`, dropping what it
    /// was asked with when that is done; run it as one owned task.
    pub(super) async fn run(mut self, mut asked: mpsc::UnboundedReceiver<oneshot::Sender<()>>) {
        loop {
            let (work, told) = tokio::select! {
                () = tokio::time::sleep(LOOK) => (Self::look as fn(&mut Self), None),
                Some(told) = asked.recv() => (Self::take_all as fn(&mut Self), Some(told)),
            };
            let looked = spawn_blocking(move || {
                work(&mut self);
                self
            });
            match looked.await {
                Ok(follower) => self = follower,
                Err(error) => {
                    tracing::error!(%error, "the configuration file is no longer followed");
                    return;
                }
            }
            drop(told);
        }
    }

    /// One look.
    fn look(&mut self) {
        let files = files(&self.gateway, &self.path);
        let found = Look::at(&files, &self.seen);
        let settled = found.contents == self.seen.contents;
        self.seen = found;
        if !settled {
            return;
        }
        let is_new = self.taken != Some(self.seen.contents);
        let again = self.refused.as_mut().is_some_and(|looks| {
            *looks += 1;
            looks.is_multiple_of(TRY_AGAIN)
        });
        if is_new || again {
            self.take();
        }
    }

    /// What is there now, and the tokenizers and templates too.
    fn take_all(&mut self) {
        self.seen = Look::at(&files(&self.gateway, &self.path), &self.seen);
        self.take();
        self.gateway.reload_counters();
    }

    fn take(&mut self) {
        // Looked at before it is read: what changes in between is found anew.
        self.taken = Some(self.seen.contents);
        let looked_at = files(&self.gateway, &self.path);
        let reload = self.gateway.reload_file(&self.path);
        self.refused = (reload == Reload::Refused).then_some(0);
        if files(&self.gateway, &self.path) != looked_at {
            self.compare();
        }
    }

    /// Looks at files that were read before anybody had looked at them, and
    /// whether they still say what is in force.
    fn compare(&mut self) {
        self.seen = Look::at(&files(&self.gateway, &self.path), &self.seen);
        let written = self.gateway.discovery().written();
        let same = load_file(&self.path).is_ok_and(|config| config == *written);
        self.taken = same.then_some(self.seen.contents);
    }
}

/// The files that the configuration in force was read from.
fn files(gateway: &Gateway, path: &Path) -> Vec<PathBuf> {
    let mut files = vec![path.to_owned()];
    files.extend(gateway.snapshot().config.files.iter().cloned());
    files
}

// === impl Look ===

impl Look {
    /// Looks at `files`; reads them only where something is not as it was at the
    /// `last` look.
    fn at(files: &[PathBuf], last: &Self) -> Self {
        let stamps = files
            .iter()
            .map(|path| (path.clone(), Stamp::of(path)))
            .collect();
        let contents = if stamps == last.stamps {
            last.contents
        } else {
            contents(files)
        };
        Self { stamps, contents }
    }
}

fn contents(files: &[PathBuf]) -> Contents {
    let mut digest = Sha256::new();
    for path in files {
        // Each apart, so that what moves from one to the next is a change.
        match fs::read(path) {
            Ok(bytes) => digest.update(Sha256::digest(bytes)),
            Err(_) => digest.update([0; 32]),
        }
    }
    digest.finalize().into()
}

// === impl Stamp ===

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        Some(Self {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}
