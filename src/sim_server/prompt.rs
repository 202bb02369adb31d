//! The server's tokenizer: o200k_base, and one small chat template.
//!
//! A gateway configured with `tiktoken:o200k_base` and [`CHAT_TEMPLATE`] counts every
//! prompt exactly as this server does.

use std::fmt::Write as _;

use serde_json::Value;

use crate::core::units::{BlockSize, Tokens};
use crate::sim::content::prefix_of_ids;
use crate::sim::engine::SimRequest;

/// The chat template, as a gateway has to be given it. Tools and documents are not rendered.
pub const CHAT_TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{% if message.content %}{{ message.content }}{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// A prompt as token ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Prompt {
    pub(super) ids: Vec<u32>,
    pub(super) origin: Origin,
}

/// Where the ids come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Text,
    Ids,
}

// === impl Prompt ===

impl Prompt {
    pub(super) fn from_text(text: &str) -> Self {
        Self {
            ids: tiktoken_rs::o200k_base_singleton().encode_with_special_tokens(text),
            origin: Origin::Text,
        }
    }

    pub(super) const fn from_ids(ids: Vec<u32>) -> Self {
        Self {
            ids,
            origin: Origin::Ids,
        }
    }

    /// The messages through [`CHAT_TEMPLATE`].
    pub(super) fn from_chat(messages: &[Value], opening: Opening) -> Self {
        let mut text = String::new();
        for message in messages {
            let role = message
                .get("role")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let content = content(message.get("content").unwrap_or(&Value::Null));
            let _infallible = write!(text, "<|im_start|>{role}\n{content}<|im_end|>\n");
        }
        if opening == Opening::Assistant {
            text.push_str("<|im_start|>assistant\n");
        }
        Self::from_text(&text)
    }

    pub(super) fn tokens(&self) -> Tokens {
        Tokens::new(u64::try_from(self.ids.len()).unwrap_or(u64::MAX))
    }

    /// The engine's request for it, without output bounds.
    pub(super) fn request(&self, size: BlockSize) -> SimRequest {
        SimRequest {
            prefix: prefix_of_ids(&self.ids, size),
            ..SimRequest::new(self.tokens(), Tokens::new(1))
        }
    }

    /// The text of each token, where a token is whole characters.
    pub(super) fn pieces(&self) -> Vec<String> {
        let vocabulary = tiktoken_rs::o200k_base_singleton();
        self.ids
            .iter()
            .map(|&id| vocabulary.decode_bytes(&[id]).unwrap_or_default())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .collect()
    }
}

/// Whether the assistant's header is appended: `add_generation_prompt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    Assistant,
    Nothing,
}

/// A message's content as one text: parts are joined by line ends.
fn content(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts: Vec<&str> = parts
                .iter()
                .filter_map(|part| part.as_str().or_else(|| part.get("text")?.as_str()))
                .collect();
            texts.join("\n")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sim::content::word;

    #[test]
    fn every_word_of_an_answer_is_one_token() {
        for place in 0..16 {
            assert_eq!(
                Prompt::from_text(word(place)).ids.len(),
                1,
                "{}",
                word(place)
            );
        }
        let answer: String = (0..40).map(word).collect();
        assert_eq!(Prompt::from_text(&answer).ids.len(), 40);
    }

    #[test]
    fn parts_count_as_their_text() {
        let plain = [json!({"role": "user", "content": "a\nb"})];
        let parts = [
            json!({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
        ];
        assert_eq!(
            Prompt::from_chat(&plain, Opening::Assistant),
            Prompt::from_chat(&parts, Opening::Assistant)
        );
    }
}
