//! Looks into one event, without parsing it as JSON unless it must.
//!
//! What its data says is found in one pass (`findings`); here it becomes facts, and
//! is decided whether the event passes.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde_json::Value;

use super::facts::{Facts, StreamError};
use super::findings::{Choices, Findings};
use super::refrain::Refrain;

/// Longest part of an engine's error message that is kept, in characters.
const MESSAGE_CHARS: usize = 300;

/// What an event is to the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Passes in every mode.
    Ordinary,
    /// Usage and an empty list of choices: there only because usage was asked for.
    UsageOnly,
}

/// A quoted key and its searcher, built once.
pub(super) struct Key {
    finder: Finder<'static>,
    len: usize,
}

static CHOICES: LazyLock<Key> = LazyLock::new(|| Key::new("\"choices\""));

/// What is kept from one event to the next.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// For events whose data spans lines.
    pub(super) scratch: Vec<u8>,
    /// What the last one has in common with those that follow, where it may.
    pub(super) refrain: Refrain,
}

/// Adds what `event` says to `facts`. Linear in the event.
pub(super) fn inspect(event: &[u8], memory: &mut Memory, facts: &mut Facts) -> Shape {
    let Some(data) = data(event, &mut memory.scratch) else {
        return Shape::Ordinary;
    };
    if data == b"[DONE]" {
        facts.done = true;
        return Shape::Ordinary;
    }
    let found = Findings::of(data);
    if let Some(left) = found.only_text() {
        memory.refrain.learn(event, data, left);
    }
    // A stream of 4 billion events is not one that has to be counted exactly.
    facts.data_events = facts.data_events.saturating_add(1);
    if found.choices == Choices::Some {
        let carrying = u32::from(found.carries_output());
        facts.token_events = facts.token_events.saturating_add(carrying);
        facts.output_bytes = facts.output_bytes.saturating_add(found.output_bytes);
        facts.progress = found.usage.or(facts.progress);
        facts.on_finish(found.finish);
    } else {
        facts.usage = found.usage.or(facts.usage);
    }
    if found.names_error && facts.error.is_none() {
        facts.error = error(data);
    }
    // An account that cannot be read was asked for on ours all the same.
    match found.choices {
        Choices::Empty if found.is_account => Shape::UsageOnly,
        _ => Shape::Ordinary,
    }
}

/// Whether the beginning of an event leaves open that it is the usage event.
///
/// Goes by the same key as [`inspect`] does: the first in a `data` line. Where
/// its value begins in another line, it is open until the event is whole.
/// `scanned` is how far earlier calls for this event have looked, so that a
/// growing event is searched once.
pub(super) fn may_be_usage(event: &[u8], scanned: &mut usize) -> bool {
    let key = &*CHOICES;
    while let Some(found) = key.finder.find(&event[*scanned..]) {
        let at = *scanned + found;
        let rest = &event[at + key.len..];
        let end = memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
        let rest = rest[..end].trim_ascii();
        let value = rest.strip_prefix(b":").map(<[u8]>::trim_ascii_start);
        if (value.is_none() && !rest.is_empty()) || !is_in_data(event, at) {
            // A text that reads "choices", not a key; or in another field.
            *scanned = at + key.len;
            continue;
        }
        *scanned = at;
        return value
            .is_none_or(|list| list.is_empty() || is_empty(list, b'[', b']') || list == b"[");
    }
    *scanned = (*scanned).max(event.len().saturating_sub(key.len - 1));
    true
}

/// Whether the line of this offset is one of the event's `data` lines.
fn is_in_data(event: &[u8], at: usize) -> bool {
    let before = memchr::memrchr2(b'\n', b'\r', &event[..at]);
    event[before.map_or(0, |end| end + 1)..].starts_with(b"data:")
}

/// The data of an event: its `data` lines joined; `None` where there is none or it is empty.
pub(super) fn data<'a>(event: &'a [u8], scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    let mut lines = DataLines { rest: event };
    let first = lines.next()?;
    let Some(second) = lines.next() else {
        return (!first.is_empty()).then_some(first);
    };
    scratch.clear();
    scratch.extend_from_slice(first);
    for line in std::iter::once(second).chain(lines) {
        scratch.push(b'\n');
        scratch.extend_from_slice(line);
    }
    Some(scratch)
}

/// Values of the `data` lines of an event.
struct DataLines<'a> {
    rest: &'a [u8],
}

/// What follows a colon, spaces skipped.
pub(super) fn colon(rest: &[u8]) -> Option<&[u8]> {
    rest.trim_ascii_start()
        .strip_prefix(b":")
        .map(<[u8]>::trim_ascii_start)
}

pub(super) fn after(text: &[u8], byte: u8) -> &[u8] {
    memchr::memchr(byte, text).map_or(&[], |at| &text[at + 1..])
}

/// Whether `value` begins with an empty list or object.
pub(super) fn is_empty(value: &[u8], open: u8, close: u8) -> bool {
    value
        .strip_prefix(&[open])
        .is_some_and(|rest| rest.trim_ascii_start().first() == Some(&close))
}

/// The error an event reports: under a top-level `error`, or as an object of
/// its own as versions up to 0.10 wrote it.
fn error(data: &[u8]) -> Option<StreamError> {
    let event: Value = serde_json::from_slice(data).ok()?;
    let error = match event.get("error") {
        Some(error) if !error.is_null() => error,
        _ if event["object"] == "error" => &event,
        _ => return None,
    };
    let code = match &error["code"] {
        Value::Number(code) => code.as_u64().and_then(|code| u16::try_from(code).ok()),
        Value::String(code) => code.parse().ok(),
        _ => None,
    };
    let message = error["message"]
        .as_str()
        .or(error.as_str())
        .unwrap_or_default();
    Some(StreamError {
        code,
        kind: error["type"].as_str().unwrap_or_default().to_owned(),
        message: message.chars().take(MESSAGE_CHARS).collect(),
    })
}

// === impl Key ===

impl Key {
    pub(super) fn new(quoted: &'static str) -> Self {
        Self {
            finder: Finder::new(quoted),
            len: quoted.len(),
        }
    }

    /// What follows each occurrence of the key and its colon.
    pub(super) fn values<'a>(&'a self, data: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        self.finder
            .find_iter(data)
            .filter_map(|at| colon(&data[at + self.len..]))
    }
}

// === impl DataLines ===

impl<'a> Iterator for DataLines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while !self.rest.is_empty() {
            let end = memchr::memchr2(b'\n', b'\r', self.rest);
            let line = &self.rest[..end.unwrap_or(self.rest.len())];
            // The LF of a CRLF is left as an empty line, which is no data line.
            self.rest = end.map_or(&[], |end| &self.rest[end + 1..]);
            if line == b"data" {
                return Some(&[]);
            }
            if let Some(value) = line.strip_prefix(b"data:") {
                return Some(value.strip_prefix(b" ").unwrap_or(value));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::usage::{Finish, Usage};
    use super::*;

    fn facts(event: &str) -> Facts {
        let mut facts = Facts::default();
        inspect(event.as_bytes(), &mut Memory::default(), &mut facts);
        facts
    }

    fn delta(delta: &str) -> u32 {
        facts(&format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":null}}]}}\n\n"
        ))
        .token_events
    }

    #[test]
    fn a_delta_carries_output_unless_it_is_empty_or_a_role() {
        for empty in [
            "{}",
            "{ }",
            r#"{"role":"assistant","content":""}"#,
            r#"{"role":"assistant"}"#,
            r#"{"content":null,"tool_calls":[],"x":{},"reasoning":""}"#,
            r#"{"content":"" , "n" : 7 }"#,
            "null",
        ] {
            assert_eq!(delta(empty), 0, "{empty}");
        }
        for full in [
            r#"{"content":" code"}"#,
            r#"{ "role" : "assistant", "content" : "x" }"#,
            r#"{"content":null,"reasoning":"hm"}"#,
            r#"{"reasoning_content":"hm","content":""}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}"#,
            r#"{"content":"","function_call":{"name":"f"}}"#,
            r#"{"content":"\"delta\":{}"}"#,
        ] {
            assert_eq!(delta(full), 1, "{full}");
        }
    }

    #[test]
    fn a_completion_event_carries_output_where_its_text_is_not_empty() {
        assert_eq!(
            facts("data: {\"choices\":[{\"text\":\"x\"}]}\n\n").token_events,
            1
        );
        assert_eq!(
            facts("data: {\"choices\":[{\"text\":\"\"},{\"text\":\"y\"}]}\n\n").token_events,
            1
        );
        assert_eq!(
            facts("data: {\"choices\":[{\"text\":\"\"}]}\n\n").token_events,
            0
        );
    }

    #[test]
    fn usage_with_choices_is_progress_and_without_is_the_total() {
        let usage = Some(Usage {
            prompt_tokens: 3,
            completion_tokens: 2,
            cached_tokens: None,
        });
        let total = facts(
            "data: {\"choices\": [ ], \"usage\": {\"prompt_tokens\":3,\"completion_tokens\":2}}\n\n",
        );
        assert_eq!((total.usage, total.progress), (usage, None));
        let part = facts(
            "data: {\"choices\":[{\"text\":\"x\"}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\n",
        );
        assert_eq!((part.usage, part.progress), (None, usage));
        let null = facts("data: {\"choices\":[],\"usage\":null}\n\n");
        assert_eq!(
            (null.usage, null.progress, null.data_events),
            (None, None, 1)
        );
    }

    #[test]
    fn texts_that_look_like_keys_say_nothing() {
        let quoted = facts(
            r#"data: {"choices":[{"delta":{"content":"\"usage\":{\"prompt_tokens\":9},\"error\":1,\"finish_reason\":\"abort\""}}]}"#,
        );
        assert_eq!(
            quoted,
            Facts {
                data_events: 1,
                token_events: 1,
                output_bytes: 61,
                ..Facts::default()
            }
        );
        let bare =
            facts(r#"data: {"choices":[{"delta":{"content":"error"},"finish_reason":"length"}]}"#);
        assert_eq!((bare.error, bare.finish), (None, Some(Finish::Length)));
    }

    #[test]
    fn errors_are_read_in_all_shapes() {
        let event = facts(
            "data: {\"error\": {\"message\": \"boom\", \"type\": \"InternalServerError\", \"param\": null, \"code\": 500}}\n\n",
        );
        let expected = StreamError {
            code: Some(500),
            kind: "InternalServerError".into(),
            message: "boom".into(),
        };
        assert_eq!(event.error, Some(expected.clone()));
        let flat = facts(
            r#"data: {"object":"error","message":"boom","type":"InternalServerError","code":"500"}"#,
        );
        assert_eq!(flat.error, Some(expected));
        let text = facts(r#"data: {"error":"Unauthorized"}"#).error.unwrap();
        assert_eq!((text.code, text.message.as_str()), (None, "Unauthorized"));
        assert_eq!(facts(r#"data: {"error":null,"choices":[]}"#).error, None);
    }

    #[test]
    fn data_over_several_lines_is_joined_and_other_fields_are_skipped() {
        let event = "event: x\r\nid: 5\r\n: ping\r\ndata: {\"choices\":[],\r\ndata:\"usage\":{\"prompt_tokens\":1}}\r\nretry: 1\r\n\r\n";
        let usage = Usage {
            prompt_tokens: 1,
            completion_tokens: 0,
            cached_tokens: None,
        };
        assert_eq!(facts(event).usage, Some(usage));
        for silent in [
            ": keep-alive\n\n",
            "event: x\n\n",
            "data:\n\n",
            "data\n\n",
            "data: \n\n",
            "\n",
            "database: 1\n\n",
        ] {
            assert_eq!(facts(silent), Facts::default(), "{silent:?}");
        }
        assert!(facts("data: [DONE]\n\n").done && facts("data:[DONE]\r\r").done);
    }

    #[test]
    fn an_event_is_taken_for_usage_until_its_choices_are_seen() {
        let open = |text: &str| may_be_usage(text.as_bytes(), &mut 0);
        for text in [
            "",
            "data: {\"id\":\"x\"",
            "data: {\"choices\"",
            "data: {\"choices\": [ ",
            "data: {\"choices\":[],\"us",
            "data: {\"model\":\"choices\",\"cho",
            "data: {\"choices\":\ndata: [",
            "data: {\"choices\": [\r\ndata: ]",
            ": \"choices\":[{\ndata: {\"choices\":[]",
            "ata: {\"choices\":[{\"index\":0}]\ndata: {",
        ] {
            assert!(open(text), "{text}");
        }
        for text in [
            "data: {\"choices\":[{",
            "data: {\"choices\" : [ 1",
            "data: {\"choices\":null",
        ] {
            assert!(!open(text), "{text}");
        }
        let text = b"data: {\"model\":\"choices\",\"choices\":[{";
        let mut scanned = 0;
        let decided: Vec<usize> = (1..=text.len())
            .filter(|end| !may_be_usage(&text[..*end], &mut scanned))
            .collect();
        assert_eq!(
            decided,
            [text.len()],
            "byte by byte the same is found at the last byte"
        );
    }
}
