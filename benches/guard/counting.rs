//! Prompts, and what counts them: the small vocabulary and a template of the tests.

use std::borrow::Cow;
use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};
use tidegate::tokenize::{ChatInput, CounterSpec, Effort, ModelCounter, PromptInput, Source};

/// The folder of the vocabulary.
pub(crate) const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/tiny-model");

/// The template of its chats.
pub(crate) const TEMPLATE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/golden/templates/chatml.jinja"
);

/// Chats of one kind in one counted part: hash seeds are drawn anew by each process,
/// and what one chat owes to them evens out.
const CHATS: u64 = 16;

/// A counter that has counted something else, and what it is given.
pub(crate) struct Counting {
    counter: ModelCounter,
    prompts: Vec<Prompt>,
}

enum Prompt {
    Chat(Value),
    Text(String),
}

/// A chat of one short question.
pub(crate) fn small_chat() -> Vec<u8> {
    body(&messages(1, (1, 64)))
}

/// Tokens of [`small_chat`]'s prompt.
pub(crate) fn small_chat_tokens() -> u64 {
    Counting::of(vec![Prompt::Chat(messages(1, (1, 64)))]).count()
}

/// A chat of some 16 kB in many turns.
pub(crate) fn conversation() -> Vec<u8> {
    body(&messages(1, (24, 680)))
}

fn body(messages: &Value) -> Vec<u8> {
    let body = json!({
        "model": "tiny", "messages": messages, "max_tokens": 64, "temperature": 0.7,
        "stream": false, "user": "one of many"
    });
    serde_json::to_vec(&body).unwrap()
}

fn messages(seed: u64, (turns, bytes): (u64, usize)) -> Value {
    let role = |turn| if turn % 2 == 0 { "user" } else { "assistant" };
    let message = |turn| json!({"role": role(turn), "content": prose(100 * seed + turn, bytes)});
    (0..turns).map(message).collect()
}

/// Text of words, numbers and lines, another one for each `seed`.
pub(crate) fn prose(seed: u64, bytes: usize) -> String {
    const WORDS: &str = "the tide comes in twice a day and nobody has to ask harbour gate water \
        block token vessel keel anchor measured before release; against northern light returns";
    let words: Vec<&str> = WORDS.split(' ').collect();
    let mut state = seed;
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let random = usize::try_from(state >> 40).unwrap();
        match random % 29 {
            0 => text.push_str("\n\n"),
            1 => write!(text, "{random} ").unwrap(),
            _ => {
                text.push_str(words[random % words.len()]);
                text.push(' ');
            }
        }
    }
    text
}

fn chats(shape: (u64, usize)) -> Vec<Prompt> {
    let chat = |seed| Prompt::Chat(messages(seed, shape));
    (1..=CHATS).map(chat).collect()
}

// === impl Counting ===

impl Counting {
    pub(crate) fn chats() -> Self {
        Self::of(chats((1, 64)))
    }

    pub(crate) fn conversations() -> Self {
        Self::of(chats((24, 680)))
    }

    /// 200 kB, met for the first time.
    pub(crate) fn long_text() -> Self {
        Self::of(vec![Prompt::Text(prose(99, 200_000))])
    }

    fn of(prompts: Vec<Prompt>) -> Self {
        let mut spec = CounterSpec::new(Source::Directory(Path::new(MODEL).to_owned()));
        spec.chat_template = Some(std::fs::read_to_string(TEMPLATE).unwrap());
        let counter = ModelCounter::load(spec).unwrap();
        let counting = Self { counter, prompts };
        // What is made at the first use of a counter is not made again.
        counting.count_texts(&[Cow::Borrowed("something else")]);
        counting.count_chat(&json!([{"role": "user", "content": "something else"}]));
        counting
    }

    /// Tokens of the prompts, counted as the gateway counts.
    pub(crate) fn count(&self) -> u64 {
        let count = |prompt: &Prompt| match prompt {
            Prompt::Chat(messages) => self.count_chat(messages),
            Prompt::Text(text) => self.count_texts(&[Cow::Borrowed(text)]),
        };
        self.prompts.iter().map(count).sum()
    }

    fn count_chat(&self, messages: &Value) -> u64 {
        self.count_input(&PromptInput::Chat(ChatInput::new(messages)))
    }

    fn count_texts(&self, texts: &[Cow<'_, str>]) -> u64 {
        self.count_input(&PromptInput::Texts {
            texts,
            add_special_tokens: true,
        })
    }

    fn count_input(&self, input: &PromptInput<'_>) -> u64 {
        let count = self.counter.count(input, &Effort::default()).unwrap();
        count.total()
    }
}
