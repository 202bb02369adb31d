//! Files and environment that a configuration refers to.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};

/// What a configuration may look at besides its own text.
pub trait Surroundings {
    /// The environment variable of this name, if set and UTF-8.
    fn variable(&self, name: &str) -> Option<String>;

    /// Where a path written in the configuration leads.
    fn path(&self, written: &str) -> PathBuf;

    /// The text of a file.
    ///
    /// # Errors
    ///
    /// It does not exist, may not be read or is not UTF-8.
    fn text(&self, path: &Path) -> io::Result<String>;

    /// Whether there is a file.
    fn is_file(&self, path: &Path) -> bool;

    /// Whether every user of the machine may read a file.
    fn is_open_to_all(&self, path: &Path) -> bool;

    /// Every file whose content was asked for, found or not: the configuration
    /// is another when one of them is.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }
}

/// This process's environment and disk.
#[derive(Clone, Debug)]
pub struct Process {
    base: PathBuf,
    asked: RefCell<Vec<PathBuf>>,
}

// === impl Process ===

impl Process {
    /// Relative paths start at `base`.
    pub fn new(base: impl Into<PathBuf>) -> Self {
        Self {
            base: base.into(),
            asked: RefCell::default(),
        }
    }
}

impl Surroundings for Process {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn path(&self, written: &str) -> PathBuf {
        self.base.join(written)
    }

    fn text(&self, path: &Path) -> io::Result<String> {
        self.asked.borrow_mut().push(path.to_owned());
        std::fs::read_to_string(path)
    }

    fn is_file(&self, path: &Path) -> bool {
        path.is_file()
    }

    fn is_open_to_all(&self, path: &Path) -> bool {
        use std::os::unix::fs::PermissionsExt;
        std::fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o004 != 0)
    }

    fn files(&self) -> Vec<PathBuf> {
        self.asked.borrow().clone()
    }
}
