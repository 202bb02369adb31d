//! A Responses request as the messages of a harmony conversation.
//!
//! Decides what of its items reaches the prompt, as vLLM decides it: each item is
//! a message of its own, in its order, unlike the chat that other models get.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::messages::{self, Channel, Conversation, Message};
use super::tools;
use crate::tokenize::chat::Odd;
use crate::tokenize::{ChatInput, ResponsesInput};

/// Reads a Responses request; `items` are those of its input, parsed.
///
/// # Errors
/// [`Odd`] for what the engine refuses or nobody has described.
pub(super) fn read<'a>(
    chat: &ChatInput<'a>,
    given: ResponsesInput<'a>,
    items: &'a [Value],
) -> Result<Conversation<'a>, Odd> {
    let mut instructions = given.instructions.map(str::to_owned);
    let mut rest = items;
    if instructions.is_none()
        && let Some((Value::Object(first), others)) = items.split_first()
        && messages::is_instructing(first)
    {
        instructions = messages::flat(first.get("content"))?;
        rest = others;
    }
    let tools = messages::listed(chat.tools)
        .map(tools::section)
        .transpose()?;
    let has_tools = tools.is_some();
    let is_said = has_tools || instructions.as_ref().is_some_and(|text| !text.is_empty());
    let mut into = Vec::with_capacity(rest.len());
    for (at, item) in rest.iter().enumerate() {
        into.extend(message(item.as_object().ok_or(Odd)?, &rest[..at])?);
    }
    messages::drop_old_reasoning(&mut into);
    Ok(Conversation {
        developer: is_said.then(|| messages::developer(instructions, tools)),
        has_tools,
        messages: into,
    })
}

/// What one item becomes; `before` are those it may answer.
fn message<'a>(
    item: &'a Map<String, Value>,
    before: &'a [Value],
) -> Result<Option<Message<'a>>, Odd> {
    match item.get("type").map_or(Some("message"), Value::as_str) {
        Some("message") => said(item),
        Some("reasoning") => thought(item),
        Some("function_call") => {
            let name = text(item, "name")?;
            if name.contains(messages::CONTROL) {
                return Err(Odd);
            }
            let arguments = text(item, "arguments")?;
            Ok(Some(Message::Call { name, arguments }))
        }
        Some("function_call_output") => {
            let id = text(item, "call_id")?;
            let content = text(item, "output")?.to_owned();
            let name = called(id, before).ok_or(Odd)?;
            Ok(Some(Message::Result { name, content }))
        }
        _ => Err(Odd),
    }
}

fn text<'a>(item: &'a Map<String, Value>, key: &str) -> Result<&'a str, Odd> {
    item.get(key).and_then(Value::as_str).ok_or(Odd)
}

/// The function that the latest call of this id names.
fn called<'a>(id: &str, before: &'a [Value]) -> Option<&'a str> {
    let calls = before.iter().rev().filter_map(Value::as_object);
    let call = calls
        .filter(|item| item.get("type").is_some_and(|kind| kind == "function_call"))
        .find(|item| item.get("call_id").is_some_and(|other| other == id));
    call?.get("name")?.as_str()
}

fn said(item: &Map<String, Value>) -> Result<Option<Message<'_>>, Odd> {
    let content = item.get("content").ok_or(Odd)?;
    match item.get("role").and_then(Value::as_str) {
        Some("system" | "developer") => {
            let text = messages::flat(Some(content))?.filter(|text| !text.is_empty());
            Ok(text.map(|text| Message::Developer(messages::developer(Some(text), None))))
        }
        Some("user") => Ok(Some(Message::User(contents(content)?))),
        Some("assistant") => Ok(Some(Message::Assistant {
            channel: Channel::Final,
            contents: contents(content)?,
        })),
        _ => Err(Odd),
    }
}

/// The texts of a message, each encoded by itself.
fn contents(content: &Value) -> Result<Vec<Cow<'_, str>>, Odd> {
    match content {
        Value::String(text) => Ok(vec![Cow::Borrowed(text)]),
        Value::Array(parts) => parts
            .iter()
            .map(|part| match part.as_object().ok_or(Odd)?.get("text") {
                None => Ok(Cow::Borrowed("")),
                Some(text) => text.as_str().map(Cow::Borrowed).ok_or(Odd),
            })
            .collect(),
        _ => Err(Odd),
    }
}

/// Reasoning by its own words; a summary is none.
fn thought(item: &Map<String, Value>) -> Result<Option<Message<'_>>, Odd> {
    let parts = item.get("content").and_then(Value::as_array);
    let Some(parts) = parts.filter(|parts| !parts.is_empty()) else {
        return Ok(None);
    };
    let texts: Option<Vec<&str>> = parts
        .iter()
        .map(|part| part.get("text").and_then(Value::as_str))
        .collect();
    Ok(Some(Message::Assistant {
        channel: Channel::Analysis,
        contents: vec![Cow::Owned(texts.ok_or(Odd)?.join("\n"))],
    }))
}
