//! `tidegate check`: every problem of a configuration, before it is served.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::Failure;
use super::live::{self, Live};
use crate::app::load_counter;
use crate::config::{Config, Problem, load_file};
use crate::hub::{Hub, Wanted};
use crate::tokenize::ModelCounter;

/// Flags of `tidegate check`.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// The configuration file.
    file: PathBuf,
    /// Also ask every backend for its capacity, and its engine for its token counts.
    #[arg(long)]
    live: bool,
    /// Print one JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

/// What is found.
#[derive(Debug, Default, Serialize)]
struct Findings {
    /// What must be changed.
    problems: Vec<Problem>,
    /// What is allowed but seldom meant.
    advice: Vec<Problem>,
    /// What the backends said, where they were asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    live: Option<Live>,
}

/// Checks the file, then loads the tokenizers it names, then asks the backends
/// where that is wanted. Backends are asked only if nothing is wrong before.
pub(super) fn check(flags: &Flags, out: &mut impl Write) -> Result<(), Failure> {
    let findings = find(flags)?;
    if flags.json {
        let text = serde_json::to_string_pretty(&findings).expect("texts have a JSON form");
        writeln!(out, "{text}")?;
    } else {
        findings.print(out)?;
    }
    findings.verdict(flags)
}

fn find(flags: &Flags) -> Result<Findings, Failure> {
    let config = match load_file(&flags.file) {
        Ok(config) => config,
        Err(problems) => {
            return Ok(Findings {
                problems: problems.0,
                ..Findings::default()
            });
        }
    };
    let advice = config.advice();
    match counters(&config) {
        Ok(counters) if flags.live => {
            let live = Some(live::ask(config, counters)?);
            Ok(Findings {
                advice,
                live,
                ..Findings::default()
            })
        }
        Ok(_) => Ok(Findings {
            advice,
            ..Findings::default()
        }),
        Err(problems) => Ok(Findings {
            problems,
            advice,
            live: None,
        }),
    }
}

/// The counters of all models, or every tokenizer and template that cannot be loaded.
fn counters(config: &Config) -> Result<Vec<ModelCounter>, Vec<Problem>> {
    let (mut counters, mut problems) = (Vec::new(), Vec::new());
    let hub = Hub::new(&config.hub);
    for (index, model) in config.models.iter().enumerate() {
        match load_counter(model, &hub, Wanted::Any) {
            Ok(counter) => counters.push(counter),
            Err(error) => problems.push(Problem {
                key: format!("models[{index}].tokenizer"),
                value: None,
                problem: error.to_string(),
            }),
        }
    }
    if problems.is_empty() {
        Ok(counters)
    } else {
        Err(problems)
    }
}

// === impl Findings ===

impl Findings {
    fn print(&self, out: &mut impl Write) -> Result<(), Failure> {
        for problem in &self.problems {
            writeln!(out, "problem: {problem}")?;
        }
        for advice in &self.advice {
            writeln!(out, "advice: {advice}")?;
        }
        self.live.as_ref().map_or(Ok(()), |live| live.print(out))
    }

    fn verdict(&self, flags: &Flags) -> Result<(), Failure> {
        let file = flags.file.display();
        match self.problems.len() {
            0 => self.live.as_ref().map_or(Ok(()), Live::verdict),
            1 => Err(Failure::Configuration(format!("{file} has 1 problem"))),
            many => Err(Failure::Configuration(format!(
                "{file} has {many} problems"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str =
        "[[models]]\nname = \"m\"\n[[models.backends]]\nurl = \"http://127.0.0.1:1\"\n";

    /// stdout and stderr of a check of `text`.
    fn checked(text: &str, name: &str, extra: &[&str]) -> (String, Option<String>) {
        let file = format!("tidegate-check-{}-{name}.toml", std::process::id());
        let file = std::env::temp_dir().join(file);
        std::fs::write(&file, text).unwrap();
        let json = extra.contains(&"--json");
        let flags = Flags {
            file,
            live: false,
            json,
        };
        let mut out = Vec::new();
        let ended = check(&flags, &mut out);
        std::fs::remove_file(&flags.file).unwrap();
        let path = flags.file.display().to_string();
        let talk = ended
            .err()
            .map(|failure| failure.to_string().replace(&path, "FILE"));
        (String::from_utf8(out).unwrap(), talk)
    }

    #[test]
    fn a_good_file_prints_nothing() {
        assert_eq!(checked(LEAST, "good", &[]), (String::new(), None));
    }

    #[test]
    fn problems_are_lines_and_their_number_is_talk() {
        let text = format!("[queue]\nmax_wait = 3\nmax_waits = 4\n{LEAST}");
        let expected = "problem: queue.max_wait = 3: must be a time of 100ms to 24h with its unit\n\
            problem: queue.max_waits: unknown key; did you mean max_wait?\n";
        let talk = Some("FILE has 2 problems".to_owned());
        assert_eq!(checked(&text, "bad", &[]), (expected.to_owned(), talk));
    }

    #[test]
    fn advice_alone_is_not_a_failure() {
        let text = format!("[upstream]\npool_idle_timeout = \"10s\"\n{LEAST}");
        let expected = "advice: upstream.pool_idle_timeout = \"10s\": vLLM closes idle connections after 5s: \
            some requests will meet a closed one\n";
        assert_eq!(checked(&text, "advice", &[]), (expected.to_owned(), None));
    }

    #[test]
    fn a_tokenizer_that_cannot_be_loaded_is_a_problem() {
        let text = LEAST.replace(
            "\n[[models.b",
            "\ntokenizer = \"tiktoken:o300k\"\n[[models.b",
        );
        let (out, talk) = checked(&text, "tokenizer", &[]);
        assert!(out.starts_with("problem: models[0].tokenizer: "), "{out}");
        assert!(out.contains("o300k"), "{out}");
        assert_eq!(talk.as_deref(), Some("FILE has 1 problem"));
    }

    #[test]
    fn json_holds_key_value_and_problem_apart() {
        let text = format!("[queue]\nmax_wait = 3\n{LEAST}");
        let (out, _) = checked(&text, "json", &["--json"]);
        let out: serde_json::Value = serde_json::from_str(&out).unwrap();
        let problem = serde_json::json!({
            "key": "queue.max_wait",
            "value": "3",
            "problem": "must be a time of 100ms to 24h with its unit",
        });
        assert_eq!(
            out,
            serde_json::json!({"problems": [problem], "advice": []})
        );
    }
}
