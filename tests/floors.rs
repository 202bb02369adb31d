//! The house rules that no compiler knows, checked on the source text.
//!
//! Decides whether a module imports only from floors below its own, whether the
//! core stays pure, and whether files and functions stay readable in one
//! sitting. Never runs the code it reads. Each rule is tried on a text that
//! breaks it, so a scanner that goes blind fails too.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::TokenStream;

#[path = "floors/scan.rs"]
mod scan;

use scan::Follows;

/// Modules by floor, lowest first. Modules of one floor do not import each other.
const FLOORS: [&[&str]; 7] = [
    &["core"],
    &["tokenize", "protocol", "config", "sizing", "sim"],
    &["gate", "replay"],
    &["upstream", "tenants", "telemetry", "hub"],
    &["layers"],
    &["app", "sim_server", "dashboard"],
    &["cli"],
];

/// What the core may not name at all: clocks, locks, waiting.
const NOT_IN_CORE: [&str; 8] = [
    "Instant",
    "SystemTime",
    "Mutex",
    "RwLock",
    "Condvar",
    "async",
    "await",
    "thread",
];

/// Crates whose paths the core may not enter: runtimes, the wire, logs.
const CRATES_NOT_IN_CORE: [&str; 8] = [
    "tokio",
    "tracing",
    "metrics",
    "hyper",
    "http",
    "tower",
    "dashmap",
    "serde_json",
];

/// Macros that write to a terminal as it is.
const PRINTS: [&str; 4] = ["println", "eprint", "eprintln", "dbg"];

const LONGEST_FILE: usize = 500;
const LONGEST_FUNCTION: usize = 60;

/// One Rust file, with its place in the module tree.
struct Source {
    path: String,
    /// Module path from the crate root: `["core", "units"]` for `src/core/units.rs`.
    module: Vec<String>,
    text: String,
}

/// One broken rule, printed as `path:line: what`.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    line: usize,
    what: String,
}

// === the rules, on this repository ===

#[test]
fn a_module_imports_only_from_floors_below_its_own() {
    check(&sources(&["src"]), imports_upwards);
}

#[test]
fn every_module_of_the_library_stands_on_a_floor() {
    check(&sources(&["src"]), modules_without_floor);
}

#[test]
fn the_core_names_no_clock_no_lock_no_runtime_and_no_log() {
    let core: Vec<_> = sources(&["src"])
        .into_iter()
        .filter(|s| module_name(s) == Some("core"))
        .collect();
    assert!(
        core.len() > 5,
        "the core was not found: {} files",
        core.len()
    );
    check(&core, impurities);
}

#[test]
fn no_file_is_longer_than_500_lines() {
    check(&sources(&["src", "tests", "benches"]), long_files);
}

#[test]
fn no_function_is_longer_than_60_lines() {
    check(&sources(&["src", "tests", "benches"]), long_functions);
}

#[test]
fn commands_reach_a_terminal_by_one_way_only() {
    let commands: Vec<_> = sources(&["src"])
        .into_iter()
        .filter(|s| module_name(s) == Some("cli"))
        .collect();
    assert!(commands.len() > 20, "{} files", commands.len());
    check(&commands, prints_of_their_own);
}

// === the scanners, on texts that break the rules ===

#[test]
fn an_import_from_a_floor_above_is_found_in_every_spelling() {
    let upward = [
        "use crate::gate::Lease;",
        "use crate::{core::units::Tokens, gate::{Lease, Ticket}};",
        "fn f(lease: crate::gate::Lease) {}",
        "fn f() { let _ = vec![crate::gate::Clock::start()]; }",
        "use super::super::gate::Lease;",
        "use super::{json, super::gate::Lease};",
        "mod tests { use super::super::super::gate::Lease; }",
        "use self::super::super::gate as door;",
        "macro_rules! m { () => { $crate::gate::f() } }",
    ];
    for text in upward {
        let found = imports_upwards(&source("src/protocol/request.rs", text));
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert_eq!(
            found[0].what, "protocol (floor 1) imports gate (floor 2)",
            "{text}"
        );
    }
}

#[test]
fn siblings_on_one_floor_do_not_import_each_other() {
    let found = imports_upwards(&source(
        "src/tenants/mod.rs",
        "\nuse crate::telemetry::Metric;",
    ));
    let what = "tenants (floor 3) imports telemetry (floor 3)".to_owned();
    assert_eq!(
        found,
        [Finding {
            path: "src/tenants/mod.rs".into(),
            line: 2,
            what
        }]
    );
}

#[test]
fn imports_from_below_and_from_oneself_are_allowed() {
    let allowed = "//! See [`crate::layers`].\n\
        use crate::{core::units::Tokens, protocol::sse::Scanner};\n\
        use super::request::Request;\n\
        pub(crate) fn f() {}\n\
        pub(in crate::gate) fn g() {}\n\
        mod tests { use super::*; use super::super::request; }";
    let found = imports_upwards(&source("src/gate/lease.rs", allowed));
    assert_eq!(found, []);
}

#[test]
fn a_glob_over_the_crate_root_is_refused() {
    assert_eq!(
        imports_upwards(&source("src/layers/admit.rs", "use crate::*;")).len(),
        1
    );
}

#[test]
fn a_module_that_nobody_placed_is_found() {
    let found = modules_without_floor(&source("src/lib.rs", "pub mod core;\npub mod misc;"));
    let what = "module misc has no floor in tests/floors.rs".to_owned();
    assert_eq!(
        found,
        [Finding {
            path: "src/lib.rs".into(),
            line: 2,
            what
        }]
    );
}

#[test]
fn a_print_past_the_one_way_to_a_terminal_is_found() {
    for text in [
        "fn f() { println!(\"x\"); }",
        "fn f() { eprint!(\"x\"); }",
        "fn f() { dbg!(1); }",
        "fn f() { if g() { eprintln!(); } }",
    ] {
        let found = prints_of_their_own(&source("src/cli/check.rs", text));
        assert_eq!(found.len(), 1, "{text}: {found:?}");
    }
    let text = "fn f() { say(format_args!(\"println!(x)\")); }";
    assert_eq!(prints_of_their_own(&source("src/cli/check.rs", text)), []);
}

#[test]
fn clocks_locks_and_runtimes_in_the_core_are_found() {
    let impure = [
        "use std::time::Instant;",
        "use std::{sync::Mutex, time::Duration};",
        "struct S { at: std::time::SystemTime }",
        "fn f(lock: &std::sync::RwLock<u8>) {}",
        "use tokio::sync::Notify;",
        "fn f() { tracing::info!(\"granted\"); }",
        "async fn f() {}",
        "fn f() { std::thread::yield_now() }",
    ];
    for text in impure {
        assert_eq!(
            impurities(&source("src/core/queue.rs", text)).len(),
            1,
            "{text}"
        );
    }
    let pure =
        "//! Never takes a Mutex, never calls tokio.\nuse std::time::Duration;\nfn f(http: u8) {}";
    assert_eq!(impurities(&source("src/core/queue.rs", pure)), []);
}

#[test]
fn a_file_of_501_lines_and_a_function_of_61_are_found() {
    assert_eq!(long_files(&source("src/a.rs", &"\n".repeat(500))), []);
    assert_eq!(long_files(&source("src/a.rs", &"\n".repeat(501))).len(), 1);
    let function = |lines: usize| format!("impl A {{\nfn f() {{\n{}}}\n}}", "\n".repeat(lines - 2));
    assert_eq!(long_functions(&source("src/a.rs", &function(60))), []);
    let found = long_functions(&source("src/a.rs", &function(61)));
    let what = "function f has 61 lines, 60 are allowed".to_owned();
    assert_eq!(
        found,
        [Finding {
            path: "src/a.rs".into(),
            line: 2,
            what
        }]
    );
}

// === reading ===

fn check(sources: &[Source], rule: impl Fn(&Source) -> Vec<Finding>) {
    assert!(!sources.is_empty(), "no source files were found");
    let findings: Vec<_> = sources.iter().flat_map(rule).collect();
    let report = findings.iter().fold(String::new(), |mut report, f| {
        writeln!(report, "{}:{}: {}", f.path, f.line, f.what).unwrap();
        report
    });
    assert!(
        findings.is_empty(),
        "{} broken rules\n{report}",
        findings.len()
    );
}

fn sources(folders: &[&str]) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in folders.iter().map(|f| root.join(f)).filter(|f| f.is_dir()) {
        rust_files(&folder, &mut files);
    }
    files.sort();
    let relative = |file: &PathBuf| {
        file.strip_prefix(root)
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned()
    };
    files
        .iter()
        .map(|file| source(&relative(file), &fs::read_to_string(file).unwrap()))
        .collect()
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

fn source(path: &str, text: &str) -> Source {
    let within = path.trim_start_matches("src/").trim_end_matches(".rs");
    let mut module: Vec<String> = within.split('/').map(str::to_owned).collect();
    if matches!(within, "lib" | "main") || within.starts_with("bin/") {
        module.clear();
    } else if module.last().is_some_and(|last| last == "mod") {
        module.pop();
    }
    Source {
        path: path.to_owned(),
        module,
        text: text.to_owned(),
    }
}

/// Top module of a file; the crate roots (lib, binaries) have none.
fn module_name(source: &Source) -> Option<&str> {
    source.module.first().map(String::as_str)
}

fn floor(module: &str) -> Option<usize> {
    FLOORS.iter().position(|names| names.contains(&module))
}

fn tokens(source: &Source) -> TokenStream {
    source
        .text
        .parse()
        .unwrap_or_else(|e| panic!("{} is not Rust: {e}", source.path))
}

// === the rules ===

fn finding(source: &Source, line: usize, what: String) -> Finding {
    Finding {
        path: source.path.clone(),
        line,
        what,
    }
}

fn imports_upwards(source: &Source) -> Vec<Finding> {
    let Some(here) = module_name(source) else {
        return Vec::new();
    };
    let own = floor(here).unwrap_or_else(|| panic!("module {here} has no floor"));
    let mut named = Vec::new();
    scan::root_modules(tokens(source), source.module.len(), &mut named);
    let upwards = named.into_iter().filter(|(_, name)| name != here);
    let upwards = upwards.filter(|(_, name)| floor(name).is_none_or(|f| f >= own));
    let say = |(line, name): (usize, String)| {
        let above = floor(&name).map_or("no floor".to_owned(), |f| format!("floor {f}"));
        finding(
            source,
            line,
            format!("{here} (floor {own}) imports {name} ({above})"),
        )
    };
    upwards.map(say).collect()
}

fn modules_without_floor(source: &Source) -> Vec<Finding> {
    if source.path != "src/lib.rs" {
        return Vec::new();
    }
    let file = syn::parse_file(&source.text).unwrap();
    let modules = file.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) => Some(&module.ident),
        _ => None,
    });
    let homeless = modules.filter(|name| floor(&name.to_string()).is_none());
    let say = |name: &syn::Ident| {
        finding(
            source,
            name.span().start().line,
            format!("module {name} has no floor in tests/floors.rs"),
        )
    };
    homeless.map(say).collect()
}

fn impurities(source: &Source) -> Vec<Finding> {
    let banned = |name: &str, follows: Follows| {
        NOT_IN_CORE.contains(&name)
            || (follows == Follows::Path && CRATES_NOT_IN_CORE.contains(&name))
    };
    let mut names = Vec::new();
    scan::names(tokens(source), &banned, &mut names);
    let say = |(line, name)| finding(source, line, format!("the core names {name}"));
    names.into_iter().map(say).collect()
}

/// Prints that do not go through `cli::plain`, which takes out of them what a terminal
/// would obey.
fn prints_of_their_own(source: &Source) -> Vec<Finding> {
    let banned = |name: &str, _: Follows| PRINTS.contains(&name);
    let mut names = Vec::new();
    scan::names(tokens(source), &banned, &mut names);
    let say = |(line, name)| finding(source, line, format!("{name}! in a command, not say"));
    names.into_iter().map(say).collect()
}

fn long_files(source: &Source) -> Vec<Finding> {
    let lines = source.text.lines().count();
    let what = format!("{lines} lines, {LONGEST_FILE} are allowed");
    if lines > LONGEST_FILE {
        vec![finding(source, lines, what)]
    } else {
        Vec::new()
    }
}

fn long_functions(source: &Source) -> Vec<Finding> {
    let file = syn::parse_file(&source.text)
        .unwrap_or_else(|e| panic!("{} is not Rust: {e}", source.path));
    let long = scan::functions(&file)
        .into_iter()
        .filter(|(_, _, lines)| *lines > LONGEST_FUNCTION);
    let say = |(first, name, lines): (usize, String, usize)| {
        let what = format!("function {name} has {lines} lines, {LONGEST_FUNCTION} are allowed");
        finding(source, first, what)
    };
    long.map(say).collect()
}
