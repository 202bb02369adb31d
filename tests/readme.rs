//! The README's tables and examples, held to the code they describe.

use std::path::{Path, PathBuf};
use std::{fs, io};

use tidegate::config::{self, Surroundings};
use tidegate::telemetry::{Kind, Metric};

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Cells of the table under `heading`, without its head.
fn rows(readme: &str, heading: &str) -> Vec<Vec<String>> {
    let section = readme
        .split("\n## ")
        .find(|s| s.starts_with(heading))
        .expect("the section is there");
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = |line: &str| {
        line.trim_matches('|')
            .split(" | ")
            .map(|c| c.trim().to_owned())
            .collect()
    };
    rows.map(cells).collect()
}

#[test]
fn the_metrics_table_tells_every_metric_as_the_code_does() {
    let expected: Vec<Vec<String>> = Metric::ALL
        .iter()
        .map(|metric| {
            let spec = metric.spec();
            let kind = match spec.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            let labels = if spec.labels.is_empty() {
                "–".to_owned()
            } else {
                spec.labels.join(", ")
            };
            let help = spec.help.trim_end_matches('.').to_owned();
            vec![format!("`{}`", spec.name), kind.to_owned(), labels, help]
        })
        .collect();
    assert_eq!(rows(&file("README.md"), "Metrics"), expected);
}

#[test]
fn the_configuration_table_has_every_key_with_its_default() {
    let told: Vec<(String, String)> = rows(&file("README.md"), "Configuration")
        .into_iter()
        .map(|cells| (cells[0].clone(), cells[1].trim_matches('`').to_owned()))
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
