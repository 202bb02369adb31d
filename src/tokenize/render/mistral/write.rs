//! Joined messages as the pieces of a prompt.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::super::Pieces;
use super::{Chunk, Item, Role, is_name};
use crate::tokenize::ChatInput;
use crate::tokenize::chat::{Odd, python_loads, spelled};
use crate::tokenize::tekken::{Format, Version};

/// What stands in front of one of the questions.
pub(super) struct Preface {
    version: Version,
    /// The definitions of tools.
    tools: Option<String>,
    /// The settings.
    settings: Option<String>,
}

// === impl Preface ===

impl Preface {
    /// # Errors
    /// [`Odd`] for tools or an effort that the library refuses.
    pub(super) fn new(chat: &ChatInput<'_>, format: &Format) -> Result<Self, Odd> {
        let tools = chat.tools.filter(|tools| !tools.is_null());
        let settings = match format.version {
            Version::V15 => settings(chat.reasoning_effort, format)?,
            _ => None,
        };
        Ok(Self {
            version: format.version,
            tools: tools.map(definitions).transpose()?.flatten(),
            settings,
        })
    }

    fn write(&self, pieces: &mut Pieces) {
        for text in [&self.tools, &self.settings].into_iter().flatten() {
            pieces.ids(1);
            pieces.text(text.as_str());
            pieces.ids(1);
        }
    }
}

fn settings(effort: Option<&str>, format: &Format) -> Result<Option<String>, Odd> {
    let Some(efforts) = &format.efforts else {
        return match effort {
            None => Ok(None),
            Some(_) => Err(Odd),
        };
    };
    let effort = effort.unwrap_or(&efforts.default);
    if !efforts.values.iter().any(|known| known == effort) {
        return Err(Odd);
    }
    spelled(&json!({"reasoning_effort": effort})).map(Some)
}

/// The tools as the library dumps them; `None` if there are none.
fn definitions(tools: &Value) -> Result<Option<String>, Odd> {
    let list = tools.as_array().ok_or(Odd)?;
    let tools: Result<Vec<Value>, Odd> = list.iter().map(definition).collect();
    match list.is_empty() {
        true => Ok(None),
        false => spelled(&Value::Array(tools?)).map(Some),
    }
}

fn definition(tool: &Value) -> Result<Value, Odd> {
    let kind = tool.get("type").map_or(Some("function"), Value::as_str);
    let function = tool
        .get("function")
        .filter(|_| kind == Some("function"))
        .ok_or(Odd)?;
    let given = |key: &str| function.get(key).filter(|value| !value.is_null());
    let name = function.get("name").and_then(Value::as_str);
    let name = name.filter(|name| is_name(name)).ok_or(Odd)?;
    let description = given("description")
        .map_or(Some(""), Value::as_str)
        .ok_or(Odd)?;
    let parameters = given("parameters").cloned().unwrap_or_else(|| json!({}));
    Ok(json!({
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }))
}

/// Writes the prompt after its first token.
///
/// # Errors
/// [`Odd`] for contents that the library refuses.
pub(super) fn prompt(
    items: Vec<Item<'_>>,
    preface: &Preface,
    pieces: &mut Pieces,
) -> Result<(), Odd> {
    match preface.version {
        Version::V3 => v3(items, preface, pieces),
        _ => newer(items, preface, pieces),
    }
}

/// In the oldest format, system prompts belong to the last question.
fn v3(items: Vec<Item<'_>>, preface: &Preface, pieces: &mut Pieces) -> Result<(), Odd> {
    let (systems, mut items): (Vec<_>, Vec<_>) = items
        .into_iter()
        .partition(|item| item.role == Role::System);
    let systems: Result<Vec<String>, Odd> = systems
        .into_iter()
        .filter(|item| !item.content.is_empty())
        .map(|item| text(&item.content).map(Cow::into_owned))
        .collect();
    let system = systems?.join("\n\n");
    if items.first().is_none_or(|first| first.role != Role::User) {
        items.insert(0, question(Vec::new()));
    }
    let last = items.iter().rposition(|item| item.role == Role::User);
    for (at, item) in items.iter_mut().enumerate() {
        let is_last = Some(at) == last;
        if is_last && !system.is_empty() {
            let content = text(&item.content)?;
            let content = format!("{system}\n\n{content}");
            item.content = vec![Chunk::Text(Cow::Owned(content))];
        }
        if is_last {
            preface.write(pieces);
        }
        write(item, preface.version, pieces)?;
    }
    Ok(())
}

fn newer(mut items: Vec<Item<'_>>, preface: &Preface, pieces: &mut Pieces) -> Result<(), Odd> {
    if items.is_empty() {
        items.push(question(Vec::new()));
    }
    let mut asked = items
        .iter()
        .enumerate()
        .filter(|(_, item)| item.role == Role::User);
    let chosen = match preface.version >= Version::V13 {
        true => asked.next(),
        false => asked.next_back(),
    };
    let chosen = chosen.map(|(at, _)| at);
    for (at, item) in items.iter().enumerate() {
        if Some(at) == chosen {
            preface.write(pieces);
        }
        write(item, preface.version, pieces)?;
    }
    Ok(())
}

fn question(content: Vec<Chunk<'_>>) -> Item<'_> {
    Item {
        role: Role::User,
        content,
        calls: Vec::new(),
        answers: Cow::Borrowed(""),
        is_open: false,
    }
}

fn write(item: &Item<'_>, version: Version, pieces: &mut Pieces) -> Result<(), Odd> {
    match item.role {
        Role::System | Role::User => {
            pieces.ids(1);
            pieces.text(text(&item.content)?);
            pieces.ids(1);
        }
        Role::Assistant => {
            answer(item, pieces);
            calls(item, version, pieces)?;
            if !item.is_open {
                pieces.ids(1);
            }
        }
        Role::Tool => result(item, version, pieces)?,
    }
    Ok(())
}

fn answer(item: &Item<'_>, pieces: &mut Pieces) {
    if let [Chunk::Text(text)] = item.content.as_slice() {
        return pieces.text(text.trim_end_matches(' '));
    }
    for chunk in &item.content {
        match chunk {
            Chunk::Text(text) => pieces.text(&**text),
            Chunk::Thinking(text) => {
                pieces.ids(1);
                pieces.text(*text);
                pieces.ids(1);
            }
            Chunk::Border => {}
        }
    }
}

fn calls(item: &Item<'_>, version: Version, pieces: &mut Pieces) -> Result<(), Odd> {
    if item.calls.is_empty() {
        return Ok(());
    }
    if version < Version::V11 {
        let calls = item.calls.iter().map(|call| {
            let (name, arguments) = (call.name, &call.arguments);
            let id = spelled(&Value::from(&*call.id))?;
            Ok(format!(
                "{{\"name\": \"{name}\", \"arguments\": {arguments}, \"id\": {id}}}"
            ))
        });
        let calls: Result<Vec<String>, Odd> = calls.collect();
        pieces.ids(1);
        pieces.text(format!("[{}]", calls?.join(", ")));
        return Ok(());
    }
    for call in &item.calls {
        pieces.ids(1);
        pieces.text(call.name);
        if version == Version::V11 {
            pieces.ids(1);
            pieces.text(&*call.id);
        }
        pieces.ids(1);
        pieces.text(call.arguments.as_str());
    }
    Ok(())
}

fn result(item: &Item<'_>, version: Version, pieces: &mut Pieces) -> Result<(), Odd> {
    let content = text(&item.content)?;
    pieces.ids(1);
    match version {
        Version::V3 => pieces.text(result_json(&content, &item.answers)?),
        Version::V7 | Version::V11 => {
            pieces.text(&*item.answers);
            pieces.ids(1);
            pieces.text(content);
        }
        Version::V13 | Version::V15 => pieces.text(content),
    }
    pieces.ids(1);
    Ok(())
}

/// A result in the oldest format: JSON stays JSON, anything else is a text.
fn result_json(content: &str, id: &str) -> Result<String, Odd> {
    let content = match content {
        "" => "{}".to_owned(),
        _ => match python_loads(content)? {
            Some(value) => spelled(&value)?,
            None => spelled(&Value::from(content))?,
        },
    };
    let id = spelled(&Value::from(id))?;
    Ok(format!("{{\"content\": {content}, \"call_id\": {id}}}"))
}

/// Content that is one text.
fn text<'a>(content: &'a [Chunk<'_>]) -> Result<Cow<'a, str>, Odd> {
    match content {
        [] => Ok(Cow::Borrowed("")),
        [Chunk::Text(text)] => Ok(Cow::Borrowed(text)),
        _ => Err(Odd),
    }
}
