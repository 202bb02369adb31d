//! Templates of other models, rendered as vLLM renders them.
//!
//! Their vocabularies are not to be had, so the texts are compared, by checksum. A
//! render that cannot be foreseen is estimated; two templates have any: one adds to
//! text it calls safe, which Jinja2 then escapes, one reads `schema.items`, which is
//! a method in Python.

use std::path::Path;

use flate2::Crc;
use serde_json::Value;
use tidegate::tokenize::{CounterSpec, ModelCounter, Source};

use crate::corpus::{self, Corpus};
use crate::{chat_input, models};

const ESTIMATED: [(&str, usize); 2] = [
    ("CohereForAI-c4ai-command-r-plus-tool_use.jinja", 3),
    ("meetkai-functionary-medium-v3.1.jinja", 13),
];

/// A model of two thousand tokens with DeepSeek's names for the special ones.
fn counter(template: String) -> ModelCounter {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("templates");
    std::fs::create_dir_all(&directory).unwrap();
    for file in [
        "tiny-model/tokenizer.json",
        "families/deepseek_v3/tokenizer_config.json",
    ] {
        let from = golden.join(file);
        std::fs::copy(&from, directory.join(from.file_name().unwrap())).unwrap();
    }
    let mut spec = CounterSpec::new(Source::Directory(directory));
    spec.chat_template = Some(template);
    ModelCounter::load(spec).unwrap()
}

fn checksum(text: &str) -> u64 {
    let mut crc = Crc::new();
    crc.update(text.as_bytes());
    u64::from(crc.sum())
}

/// What came of the requests to one template.
#[derive(Default)]
struct Outcome {
    equal: usize,
    estimated: usize,
    wrong: Vec<String>,
}

fn compared(template: &Path, expected: &[Value], corpus: &Corpus) -> Outcome {
    let counter = counter(std::fs::read_to_string(template).unwrap());
    assert_eq!(counter.template_problem(), None, "{}", template.display());
    let requests = corpus.requests.iter().map(|(_, body)| body);
    let bodies: Vec<_> = corpus.conversations.iter().chain(requests).collect();
    assert_eq!(bodies.len(), expected.len());
    let mut outcome = Outcome::default();
    for (at, (body, expected)) in bodies.into_iter().zip(expected).enumerate() {
        let Some(expected) = expected.as_u64() else {
            continue;
        };
        match counter.render(&chat_input(body)) {
            Ok(Some(rendered)) if checksum(&rendered.text()) == expected => outcome.equal += 1,
            Ok(Some(_)) => outcome.wrong.push(format!("{at}: another text")),
            Ok(None) => outcome.estimated += 1,
            Err(error) => outcome.wrong.push(format!("{at}: {error}")),
        }
    }
    outcome
}

#[test]
#[ignore = "needs the fetched templates"]
fn templates_of_other_models_render_as_in_vllm() {
    let corpus = Corpus::read();
    let (mut equal, mut wrong) = (0, Vec::new());
    for (name, expected) in corpus::golden("corpus/counts/templates.json")
        .as_object()
        .unwrap()
    {
        let path = models::templates().join(name);
        let found = compared(&path, expected.as_array().unwrap(), &corpus);
        equal += found.equal;
        if let Some(first) = found.wrong.first() {
            let differ = found.wrong.len();
            wrong.push(format!("  {name}: {differ} differ, the first {first}"));
        }
        let estimated = ESTIMATED.iter().find(|(known, _)| known == name);
        assert_eq!(
            found.estimated,
            estimated.map_or(0, |(_, count)| *count),
            "{name}"
        );
    }
    assert!(wrong.is_empty(), "{equal} equal, not\n{}", wrong.join("\n"));
    assert_eq!(equal, 5365);
}
