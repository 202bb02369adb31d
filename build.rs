//! Says which version is built: the package's, and the commit where one is known.
//!
//! The commit is what `TIDEGATE_COMMIT` says (a build without a repository, such
//! as that of an image), else what git says of the repository around a release
//! build. A development build bears none, so that a commit does not compile
//! everything anew. Nothing else goes in, no time and no path: the same source
//! makes the same binary.

use std::path::Path;
use std::process::Command;

/// Letters of a commit that are shown.
const SHOWN: usize = 12;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=TIDEGATE_COMMIT");
    let version = env!("CARGO_PKG_VERSION");
    let version = match told().or_else(found) {
        Some(commit) => format!("{version} ({commit})"),
        None => version.to_owned(),
    };
    println!("cargo:rustc-env=TIDEGATE_VERSION={version}");
}

/// The commit that the builder names. An empty one is none.
fn told() -> Option<String> {
    let commit = std::env::var("TIDEGATE_COMMIT").ok()?;
    let commit = commit.trim();
    if commit.is_empty() {
        return None;
    }
    let is_plain = commit
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"._+-".contains(&b));
    assert!(
        is_plain,
        "TIDEGATE_COMMIT is {commit:?}: letters, digits and ._+- are allowed"
    );
    Some(commit.chars().take(SHOWN).collect())
}

/// The commit of the repository this package is the top of.
fn found() -> Option<String> {
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    // A package that lies in somebody else's repository is not of its commits.
    if !is_release || !Path::new(".git").exists() {
        return None;
    }
    let commit = git(&["rev-parse", &format!("--short={SHOWN}"), "HEAD"])?;
    // What changes when another commit is checked out, or made on this branch.
    for file in ["HEAD", "packed-refs"] {
        watch(&git(&["rev-parse", "--git-path", file])?);
    }
    if let Some(branch) = git(&["symbolic-ref", "--quiet", "HEAD"]) {
        watch(&git(&["rev-parse", "--git-path", &branch])?);
    }
    Some(commit)
}

/// A file that is not there would have everything built each time.
fn watch(file: &str) {
    if Path::new(file).exists() {
        println!("cargo:rerun-if-changed={file}");
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let said = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(said.stdout).ok()?;
    let text = text.trim();
    (said.status.success() && !text.is_empty()).then(|| text.to_owned())
}
