//! A count told part by part.
//!
//! Decides how much of a counted prompt each part of its request is charged;
//! never counts the prompt itself. Invariant: the parts of a prompt sum to its
//! count.
//!
//! A tokenizer's pieces reach across the joints of a rendered chat, so parts are
//! no sums of their own. The method: media are charged their allowance; `tools`
//! and `documents` what the count falls by when they are left out; a message
//! the tokens of its texts, counted alone; and `template` what is left: roles,
//! control tokens, the header of the answer, joints. Where that would be more
//! than there is (a template that drops old messages, a prompt that is
//! truncated) the newest messages are charged first and the others what is left.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::chat::weigh::is_media;
use super::{ChatInput, Count, Effort, ModelCounter, PromptInput};

/// Members of a message that are no text of it.
const NO_TEXT: [&str; 4] = ["role", "type", "id", "tool_call_id"];

/// What one part of a request adds to its prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// `message 1 (user)`, `tools`, `documents`, `media`, `template`, `prompt 1`.
    pub name: String,
    /// Its tokens.
    pub tokens: u64,
}

/// Takes parts out of a number of tokens, as far as they go.
struct Purse(u64);

// === impl ModelCounter ===

impl ModelCounter {
    /// Tells `count`, a count of `input`, part by part; the parts sum to its
    /// total. A chat costs up to three counts more. Blocks for long prompts.
    pub fn parts(&self, input: &PromptInput<'_>, count: &Count) -> Vec<Part> {
        match input {
            PromptInput::Chat(chat) => self.chat_parts(chat, count.total()),
            _ => prompt_parts(count),
        }
    }

    fn chat_parts(&self, chat: &ChatInput<'_>, total: u64) -> Vec<Part> {
        let mut purse = Purse(total);
        let media = purse.take(self.media_tokens(chat));
        let without = |left_out: ChatInput<'_>| {
            let rest = self.count(&PromptInput::Chat(left_out), &Effort::default());
            rest.map_or(0, |rest| total.saturating_sub(rest.total()))
        };
        let tools = chat.tools.map(|_| ChatInput {
            tools: None,
            ..chat.clone()
        });
        let tools = tools.map(|left_out| purse.take(without(left_out)));
        let documents = chat.documents.map(|_| ChatInput {
            documents: None,
            ..chat.clone()
        });
        let documents = documents.map(|left_out| purse.take(without(left_out)));
        let mut messages = self.message_parts(chat.messages, &mut purse);
        let mut parts = vec![part("template", purse.0)];
        parts.append(&mut messages);
        parts.extend(tools.map(|tokens| part("tools", tokens)));
        parts.extend(documents.map(|tokens| part("documents", tokens)));
        parts.extend((media > 0).then(|| part("media", media)));
        parts
    }

    /// The newest first out of the purse, in their order out of here.
    fn message_parts(&self, messages: &Value, purse: &mut Purse) -> Vec<Part> {
        let messages = messages.as_array().map_or(&[][..], Vec::as_slice);
        let mut parts: Vec<_> = messages
            .iter()
            .enumerate()
            .rev()
            .map(|(index, message)| {
                let number = index + 1;
                let role = message.get("role").and_then(Value::as_str);
                let name = format!("message {number} ({})", role.unwrap_or("no role"));
                part(name, purse.take(self.message_tokens(message)))
            })
            .collect();
        parts.reverse();
        parts
    }

    fn message_tokens(&self, message: &Value) -> u64 {
        let mut texts = Vec::new();
        match message.as_object() {
            Some(fields) => add_texts(fields, &mut texts),
            None => texts.push(message.to_string()),
        }
        let texts: Vec<_> = texts.into_iter().map(Cow::Owned).collect();
        let texts = PromptInput::Texts {
            texts: &texts,
            add_special_tokens: false,
        };
        let count = self.count(&texts, &Effort::default());
        count.map_or(0, |count| count.total())
    }
}

/// One part for each prompt.
fn prompt_parts(count: &Count) -> Vec<Part> {
    let named = (1..).zip(&count.prompts);
    named
        .map(|(number, tokens): (u64, _)| part(format!("prompt {number}"), *tokens))
        .collect()
}

/// The texts of a message or of a part of it, each as the template will show
/// it; what is neither text nor media is spelled out as JSON.
fn add_texts(fields: &Map<String, Value>, texts: &mut Vec<String>) {
    for (key, value) in fields {
        match value {
            _ if NO_TEXT.contains(&key.as_str()) => {}
            Value::Null => {}
            Value::String(text) => texts.push(text.clone()),
            Value::Array(parts) if key == "content" => {
                for part in parts {
                    add_part(part, texts);
                }
            }
            other => texts.push(other.to_string()),
        }
    }
}

/// The texts of a part that is no media.
fn add_part(part: &Value, texts: &mut Vec<String>) {
    match part {
        Value::String(text) => texts.push(text.clone()),
        Value::Object(fields) if is_media(fields) => {}
        Value::Object(fields) => add_texts(fields, texts),
        other => texts.push(other.to_string()),
    }
}

fn part(name: impl Into<String>, tokens: u64) -> Part {
    Part {
        name: name.into(),
        tokens,
    }
}

// === impl Purse ===

impl Purse {
    /// `tokens`, or what is left.
    fn take(&mut self, tokens: u64) -> u64 {
        let taken = tokens.min(self.0);
        self.0 -= taken;
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::tokenize::{CounterSpec, Source};
    use serde_json::json;

    fn counter(template: &str) -> ModelCounter {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        let mut spec = CounterSpec::new(Source::Directory(golden.join("tiny-model")));
        let path = golden.join("templates").join(template);
        spec.chat_template = Some(std::fs::read_to_string(path).unwrap());
        ModelCounter::load(spec).unwrap()
    }

    fn told(counter: &ModelCounter, chat: ChatInput<'_>) -> (u64, Vec<(String, u64)>) {
        let input = PromptInput::Chat(chat);
        let count = counter.count(&input, &Effort::default()).unwrap();
        let parts = counter.parts(&input, &count);
        let sum: u64 = parts.iter().map(|part| part.tokens).sum();
        assert_eq!(sum, count.total(), "{parts:?}");
        let parts = parts.into_iter().map(|part| (part.name, part.tokens));
        (count.total(), parts.collect())
    }

    #[test]
    fn messages_tools_and_template_sum_to_the_count() {
        let counter = counter("qwen3.jinja");
        let messages = json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Be brief."}]},
        ]);
        let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {}}}]);
        let mut chat = ChatInput::new(&messages);
        let (plain, parts) = told(&counter, chat.clone());
        let names: Vec<_> = parts.iter().map(|(name, _)| name.as_str()).collect();
        let expected = ["template", "message 1 (system)", "message 2 (user)"];
        assert_eq!(names, expected);
        assert_eq!(parts[1].1, parts[2].1, "the same text as parts and whole");
        chat.tools = Some(&tools);
        let (total, with_tools) = told(&counter, chat);
        let expected = ("tools".to_owned(), total - plain);
        assert_eq!(with_tools[3], expected);
        assert_eq!(with_tools[..3], parts);
    }

    #[test]
    fn messages_a_template_leaves_out_are_charged_what_is_left() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        let mut spec = CounterSpec::new(Source::Directory(golden.join("tiny-model")));
        spec.chat_template = Some("{{ messages[-1].content }}".to_owned());
        let counter = ModelCounter::load(spec).unwrap();
        let messages = json!([
            {"role": "user", "content": "left out ".repeat(50)},
            {"role": "user", "content": "1234567"},
        ]);
        let (total, parts) = told(&counter, ChatInput::new(&messages));
        let tokens: Vec<_> = parts.iter().map(|(_, tokens)| *tokens).collect();
        assert_eq!(tokens, [0, 0, total]);
    }

    #[test]
    fn media_and_lists_have_parts_of_their_own() {
        let counter = ModelCounter::load(CounterSpec::new(Source::Estimate)).unwrap();
        let messages = json!([{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "data:,x"}}, {"type": "text", "text": "hi"}
        ]}]);
        let (_, parts) = told(&counter, ChatInput::new(&messages));
        assert_eq!(parts[2], ("media".to_owned(), 4096));
        let input = PromptInput::Ids { counts: &[3, 4] };
        let count = counter.count(&input, &Effort::default()).unwrap();
        let parts = counter.parts(&input, &count);
        assert_eq!(parts, [part("prompt 1", 3), part("prompt 2", 4)]);
    }
}
