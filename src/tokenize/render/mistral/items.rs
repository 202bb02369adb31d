//! The messages of a request as Mistral's library takes and joins them.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{Call, Chunk, Item, Role, is_name};
use crate::tokenize::ChatInput;
use crate::tokenize::chat::{Odd, python_loads, spelled};
use crate::tokenize::tekken::{Format, Version};

/// Characters of a call's id that are kept, from its end.
const ID: usize = 9;

/// Reads the messages one by one.
///
/// # Errors
/// [`Odd`] for messages that the library refuses, or with media.
pub(super) fn read<'a>(chat: &ChatInput<'a>, format: &Format) -> Result<Vec<Item<'a>>, Odd> {
    let list = chat.messages.as_array().ok_or(Odd)?;
    let items: Result<Vec<_>, Odd> = list.iter().map(|message| item(message, format)).collect();
    let mut items = items?;
    if chat.continue_final_message {
        let last = items.last_mut().filter(|last| last.role == Role::Assistant);
        last.ok_or(Odd)?.is_open = true;
    }
    Ok(items)
}

fn item<'a>(message: &'a Value, format: &Format) -> Result<Item<'a>, Odd> {
    let message = message.as_object().ok_or(Odd)?;
    let role = match message.get("role").and_then(Value::as_str) {
        Some("system" | "developer") => Role::System,
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("tool") => Role::Tool,
        _ => return Err(Odd),
    };
    let mut item = Item {
        role,
        content: content(message.get("content"), role)?,
        calls: Vec::new(),
        answers: Cow::Borrowed(""),
        is_open: false,
    };
    match role {
        Role::Assistant => {
            if let Some(reasoning) = reasoning(message)? {
                item.content.insert(0, Chunk::Thinking(reasoning));
            }
            item.calls = calls(message)?;
        }
        Role::Tool => {
            let name = message.get("name").filter(|name| !name.is_null());
            if name.is_some_and(|name| !name.as_str().is_some_and(is_name)) {
                return Err(Odd);
            }
            item.answers = id(message.get("tool_call_id"))?;
        }
        Role::System | Role::User => {}
    }
    let thinks = |chunk: &Chunk<'_>| matches!(chunk, Chunk::Thinking(_));
    let thoughts = item.content.iter().filter(|chunk| thinks(chunk)).count();
    let may_think = role == Role::Assistant && format.has_thinking;
    match thoughts > 0 && !may_think {
        true => Err(Odd),
        false => Ok(item),
    }
}

fn content(content: Option<&Value>, role: Role) -> Result<Vec<Chunk<'_>>, Odd> {
    match content {
        Some(Value::String(text)) => Ok(vec![Chunk::Text(Cow::Borrowed(text))]),
        Some(Value::Array(parts)) => parts.iter().map(chunk).collect(),
        None | Some(Value::Null) if role == Role::Assistant => Ok(Vec::new()),
        _ => Err(Odd),
    }
}

fn chunk(part: &Value) -> Result<Chunk<'_>, Odd> {
    let text = |key: &str| part.get(key).and_then(Value::as_str).ok_or(Odd);
    match part.get("type").and_then(Value::as_str) {
        Some("text") => text("text").map(|text| Chunk::Text(Cow::Borrowed(text))),
        Some("thinking") if part.get("closed").is_none() => text("thinking").map(Chunk::Thinking),
        _ => Err(Odd),
    }
}

/// The reasoning under its name, or under its old one.
fn reasoning(message: &Map<String, Value>) -> Result<Option<&str>, Odd> {
    let given = |key: &str| message.get(key).filter(|value| !value.is_null());
    match given("reasoning").or_else(|| given("reasoning_content")) {
        None => Ok(None),
        Some(value) => value.as_str().map(Some).ok_or(Odd),
    }
}

fn calls(message: &Map<String, Value>) -> Result<Vec<Call<'_>>, Odd> {
    match message.get("tool_calls") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(calls)) => calls.iter().map(call).collect(),
        Some(_) => Err(Odd),
    }
}

fn call(call: &Value) -> Result<Call<'_>, Odd> {
    let function = call.get("function").ok_or(Odd)?;
    let name = function.get("name").and_then(Value::as_str);
    let arguments = function.get("arguments").and_then(Value::as_str);
    let arguments = match python_loads(arguments.ok_or(Odd)?)? {
        Some(map @ Value::Object(_)) => spelled(&map)?,
        _ => "{}".to_owned(),
    };
    Ok(Call {
        id: id(call.get("id"))?,
        name: name.filter(|name| is_name(name)).ok_or(Odd)?,
        arguments,
    })
}

/// Ids of calls are cut to what older formats allow.
fn id(id: Option<&Value>) -> Result<Cow<'_, str>, Odd> {
    let id = id.and_then(Value::as_str).ok_or(Odd)?;
    let extra = id.chars().count().saturating_sub(ID);
    let start = id.char_indices().nth(extra).map_or(id.len(), |(at, _)| at);
    Ok(Cow::Borrowed(&id[start..]))
}

/// Joins messages of one role in a row, and sorts results by their calls.
///
/// # Errors
/// [`Odd`] for an answer that says nothing.
pub(super) fn joined(messages: Vec<Item<'_>>, version: Version) -> Result<Vec<Item<'_>>, Odd> {
    let mut items: Vec<Item<'_>> = Vec::new();
    let mut before = None;
    for message in messages {
        let role = message.role;
        let joins = matches!(role, Role::User | Role::Assistant) && before == Some(role);
        match items.last_mut() {
            Some(last) if joins => last.take_in(message),
            _ => items.push(message),
        }
        before = Some(role);
    }
    for item in &mut items {
        let chunks = std::mem::take(&mut item.content);
        item.content = flattened(chunks, version);
        if item.role == Role::Assistant && item.content.is_empty() && item.calls.is_empty() {
            return Err(Odd);
        }
    }
    if version >= Version::V11 {
        sort_results(&mut items);
    }
    Ok(items)
}

impl Item<'_> {
    fn take_in(&mut self, mut next: Self) {
        self.content.push(Chunk::Border);
        self.content.append(&mut next.content);
        self.calls.append(&mut next.calls);
        self.is_open |= next.is_open;
    }
}

/// Texts that follow each other are one; empty ones are none.
fn flattened(chunks: Vec<Chunk<'_>>, version: Version) -> Vec<Chunk<'_>> {
    let within = if version == Version::V15 { "" } else { "\n\n" };
    let mut flat: Vec<Chunk<'_>> = Vec::new();
    let mut is_new_message = false;
    for chunk in chunks {
        match (chunk, flat.last_mut()) {
            (Chunk::Border, _) => is_new_message = true,
            (Chunk::Text(text), _) if text.is_empty() => {}
            (Chunk::Text(text), Some(Chunk::Text(before))) => {
                let joint = if is_new_message { "\n\n" } else { within };
                before.to_mut().push_str(joint);
                before.to_mut().push_str(&text);
                is_new_message = false;
            }
            (chunk, _) => {
                flat.push(chunk);
                is_new_message = false;
            }
        }
    }
    flat
}

/// Results stand in the order of the calls of the answer before them.
fn sort_results(items: &mut [Item<'_>]) {
    let mut order: HashMap<String, usize> = HashMap::new();
    for run in
        items.chunk_by_mut(|one, other| (one.role == Role::Tool) == (other.role == Role::Tool))
    {
        if run.first().is_some_and(|item| item.role == Role::Tool) {
            run.sort_by_key(|item| order.get(&*item.answers).copied().unwrap_or(usize::MAX));
            order.clear();
            continue;
        }
        let ids = run
            .iter()
            .flat_map(|item| &item.calls)
            .map(|call| call.id.to_string());
        for (at, id) in ids.enumerate() {
            order.insert(id, at);
        }
    }
}
