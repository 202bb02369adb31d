//! `tidegate check`: every problem of a configuration, before it is served.

use std::io::Write;

use clap::Args;
use serde::Serialize;

use super::live::{self, Live};
use super::{ConfigFile, Failure};
use crate::app::load_counter;
use crate::config::{AccessLog, Config, Model, OnUncountable, Problem, load_file};
use crate::hub::{Hub, Wanted};
use crate::tokenize::ModelCounter;

/// Flags of `tidegate check`.
#[derive(Debug, Args)]
pub(super) struct Flags {
    #[command(flatten)]
    pub(super) config: ConfigFile,
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
    let config = match load_file(flags.config.path()) {
        Ok(config) => config,
        Err(problems) => {
            return Ok(Findings {
                problems: problems.0,
                ..Findings::default()
            });
        }
    };
    let advice = config.advice();
    match counters_and_log(&config) {
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

/// The counters, where the access log can be written too; else every problem.
fn counters_and_log(config: &Config) -> Result<Vec<ModelCounter>, Vec<Problem>> {
    let counters = counters(config);
    let Some(problem) = no_log(&config.log.access) else {
        return counters;
    };
    let mut problems = vec![problem];
    problems.extend(counters.err().unwrap_or_default());
    Err(problems)
}

/// Why an access log could not be begun by anybody. Whether the process that
/// serves may write there is not known here.
fn no_log(access: &AccessLog) -> Option<Problem> {
    let AccessLog::File(path) = access else {
        return None;
    };
    // A bare name stands in the working directory.
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let problem = match folder {
        _ if path.is_dir() => "is a folder".to_owned(),
        Some(folder) if !folder.is_dir() => format!("there is no folder {}", folder.display()),
        _ => return None,
    };
    Some(Problem {
        key: "log.access_log".to_owned(),
        value: Some(format!("{path:?}")),
        problem,
    })
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
                problem: format!("{error} ({})", meanwhile(model)),
            }),
        }
    }
    if problems.is_empty() {
        Ok(counters)
    } else {
        Err(problems)
    }
}

/// What `serve` does where this stops: what one model lacks is no reason to
/// serve none, and a hub may give it later.
const fn meanwhile(model: &Model) -> &'static str {
    match model.on_uncountable {
        OnUncountable::Estimate => "serve starts and estimates this model's prompts",
        OnUncountable::Refuse => "serve starts and refuses this model's requests",
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
        let file = flags.config.path().display();
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
            config: ConfigFile {
                file: Some(file.clone()),
                config: None,
            },
            live: false,
            json,
        };
        let mut out = Vec::new();
        let ended = check(&flags, &mut out);
        std::fs::remove_file(&file).unwrap();
        let path = file.display().to_string();
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
        let meanwhile = "(serve starts and estimates this model's prompts)\n";
        assert!(out.ends_with(meanwhile), "{out}");
        assert_eq!(talk.as_deref(), Some("FILE has 1 problem"));
    }

    #[test]
    fn an_access_log_in_a_folder_that_is_not_there_is_a_problem() {
        let text = format!("[log]\naccess_log = \"/nowhere/access.log\"\n{LEAST}");
        let expected =
            "problem: log.access_log = \"/nowhere/access.log\": there is no folder /nowhere\n";
        let talk = Some("FILE has 1 problem".to_owned());
        assert_eq!(checked(&text, "log", &[]), (expected.to_owned(), talk));
        let folder = std::env::temp_dir().display().to_string();
        let text = format!("[log]\naccess_log = {folder:?}\n{LEAST}");
        let expected = format!("problem: log.access_log = {folder:?}: is a folder\n");
        let talk = Some("FILE has 1 problem".to_owned());
        assert_eq!(checked(&text, "folder", &[]), (expected, talk));
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
