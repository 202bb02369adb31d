//! The README's tables and examples, held to the code they describe.

use std::path::{Path, PathBuf};
use std::{fs, io};

use tidegate::config::{self, Surroundings};
use tidegate::telemetry::{Kind, Metric};

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

#[test]
fn the_metrics_table_tells_every_metric_as_the_code_does() {
    let expected: String = Metric::ALL
        .iter()
        .map(|metric| metric_row(*metric))
        .collect();
    let readme = file("README.md");
    let told: String = section(&readme, "Metrics")
        .lines()
        .filter(is_row)
        .map(line)
        .collect();
    assert!(
        told == expected,
        "the table in README.md must read\n{expected}"
    );
}

fn metric_row(metric: Metric) -> String {
    let spec = metric.spec();
    let kind = match spec.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    let labels = match spec.labels {
        [] => "–".to_owned(),
        labels => labels.join(", "),
    };
    let help = spec.help.trim_end_matches('.');
    line(&format!("| `{}` | {kind} | {labels} | {help} |", spec.name))
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
