//! A chat request as the messages of a harmony conversation.
//!
//! Decides what of a request reaches the prompt, as vLLM decides it: a leading
//! system message is the developer's, reasoning from before the last answer is
//! gone, calls and results name their function.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::{Map, Value};

use super::tools;
use crate::tokenize::ChatInput;
use crate::tokenize::chat::Odd;

/// Every control token begins so. A function called so is one that the engine
/// fails on.
pub(super) const CONTROL: &str = "<|";

/// A conversation without its system message.
pub(super) struct Conversation<'a> {
    /// The developer message with instructions and tools, if there are any.
    pub(super) developer: Option<String>,
    /// Whether it lists tools.
    pub(super) has_tools: bool,
    /// What follows.
    pub(super) messages: Vec<Message<'a>>,
}

/// One message of the harmony format.
pub(super) enum Message<'a> {
    User(Vec<Cow<'a, str>>),
    Developer(String),
    Assistant {
        channel: Channel,
        contents: Vec<Cow<'a, str>>,
    },
    Call {
        name: &'a str,
        arguments: &'a str,
    },
    Result {
        name: &'a str,
        content: String,
    },
}

/// Where an assistant's message goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    Analysis,
    Commentary,
    Final,
}

/// Reads a chat request.
///
/// # Errors
/// [`Odd`] for what the engine refuses or nobody has described.
pub(super) fn read<'a>(chat: &ChatInput<'a>) -> Result<Conversation<'a>, Odd> {
    let list = chat.messages.as_array().ok_or(Odd)?;
    let list: Option<Vec<_>> = list.iter().map(Value::as_object).collect();
    let list = list.ok_or(Odd)?;
    let (instructions, rest) = match list.split_first() {
        Some((first, rest)) if is_instructing(first) => (flat(first.get("content"))?, rest),
        _ => (None, list.as_slice()),
    };
    let tools = listed(chat.tools).map(tools::section).transpose()?;
    let has_tools = tools.is_some();
    let is_said = has_tools || instructions.as_ref().is_some_and(|text| !text.is_empty());
    let developer = is_said.then(|| developer(instructions, tools));
    let names = names(rest)?;
    let mut messages = Vec::new();
    for message in rest {
        add(message, &names, &mut messages)?;
    }
    drop_old_reasoning(&mut messages);
    Ok(Conversation {
        developer,
        has_tools,
        messages,
    })
}

/// The tools that are shown; an empty list is none.
pub(super) fn listed(tools: Option<&Value>) -> Option<&Value> {
    tools.filter(|tools| match tools {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        _ => true,
    })
}

pub(super) fn is_instructing(message: &Map<String, Value>) -> bool {
    matches!(role(message), Some("system" | "developer"))
}

fn role(message: &Map<String, Value>) -> Option<&str> {
    message.get("role").and_then(Value::as_str)
}

pub(super) fn developer(instructions: Option<String>, tools: Option<String>) -> String {
    let instructions = instructions.map(|text| format!("# Instructions\n\n{text}"));
    let sections: Vec<String> = instructions.into_iter().chain(tools).collect();
    sections.join("\n\n")
}

/// The function each call's id stands for; the last of an id wins.
fn names<'a>(messages: &[&'a Map<String, Value>]) -> Result<HashMap<&'a str, &'a str>, Odd> {
    let mut names = HashMap::new();
    let ours = messages
        .iter()
        .filter(|message| role(message) == Some("assistant"));
    for message in ours {
        for call in calls(message)? {
            let id = call.get("id").and_then(Value::as_str).ok_or(Odd)?;
            names.insert(id, function(call, "name")?);
        }
    }
    Ok(names)
}

fn calls(message: &Map<String, Value>) -> Result<&[Value], Odd> {
    match message.get("tool_calls") {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(calls)) => Ok(calls),
        Some(_) => Err(Odd),
    }
}

fn function<'a>(call: &'a Value, key: &str) -> Result<&'a str, Odd> {
    let function = call.get("function").ok_or(Odd)?;
    function.get(key).and_then(Value::as_str).ok_or(Odd)
}

/// Adds what one message of the request becomes.
fn add<'a>(
    message: &'a Map<String, Value>,
    names: &HashMap<&str, &'a str>,
    into: &mut Vec<Message<'a>>,
) -> Result<(), Odd> {
    let content = message.get("content");
    match role(message) {
        Some("assistant") => add_assistant(message, into),
        Some("tool") => {
            let id = message.get("tool_call_id").and_then(Value::as_str);
            let name = id.and_then(|id| names.get(id)).copied().unwrap_or_default();
            let content = flat(content)?.unwrap_or_default();
            into.push(Message::Result { name, content });
            Ok(())
        }
        Some("system" | "developer") => {
            let instructions = flat(content)?;
            into.extend(instructions.map(|text| Message::Developer(developer(Some(text), None))));
            Ok(())
        }
        Some("user") if message.get("tool_calls").is_none_or(Value::is_array) => {
            into.push(Message::User(texts(content)?));
            Ok(())
        }
        _ => Err(Odd),
    }
}

/// An assistant's turn: with calls, its text comes first and is an aside; without,
/// its reasoning comes first and its text is the answer.
fn add_assistant<'a>(
    message: &'a Map<String, Value>,
    into: &mut Vec<Message<'a>>,
) -> Result<(), Odd> {
    let calls = calls(message)?;
    if let (false, Some(text)) = (calls.is_empty(), flat(message.get("content"))?)
        && !text.is_empty()
    {
        into.push(said(Channel::Commentary, vec![Cow::Owned(text)]));
    }
    if let Some(text) = reasoning(message)?.filter(|text| !text.is_empty()) {
        into.push(said(Channel::Analysis, vec![Cow::Borrowed(text)]));
    }
    if calls.is_empty() {
        let contents = texts(message.get("content"))?;
        if contents.first().is_some_and(|text| !text.is_empty()) {
            into.push(said(Channel::Final, contents));
        }
    }
    for call in calls {
        let name = function(call, "name")?;
        let arguments = function(call, "arguments")?;
        if name.contains(CONTROL) {
            return Err(Odd);
        }
        into.push(Message::Call { name, arguments });
    }
    Ok(())
}

fn said(channel: Channel, contents: Vec<Cow<'_, str>>) -> Message<'_> {
    Message::Assistant { channel, contents }
}

/// The reasoning under its name, or under its old one.
fn reasoning(message: &Map<String, Value>) -> Result<Option<&str>, Odd> {
    let given = |key: &str| message.get(key).filter(|value| !value.is_null());
    match given("reasoning").or_else(|| given("reasoning_content")) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Odd),
    }
}

/// Reasoning is only worth keeping from the last answer on.
pub(super) fn drop_old_reasoning(messages: &mut Vec<Message<'_>>) {
    let channel = |message: &Message<'_>| match message {
        Message::Assistant { channel, .. } => Some(*channel),
        _ => None,
    };
    let answer = messages
        .iter()
        .rposition(|message| channel(message) == Some(Channel::Final));
    let Some(answer) = answer else { return };
    let mut at = 0;
    messages.retain(|message| {
        at += 1;
        at > answer || channel(message) != Some(Channel::Analysis)
    });
}

/// The texts of a content, each encoded by itself.
fn texts(content: Option<&Value>) -> Result<Vec<Cow<'_, str>>, Odd> {
    match content {
        None | Some(Value::Null) => Ok(vec![Cow::Borrowed("")]),
        Some(Value::String(text)) => Ok(vec![Cow::Borrowed(text)]),
        Some(Value::Array(parts)) if parts.is_empty() => Ok(vec![Cow::Borrowed("")]),
        Some(Value::Array(parts)) => {
            let texts = parts.iter().map(|part| Ok(text(part)?.unwrap_or_default()));
            texts.map(|text| text.map(Cow::Borrowed)).collect()
        }
        Some(_) => Err(Odd),
    }
}

/// The texts of a content as one; `None` if it has none.
pub(super) fn flat(content: Option<&Value>) -> Result<Option<String>, Odd> {
    match content {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Array(parts)) => {
            let texts: Result<Vec<_>, Odd> = parts.iter().map(text).collect();
            let texts: Vec<&str> = texts?.into_iter().flatten().collect();
            Ok((!texts.is_empty()).then(|| texts.concat()))
        }
        Some(_) => Err(Odd),
    }
}

/// The text of a part; parts that are something else have none.
fn text(part: &Value) -> Result<Option<&str>, Odd> {
    let part = part.as_object().ok_or(Odd)?;
    if !part.get("type").is_some_and(Value::is_string) {
        return Err(Odd);
    }
    match part.get("text") {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Odd),
    }
}
