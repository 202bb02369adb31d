use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use super::*;

mod discovery;
mod documents;
mod problems;
mod tls;
mod values;

/// A file that names one model with one backend and nothing else.
const LEAST: &str =
    "[[models]]\nname = \"model\"\n[[models.backends]]\nurl = \"http://127.0.0.1:8000\"\n";

/// Variables and files that exist only here.
#[derive(Default)]
struct Around {
    variables: HashMap<&'static str, &'static str>,
    files: HashMap<&'static str, &'static str>,
}

impl Surroundings for Around {
    fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).map(|value| (*value).to_owned())
    }

    fn path(&self, written: &str) -> PathBuf {
        Path::new("/etc/tidegate").join(written)
    }

    fn text(&self, path: &Path) -> io::Result<String> {
        let text = path.to_str().and_then(|path| self.files.get(path));
        text.map(|text| (*text).to_owned())
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn is_file(&self, path: &Path) -> bool {
        path.to_str()
            .is_some_and(|path| self.files.contains_key(path))
    }

    fn is_open_to_all(&self, path: &Path) -> bool {
        path.to_str().is_some_and(|path| path.contains("open"))
    }
}

fn least_and(more: &str) -> Result<Config, Problems> {
    load_in(&format!("{more}\n{LEAST}"), &Around::default())
}

/// The problems of `more` before the least file, one a line.
fn told(more: &str) -> String {
    least_and(more).expect_err("something is wrong").to_string()
}

#[test]
fn an_empty_file_with_one_model_and_one_backend_is_the_default() {
    assert_eq!(least_and(""), Ok(Config::default()));
}
