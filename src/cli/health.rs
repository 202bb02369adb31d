//! `tidegate health`: whether a running gateway can serve, for whoever can only
//! run a command (an image's health check, a script that waits).
//!
//! Asks the operator's listener for `/readyz`, which needs no token. Decides
//! nothing; says what the gateway says, and why where it says so.

use std::io::Write;

use clap::Args;
use serde_json::Value;

use super::Failure;
use super::remote::{RemoteError, RemoteFlags};

/// Flags of `tidegate health`.
#[derive(Debug, Args)]
pub(super) struct Flags {
    #[command(flatten)]
    remote: RemoteFlags,
    /// Ask only whether the process answers, not whether its models can be served.
    #[arg(long)]
    live: bool,
}

/// Prints a word where it is well.
///
/// # Errors
/// It is not ready, or does not answer.
pub(super) fn health(flags: &Flags, out: &mut dyn Write) -> Result<(), Failure> {
    let remote = flags.remote.remote()?;
    let (page, word) = if flags.live {
        ("/livez", "alive")
    } else {
        ("/readyz", "ready")
    };
    match remote.text(page) {
        Ok(_) => Ok(writeln!(out, "{word}")?),
        Err(RemoteError::Status {
            status: 503, text, ..
        }) => Err(Failure::Run(not_ready(&text))),
        Err(error) => Err(error.into()),
    }
}

/// Why, where the gateway tells: on loopback, or to who shows the token.
fn not_ready(body: &str) -> String {
    let told: Value = serde_json::from_str(body).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
    if told["phase"]
        .as_str()
        .is_some_and(|phase| phase != "running")
    {
        return format!("not ready: the gateway is {}", text(&told["phase"]));
    }
    let models = told["models"].as_array().into_iter().flatten();
    let reasons: Vec<String> = models
        .filter(|model| model["ready"] == false)
        .map(|model| {
            let backends = model["backends"].as_array().into_iter().flatten();
            let backends: Vec<String> = backends
                .map(|backend| {
                    let problem = backend["problem"].as_str();
                    let problem = problem.map(|p| format!(" ({p})")).unwrap_or_default();
                    format!(
                        "{} is {}{problem}",
                        text(&backend["name"]),
                        text(&backend["state"])
                    )
                })
                .collect();
            let why = if backends.is_empty() {
                "no backend".to_owned()
            } else {
                backends.join(", ")
            };
            format!("model {}: {why}", text(&model["model"]))
        })
        .collect();
    if reasons.is_empty() {
        "not ready; with --token-file it tells why".to_owned()
    } else {
        format!("not ready: {}", reasons.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_ready_is_told_by_model_and_backend() {
        let body = r#"{"ready":false,"phase":"running","models":[
            {"model":"a","ready":true,"backends":[]},
            {"model":"b","ready":false,"backends":[{"name":"x","state":"starting","problem":"refused"},{"name":"y","state":"up","problem":null}]},
            {"model":"c","ready":false,"backends":[]}]}"#;
        let expected = "not ready: model b: x is starting (refused), y is up; model c: no backend";
        assert_eq!(not_ready(body), expected);
        let draining = r#"{"ready":false,"phase":"draining","models":[]}"#;
        assert_eq!(not_ready(draining), "not ready: the gateway is draining");
        let word = "not ready; with --token-file it tells why";
        assert_eq!(not_ready("not ready\n"), word);
    }
}
