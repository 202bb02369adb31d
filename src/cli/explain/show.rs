//! What a gateway tells of a request, for people to read.

use std::fmt;

use serde_json::Value;

use super::number;
use crate::cli::table::Table;

/// The answer of `/explain`.
pub(super) struct Shown<'a>(pub(super) &'a Value);

/// A text of the answer; "-" where there is none.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

/// A duration of the answer, in words as short as they can be.
fn seconds(value: &Value) -> String {
    match value.as_f64() {
        None => "-".to_owned(),
        Some(seconds) if seconds < 0.001 => "0 ms".to_owned(),
        Some(seconds) if seconds < 1.0 => format!("{:.0} ms", seconds * 1e3),
        Some(seconds) if seconds < 120.0 => format!("{seconds:.1} s"),
        Some(seconds) => format!("{:.0} min", seconds / 60.0),
    }
}

fn figure(value: &Value) -> String {
    value
        .as_u64()
        .map_or_else(|| "-".to_owned(), |figure| figure.to_string())
}

// === impl Shown ===

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.verdict(f)?;
        self.prompt(f)?;
        self.output(f)?;
        self.backends(f)?;
        self.limits(f)
    }
}

impl Shown<'_> {
    fn verdict(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = self.0;
        let whose = format!(
            "{} of tenant {} for model {}",
            text(&told["path"]),
            text(&told["tenant"]),
            text(&told["model"])
        );
        match text(&told["verdict"]) {
            "admit" => {
                let chosen = &told["chosen"];
                let (backend, tier) = (text(&chosen["backend"]), text(&chosen["tier"]));
                let because = text(&chosen["because"]);
                writeln!(f, "ADMIT  {whose}")?;
                writeln!(f, "  now, on {backend} (tier {tier}): {because}")?;
            }
            "queue" => {
                let wait = &told["wait_seconds"];
                let of = |key: &str| seconds(&wait[key]);
                writeln!(f, "QUEUE  {whose}")?;
                writeln!(
                    f,
                    "  {}: {}",
                    text(&told["held_by"]),
                    text(&told["held_because"])
                )?;
                let (q20, q50, q80) = (of("q20"), of("q50"), of("q80"));
                writeln!(
                    f,
                    "  expected wait {q50}; one in five under {q20}, four in five under {q80}"
                )?;
            }
            _ => {
                let refusal = &told["refusal"];
                let (status, code) = (number(&refusal["status"]), text(&refusal["code"]));
                writeln!(f, "REFUSE  {whose}")?;
                writeln!(
                    f,
                    "  {status} {code} ({}): {}",
                    text(&refusal["reason"]),
                    text(&refusal["message"])
                )?;
                let within = &refusal["retry_after_seconds"];
                if let (Some(least), Some(most)) =
                    (within["least"].as_u64(), within["most"].as_u64())
                {
                    writeln!(f, "  Retry-After {least} to {most} s")?;
                }
            }
        }
        match text(&told["mode"]) {
            "shadow" => writeln!(f, "  (shadow mode: it is sent all the same)"),
            _ => Ok(()),
        }
    }

    fn prompt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prompt = &self.0["prompt"];
        if prompt.is_null() {
            return writeln!(f, "\nThe prompt was not counted.");
        }
        let (tokens, precision) = (number(&prompt["tokens"]), text(&prompt["precision"]));
        writeln!(f, "\nPrompt: {tokens} tokens, {precision}")?;
        let width = tokens.to_string().len();
        for part in prompt["parts"].as_array().into_iter().flatten() {
            let (tokens, name) = (number(&part["tokens"]), text(&part["name"]));
            writeln!(f, "  {tokens:>width$}  {name}")?;
        }
        Ok(())
    }

    fn output(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let output = &self.0["output"];
        if output.is_null() {
            return Ok(());
        }
        let expected = &output["expected_tokens"];
        write!(f, "Output: {} expected", number(&expected["mean"]))?;
        write!(
            f,
            " (half up to {}, nine in ten up to {})",
            number(&expected["q50"]),
            number(&expected["q90"])
        )?;
        write!(f, ", bound {}", figure(&output["bound_tokens"]))?;
        if let Some(written) = output["written_max_tokens"].as_u64() {
            write!(f, ", max_tokens {written} is written into it")?;
        }
        let sequences = number(&output["sequences"]);
        if sequences > 1 {
            write!(f, ", {sequences} sequences")?;
        }
        writeln!(
            f,
            "\nHome: tier {}; counts {} tokens",
            text(&self.0["home"]),
            number(&self.0["tokens"])
        )
    }

    fn backends(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backends = self.0["backends"].as_array();
        let Some(backends) = backends.filter(|backends| !backends.is_empty()) else {
            return Ok(());
        };
        let head = [
            "BACKEND",
            "TIER",
            "FITS",
            "TAKES",
            "FREE",
            "MISSING",
            "IN",
            "FIRST TOKEN",
            "WHY NOT",
        ];
        let mut table = Table::new(head);
        for one in backends {
            let whole = number(&one["footprint_blocks"]);
            let takes = match one["taken_blocks"].as_u64() {
                Some(taken) if taken != whole => format!("{taken}, then {whole}"),
                _ => whole.to_string(),
            };
            let because = match one["barrier"].as_str() {
                Some(word) => format!("{word}: {}", text(&one["because"])),
                None => String::new(),
            };
            table.row([
                text(&one["name"]).to_owned(),
                text(&one["tier"]).to_owned(),
                text(&one["fits"]).to_owned(),
                takes,
                format!(
                    "{} of {}",
                    number(&one["free_blocks"]),
                    number(&one["blocks"])
                ),
                figure(&one["missing_blocks"]),
                seconds(&one["after_seconds"]),
                seconds(&one["first_token_seconds"]),
                because,
            ]);
        }
        write!(f, "\nKV in blocks:\n{table}")
    }

    fn limits(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = self.0["limits"].as_array();
        let Some(limits) = limits.filter(|limits| !limits.is_empty()) else {
            return Ok(());
        };
        let mut table = Table::new(["LIMIT OF THE TENANT", "ALLOWED", "USED", "ASKED", ""]);
        for one in limits {
            let binds = match one["binds"].as_bool() {
                Some(true) => "binds",
                _ => "",
            };
            table.row([
                text(&one["limit"]).to_owned(),
                figure(&one["allowed"]),
                figure(&one["used"]),
                figure(&one["asked"]),
                binds.to_owned(),
            ]);
        }
        write!(f, "\n{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_request_that_waits_is_shown_with_what_it_waits_for() {
        let told = json!({
            "verdict": "queue", "mode": "enforce", "tenant": "acme", "model": "m",
            "path": "/v1/chat/completions", "home": "standard", "tokens": 1100,
            "held_by": "memory", "held_because": "no backend it may go to has room for it",
            "wait_seconds": {"q20": 0.25, "q50": 2.0, "q80": 130.0},
            "prompt": {"tokens": 1000, "precision": "exact",
                "parts": [{"name": "template", "tokens": 10}, {"name": "message 1 (user)", "tokens": 990}]},
            "output": {"sequences": 1, "bound_tokens": 100,
                "expected_tokens": {"mean": 60, "q50": 55, "q90": 99}},
            "backends": [{"name": "a", "tier": "standard", "fits": "later", "barrier": "memory",
                "because": "too few blocks will stay free", "missing_blocks": 12, "after_seconds": 1.5,
                "prompt_blocks": 63, "footprint_blocks": 67, "free_blocks": 51, "blocks": 512,
                "first_token_seconds": 0.2}],
            "limits": [{"limit": "max_waiting", "allowed": 4, "used": 4, "asked": 1, "binds": true}],
        });
        let expected = "\
QUEUE  /v1/chat/completions of tenant acme for model m
  memory: no backend it may go to has room for it
  expected wait 2.0 s; one in five under 250 ms, four in five under 2 min

Prompt: 1000 tokens, exact
    10  template
   990  message 1 (user)
Output: 60 expected (half up to 55, nine in ten up to 99), bound 100
Home: tier standard; counts 1100 tokens

KV in blocks:
BACKEND  TIER      FITS   TAKES  FREE       MISSING  IN     FIRST TOKEN  WHY NOT
a        standard  later  67     51 of 512  12       1.5 s  200 ms       memory: too few blocks will stay free

LIMIT OF THE TENANT  ALLOWED  USED  ASKED
max_waiting          4        4     1      binds
";
        assert_eq!(Shown(&told).to_string(), expected);
    }

    #[test]
    fn a_refusal_is_shown_as_its_client_would_get_it() {
        let told = json!({
            "verdict": "refuse", "mode": "enforce", "tenant": "acme", "model": null,
            "path": "/v1/chat/completions", "prompt": null,
            "refusal": {"status": 429, "code": "overloaded", "reason": "queue_requests_full",
                "message": "The queue is full.", "retry_after_seconds": {"least": 2, "most": 3}},
        });
        let expected = "\
REFUSE  /v1/chat/completions of tenant acme for model -
  429 overloaded (queue_requests_full): The queue is full.
  Retry-After 2 to 3 s

The prompt was not counted.
";
        assert_eq!(Shown(&told).to_string(), expected);
    }
}
