//! Bodies of `/v1/messages` and its count, read into the chat engines make of them.
//!
//! Decides what the messages, tools and flags of the chat are, with system
//! messages where they stand: whether a template needs them in front is for
//! whoever knows the template. Never renders. Invariant: a body that an engine
//! serves becomes the messages that its own converter makes; one that no engine
//! reads becomes a chat that weighs as much.

mod tools;
mod turns;

use std::borrow::Cow;

use serde_json::{Value, json};

use super::fields::{Field, Fields};
use super::object::Object;
use super::request::{self, Chat, Origin, RequestError, ToolChoice, Unseen};
use super::{built, chat, lax};

/// The effort of a body that turns thinking off: no body can ask for it by
/// this name, and engines replace it by what their template understands.
const THINKING_OFF: &str = "none";

/// Reads the fields that decide the prompt.
///
/// # Errors
/// A field at fault.
pub(super) fn read<'a>(fields: &Fields<'a>) -> Result<Chat<'a>, RequestError> {
    let given = fields
        .array(Field::Messages)?
        .ok_or(RequestError::Missing(Field::Messages.name()))?;
    chat::check_messages(&given)?;
    let Value::Array(given) = given else {
        return Err(RequestError::Empty(Field::Messages.name()));
    };
    let tools = tools::functions(fields.array(Field::Tools)?, &given);
    let mut messages = Vec::with_capacity(given.len() + 1);
    if let Some(text) = system(fields)? {
        messages.push(json!({"role": "system", "content": text}));
    }
    given
        .into_iter()
        .for_each(|message| turns::add(&mut messages, message));
    if messages.is_empty() {
        return Err(RequestError::Empty(Field::Messages.name()));
    }
    let messages = Value::Array(messages);
    Ok(Chat {
        origin: Origin::Messages,
        media: chat::has_media(&messages),
        messages,
        tools,
        tool_choice: tool_choice(fields)?,
        documents: None,
        chat_template: None,
        chat_template_kwargs: chat::kwargs(fields, Field::ChatTemplateKwargs)?,
        mm_processor_kwargs: None,
        reasoning_effort: effort(fields)?,
        add_generation_prompt: true,
        continue_final_message: false,
        add_special_tokens: false,
        unseen: Unseen::default(),
        responses: None,
    })
}

fn system(fields: &Fields<'_>) -> Result<Option<String>, RequestError> {
    let Some(text) = fields.text(Field::System) else {
        return Ok(None);
    };
    let text = match built::value(text)? {
        Value::String(text) => text,
        Value::Array(blocks) => turns::system_text(&blocks),
        _ => return Err(lax::unreadable("system", "a string or a list", text)),
    };
    Ok(Some(text).filter(|text| !text.is_empty()))
}

fn tool_choice(fields: &Fields<'_>) -> Result<ToolChoice, RequestError> {
    match nested(fields, Field::ToolChoice, &["type"])?.and_then(|choice| choice.value(0)) {
        None => Ok(ToolChoice::Unset),
        Some(kind) if lax::string(Field::ToolChoice.name(), kind)? == "none" => {
            Ok(ToolChoice::None)
        }
        Some(_) => Ok(ToolChoice::Tools),
    }
}

/// Thinking that is turned off outweighs any effort; a budget changes no prompt.
fn effort<'a>(fields: &Fields<'a>) -> Result<Option<Cow<'a, str>>, RequestError> {
    let config = nested(fields, Field::OutputConfig, &["effort"])?;
    let asked = config
        .and_then(|config| config.value(0))
        .map(|text| lax::string(Field::OutputConfig.name(), text))
        .transpose()?;
    let thinking = nested(fields, Field::Thinking, &["type"])?;
    let kind = thinking
        .and_then(|thinking| thinking.value(0))
        .map(|text| lax::string(Field::Thinking.name(), text))
        .transpose()?;
    match kind.as_deref() {
        Some("disabled") => Ok(Some(Cow::Borrowed(THINKING_OFF))),
        _ => Ok(asked),
    }
}

fn nested<'a>(
    fields: &Fields<'a>,
    field: Field,
    names: &'static [&'static str; 1],
) -> Result<Option<Object<'a>>, RequestError> {
    fields
        .text(field)
        .map(|text| request::inner(field, text, names))
        .transpose()
}

#[cfg(test)]
mod tests;
