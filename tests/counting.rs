//! Counts and renders against goldens made by vLLM's own code.
//!
//! `tests/golden/counts.json` holds, for every template and request, the text
//! that vLLM renders and the tokens it counts; see `make_goldens.py` beside it.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tidegate::tokenize::{
    ChatInput, Count, CountError, CounterSpec, Effort, ModelCounter, Precision, PromptInput, Source,
};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

fn goldens() -> Value {
    serde_json::from_str(&std::fs::read_to_string(golden("counts.json")).unwrap()).unwrap()
}

/// The tiny model with one of the golden templates.
fn counter(template: &str) -> ModelCounter {
    let mut spec = CounterSpec::new(Source::Directory(golden("tiny-model")));
    let path = golden("templates").join(template);
    spec.chat_template = Some(std::fs::read_to_string(path).unwrap());
    ModelCounter::load(spec).unwrap()
}

/// Reads the fields of a request body that decide its prompt.
fn chat_input(body: &Value) -> ChatInput<'_> {
    let flag = |key: &str, default| body.get(key).and_then(Value::as_bool).unwrap_or(default);
    ChatInput {
        tools: body.get("tools"),
        documents: body.get("documents"),
        chat_template_kwargs: body.get("chat_template_kwargs").and_then(Value::as_object),
        reasoning_effort: body.get("reasoning_effort").and_then(Value::as_str),
        add_generation_prompt: flag("add_generation_prompt", true),
        continue_final_message: flag("continue_final_message", false),
        add_special_tokens: flag("add_special_tokens", false),
        ..ChatInput::new(&body["messages"])
    }
}

fn count_chat(counter: &ModelCounter, body: &Value) -> Result<Count, CountError> {
    counter.count(&PromptInput::Chat(chat_input(body)), &Effort::default())
}

fn count_text(counter: &ModelCounter, text: &str, add_special_tokens: bool) -> Count {
    let texts = [Cow::Borrowed(text)];
    let input = PromptInput::Texts {
        texts: &texts,
        add_special_tokens,
    };
    counter.count(&input, &Effort::default()).unwrap()
}

fn exact(tokens: u64) -> Count {
    Count {
        prompts: vec![tokens],
        precision: Precision::Exact,
    }
}

#[test]
fn every_golden_chat_renders_and_counts_as_in_vllm() {
    let goldens = goldens();
    let requests = goldens["requests"].as_object().unwrap();
    let mut matched = 0;
    let mut wrong = Vec::new();
    for chat in goldens["chats"].as_array().unwrap() {
        let template = chat["template"].as_str().unwrap();
        let counter = counter(template);
        assert_eq!(counter.template_problem(), None, "{template}");
        for (name, expected) in chat["expected"].as_object().unwrap() {
            let Some(text) = expected["text"].as_str() else {
                continue;
            };
            let body = &requests[name];
            let rendered = counter.render(&chat_input(body));
            let rendered = rendered.map(|found| found.map(|found| found.text()));
            let counted = count_chat(&counter, body);
            let tokens = expected["tokens"].as_u64().unwrap();
            if rendered == Ok(Some(text.to_owned())) && counted == Ok(exact(tokens)) {
                matched += 1;
            } else {
                wrong.push(format!(
                    "{template} / {name}:\n  {text:?}\n  {rendered:?}\n  {tokens} {counted:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{matched} matched\n{}", wrong.join("\n"));
    assert_eq!(matched, 383);
}

#[test]
fn what_vllm_refuses_is_refused_or_still_counted() {
    let goldens = goldens();
    // Refused here, and counted here for the engine to refuse.
    let mut refused = (0, 0);
    for chat in goldens["chats"].as_array().unwrap() {
        let counter = counter(chat["template"].as_str().unwrap());
        for (name, expected) in chat["expected"].as_object().unwrap() {
            if expected.get("refused").is_none() {
                continue;
            }
            match count_chat(&counter, &goldens["requests"][name]) {
                Ok(count) => {
                    assert!(count.total() > 0, "{name}");
                    refused.1 += 1;
                }
                Err(error) => {
                    assert!(!error.to_string().is_empty(), "{name}");
                    refused.0 += 1;
                }
            }
        }
    }
    assert_eq!(refused, (15, 31));
}

#[test]
fn every_golden_text_counts_as_in_the_reference_tokenizer() {
    let counter = counter("chatml.jinja");
    let goldens = goldens();
    let texts = goldens["texts"].as_array().unwrap();
    assert_eq!(texts.len(), 27);
    for golden in texts {
        let (text, tokens) = (golden["text"].as_str().unwrap(), golden["tokens"].as_u64());
        let counted = count_text(&counter, text, true);
        assert_eq!(counted, exact(tokens.unwrap()), "{text:?}");
    }
}

#[test]
fn a_megabyte_without_a_split_point_is_counted_exactly() {
    let counter = counter("chatml.jinja");
    for golden in goldens()["runs"].as_array().unwrap() {
        let times = golden["times"].as_u64().unwrap().try_into().unwrap();
        let text = golden["text"].as_str().unwrap().repeat(times);
        let tokens = golden["tokens"].as_u64().unwrap();
        assert_eq!(
            count_text(&counter, &text, false),
            exact(tokens),
            "{golden}"
        );
    }
}

#[test]
fn long_texts_count_the_same_in_both_engines() {
    let prose = "The prompt has 12 words, e\u{301}, and <|im_end|>\n人工智能;\n";
    let counter = counter("chatml.jinja");
    let once = count_text(&counter, prose, false).total();
    for times in [1_000, 1_001, 3_000] {
        let counted = count_text(&counter, &prose.repeat(times), false);
        assert_eq!(
            counted,
            exact(once * u64::try_from(times).unwrap()),
            "{times}"
        );
    }
}

#[test]
fn a_megabyte_of_base64_finishes_in_every_engine() {
    let line: String = (0_u32..1 << 20)
        .map(|i| {
            char::from(
                b"ABCdef0123456789+/xyzQRS"[(i.wrapping_mul(2_654_435_761) >> 16) as usize % 24],
            )
        })
        .collect();
    let model = counter("chatml.jinja");
    let vocabulary =
        ModelCounter::load(CounterSpec::new(Source::Tiktoken("o200k_base".into()))).unwrap();
    for counter in [&model, &vocabulary] {
        let counted = count_text(counter, &line, false);
        assert_eq!(counted.precision, Precision::Exact);
        assert!((200_000..1 << 20).contains(&counted.total()), "{counted:?}");
    }
}

/// A copy of the tiny model whose tokenizer.json is edited.
fn edited(name: &str, edit: impl FnOnce(&mut Value)) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let source = std::fs::read_to_string(golden("tiny-model/tokenizer.json")).unwrap();
    let mut tokenizer: Value = serde_json::from_str(&source).unwrap();
    edit(&mut tokenizer);
    std::fs::write(directory.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    std::fs::copy(
        golden("templates/qwen3.jinja"),
        directory.join("chat_template.jinja"),
    )
    .unwrap();
    directory
}

fn load(directory: PathBuf) -> ModelCounter {
    let counter = ModelCounter::load(CounterSpec::new(Source::Directory(directory.clone())));
    std::fs::remove_dir_all(directory).unwrap();
    counter.unwrap()
}

fn add_bos(tokenizer: &mut Value) {
    let bos = "<|endoftext|>";
    let id = tokenizer["added_tokens"]
        .as_array()
        .unwrap()
        .iter()
        .find(|token| token["content"] == bos)
        .unwrap()["id"]
        .clone();
    tokenizer["post_processor"] = json!({
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {bos: {"id": bos, "ids": [id], "tokens": [bos]}}
    });
}

#[test]
fn bos_is_added_to_completions_and_not_to_chats_unless_asked() {
    let plain = counter("qwen3.jinja");
    let framing = load(edited("bos", add_bos));
    let long = "word ".repeat(20_000);
    for text in ["hi", long.as_str()] {
        let bare = count_text(&plain, text, true).total();
        assert_eq!(count_text(&framing, text, true), exact(bare + 1));
        assert_eq!(count_text(&framing, text, false), exact(bare));
    }
    let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
    let bare = count_chat(&plain, &body).unwrap().total();
    assert_eq!(count_chat(&framing, &body), Ok(exact(bare)));
    body["add_special_tokens"] = json!(true);
    assert_eq!(count_chat(&framing, &body), Ok(exact(bare + 1)));
}

#[test]
fn a_token_with_a_role_is_one_token_in_both_engines() {
    let directory = edited("role", |_| {});
    let config = json!({"bos_token": "<s>"}).to_string();
    std::fs::write(directory.join("tokenizer_config.json"), config).unwrap();
    let counter = load(directory);
    for times in [1, 30_000] {
        let counted = count_text(&counter, &"<s>".repeat(times), true);
        assert_eq!(counted, exact(u64::try_from(times).unwrap()));
    }
}

#[test]
fn truncation_and_padding_of_the_file_are_switched_off() {
    let counter = load(edited("truncation", |tokenizer| {
        tokenizer["truncation"] = json!({
            "direction": "Right", "max_length": 512, "strategy": "LongestFirst", "stride": 0
        });
        tokenizer["padding"] = json!({
            "strategy": {"Fixed": 512}, "direction": "Right", "pad_to_multiple_of": null,
            "pad_id": 0, "pad_type_id": 0, "pad_token": "<|endoftext|>"
        });
    }));
    for times in [5_000, 50_000] {
        let counted = count_text(&counter, &"7".repeat(times), true);
        assert_eq!(counted, exact(u64::try_from(times).unwrap()));
    }
    assert_eq!(count_text(&counter, "7", true), exact(1));
}

#[test]
fn a_tokenizer_no_engine_reads_is_an_error_that_names_both() {
    let directory = edited("broken", |tokenizer| {
        tokenizer["model"] = json!({"type": "NoSuchModel"});
    });
    let loaded = ModelCounter::load(CounterSpec::new(Source::Directory(directory.clone())));
    std::fs::remove_dir_all(&directory).unwrap();
    let message = loaded.unwrap_err().to_string();
    assert!(
        message.contains("fastokens: ") && message.contains("tokenizers: "),
        "{message}"
    );
    let missing = ModelCounter::load(CounterSpec::new(Source::Directory(directory)));
    assert!(missing.unwrap_err().to_string().contains("cannot read"));
}
