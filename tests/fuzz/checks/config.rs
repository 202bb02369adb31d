//! Configurations: valid, or all their problems told and no secret shown.

use std::io;
use std::path::{Path, PathBuf};

use tidegate::config::{Surroundings, load_in};

/// What every variable and file holds: long enough for a token's key.
pub(super) const SECRET: &str = "a-secret-of-the-fleet-that-is-long-enough";

/// A machine on which every variable and file holds the secret.
pub(super) struct Secrets;

/// The data is the file.
pub(super) fn text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let shown = match load_in(text, &Secrets) {
        Ok(config) => {
            assert!(!config.models.is_empty() && !config.tenants.is_empty());
            format!("{config:?}")
        }
        Err(problems) => {
            assert!(!problems.0.is_empty(), "a refusal says why");
            problems.to_string()
        }
    };
    assert!(text.contains(SECRET) || !shown.contains(SECRET), "{shown}");
}

// === impl Secrets ===

impl Surroundings for Secrets {
    fn variable(&self, _: &str) -> Option<String> {
        Some(SECRET.to_owned())
    }

    fn path(&self, written: &str) -> PathBuf {
        Path::new("/etc/tidegate").join(written)
    }

    fn text(&self, _: &Path) -> io::Result<String> {
        Ok(SECRET.to_owned())
    }

    fn is_file(&self, _: &Path) -> bool {
        true
    }

    fn is_open_to_all(&self, _: &Path) -> bool {
        false
    }
}
