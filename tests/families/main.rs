//! Every model family, every prompt form: our count against vLLM's own.
//!
//! `tests/golden/corpus` holds the prompts, the conversations and the counts that
//! vLLM's code gave them; the scripts beside them made all three. Families whose
//! vocabulary may not be committed are fetched by `families/fetch.py`, and their
//! tests are ignored unless asked for:
//!
//! ```sh
//! tests/golden/families/fetch.py && cargo test --test families -- --include-ignored
//! ```

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod corpus;
mod fuzz;
mod models;
mod templates;

use std::borrow::Cow;
use std::path::Path;
use std::sync::OnceLock;

use corpus::{Corpus, Counts};
use serde_json::{Value, json};
use tidegate::tokenize::{
    ChatInput, Count, CountError, CounterSpec, Effort, ModelCounter, Precision, PromptInput, Source,
};

fn corpus() -> &'static Corpus {
    static CORPUS: OnceLock<Corpus> = OnceLock::new();
    CORPUS.get_or_init(Corpus::read)
}

fn load(source: Source) -> ModelCounter {
    ModelCounter::load(CounterSpec::new(source)).unwrap()
}

fn directory(path: &Path) -> ModelCounter {
    load(Source::Directory(path.to_owned()))
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

/// What was compared, and the first few that differ.
#[derive(Default)]
struct Tally {
    equal: usize,
    refused: usize,
    wrong: usize,
    shown: Vec<String>,
}

// === impl Tally ===

impl Tally {
    /// Compares one count; what vLLM refuses may be counted or refused.
    fn compare(&mut self, name: &str, expected: Option<u64>, counted: Result<Count, CountError>) {
        let Some(tokens) = expected else {
            self.refused += 1;
            return;
        };
        let exact = Count {
            prompts: vec![tokens],
            precision: Precision::Exact,
        };
        if counted.as_ref() == Ok(&exact) {
            self.equal += 1;
            return;
        }
        self.wrong += 1;
        if self.shown.len() < 12 {
            self.shown.push(format!("  {name}: {tokens}, {counted:?}"));
        }
    }

    fn settle(self, family: &str, what: &str) -> usize {
        let Self { equal, wrong, .. } = self;
        let shown = self.shown.join("\n");
        assert_eq!(wrong, 0, "{family}, {what}: {equal} equal, not\n{shown}");
        println!("{family}: {equal} {what} equal, {} refused", self.refused);
        equal
    }
}

/// Both forms of a text prompt.
fn texts_are_equal(family: &str, counter: &ModelCounter) {
    let (corpus, mut tally) = (corpus(), Tally::default());
    let counts = Counts::read(family, corpus);
    for (at, entry) in corpus.entries.iter().enumerate() {
        let name = format!("{at} ({})", entry.class);
        let framed = count_text(counter, &entry.text, true);
        tally.compare(&name, counts.completions[at], Ok(framed));
        let bare = count_text(counter, &entry.text, false);
        tally.compare(&name, counts.bare[at], Ok(bare));
    }
    assert_eq!(tally.settle(family, "texts"), 2 * corpus.entries.len());
}

/// Each text as a chat, and the conversations.
fn chats_are_equal(family: &str, counter: &ModelCounter) -> usize {
    assert_eq!(counter.template_problem(), None, "{family}");
    let (corpus, mut tally) = (corpus(), Tally::default());
    let counts = Counts::read(family, corpus);
    for (at, entry) in corpus.entries.iter().enumerate() {
        let body = json!({"messages": [{"role": "user", "content": entry.text}]});
        let name = format!("chat {at} ({})", entry.class);
        tally.compare(&name, counts.chats[at], count_chat(counter, &body));
    }
    for (at, body) in corpus.conversations.iter().enumerate() {
        let name = format!("conversation {at}");
        tally.compare(&name, counts.conversations[at], count_chat(counter, body));
    }
    for (at, (name, body)) in corpus.requests.iter().enumerate() {
        tally.compare(name, counts.requests[at], count_chat(counter, body));
    }
    tally.settle(family, "chats")
}

/// Every text by other engines than the one that usually counts it; a count they
/// call estimated, for characters that versions of Unicode dispute, may differ.
fn others_are_equal(family: &str, count: impl Fn(&str) -> Count) {
    let (corpus, mut tally) = (corpus(), Tally::default());
    let counts = Counts::read(family, corpus);
    let mut disputed = 0;
    for (at, entry) in corpus.entries.iter().enumerate() {
        let counted = count(&entry.text);
        if counted.precision == Precision::Estimated {
            disputed += 1;
            continue;
        }
        let name = format!("{at} ({})", entry.class);
        tally.compare(&name, counts.bare[at], Ok(counted));
    }
    assert!(disputed < 30, "{family}: {disputed} disputed texts");
    let equal = tally.settle(family, "texts in another engine");
    assert_eq!(equal + disputed, corpus.entries.len());
}

/// The engine for long runs, given everything with the shortest run.
fn second_engine_is_equal(family: &str) {
    let mut spec = CounterSpec::new(Source::Directory(models::committed(family)));
    spec.max_run_bytes = 1;
    let counter = ModelCounter::load(spec).unwrap();
    others_are_equal(family, |text| count_text(&counter, text, false));
}

/// The reference path that samples of the traffic are counted by.
fn reference_is_equal(family: &str, counter: &ModelCounter) {
    others_are_equal(family, |text| {
        let texts = [Cow::Borrowed(text)];
        let input = PromptInput::Texts {
            texts: &texts,
            add_special_tokens: false,
        };
        counter.reference_count(&input).unwrap()
    });
}

#[test]
fn qwen_2_5_counts_as_in_vllm() {
    let counter = directory(&models::committed("qwen2.5"));
    texts_are_equal("qwen2.5", &counter);
    assert_eq!(chats_are_equal("qwen2.5", &counter), 2622 + 320 + 36);
}

#[test]
fn qwen_3_counts_as_in_vllm() {
    let counter = directory(&models::committed("qwen3"));
    texts_are_equal("qwen3", &counter);
    reference_is_equal("qwen3", &counter);
    assert_eq!(chats_are_equal("qwen3", &counter), 2622 + 315 + 36);
}

#[test]
fn deepseek_v3_counts_as_in_vllm() {
    let counter = directory(&models::committed("deepseek_v3"));
    texts_are_equal("deepseek_v3", &counter);
    reference_is_equal("deepseek_v3", &counter);
    assert_eq!(chats_are_equal("deepseek_v3", &counter), 2622 + 320 + 36);
}

#[test]
fn mistral_tekken_counts_as_in_vllm() {
    let counter = directory(&models::committed("mistral_tekken"));
    texts_are_equal("mistral_tekken", &counter);
    reference_is_equal("mistral_tekken", &counter);
    assert_eq!(chats_are_equal("mistral_tekken", &counter), 2622 + 151 + 20);
}

#[test]
fn mistral_v7_counts_as_in_vllm() {
    let counter = directory(&models::committed("mistral_v7"));
    texts_are_equal("mistral_v7", &counter);
    assert_eq!(chats_are_equal("mistral_v7", &counter), 2622 + 204 + 20);
}

#[test]
fn gpt_oss_counts_as_in_vllm_without_a_file() {
    let counter = load(Source::Tiktoken("o200k_harmony".into()));
    texts_are_equal("gpt_oss", &counter);
    reference_is_equal("gpt_oss", &counter);
    assert_eq!(chats_are_equal("gpt_oss", &counter), 2622 + 312 + 35);
}

#[test]
fn the_second_engine_counts_the_corpus_alike() {
    for family in ["qwen3", "deepseek_v3"] {
        second_engine_is_equal(family);
    }
}

#[test]
#[ignore = "needs the fetched model"]
fn gpt_oss_counts_as_in_vllm() {
    let counter = directory(&models::fetched("gpt_oss"));
    texts_are_equal("gpt_oss", &counter);
    reference_is_equal("gpt_oss", &counter);
    assert_eq!(chats_are_equal("gpt_oss", &counter), 2622 + 312 + 35);
}

#[test]
#[ignore = "needs the fetched model"]
fn llama_3_counts_as_in_vllm() {
    for (family, chats) in [("llama3", 320), ("llama3.1", 264), ("llama3.2", 264)] {
        let counter = directory(&models::fetched(family));
        texts_are_equal(family, &counter);
        assert_eq!(chats_are_equal(family, &counter), 2622 + chats + 36);
    }
}

#[test]
#[ignore = "needs the fetched model"]
fn gemma_3_counts_as_in_vllm() {
    let counter = directory(&models::fetched("gemma3"));
    texts_are_equal("gemma3", &counter);
    assert_eq!(chats_are_equal("gemma3", &counter), 2622 + 207 + 30);
}
