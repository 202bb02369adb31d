//! What a prompt holds beside the text that an engine shortens.
//!
//! Decides how far the truncation a client asks for lowers its charge. Engines
//! shorten the tokens of the text, then write those of images among them. Never
//! counts text. Invariant: what is not known to be shortened is charged.

use crate::core::units::Tokens;
use crate::protocol::request::Prompt;
use crate::tokenize::{ModelCounter, Truncation};

use super::count::{chat_input, origin};

/// What an engine's truncation leaves on top of its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beside {
    /// Nothing: the prompt is text.
    Nothing,
    /// At most so many tokens.
    Tokens(Tokens),
    /// Nobody knows: it may be all of it.
    Unknown,
    /// All of it: the engine does not truncate such a prompt.
    All,
}

// === impl Beside ===

impl Beside {
    /// What `prompt` holds beside its text, with the tokens `unseen` in it.
    /// O(messages and parts).
    pub(super) fn of(counter: &ModelCounter, prompt: &Prompt<'_>, unseen: Option<Tokens>) -> Self {
        let truncation = match prompt {
            Prompt::Chat(chat) | Prompt::Conversations { shared: chat, .. } => {
                counter.truncation(origin(chat.origin))
            }
            _ => Truncation::Applied,
        };
        match truncation {
            Truncation::Ignored => return Self::All,
            Truncation::Unknown => return Self::Unknown,
            Truncation::Applied => {}
        }
        let media = match prompt {
            Prompt::Chat(chat) if chat.media => Some(counter.media_growth(&chat_input(chat))),
            Prompt::Conversations { shared, .. } if shared.media => return Self::Unknown,
            Prompt::Pairs(pairs) => {
                let mut pieces = pairs.queries.iter().chain(&pairs.documents);
                if pieces.any(|piece| piece.media.is_some()) {
                    return Self::Unknown;
                }
                None
            }
            _ => None,
        };
        let parts = [media.map(Tokens::new), unseen];
        let beside = parts.into_iter().flatten().reduce(Tokens::saturating_add);
        beside.map_or(Self::Nothing, Self::Tokens)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;
    use crate::layers::measure::Offline;
    use crate::protocol::{Route, parse};
    use crate::tokenize::{Count, CounterSpec, Origin, Precision, Source};

    fn counted(counter: &ModelCounter, body: &Value) -> Count {
        let body = body.to_string();
        let request = parse(Route::ChatCompletions, body.as_bytes()).unwrap();
        let offline = Offline {
            counter,
            request: &request,
            body_bytes: body.len(),
            stored_history: Tokens::new(4096),
        };
        offline.count().unwrap()
    }

    fn harmony() -> ModelCounter {
        let source = Source::Tiktoken("o200k_harmony".to_owned());
        ModelCounter::load(CounterSpec::new(source)).unwrap()
    }

    fn chatml() -> ModelCounter {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        let mut spec = CounterSpec::new(Source::Directory(golden.join("tiny-model")));
        let template = std::fs::read_to_string(golden.join("templates/chatml.jinja"));
        spec.chat_template = Some(template.unwrap());
        ModelCounter::load(spec).unwrap()
    }

    #[test]
    fn a_gpt_oss_chat_is_charged_whole_whatever_truncation_it_asks_for() {
        let counter = harmony();
        let mut body = json!({"messages": [{"role": "user", "content": "one two three"}]});
        let whole = counted(&counter, &body);
        body["truncate_prompt_tokens"] = json!(1);
        assert_eq!(counted(&counter, &body), whole);
        assert!(whole.total() > 60 && whole.precision == Precision::Exact);
        assert_eq!(counter.truncation(Origin::Responses), Truncation::Applied);
    }

    #[test]
    fn truncation_shortens_the_text_of_a_chat_and_not_its_image() {
        let counter = chatml();
        let text = json!({"type": "text", "text": "the tide comes in ".repeat(100)});
        let chat = |parts: Value| json!({"messages": [{"role": "user", "content": parts}]});
        let mut plain = chat(json!([text]));
        plain["truncate_prompt_tokens"] = json!(5);
        let shortened = counted(&counter, &plain);
        assert_eq!(
            (shortened.total(), shortened.precision),
            (5, Precision::Exact)
        );
        let url = json!({"url": "https://127.0.0.1/a.png"});
        let image = json!({"type": "image_url", "image_url": url});
        let mut seen = chat(json!([text, image]));
        let whole = counted(&counter, &seen).total();
        let body = seen.to_string();
        let request = parse(Route::ChatCompletions, body.as_bytes()).unwrap();
        let Beside::Tokens(media) = Beside::of(&counter, &request.prompt, None) else {
            panic!("the charge of an image is known");
        };
        seen["truncate_prompt_tokens"] = json!(5);
        let shortened = counted(&counter, &seen);
        let expected = (5 + media.get(), Precision::Estimated);
        assert_eq!((shortened.total(), shortened.precision), expected);
        assert!(media.get() > 100 && whole > shortened.total());
    }

    #[test]
    fn where_the_renderer_is_not_known_no_chat_is_shortened() {
        let counter = ModelCounter::load(CounterSpec::new(Source::Estimate)).unwrap();
        let mut body = json!({"messages": [{"role": "user", "content": "one two three"}]});
        let whole = counted(&counter, &body);
        body["truncate_prompt_tokens"] = json!(1);
        assert_eq!(counted(&counter, &body), whole);
    }
}
