//! What an engine says it has spent: the `usage` object and finish reasons.
//!
//! Reads complete answers and single objects; nothing is estimated here.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::skim::Skim;

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
#[derive(Default, Deserialize)]
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
/// One pass over the body; what says nothing of cost is passed over by its quotes
/// and brackets, so that it may be broken within. `None` where the body is not an
/// object of this shape.
pub fn answer_of_body(body: &[u8]) -> Option<Answer> {
    skimmed(body).or_else(|| parsed(body))
}

/// The same for a body that is written the way engines write it.
fn skimmed(body: &[u8]) -> Option<Answer> {
    let (mut usage, mut choices, mut status, mut stopped) = (None, None, None, None);
    let mut skim = Skim::new(body);
    skim.object(|skim, name| match name {
        b"usage" => once(&mut usage, usage_object(skim)?),
        b"choices" => once(&mut choices, reasons(skim)?),
        b"status" => once(&mut status, stated(skim.value()?)?),
        b"stop_reason" => once(&mut stopped, stated(skim.value()?)?),
        _ => skim.value().map(drop),
    })?;
    let finish = match (choices.flatten(), stopped.flatten()) {
        (Some(worst), _) => worst,
        (None, Some(reason)) => Some(Finish::from_stop_reason(reason)),
        (None, None) => status.flatten().map(|text| Finish::from_status(Some(text))),
    };
    let usage = usage.flatten();
    skim.is_done().then(|| Answer {
        usage: usage.and_then(UsageJson::told),
        finish,
    })
}

/// Keeps what a member says. A second of its name is for the parser to refuse.
fn once<T>(kept: &mut Option<T>, value: T) -> Option<()> {
    kept.replace(value).is_none().then_some(())
}

/// A value as text, without quotes; nothing for `null`.
fn stated(value: &[u8]) -> Option<Option<&str>> {
    let text = std::str::from_utf8(value).ok()?;
    Some((text != "null").then(|| text.trim_matches('"')))
}

/// The worst finish reason of a list of choices; nothing for `null`.
fn reasons(skim: &mut Skim<'_>) -> Option<Option<Option<Finish>>> {
    if skim.null() {
        return Some(None);
    }
    let mut worst: Option<Finish> = None;
    skim.array(|skim| {
        let mut reason = None;
        skim.object(|skim, name| match name {
            b"finish_reason" if skim.null() => once(&mut reason, None),
            b"finish_reason" => {
                let text = std::str::from_utf8(skim.plain()?).ok()?;
                once(&mut reason, Some(Finish::from_reason(text)))
            }
            _ => skim.value().map(drop),
        })?;
        let reason: Option<Finish> = reason.flatten();
        worst = worst.into_iter().chain(reason).reduce(Finish::worse);
        Some(())
    })?;
    Some(Some(worst))
}

/// A usage object; nothing for `null`.
fn usage_object(skim: &mut Skim<'_>) -> Option<Option<UsageJson>> {
    if skim.null() {
        return Some(None);
    }
    let (mut usage, mut seen) = (UsageJson::default(), 0u8);
    skim.object(|skim, name| {
        let (bit, place) = match name {
            b"prompt_tokens" => (1, &mut usage.prompt_tokens),
            b"completion_tokens" => (2, &mut usage.completion_tokens),
            b"input_tokens" => (4, &mut usage.input_tokens),
            b"output_tokens" => (8, &mut usage.output_tokens),
            b"cache_read_input_tokens" => (16, &mut usage.cache_read_input_tokens),
            b"cache_creation_input_tokens" => (32, &mut usage.cache_creation_input_tokens),
            b"prompt_tokens_details" => {
                return details(skim, (&mut seen, 64), &mut usage.prompt_tokens_details);
            }
            b"input_tokens_details" => {
                return details(skim, (&mut seen, 128), &mut usage.input_tokens_details);
            }
            _ => return skim.value().map(drop),
        };
        mark(&mut seen, bit)?;
        *place = number(skim)?;
        Some(())
    })?;
    Some(Some(usage))
}

fn details(
    skim: &mut Skim<'_>,
    (seen, bit): (&mut u8, u8),
    place: &mut Option<Details>,
) -> Option<()> {
    mark(seen, bit)?;
    if skim.null() {
        return Some(());
    }
    let mut cached = None;
    skim.object(|skim, name| match name {
        b"cached_tokens" => once(&mut cached, number(skim)?),
        _ => skim.value().map(drop),
    })?;
    *place = Some(Details {
        cached_tokens: cached.flatten(),
    });
    Some(())
}

/// Sets a bit that must not be set yet.
fn mark(seen: &mut u8, bit: u8) -> Option<()> {
    let is_first = *seen & bit == 0;
    *seen |= bit;
    is_first.then_some(())
}

/// A number from 0 on, or `null`.
fn number(skim: &mut Skim<'_>) -> Option<Option<u64>> {
    if skim.null() {
        return Some(None);
    }
    skim.whole().map(Some)
}

/// The same for any JSON.
fn parsed(body: &[u8]) -> Option<Answer> {
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
    fn captured_answers_are_skimmed_and_say_the_same_when_parsed() {
        for body in [
            &include_bytes!("../../tests/golden/vllm-0.32/chat-n2.json")[..],
            include_bytes!("../../tests/golden/vllm-0.32/chat-cached.json"),
            br#"{"status":"incomplete","usage":{"input_tokens":9,"output_tokens":2}}"#,
            br#"{"stop_reason":null,"status":"completed"}"#,
            br#"{"stop_reason":"max_tokens","usage":{"input_tokens":1,"output_tokens":2,
                "cache_read_input_tokens":5,"cache_creation_input_tokens":null}}"#,
            br#"{"choices":[{"text":"\\\"}],","finish_reason":null},{"finish_reason":"null"}]}"#,
            br#"{"choices":null,"stop_reason":"tool_use"}"#,
            br#"{"choices":[]}"#,
        ] {
            let skimmed = skimmed(body);
            assert!(skimmed.is_some(), "{}", String::from_utf8_lossy(body));
            assert_eq!(skimmed, parsed(body));
        }
    }

    #[test]
    fn what_is_out_of_the_ordinary_is_left_to_the_parser() {
        for body in [
            &br#"{"usage":{"prompt_tokens":1},"usage":{"prompt_tokens":2}}"#[..],
            br#"{"us\u0061ge":{"prompt_tokens":1}}"#,
            br#"{"usage":{"prompt_tokens":1.0}}"#,
            br#"{"usage":{"prompt_tokens":1,"prompt_tokens":1}}"#,
            br#"{"usage":[1,2]}"#,
            br#"{"choices":[{"finish_reason":"st\u006fp"}]}"#,
            br#"{"choices":[["stop"]]}"#,
            br#"{"choices":[{"finish_reason":"stop","finish_reason":null}]}"#,
        ] {
            assert_eq!(skimmed(body), None);
            assert_eq!(answer_of_body(body), parsed(body));
        }
        let escaped = br#"{"choices":[{"finish_reason":"\u0061bort"}]}"#;
        let finish = answer_of_body(escaped).and_then(|answer| answer.finish);
        assert_eq!(finish, Some(Finish::Abort));
    }

    #[test]
    fn an_answer_is_believed_its_cost_whatever_its_texts_are() {
        let body = b"{\"choices\":[{\"text\":\"\xff\x01\"}],\"usage\":{\"prompt_tokens\":9}}";
        assert_eq!(
            usage_of_body(body).map(|usage| usage.prompt_tokens),
            Some(9)
        );
        // Half an answer is none.
        assert_eq!(answer_of_body(&body[..body.len() - 1]), None);
    }

    #[test]
    fn a_word_usage_inside_a_text_is_no_usage() {
        let body =
            br#"{"choices":[{"text":"\"usage\":{\"prompt_tokens\":9}","finish_reason":"stop"}]}"#;
        assert_eq!(usage_of_body(body), None);
        assert_eq!(usage_of_tail(body), None);
    }
}
