//! What follows from the answers: pure, so every rule has its test.

use std::collections::BTreeMap;

use serde::Serialize;

use super::counts::Compared;
use super::seen::Seen;
use crate::config::{Config, Model};

/// Something the operator should know.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) weight: Weight,
    pub(super) text: String,
}

/// Whether a finding stops anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Weight {
    /// A backend cannot be used as configured, or a count is wrong.
    Failure,
    /// It works, perhaps not as meant.
    Warning,
}

/// All findings: backends first, then pools, then counts.
pub(super) fn find(config: &Config, backends: &[Seen], counts: &[Compared]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for model in &config.models {
        let of_model = || backends.iter().filter(|seen| seen.model == model.name);
        of_model().for_each(|seen| backend(model, seen, &mut findings));
        pool(model, &of_model().collect::<Vec<_>>(), &mut findings);
    }
    counts
        .iter()
        .for_each(|compared| count(compared, &mut findings));
    findings
}

fn backend(model: &Model, seen: &Seen, findings: &mut Vec<Finding>) {
    let name = &seen.backend;
    for error in &seen.errors {
        findings.push(failure(format!("{name}: {error}")));
    }
    if seen.ranks.is_empty() {
        return;
    }
    for id in model
        .served_ids()
        .filter(|id| !seen.serves.iter().any(|served| served == id))
    {
        let text = format!(
            "{name} does not serve {id:?}; it serves {}",
            seen.serves.join(", ")
        );
        findings.push(failure(text));
    }
    let written = model.backends.iter().find(|backend| backend.name == *name);
    let ranks = written.map_or(1, |backend| backend.data_parallel_ranks);
    if seen.engines > 0 && u32::try_from(seen.engines) != Ok(ranks) {
        let text = format!(
            "{name} shows {} data-parallel engines, data_parallel_ranks is {ranks}",
            seen.engines
        );
        findings.push(warning(text));
    }
    for rank in &seen.ranks {
        if rank.source == "assumed" {
            let text = format!(
                "{name} advertises no capacity that can be trusted: {} tokens are assumed, set kv_tokens",
                rank.kv_tokens
            );
            findings.push(warning(text));
        }
        if let Some(length) = seen.max_model_len.filter(|length| *length > rank.kv_tokens) {
            let text = format!(
                "{name} holds {} KV tokens, less than its max_model_len of {length}: longer requests are refused",
                rank.kv_tokens
            );
            findings.push(warning(text));
        }
    }
}

/// Backends of one tier should be alike, or what fits depends on chance.
fn pool(model: &Model, backends: &[&Seen], findings: &mut Vec<Finding>) {
    let mut versions: BTreeMap<&str, &str> = BTreeMap::new();
    let mut limits: BTreeMap<(&str, u64), &str> = BTreeMap::new();
    for seen in backends {
        if let Some(version) = &seen.version {
            versions.insert(version, &seen.backend);
        }
        for rank in &seen.ranks {
            limits.insert((seen.tier, rank.context_limit), &seen.backend);
        }
    }
    if versions.len() > 1 {
        let list = list(
            versions
                .iter()
                .map(|(version, backend)| format!("{backend} runs {version}")),
        );
        findings.push(warning(format!(
            "backends of {:?} run different releases: {list}",
            model.name
        )));
    }
    for tier in ["standard", "large", "offload"] {
        let of_tier: Vec<_> = limits.iter().filter(|((of, _), _)| *of == tier).collect();
        if of_tier.len() > 1 {
            let list = list(
                of_tier
                    .iter()
                    .map(|((_, limit), backend)| format!("{backend} holds {limit} tokens")),
            );
            findings.push(warning(format!(
                "{tier} backends of {:?} differ: {list}",
                model.name
            )));
        }
    }
}

fn count(compared: &Compared, findings: &mut Vec<Finding>) {
    let Compared {
        backend,
        text,
        precision,
        ..
    } = compared;
    let follows = match *precision {
        "exact" => Some("our count is not checked"),
        "engine" => Some("such prompts are estimated"),
        _ => None,
    };
    if let (Some(why), Some(follows)) = (&compared.refusal, follows) {
        let text = format!("{backend} does not count {text:?}, so {follows}: {why}");
        findings.push(warning(text));
    }
    let (Some(ours), Some(engine)) = (compared.ours, compared.engine) else {
        return;
    };
    if *precision == "exact" && ours != engine {
        let text = format!(
            "{text:?} has {ours} tokens here and {engine} on {backend}: the tokenizer or the chat template is not the engine's"
        );
        findings.push(failure(text));
    } else if ours < engine {
        let text = format!("{text:?} is estimated at {ours} tokens and has {engine} on {backend}");
        findings.push(warning(text));
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

pub(super) fn failure(text: String) -> Finding {
    Finding {
        weight: Weight::Failure,
        text,
    }
}

fn warning(text: String) -> Finding {
    Finding {
        weight: Weight::Warning,
        text,
    }
}

// === impl Weight ===

impl Weight {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Failure => "failure",
            Self::Warning => "warning",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::live::seen::Rank;

    fn seen(backend: &str, tokens: u64, source: &'static str) -> Seen {
        let rank = Rank {
            rank: 0,
            kv_tokens: tokens,
            kv_blocks: tokens / 16,
            block_size: 16,
            source,
            context_limit: tokens.min(8192),
            max_num_seqs: None,
            lookahead_tokens: 1,
        };
        Seen {
            model: "model".to_owned(),
            backend: backend.to_owned(),
            tier: "standard",
            version: Some("0.32.0".to_owned()),
            serves: vec!["model".to_owned()],
            max_model_len: Some(8192),
            ranks: vec![rank],
            ..Seen::default()
        }
    }

    fn texts(backends: &[Seen], counts: &[Compared]) -> Vec<String> {
        let findings = find(&Config::default(), backends, counts);
        let line = |finding: Finding| format!("{}: {}", finding.weight.name(), finding.text);
        findings.into_iter().map(line).collect()
    }

    #[test]
    fn alike_backends_with_room_are_no_finding() {
        let backends = [
            seen("a", 65_536, "advertised_tokens"),
            seen("b", 65_536, "configured"),
        ];
        assert_eq!(texts(&backends, &[]), [""; 0]);
    }

    #[test]
    fn a_pool_smaller_than_max_model_len_is_a_warning() {
        let expected = "warning: a holds 4096 KV tokens, less than its max_model_len of 8192: longer requests are refused";
        assert_eq!(
            texts(&[seen("a", 4096, "advertised_tokens")], &[]),
            [expected]
        );
    }

    #[test]
    fn an_assumed_capacity_is_a_warning() {
        let expected = "warning: a advertises no capacity that can be trusted: 8192 tokens are assumed, set kv_tokens";
        assert_eq!(texts(&[seen("a", 8192, "assumed")], &[]), [expected]);
    }

    #[test]
    fn backends_of_one_tier_that_differ_are_a_warning() {
        let older = Seen {
            version: Some("0.11.0".to_owned()),
            ..seen("b", 4096, "configured")
        };
        let expected = [
            "warning: b holds 4096 KV tokens, less than its max_model_len of 8192: longer requests are refused",
            "warning: backends of \"model\" run different releases: b runs 0.11.0, a runs 0.32.0",
            "warning: standard backends of \"model\" differ: b holds 4096 tokens, a holds 8192 tokens",
        ];
        assert_eq!(
            texts(&[seen("a", 8192, "configured"), older], &[]),
            expected
        );
    }

    #[test]
    fn larger_tiers_may_differ_from_smaller_ones() {
        let large = Seen {
            tier: "large",
            ..seen("b", 65_536, "configured")
        };
        let mut standard = seen("a", 65_536, "configured");
        standard.ranks[0].context_limit = 4096;
        assert_eq!(texts(&[standard, large], &[]), [""; 0]);
    }

    #[test]
    fn engines_that_the_configuration_does_not_know_are_a_warning() {
        let two = Seen {
            engines: 2,
            ..seen("a", 65_536, "configured")
        };
        let expected = "warning: a shows 2 data-parallel engines, data_parallel_ranks is 1";
        assert_eq!(texts(&[two], &[]), [expected]);
    }

    fn compared(ours: u64, precision: &'static str, engine: Option<u64>) -> Compared {
        Compared {
            model: "model".to_owned(),
            backend: "a".to_owned(),
            text: "prose",
            ours: Some(ours),
            precision,
            engine,
            refusal: engine
                .is_none()
                .then(|| "engine answered 400 Bad Request".to_owned()),
        }
    }

    #[test]
    fn an_engine_that_should_count_and_does_not_is_a_warning() {
        let asked = |engine| Compared {
            ours: None,
            ..compared(0, "engine", engine)
        };
        let expected = "warning: a does not count \"prose\", so such prompts are estimated: engine answered 400 Bad Request";
        assert_eq!(texts(&[], &[asked(Some(21)), asked(None)]), [expected]);
    }

    #[test]
    fn only_an_exact_count_must_be_the_engines() {
        let counts = [
            compared(20, "exact", Some(21)),
            compared(20, "exact", None),
            compared(20, "estimated", Some(21)),
            compared(30, "estimated", Some(21)),
            compared(20, "estimated", None),
        ];
        let expected = [
            "failure: \"prose\" has 20 tokens here and 21 on a: the tokenizer or the chat template is not the engine's",
            "warning: a does not count \"prose\", so our count is not checked: engine answered 400 Bad Request",
            "warning: \"prose\" is estimated at 20 tokens and has 21 on a",
        ];
        assert_eq!(texts(&[], &counts), expected);
    }
}
