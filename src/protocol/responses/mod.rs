//! Bodies of `/v1/responses`, read into the chat that engines make of them.
//!
//! Decides what the messages, tools and flags of the chat are. Never renders,
//! and knows nothing of models whose prompts are no chats. Invariant: a body
//! that an engine serves becomes the messages that its own converter makes; one
//! that no engine reads becomes a chat that weighs as much.

mod items;
mod tools;

use std::borrow::Cow;

use serde_json::{Value, json};

use super::fields::{Field, Fields};
use super::request::{self, Chat, Origin, RequestError, Responses, Truncate, Unseen};
use super::{built, chat, lax};

/// Reads the fields that decide the prompt.
///
/// # Errors
/// A field at fault, and what no gateway can hold room for: an answer that is
/// made after the request has ended.
pub(super) fn read<'a>(fields: &Fields<'a>) -> Result<Chat<'a>, RequestError> {
    if fields.flag(Field::Background)?.unwrap_or(false) {
        return Err(RequestError::Unserved("background"));
    }
    if fields.text(Field::Prompt).is_some() {
        return Err(RequestError::Unserved("prompt"));
    }
    let input = fields
        .text(Field::Input)
        .ok_or(RequestError::Missing(Field::Input.name()))?;
    let mut messages = Vec::new();
    let instructions = fields.string(Field::Instructions)?;
    if let Some(text) = instructions.as_ref().filter(|text| !text.is_empty()) {
        messages.push(json!({"role": "system", "content": text}));
    }
    let continued = match built::value(input)? {
        Value::String(text) => {
            messages.push(json!({"role": "user", "content": text}));
            false
        }
        Value::Array(list) => {
            let continued = list.last().is_some_and(items::is_open);
            list.into_iter()
                .for_each(|item| items::add(&mut messages, item));
            continued
        }
        _ => return Err(lax::unreadable("input", "a string or a list", input)),
    };
    if messages.is_empty() {
        return Err(RequestError::Empty(Field::Input.name()));
    }
    let messages = Value::Array(messages);
    Ok(Chat {
        origin: Origin::Responses,
        media: chat::has_media(&messages),
        messages,
        tools: fields.array(Field::Tools)?.and_then(tools::functions),
        tool_choice: chat::tool_choice(fields)?,
        documents: None,
        chat_template: None,
        chat_template_kwargs: chat::kwargs(fields, Field::ChatTemplateKwargs)?,
        mm_processor_kwargs: chat::kwargs(fields, Field::MmProcessorKwargs)?,
        reasoning_effort: effort(fields)?,
        add_generation_prompt: !continued,
        continue_final_message: continued,
        // The engine's parameters for this route leave the default of its
        // tokenizers, which is to add them, even after a template that did.
        add_special_tokens: true,
        unseen: unseen(fields)?,
        responses: Some(Box::new(Responses {
            instructions,
            items: input.starts_with('[').then_some(Cow::Borrowed(input)),
        })),
    })
}

/// How far the engine shortens the prompt: it does unless told `disabled`.
pub(super) fn truncate(fields: &Fields<'_>) -> Result<Option<Truncate>, RequestError> {
    if fields.is_null(Field::Truncation) {
        return Ok(Some(Truncate::ToModel));
    }
    let Some(text) = fields.text(Field::Truncation) else {
        return Ok(None);
    };
    match lax::string(Field::Truncation.name(), text)?.as_ref() {
        "disabled" => Ok(None),
        "auto" => Ok(Some(Truncate::ToModel)),
        _ => Err(lax::unreadable(
            Field::Truncation.name(),
            "\"auto\" or \"disabled\"",
            text,
        )),
    }
}

fn effort<'a>(fields: &Fields<'a>) -> Result<Option<Cow<'a, str>>, RequestError> {
    let Some(text) = fields.text(Field::Reasoning) else {
        return Ok(None);
    };
    let reasoning = request::inner(Field::Reasoning, text, &["effort"])?;
    reasoning
        .value(0)
        .map(|text| lax::string(Field::Reasoning.name(), text))
        .transpose()
}

/// What the prompt will hold beside the chat.
fn unseen(fields: &Fields<'_>) -> Result<Unseen, RequestError> {
    let given = fields.text(Field::PreviousInputMessages);
    Ok(Unseen {
        stored: fields.string(Field::PreviousResponseId)?.is_some(),
        bytes: given.filter(|text| *text != "[]").map_or(0, str::len),
    })
}

#[cfg(test)]
mod tests;
