//! The README's tables and examples, and the table of reported failures, held to
//! the code they describe.

use std::path::{Path, PathBuf};
use std::{fs, io};

use tidegate::config::{self, Surroundings};
use tidegate::protocol::Route;
use tidegate::replay::fleet::FleetFile;
use tidegate::replay::policy::PolicyKind;
use tidegate::replay::traces;
use tidegate::telemetry::Metric;

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn section<'a>(readme: &'a str, heading: &str) -> &'a str {
    let mut sections = readme.split("\n## ");
    sections
        .find(|s| s.starts_with(heading))
        .expect("the section is there")
}

fn is_row(line: &&str) -> bool {
    line.starts_with("| `")
}

fn line(text: &str) -> String {
    format!("{text}\n")
}

const METRICS_BEGIN: &str =
    "<!-- metrics: written by UPDATE_README=1 cargo test --test readme -->\n";
const METRICS_END: &str = "<!-- end of metrics -->";

#[test]
fn the_metrics_table_tells_every_metric_as_the_code_does() {
    let rows = Metric::ALL.map(metric_row);
    let table = format!(
        "\n| metric | kind | unit | labels | what |\n|---|---|---|---|---|\n{}\n",
        rows.concat()
    );
    let readme = file("README.md");
    let (before, rest) = readme
        .split_once(METRICS_BEGIN)
        .expect("the table begins with a mark");
    let (told, after) = rest
        .split_once(METRICS_END)
        .expect("the table ends with a mark");
    if told != table && std::env::var_os("UPDATE_README").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
        let written = format!("{before}{METRICS_BEGIN}{table}{METRICS_END}{after}");
        fs::write(&path, written).expect("README.md can be written");
        return;
    }
    assert!(
        told == table,
        "README.md is stale: UPDATE_README=1 cargo test --test readme writes\n{table}"
    );
}

#[test]
fn the_table_of_routes_lists_every_path_that_is_served() {
    let readme = file("README.md");
    let rows = readme.lines().filter(|line| line.contains("| `/"));
    let mut told: Vec<(String, String)> = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let paths = cells[2].split(", ");
        told.extend(paths.map(|path| (path.replace('`', ""), cells[1].replace('`', ""))));
    }
    let mut served: Vec<(String, String)> = Route::served()
        .map(|(path, route)| (path.to_owned(), route.label().to_owned()))
        .collect();
    told.sort();
    served.sort();
    assert_eq!(told, served);
}

#[test]
fn the_table_of_policies_lists_those_of_replay() {
    let readme = file("README.md");
    let rows = section(&readme, "Replay").lines().filter(is_row);
    let told: Vec<&str> = rows.filter_map(|row| row.split('`').nth(1)).collect();
    assert_eq!(told, PolicyKind::ALL.map(PolicyKind::name));
}

#[test]
fn the_traces_and_fleets_of_the_readme_can_be_read() {
    let readme = file("README.md");
    let section = section(&readme, "Replay").replace("$T", "benches/replay/traces");
    let words = section
        .split_whitespace()
        .filter(|word| !word.contains("://"));
    let fleets = words
        .clone()
        .filter(|word| word.starts_with("config/fleets/"));
    let traces = words.filter(|word| word.starts_with("benches/replay/traces/"));
    let (mut fleets_read, mut traces_read) = (0, 0);
    for fleet in fleets {
        FleetFile::read(&file(fleet)).unwrap_or_else(|e| panic!("{fleet}: {e}"));
        fleets_read += 1;
    }
    for trace in traces {
        traces::read(file(trace).as_bytes(), trace, None).unwrap_or_else(|e| panic!("{e}"));
        traces_read += 1;
    }
    assert!(
        fleets_read >= 2 && traces_read >= 3,
        "{fleets_read}, {traces_read}"
    );
}

fn metric_row(metric: Metric) -> String {
    let spec = metric.spec();
    let (kind, unit) = (spec.kind.name(), spec.unit().unwrap_or("–"));
    let labels = match spec.labels {
        [] => "–".to_owned(),
        labels => labels.join(", "),
    };
    let help = spec.help.trim_end_matches('.');
    line(&format!(
        "| `{}` | {kind} | {unit} | {labels} | {help} |",
        spec.name
    ))
}

#[test]
fn the_configuration_table_has_every_key_with_its_default() {
    let readme = file("README.md");
    let rows = section(&readme, "Configuration").lines().filter(is_row);
    let told: Vec<(String, String)> = rows
        .map(|row| row.split(" | "))
        .map(|mut cells| (cells.next(), cells.next()))
        .map(|(key, default)| (key.unwrap_or_default(), default.unwrap_or_default()))
        .map(|(key, default)| (key[2..].to_owned(), default.trim_matches('`').to_owned()))
        .collect();
    assert_eq!(told, documented_keys(&file("config/tidegate.toml")));
}

/// Keys and defaults of the annotated file: its comments end in `Default: …`.
fn documented_keys(annotated: &str) -> Vec<(String, String)> {
    let mut keys = Vec::new();
    let (mut section, mut comment) = (String::new(), String::new());
    for line in annotated.lines() {
        if let Some(words) = line.strip_prefix("# ") {
            comment = format!("{comment} {words}");
        } else if line.starts_with('[') {
            section = format!("{}.", line.trim_matches(['[', ']']));
            comment.clear();
        } else if let Some((key, _)) = line.trim_start_matches('#').split_once(" = ") {
            let (_, default) = comment
                .rsplit_once("Default: ")
                .expect("each key tells its default");
            keys.push((
                format!("`{section}{key}`"),
                default.trim_end_matches('.').to_owned(),
            ));
            comment.clear();
        } else {
            comment.clear();
        }
    }
    keys
}

/// A machine on which every model folder is there.
struct OperatorsMachine;

impl Surroundings for OperatorsMachine {
    fn variable(&self, _: &str) -> Option<String> {
        None
    }

    fn path(&self, written: &str) -> PathBuf {
        PathBuf::from(written)
    }

    fn text(&self, _: &Path) -> io::Result<String> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn is_file(&self, path: &Path) -> bool {
        path.starts_with("/models")
    }

    fn is_open_to_all(&self, _: &Path) -> bool {
        false
    }
}

#[test]
fn the_configuration_in_the_readme_is_valid_as_it_stands() {
    let readme = file("README.md");
    let example = readme
        .split("```toml\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .expect("an example is there");
    let config = config::load_in(example, &OperatorsMachine).expect("it is valid");
    assert_eq!(config.models.len(), 1);
    assert_eq!(config.models[0].backends.len(), 1);
    assert_eq!(example.lines().count(), 5);
}

/// Names of all tests as `file or module::function`.
fn tests_under(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() {
            tests_under(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            let text = fs::read_to_string(&path).expect("sources are text");
            let names = text.lines().filter_map(function);
            found.extend(names.map(|name| format!("{}::{name}", module(&path))));
        }
    }
}

fn function(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = line.strip_prefix("async ").unwrap_or(line);
    line.strip_prefix("fn ")?.split('(').next()
}

/// The module that a file of tests is named after.
fn module(path: &Path) -> String {
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    let folder = path.parent().and_then(Path::file_name);
    match (stem, folder.and_then(|folder| folder.to_str())) {
        (Some("tests" | "mod" | "main"), Some(folder)) => folder.to_owned(),
        (stem, _) => stem.unwrap_or_default().to_owned(),
    }
}

#[test]
fn every_reported_failure_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut tests = Vec::new();
    for folder in ["src", "tests"] {
        tests_under(&root.join(folder), &mut tests);
    }
    let cases = file("tests/cases.md");
    let rows = cases.lines().filter(|line| line.contains("::"));
    let named = rows.flat_map(|row| row.split('`').filter(|name| name.contains("::")));
    let named: Vec<&str> = named.collect();
    assert!(named.len() >= 30, "{} tests named", named.len());
    let missing = named
        .iter()
        .filter(|name| !tests.iter().any(|test| test == *name));
    let missing: Vec<_> = missing.collect();
    assert!(missing.is_empty(), "no such test: {missing:?}");
}

/// The reported failures that are looked at, by family, in order.
const REPORTED: [(&str, &str); 16] = [
    ("TOK", "01 02 03 04 05 06 08 10 12 13 15 16 17 18 21 23 25"),
    ("KV", "03 04 06 08 09 10 11 12 15 16 18 19 20 21 22 24"),
    ("QUE", "02 04 05 06 08 09 10 11"),
    ("OVR", "02 04 06 07 08 09 11"),
    ("SSE", "01 04 06 08 09 10 11 12 13 15 17 18 19 20"),
    ("CAN", "01 02 03 04 05 06 09"),
    ("TMO", "01 02 03 06 07 08 11"),
    ("HLT", "01 02 04 05 06 08 09 10 14 15"),
    ("HDR", "01 02 03 05 06 07 09 10 11 13 14"),
    ("BOD", "03 04 05 06 08 11 15 16"),
    ("MET", "01 04 05 08 09 10"),
    ("CFG", "01 03 04 05 08 09"),
    ("DSC", "01 02 03 05 06 07 11 12"),
    ("TEN", "01 04 05 06 07 08 09 10"),
    ("MEM", "01 02 03 04 05 06"),
    ("SEC", "02 03 04 06 09 10 11 12"),
];

#[test]
fn every_reported_failure_has_its_row_and_a_status() {
    let cases = file("tests/cases.md");
    let rows = cases
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| case "));
    let rows: Vec<Vec<&str>> = rows
        .map(|line| line.split(" | ").map(|cell| cell.trim_matches([' ', '|'])))
        .map(Iterator::collect)
        .collect();
    let expected = REPORTED.iter().flat_map(|(family, numbers)| {
        let numbers = numbers.split(' ');
        numbers.map(move |number| format!("{family}-{number}"))
    });
    let expected: Vec<String> = expected.collect();
    assert_eq!(expected.len(), 147);
    let named: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(named, expected);
    for row in rows {
        assert_eq!(row.len(), 5, "{row:?}");
        let status = row[4];
        let explained = ["covered; ", "disputed: ", "not runnable: "];
        let known = status == "covered" || explained.iter().any(|word| status.starts_with(word));
        assert!(known, "{}: {status}", row[0]);
        let names_tests = row[3].contains("::");
        assert!(
            names_tests || status.starts_with("not runnable: "),
            "{}",
            row[0]
        );
    }
}
