//! The chat fields: messages and what changes their rendering.
//!
//! Decides what is a chat prompt at all, and whether parts of it are out of a
//! text tokenizer's sight. Never renders.

use serde_json::{Map, Value};

use super::fields::{Field, Fields};
use super::request::{Chat, Origin, RequestError, ToolChoice, Unseen};
use super::{built, lax};

/// Content part types that are text to the template; any other is media.
const TEXT_PARTS: [&str; 6] = [
    "text",
    "thinking",
    "input_text",
    "output_text",
    "refusal",
    "tool_reference",
];

/// Keys that make a part media where its type does not count.
const MEDIA_KEYS: [&str; 9] = [
    "image_url",
    "image_pil",
    "image_embeds",
    "audio_embeds",
    "video_embeds",
    "prompt_embeds",
    "audio_url",
    "input_audio",
    "video_url",
];

/// Reads the chat fields.
pub(super) fn read<'a>(fields: &Fields<'a>) -> Result<Chat<'a>, RequestError> {
    let messages = fields
        .array(Field::Messages)?
        .ok_or(RequestError::Missing(Field::Messages.name()))?;
    let shared = options(fields)?;
    let add = fields.flag(Field::AddGenerationPrompt)?;
    Ok(Chat {
        media: check_messages(&messages)?,
        messages,
        tools: fields.array(Field::Tools)?,
        tool_choice: tool_choice(fields)?,
        documents: fields.array(Field::Documents)?,
        reasoning_effort: fields.string(Field::ReasoningEffort)?,
        add_generation_prompt: add.unwrap_or(!shared.continue_final_message),
        ..shared
    })
}

/// A conversation sent to a pooling model: no tools, no documents, and the
/// answer's turn is opened only where that is asked for.
pub(super) fn pooled<'a>(fields: &Fields<'a>, messages: Value) -> Result<Chat<'a>, RequestError> {
    Ok(Chat {
        media: check_messages(&messages)?,
        messages,
        ..options(fields)?
    })
}

/// A conversation to be tokenized: `documents`, `reasoning_effort` and
/// `tool_choice` are not looked at.
pub(super) fn tokenized<'a>(fields: &Fields<'a>) -> Result<Chat<'a>, RequestError> {
    Ok(Chat {
        tool_choice: ToolChoice::Unset,
        documents: None,
        reasoning_effort: None,
        ..read(fields)?
    })
}

/// What all chat forms have in common, without messages.
pub(super) fn options<'a>(fields: &Fields<'a>) -> Result<Chat<'a>, RequestError> {
    let add = fields.flag(Field::AddGenerationPrompt)?;
    let continue_final_message = fields.flag(Field::ContinueFinalMessage)?.unwrap_or(false);
    if continue_final_message && add == Some(true) {
        return Err(RequestError::OpenAndClosed);
    }
    Ok(Chat {
        origin: Origin::ChatCompletions,
        media: false,
        messages: Value::Null,
        tools: None,
        tool_choice: ToolChoice::Unset,
        documents: None,
        chat_template: fields.string(Field::ChatTemplate)?,
        chat_template_kwargs: kwargs(fields, Field::ChatTemplateKwargs)?,
        mm_processor_kwargs: kwargs(fields, Field::MmProcessorKwargs)?,
        reasoning_effort: None,
        add_generation_prompt: add.unwrap_or(false),
        continue_final_message,
        add_special_tokens: fields.flag(Field::AddSpecialTokens)?.unwrap_or(false),
        unseen: Unseen::default(),
        responses: None,
    })
}

/// Whether a conversation holds media; not being a list of messages is an error.
pub(super) fn check_messages(messages: &Value) -> Result<bool, RequestError> {
    let list = messages.as_array().map_or(&[][..], Vec::as_slice);
    if list.is_empty() {
        return Err(RequestError::Empty(Field::Messages.name()));
    }
    match list.iter().find(|message| !message.is_object()) {
        None => Ok(has_media(messages)),
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
    match built::value(text)? {
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

/// Only text is text. A part without a type, or with a `uuid`, is known by its keys,
/// and those of media go first.
fn is_media(part: &Map<String, Value>) -> bool {
    let given = |key: &str| part.get(key).filter(|value| !value.is_null());
    match (given("type"), given("uuid")) {
        (Some(kind), None) => kind.as_str().is_none_or(|kind| !TEXT_PARTS.contains(&kind)),
        _ => {
            let has = |key: &&str| part.contains_key(*key);
            MEDIA_KEYS.iter().any(has) || !TEXT_PARTS.iter().any(has)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_part_is_media_where_the_engine_takes_it_for_that() {
        let holds = |part: Value| has_media(&json!([{"role": "user", "content": [part]}]));
        for text in [
            json!({"type": "text", "text": "a"}),
            json!({"type": "text", "text": "a", "image_url": "x"}),
            json!({"type": "text", "text": "a", "image_url": "x", "uuid": null}),
            json!({"text": "a"}),
            json!({"type": "text", "text": "a", "uuid": "u"}),
        ] {
            assert!(!holds(text.clone()), "{text}");
        }
        for media in [
            json!({"type": "image_url", "image_url": {"url": "x"}}),
            json!({"type": "text", "text": "a", "image_url": "x", "uuid": "u"}),
            json!({"type": "text", "text": "a", "video_url": null, "uuid": 0}),
            json!({"text": "a", "audio_embeds": "x"}),
            json!({"type": null, "text": "a", "input_audio": {}}),
            json!({"image_pil": "x"}),
            json!({"type": 1, "text": "a"}),
        ] {
            assert!(holds(media.clone()), "{media}");
        }
    }
}
