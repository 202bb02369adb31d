//! Looks into the events of streams that name them: Responses and Messages.
//!
//! Decides by the name alone what an event is, and parses only the few that
//! bring usage or an end. Every byte passes. Invariant: what a model or a client
//! wrote is never taken for the engine's own account.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use super::super::usage::{Finish, UsageJson, usage_of_tail};
use super::facts::{Facts, StreamError};
use super::output;

/// Longest part of an engine's error message that is kept, in characters.
const MESSAGE_CHARS: usize = 300;
/// Bytes of the beginning of a large event that are kept: its name.
const HEAD_BYTES: usize = 128;
/// Bytes of the end of a large event that are kept: an engine writes the usage
/// after the answer's own text.
const TAIL_BYTES: usize = 16 << 10;

/// Whose events they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// OpenAI's responses.
    Responses,
    /// Anthropic's messages.
    Messages,
}

/// Beginning and end of an event that is too large to be kept.
#[derive(Debug, Default)]
pub(super) struct Large {
    head: Vec<u8>,
    tail: Vec<u8>,
}

/// The last event of a response.
#[derive(Deserialize)]
struct Closing<'a> {
    #[serde(borrow)]
    response: Closed<'a>,
}

#[derive(Deserialize)]
struct Closed<'a> {
    #[serde(default)]
    usage: Option<UsageJson>,
    #[serde(default, borrow)]
    status: Option<Cow<'a, str>>,
}

/// The first event of a message.
#[derive(Deserialize)]
struct Start {
    message: Begun,
}

#[derive(Deserialize)]
struct Begun {
    #[serde(default)]
    usage: Option<UsageJson>,
}

/// The event that ends the content of a message.
#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(default)]
    usage: Option<UsageJson>,
    #[serde(borrow)]
    delta: Stopped<'a>,
}

#[derive(Deserialize)]
struct Stopped<'a> {
    #[serde(default, borrow)]
    stop_reason: Option<Cow<'a, str>>,
}

/// Adds what an event of this name and data says to `facts`. Linear in the event.
pub(super) fn inspect(names: Names, event: &[u8], data: &[u8], facts: &mut Facts) {
    if data == b"[DONE]" {
        facts.done = true;
        return;
    }
    let name = name(event).unwrap_or_default();
    if is_preamble(names, name) {
        return;
    }
    // A stream of 4 billion events is not one that has to be counted exactly.
    facts.data_events = facts.data_events.saturating_add(1);
    if name == b"error" {
        // Both dialects end with it.
        facts.error = facts.error.take().or_else(|| Some(error(data)));
        facts.done = true;
        return;
    }
    match names {
        Names::Responses => response(name, data, facts),
        Names::Messages => message(name, data, facts),
    }
}

/// Adds what can be told of an event that was too large to be kept.
pub(super) fn inspect_large(names: Names, large: &Large, facts: &mut Facts) {
    facts.data_events = facts.data_events.saturating_add(1);
    facts.skipped = facts.skipped.saturating_add(1);
    let closes = name(&large.head).is_some_and(|name| finish(name).is_some());
    if names == Names::Responses && closes {
        facts.done = true;
        facts.usage = usage_of_tail(&large.tail).or(facts.usage);
    }
}

/// Events that an engine sends before it has begun, and to keep a line open.
fn is_preamble(names: Names, name: &[u8]) -> bool {
    match names {
        Names::Responses => matches!(
            name,
            b"response.created" | b"response.in_progress" | b"response.queued"
        ),
        Names::Messages => name == b"ping",
    }
}

fn response(name: &[u8], data: &[u8], facts: &mut Facts) {
    if name.ends_with(b".delta") {
        on_output(data, facts);
    }
    let Some(finish) = finish(name) else {
        return;
    };
    // Half of it is not the end.
    let Ok(Closing { response }) = serde_json::from_slice::<Closing<'_>>(data) else {
        return;
    };
    let Closed { usage, status } = response;
    facts.done = true;
    facts.usage = usage.and_then(UsageJson::told).or(facts.usage);
    facts.on_finish(Some(finish.worse(Finish::from_status(status.as_deref()))));
    if finish == Finish::Error {
        facts.error = facts.error.take().or_else(|| Some(error(data)));
    }
}

/// What the last event of a response means by its name; `None` for any other.
fn finish(name: &[u8]) -> Option<Finish> {
    match name {
        b"response.completed" => Some(Finish::Stop),
        b"response.incomplete" => Some(Finish::Length),
        b"response.failed" => Some(Finish::Error),
        b"response.cancelled" => Some(Finish::Abort),
        _ => None,
    }
}

fn message(name: &[u8], data: &[u8], facts: &mut Facts) {
    match name {
        b"message_start" => {
            let start = serde_json::from_slice::<Start>(data).ok();
            let usage = start.and_then(|start| start.message.usage);
            facts.progress = usage.and_then(UsageJson::told).or(facts.progress);
        }
        // The signature of a thought is no output of the model.
        b"content_block_delta" if !contains(data, b"\"signature_delta\"") => {
            on_output(data, facts);
        }
        b"message_delta" => {
            let Ok(delta) = serde_json::from_slice::<Delta<'_>>(data) else {
                return;
            };
            facts.usage = delta.usage.and_then(UsageJson::told).or(facts.usage);
            let reason = delta.delta.stop_reason;
            facts.on_finish(reason.as_deref().map(Finish::from_stop_reason));
        }
        b"message_stop" => facts.done = true,
        _ => {}
    }
}

fn on_output(data: &[u8], facts: &mut Facts) {
    facts.token_events = facts.token_events.saturating_add(1);
    facts.output_bytes = facts.output_bytes.saturating_add(output::of_delta(data));
}

fn contains(data: &[u8], quoted: &[u8]) -> bool {
    memchr::memmem::find(data, quoted).is_some()
}

/// The name of an event: its last `event` line.
fn name(event: &[u8]) -> Option<&[u8]> {
    let lines = event.split(|byte| matches!(byte, b'\n' | b'\r'));
    let lines = lines.take_while(|line| !line.starts_with(b"data"));
    let name = lines
        .filter_map(|line| line.strip_prefix(b"event:"))
        .last()?;
    Some(name.strip_prefix(b" ").unwrap_or(name))
}

/// The error an event reports, wherever in it the engine puts it.
fn error(data: &[u8]) -> StreamError {
    let event: Value = serde_json::from_slice(data).unwrap_or_default();
    let places = ["/error", "/response/error", ""];
    let error = places
        .iter()
        .find_map(|place| event.pointer(place).filter(|error| error.is_object()));
    let text = |key: &str| error?.get(key)?.as_str().map(str::to_owned);
    let code = error.and_then(|error| error.get("code")?.as_u64());
    StreamError {
        code: code.and_then(|code| u16::try_from(code).ok()),
        kind: text("type").unwrap_or_default(),
        message: text("message")
            .unwrap_or_default()
            .chars()
            .take(MESSAGE_CHARS)
            .collect(),
    }
}

// === impl Large ===

impl Large {
    /// Takes the next bytes of the event; copies few of them.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let missing = HEAD_BYTES - self.head.len();
        self.head
            .extend_from_slice(&bytes[..missing.min(bytes.len())]);
        let bytes = &bytes[bytes.len().saturating_sub(TAIL_BYTES)..];
        let surplus = (self.tail.len() + bytes.len()).saturating_sub(TAIL_BYTES);
        self.tail.drain(..surplus);
        self.tail.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests;
