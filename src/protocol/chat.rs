//! The chat fields: messages and what changes their rendering.
//!
//! Decides what is a chat prompt at all, and whether parts of it are out of a
//! text tokenizer's sight. Never renders.

use serde_json::{Map, Value};

use super::fields::{Field, Fields};
use super::lax;
use super::request::{Chat, Origin, RequestError, ToolChoice, Unseen};

/// Content part types that are text to the template; any other is media.
const TEXT_PARTS: [&str; 6] = [
    "text",
    "thinking",
    "input_text",
    "output_text",
    "refusal",
    "tool_reference",
];

/// Reads the chat fields.
pub(super) fn read<'a>(fields: &Fields<'a>) -> Result<Chat<'a>, RequestError> {
    let messages = fields
        .array(Field::Messages)?
        .ok_or(RequestError::Missing(Field::Messages.name()))?;
    check_messages(&messages)?;
    let add = fields.flag(Field::AddGenerationPrompt)?;
    let continue_final_message = fields.flag(Field::ContinueFinalMessage)?.unwrap_or(false);
    if continue_final_message && add == Some(true) {
        return Err(RequestError::OpenAndClosed);
    }
    Ok(Chat {
        origin: Origin::ChatCompletions,
        media: has_media(&messages),
        messages,
        tools: fields.array(Field::Tools)?,
        tool_choice: tool_choice(fields)?,
        documents: fields.array(Field::Documents)?,
        chat_template: fields.string(Field::ChatTemplate)?,
        chat_template_kwargs: kwargs(fields, Field::ChatTemplateKwargs)?,
        mm_processor_kwargs: kwargs(fields, Field::MmProcessorKwargs)?,
        reasoning_effort: fields.string(Field::ReasoningEffort)?,
        add_generation_prompt: add.unwrap_or(!continue_final_message),
        continue_final_message,
        add_special_tokens: fields.flag(Field::AddSpecialTokens)?.unwrap_or(false),
        unseen: Unseen::default(),
    })
}

/// Requires a non-empty list of objects.
pub(super) fn check_messages(messages: &Value) -> Result<(), RequestError> {
    let list = messages.as_array().map_or(&[][..], Vec::as_slice);
    if list.is_empty() {
        return Err(RequestError::Empty(Field::Messages.name()));
    }
    match list.iter().find(|message| !message.is_object()) {
        None => Ok(()),
        Some(other) => Err(lax::unreadable(
            Field::Messages.name(),
            "a list of objects",
            &other.to_string(),
        )),
    }
}

/// What the tool choice of an OpenAI body means for the prompt.
pub(super) fn tool_choice(fields: &Fields<'_>) -> Result<ToolChoice, RequestError> {
    let Some(text) = fields.text(Field::ToolChoice) else {
        return Ok(ToolChoice::Unset);
    };
    if text.starts_with('{') {
        return Ok(ToolChoice::Tools);
    }
    let choice = lax::string(Field::ToolChoice.name(), text)?;
    Ok(if choice == "none" {
        ToolChoice::None
    } else {
        ToolChoice::Tools
    })
}

/// The variables for the template, where given.
pub(super) fn kwargs(
    fields: &Fields<'_>,
    field: Field,
) -> Result<Option<Map<String, Value>>, RequestError> {
    let Some(text) = fields.text(field) else {
        return Ok(None);
    };
    match lax::value(text)? {
        Value::Object(kwargs) => Ok(Some(kwargs)),
        _ => Err(lax::unreadable(field.name(), "an object", text)),
    }
}

/// Whether a part of a message is not text.
pub(super) fn has_media(messages: &Value) -> bool {
    let messages = messages.as_array().into_iter().flatten();
    let parts = messages
        .filter_map(|message| message.get("content")?.as_array())
        .flatten();
    parts.filter_map(Value::as_object).any(is_media)
}

/// A part without a type is known by its key, and only text is text.
fn is_media(part: &Map<String, Value>) -> bool {
    match part.get("type").and_then(Value::as_str) {
        Some(kind) => !TEXT_PARTS.contains(&kind),
        None => !TEXT_PARTS.iter().any(|kind| part.contains_key(*kind)),
    }
}
