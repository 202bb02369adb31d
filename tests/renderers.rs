//! Counts of chats that no template renders, against goldens made by vLLM's code.
//!
//! `tests/golden/renderers/*.json` holds, for every request, the text of the
//! prompt and its number of tokens, or what the engine refused it for; the scripts
//! beside them make them.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tidegate::tokenize::{
    ChatInput, Count, CountError, CounterSpec, Effort, ModelCounter, Precision, PromptInput,
    Segment, Source,
};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden/renderers")
        .join(name)
}

fn goldens(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(golden(name)).unwrap()).unwrap()
}

/// Reads the fields of a request body that decide its prompt.
fn chat_input(body: &Value) -> ChatInput<'_> {
    let flag = |key: &str, default| body.get(key).and_then(Value::as_bool).unwrap_or(default);
    ChatInput {
        tools: body.get("tools"),
        documents: body.get("documents"),
        chat_template: body.get("chat_template").and_then(Value::as_str),
        chat_template_kwargs: body.get("chat_template_kwargs").and_then(Value::as_object),
        reasoning_effort: body.get("reasoning_effort").and_then(Value::as_str),
        add_generation_prompt: flag("add_generation_prompt", true),
        continue_final_message: flag("continue_final_message", false),
        add_special_tokens: flag("add_special_tokens", false),
        ..ChatInput::new(&body["messages"])
    }
}

fn count(counter: &ModelCounter, body: &Value) -> Result<Count, CountError> {
    counter.count(&PromptInput::Chat(chat_input(body)), &Effort::default())
}

/// How many goldens came out how.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    /// Counted exactly, as the engine counts them.
    exact: u64,
    /// Counted by estimate, at least as many as the engine counts.
    estimated: u64,
    /// Refused by the engine and here.
    refused: u64,
    /// Refused by the engine, estimated here.
    left_to_the_engine: u64,
}

/// Holds every golden of a file to the counter.
fn tally(name: &str, counter: &ModelCounter) -> Tally {
    let goldens = goldens(name);
    tally_of(&goldens["requests"], &goldens["expected"], counter)
}

fn tally_of(requests: &Value, expected: &Value, counter: &ModelCounter) -> Tally {
    let mut tally = Tally::default();
    let mut wrong = Vec::new();
    for (name, expected) in expected.as_object().unwrap() {
        let body = &requests[name];
        let counted = count(counter, body);
        let tokens = expected["tokens"].as_u64();
        let place = match (&counted, tokens) {
            (Ok(count), Some(tokens)) if count.precision == Precision::Exact => {
                (count.total() == tokens && shows(counter, body, expected))
                    .then_some(&mut tally.exact)
            }
            (Ok(count), Some(tokens)) if count.total() >= tokens => Some(&mut tally.estimated),
            (Err(_), None) => Some(&mut tally.refused),
            (Ok(_), None) => Some(&mut tally.left_to_the_engine),
            _ => None,
        };
        match place {
            Some(place) => *place += 1,
            None => wrong.push(format!(
                "{name}: {expected}\n  {counted:?}\n  {:?}",
                counter.render(&chat_input(body))
            )),
        }
    }
    assert!(wrong.is_empty(), "{tally:?}\n{}", wrong.join("\n"));
    tally
}

/// Whether every text of the rendered prompt is in the engine's, in order.
fn shows(counter: &ModelCounter, body: &Value, expected: &Value) -> bool {
    let mut rest = expected["text"].as_str().unwrap();
    let rendered = counter.render(&chat_input(body)).unwrap().unwrap();
    rendered.segments.iter().all(|segment| match segment {
        Segment::Ids(_) => true,
        Segment::Text { text, .. } => match rest.find(text.as_str()) {
            Some(at) => {
                rest = &rest[at + text.len()..];
                true
            }
            None => false,
        },
    })
}

#[test]
fn every_date_in_a_gpt_oss_prompt_has_as_many_tokens() {
    let spec = CounterSpec::new(Source::Tiktoken("o200k_harmony".to_owned()));
    let counter = ModelCounter::load(spec).unwrap();
    let days = (2025..2035).flat_map(|year| (1..13).map(move |month| (year, month)));
    let days = days.flat_map(|(year, month)| (1..32).map(move |day| (year, month, day)));
    let texts = days.map(|(year, month, day)| format!("date: {year}-{month:02}-{day:02}\n"));
    let texts: Vec<_> = texts.map(Cow::Owned).collect();
    let input = PromptInput::Texts {
        texts: &texts,
        add_special_tokens: false,
    };
    let counts = counter.count(&input, &Effort::default()).unwrap().prompts;
    assert_eq!(counts, vec![10; 3720]);
}

#[test]
fn gpt_oss_chats_count_as_in_vllm_without_any_file() {
    let spec = CounterSpec::new(Source::Tiktoken("o200k_harmony".to_owned()));
    let counter = ModelCounter::load(spec).unwrap();
    assert!(counter.is_exact());
    assert_eq!(
        tally("harmony.json", &counter),
        Tally {
            exact: 150,
            estimated: 1,
            refused: 6,
            left_to_the_engine: 13
        }
    );
}

/// The tiny model under another architecture.
fn disguised(architecture: &str) -> ModelCounter {
    let tiny = golden("../tiny-model");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(architecture);
    std::fs::create_dir_all(&directory).unwrap();
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(tiny.join(name), directory.join(name)).unwrap();
    }
    let config = json!({"architectures": [architecture]}).to_string();
    std::fs::write(directory.join("config.json"), config).unwrap();
    ModelCounter::load(CounterSpec::new(Source::Directory(directory))).unwrap()
}

#[test]
fn deepseek_v32_chats_count_as_in_vllm() {
    assert_eq!(
        tally("deepseek_v32.json", &disguised("DeepseekV32ForCausalLM")),
        Tally {
            exact: 128,
            estimated: 0,
            refused: 9,
            left_to_the_engine: 9
        }
    );
}

#[test]
fn deepseek_v4_chats_count_as_in_vllm() {
    assert_eq!(
        tally("deepseek_v4.json", &disguised("DeepseekV4ForCausalLM")),
        Tally {
            exact: 134,
            estimated: 0,
            refused: 3,
            left_to_the_engine: 9
        }
    );
}

/// The small tekken vocabulary as one of a version of Mistral's formats.
fn tekken(version: &str, goldens: &Value) -> ModelCounter {
    let text = std::fs::read_to_string(golden("tekken/tekken.json")).unwrap();
    let mut tekken: Value = serde_json::from_str(&text).unwrap();
    tekken["config"]["version"] = json!(version);
    let specials = goldens["specials"].as_array().unwrap().iter().enumerate();
    let specials = specials
        .map(|(rank, text)| json!({"rank": rank, "token_str": text, "is_control": true}))
        .collect();
    tekken["special_tokens"] = Value::Array(specials);
    if version == "v15" {
        tekken["model_settings_builder"] = goldens["settings"].clone();
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tekken-{version}"));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("tekken.json"), tekken.to_string()).unwrap();
    ModelCounter::load(CounterSpec::new(Source::Directory(directory))).unwrap()
}

#[test]
fn mistral_chats_and_texts_count_as_in_vllm_in_every_format_of_tekken() {
    let cases = goldens("mistral.json");
    let tallies = ["v3", "v7", "v11", "v13", "v15"].map(|version| {
        let counter = tekken(version, &cases);
        assert_eq!(counter.template_problem(), None);
        let text = [Cow::Borrowed("Hello, <s> wörld")];
        for (add_special_tokens, tokens) in [(true, 0), (false, 1)] {
            let input = PromptInput::Texts {
                texts: &text,
                add_special_tokens,
            };
            let counted = counter.count(&input, &Effort::default()).unwrap();
            assert_eq!(counted.precision, Precision::Exact);
            assert_eq!(cases["texts"][version][tokens], counted.total());
        }
        let goldens = goldens(&format!("mistral_{version}.json"));
        let tally = tally_of(&cases["requests"], &goldens["expected"], &counter);
        (
            version,
            tally.exact,
            tally.estimated,
            tally.refused + tally.left_to_the_engine,
        )
    });
    assert_eq!(
        tallies,
        [
            ("v3", 99, 2, 76),
            ("v7", 106, 0, 71),
            ("v11", 102, 0, 75),
            ("v13", 119, 2, 56),
            ("v15", 114, 1, 62),
        ]
    );
}

#[test]
fn without_a_renderer_estimates_are_not_below_what_gpt_oss_counts() {
    let spec = CounterSpec::new(Source::Tiktoken("o200k_base".to_owned()));
    let counter = ModelCounter::load(spec).unwrap();
    assert_eq!(
        tally("harmony.json", &counter),
        Tally {
            exact: 0,
            estimated: 151,
            refused: 1,
            left_to_the_engine: 18
        }
    );
}
