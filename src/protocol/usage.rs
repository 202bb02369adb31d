//! What an engine says it has spent: the `usage` object and finish reasons.
//!
//! Reads complete answers and single objects; nothing is estimated here.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// Tokens of one answer, all sequences together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Prompt tokens, media included; a prompt of n samples counts once.
    pub prompt_tokens: u64,
    /// Generated tokens.
    pub completion_tokens: u64,
    /// Prompt tokens found in the prefix cache; only some engines say.
    pub cached_tokens: Option<u64>,
}

/// Why a sequence ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Finish {
    /// A stop token or string.
    Stop,
    /// The output bound.
    Length,
    /// The model called tools.
    ToolCalls,
    /// The engine gave up on it: shutdown, drain or an abort by someone else.
    Abort,
    /// The engine failed on it.
    Error,
    /// A reason not listed here.
    Other,
}

/// What a complete answer says about its cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The usage object, where there is one.
    pub usage: Option<Usage>,
    /// The worst finish reason of all choices; `None` where none is given.
    pub finish: Option<Finish>,
}

/// A usage object in any dialect.
#[derive(Deserialize)]
pub(super) struct UsageJson {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens: Option<u64>,
    #[serde(default)]
    prompt_tokens_details: Option<Details>,
    /// The whole prompt in responses; without what was cached in messages.
    #[serde(default)]
    input_tokens: Option<u64>,
    #[serde(default)]
    output_tokens: Option<u64>,
    #[serde(default)]
    input_tokens_details: Option<Details>,
    #[serde(default)]
    cache_read_input_tokens: Option<u64>,
    #[serde(default)]
    cache_creation_input_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct Details {
    #[serde(default)]
    cached_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct AnswerJson<'a> {
    #[serde(default)]
    usage: Option<UsageJson>,
    #[serde(default, borrow)]
    choices: Option<Vec<ChoiceJson<'a>>>,
    /// Of a response; anything at all elsewhere.
    #[serde(default, borrow)]
    status: Option<&'a RawValue>,
    /// Of a message.
    #[serde(default, borrow)]
    stop_reason: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ChoiceJson<'a> {
    #[serde(default, borrow)]
    finish_reason: Option<Cow<'a, str>>,
}

/// Usage and finish reasons of a complete, not streamed answer.
///
/// One pass over the body; texts are skipped, not copied. `None` where the
/// body is not a JSON object of this shape.
pub fn answer_of_body(body: &[u8]) -> Option<Answer> {
    let answer: AnswerJson<'_> = serde_json::from_slice(body).ok()?;
    let reasons = answer
        .choices
        .iter()
        .flatten()
        .filter_map(|choice| choice.finish_reason.as_deref());
    let stated = |raw: Option<&'_ RawValue>| Some(raw?.get().trim_matches('"').to_owned());
    let finish = match (answer.choices.as_ref(), stated(answer.stop_reason)) {
        (Some(_), _) => reasons.map(Finish::from_reason).reduce(Finish::worse),
        (None, Some(reason)) => Some(Finish::from_stop_reason(&reason)),
        (None, None) => stated(answer.status).map(|status| Finish::from_status(Some(&status))),
    };
    Some(Answer {
        usage: answer.usage.and_then(UsageJson::told),
        finish,
    })
}

/// The usage of a complete, not streamed answer.
pub fn usage_of_body(body: &[u8]) -> Option<Usage> {
    answer_of_body(body)?.usage
}

/// The usage of an answer of which only the end was kept.
///
/// Takes the last `"usage"` key with an object as its value that lies whole
/// within `tail`; engines write it near the end of the body. For relays that
/// keep a window of a large answer instead of all of it.
pub fn usage_of_tail(tail: &[u8]) -> Option<Usage> {
    let key = b"\"usage\"";
    memchr::memmem::rfind_iter(tail, key).find_map(|at| {
        let rest = tail[at + key.len()..].trim_ascii_start();
        usage_of_value(rest.strip_prefix(b":")?.trim_ascii_start())
    })
}

/// The usage object at the start of `value`; `None` for `null` or half an object.
pub(super) fn usage_of_value(value: &[u8]) -> Option<Usage> {
    if !value.starts_with(b"{") {
        return None;
    }
    let first = serde_json::Deserializer::from_slice(value)
        .into_iter::<UsageJson>()
        .next();
    first?.ok()?.told()
}

// === impl UsageJson ===

impl UsageJson {
    /// What it says; `None` for an object that only has the same name.
    pub(super) fn told(self) -> Option<Usage> {
        let cached = self.cache_read_input_tokens;
        let input = self.input_tokens.map(|tokens| {
            let others = [cached, self.cache_creation_input_tokens];
            let others = others.into_iter().flatten();
            others.fold(tokens, u64::saturating_add)
        });
        let completion = self.completion_tokens.or(self.output_tokens);
        self.prompt_tokens.or(input).or(completion)?;
        let details = self.prompt_tokens_details.or(self.input_tokens_details);
        Some(Usage {
            prompt_tokens: self.prompt_tokens.or(input).unwrap_or(0),
            completion_tokens: completion.unwrap_or(0),
            cached_tokens: details.and_then(|details| details.cached_tokens).or(cached),
        })
    }
}

// === impl Finish ===

impl Finish {
    /// Reads an engine's finish reason.
    pub fn from_reason(reason: &str) -> Self {
        match reason {
            "stop" => Self::Stop,
            "length" => Self::Length,
            "tool_calls" | "function_call" => Self::ToolCalls,
            "abort" => Self::Abort,
            "error" => Self::Error,
            _ => Self::Other,
        }
    }

    /// Reads the status of a response.
    pub fn from_status(status: Option<&str>) -> Self {
        match status {
            Some("incomplete") => Self::Length,
            Some("failed") => Self::Error,
            Some("cancelled") => Self::Abort,
            _ => Self::Stop,
        }
    }

    /// Reads the stop reason of a message.
    pub fn from_stop_reason(reason: &str) -> Self {
        match reason {
            "end_turn" | "stop_sequence" => Self::Stop,
            "max_tokens" => Self::Length,
            "tool_use" => Self::ToolCalls,
            _ => Self::Other,
        }
    }

    /// The name in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolCalls => "tool_calls",
            Self::Abort => "abort",
            Self::Error => "error",
            Self::Other => "other",
        }
    }

    /// The one of two reasons that says more about trouble: an error before an
    /// abort before anything else; of two harmless ones the later.
    #[must_use]
    pub const fn worse(self, later: Self) -> Self {
        match (self, later) {
            (Self::Error, _) | (_, Self::Error) => Self::Error,
            (Self::Abort, _) | (_, Self::Abort) => Self::Abort,
            _ => later,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_and_finish_of_a_captured_answer_are_read() {
        let body = include_bytes!("../../tests/golden/vllm-0.32/chat-n2.json");
        let answer = answer_of_body(body).unwrap();
        assert_eq!(
            answer.usage,
            Some(Usage {
                prompt_tokens: 14,
                completion_tokens: 8,
                cached_tokens: None
            })
        );
        assert_eq!(answer.finish, Some(Finish::Length));
        assert_eq!(usage_of_tail(&body[body.len() - 300..]), answer.usage);
    }

    #[test]
    fn pooling_answers_account_for_their_prompt_and_audio_for_no_token() {
        let rerank = br#"{"results":[],"usage":{"prompt_tokens":7,"total_tokens":7}}"#;
        let usage = usage_of_body(rerank).unwrap();
        assert_eq!((usage.prompt_tokens, usage.completion_tokens), (7, 0));
        let audio = br#"{"text":"a","usage":{"type":"duration","seconds":3}}"#;
        assert_eq!(usage_of_body(audio), None);
        assert_eq!(usage_of_tail(audio), None);
        assert_eq!(usage_of_body(br#"{"count":3,"tokens":[1,2,3]}"#), None);
    }

    #[test]
    fn cached_tokens_are_read_where_the_engine_says_them() {
        let body = include_bytes!("../../tests/golden/vllm-0.32/chat-cached.json");
        let usage = usage_of_body(body).unwrap();
        assert_eq!(
            usage,
            Usage {
                prompt_tokens: 65,
                completion_tokens: 2,
                cached_tokens: Some(64)
            }
        );
    }

    #[test]
    fn an_answer_cut_short_by_the_engine_is_seen_among_good_choices() {
        let body =
            br#"{"choices":[{"finish_reason":"abort"},{"finish_reason":"stop"}],"usage":null}"#;
        assert_eq!(
            answer_of_body(body),
            Some(Answer {
                usage: None,
                finish: Some(Finish::Abort)
            })
        );
        assert_eq!(
            answer_of_body(br#"{"error":{"code":500}}"#),
            Some(Answer::default())
        );
        assert_eq!(answer_of_body(b"<html>"), None);
    }

    #[test]
    fn a_word_usage_inside_a_text_is_no_usage() {
        let body =
            br#"{"choices":[{"text":"\"usage\":{\"prompt_tokens\":9}","finish_reason":"stop"}]}"#;
        assert_eq!(usage_of_body(body), None);
        assert_eq!(usage_of_tail(body), None);
    }
}
