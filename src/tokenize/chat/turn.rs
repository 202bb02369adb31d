//! One message, as vLLM rewrites it before the template sees it.

use minijinja::Value as Shown;
use serde_json::{Map, Value};

use super::mapping::Mapping;
use super::values::shown;
use super::{Odd, accounting};
use crate::tokenize::Origin;
use crate::tokenize::media::Placeholder;
use crate::tokenize::template::ContentFormat;

/// A message with its content in the form the template wants.
#[derive(Clone, Debug)]
pub(in crate::tokenize) struct Turn {
    pub(in crate::tokenize) role: String,
    pub(super) content: Content,
    /// Further keys in the order vLLM sets them.
    pub(super) more: Vec<(&'static str, Shown)>,
}

/// The form in which a template wants contents.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    /// Text or parts.
    pub(super) content: ContentFormat,
    /// What stands for an image in a text, where that is known.
    pub(super) image: Option<Placeholder>,
    /// The API the messages came by.
    pub(super) origin: Origin,
}

/// The content of a message.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Text(String),
    Parts(Vec<Part>),
}

/// A part of a content list.
#[derive(Clone, Debug)]
pub(super) enum Part {
    Text(String),
    ToolReference(String),
    Media(&'static str),
}

impl Turn {
    /// Reads one element of `messages`.
    ///
    /// # Errors
    /// [`Odd`] for what the engine refuses or nobody has described.
    pub(super) fn read(message: &Value, form: Form) -> Result<Self, Odd> {
        let message = message.as_object().ok_or(Odd)?;
        let role = message.get("role").and_then(Value::as_str).ok_or(Odd)?;
        let content = message.get("content");
        let has_more = content.is_none() || message.len() > 2;
        let content = content.unwrap_or(&Value::Null);
        let dropped = match role {
            "system" => accounting::dropped(content),
            _ => None,
        };
        let content = match (dropped.as_ref().unwrap_or(content), form.content) {
            // What most messages are: one text.
            (Value::String(text), ContentFormat::Text) => Content::Text(text.clone()),
            (content, ContentFormat::Parts) if role != "tool" => Content::Parts(parts(content)?),
            (content, ContentFormat::Parts) => tool_result(parts(content)?),
            (content, ContentFormat::Text) => {
                // As one text, empty parts leave no line of their own.
                let mut parts = parts(content)?;
                let is_empty = |part: &Part| part.text().is_some_and(String::is_empty);
                parts.retain(|part| !is_empty(part));
                Content::Text(with_images(joined(&parts), &parts, form.image)?)
            }
        };
        Ok(Self {
            role: role.to_owned(),
            content,
            more: match has_more {
                true => more(role, message, form.origin)?,
                false => Vec::new(),
            },
        })
    }

    /// A further key, where the engine sets it.
    pub(in crate::tokenize) fn get(&self, key: &str) -> Option<&Shown> {
        let found = self.more.iter().find(|(name, _)| *name == key);
        found.map(|(_, value)| value)
    }

    /// The content as one text, parts joined by `joint`.
    ///
    /// # Errors
    /// [`Odd`] for parts that are no text.
    pub(in crate::tokenize) fn flat(&self, joint: &str) -> Result<String, Odd> {
        let parts = match &self.content {
            Content::Text(text) => return Ok(text.clone()),
            Content::Parts(parts) => parts.iter().map(|part| match part {
                Part::Text(text) => Ok(text.as_str()),
                Part::ToolReference(_) | Part::Media(_) => Err(Odd),
            }),
        };
        let texts: Result<Vec<_>, Odd> = parts.collect();
        Ok(texts?.join(joint))
    }

    /// The message as a template value.
    pub(super) fn shown(&self) -> Shown {
        let content = match &self.content {
            Content::Text(text) => Shown::from(text.as_str()),
            Content::Parts(parts) => parts.iter().map(Part::shown).collect::<Vec<_>>().into(),
        };
        let mut entries = Vec::with_capacity(2 + self.more.len());
        entries.push((Shown::from("role"), Shown::from(self.role.as_str())));
        entries.push((Shown::from("content"), content));
        let more = self.more.iter();
        entries.extend(more.map(|(key, value)| (Shown::from(*key), value.clone())));
        Mapping::shown(entries)
    }

    /// The last text of the content, if it has any.
    pub(super) fn last_text(&mut self) -> Option<&mut String> {
        match &mut self.content {
            Content::Text(text) => Some(text),
            Content::Parts(parts) => parts.iter_mut().rev().find_map(|part| match part {
                Part::Text(text) => Some(text),
                Part::ToolReference(_) | Part::Media(_) => None,
            }),
        }
    }

    /// All text of the content, parts joined by line feeds.
    pub(super) fn text(&self) -> String {
        match &self.content {
            Content::Text(text) => text.clone(),
            Content::Parts(parts) => joined(parts),
        }
    }
}

impl Part {
    fn shown(&self) -> Shown {
        match self {
            Self::Text(text) => Shown::from_pairs([("type", "text"), ("text", text)]),
            Self::ToolReference(name) => {
                Shown::from_pairs([("type", "tool_reference"), ("name", name)])
            }
            Self::Media(kind) => Shown::from_pairs([("type", *kind)]),
        }
    }

    const fn text(&self) -> Option<&String> {
        match self {
            Self::Text(text) | Self::ToolReference(text) => Some(text),
            Self::Media(_) => None,
        }
    }
}

fn joined(parts: &[Part]) -> String {
    let texts: Vec<&str> = parts
        .iter()
        .filter_map(Part::text)
        .map(String::as_str)
        .collect();
    texts.join("\n")
}

/// A text with what stands for the images beside it, in front, as far as the
/// text does not hold that already.
///
/// # Errors
/// [`Odd`] if it holds more than there are images, which the engine refuses.
fn with_images(text: String, parts: &[Part], image: Option<Placeholder>) -> Result<String, Odd> {
    let is_image = |part: &&Part| matches!(part, Part::Media("image"));
    let written = image.and_then(|image| image.written);
    let (Some(written), images @ 1..) = (written, parts.iter().filter(is_image).count()) else {
        return Ok(text);
    };
    let there = text.matches(written).count();
    let missing = images.checked_sub(there).ok_or(Odd)?;
    let mut lines = vec![written; missing];
    if !text.is_empty() {
        lines.push(&text);
    }
    Ok(lines.join("\n"))
}

/// Tool results are text even where the template wants parts, unless they refer
/// to tools.
fn tool_result(parts: Vec<Part>) -> Content {
    if parts.iter().all(|part| matches!(part, Part::Text(_))) {
        Content::Text(joined(&parts))
    } else {
        Content::Parts(parts)
    }
}

fn parts(content: &Value) -> Result<Vec<Part>, Odd> {
    match content {
        Value::Null => Ok(Vec::new()),
        Value::String(text) => Ok(vec![Part::Text(text.clone())]),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|one| part(one).transpose())
            .collect(),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => Err(Odd),
    }
}

/// Reads one part; `None` for an empty one, which the engine skips.
fn part(part: &Value) -> Result<Option<Part>, Odd> {
    if let Some(text) = part.as_str() {
        return Ok(Some(Part::Text(text.to_owned())));
    }
    let part = part.as_object().ok_or(Odd)?;
    let kind = part_kind(part).ok_or(Odd)?;
    let text_key = match kind {
        "text" | "input_text" | "output_text" => "text",
        "refusal" => "refusal",
        "thinking" => "thinking",
        "tool_reference" => "name",
        _ => return media(kind).map(|kind| Some(Part::Media(kind))).ok_or(Odd),
    };
    match part.get(text_key) {
        Some(Value::String(text)) if kind == "tool_reference" => {
            Ok(Some(Part::ToolReference(text.clone())))
        }
        Some(Value::String(text)) => Ok(Some(Part::Text(text.clone()))),
        None | Some(Value::Null) if matches!(kind, "text" | "refusal") => Ok(None),
        _ => Err(Odd),
    }
}

/// Keys that say what a part is where its type does not count, first come first.
const TELLING: [&str; 10] = [
    "image_url",
    "image_pil",
    "image_embeds",
    "audio_embeds",
    "video_embeds",
    "prompt_embeds",
    "audio_url",
    "input_audio",
    "video_url",
    "tool_reference",
];

/// The kind of a part: its type, or, where it has none or has a `uuid`, the first
/// telling key. `None` for what the engine refuses.
pub(super) fn part_kind(part: &Map<String, Value>) -> Option<&str> {
    match part.get("type").filter(|kind| !kind.is_null()) {
        Some(kind) if !has_uuid(part) => kind.as_str(),
        _ => TELLING.into_iter().find(|key| part.contains_key(*key)),
    }
}

/// Whether the engine may take what it kept under the `uuid` for the part's media.
pub(super) fn has_uuid(part: &Map<String, Value>) -> bool {
    part.get("uuid").is_some_and(|uuid| !uuid.is_null())
}

/// The modality of a media part, under the name templates know.
pub(super) fn media(kind: &str) -> Option<&'static str> {
    match kind {
        "image_url" | "input_image" | "image_embeds" | "image_pil" => Some("image"),
        "audio_url" | "input_audio" | "audio_embeds" => Some("audio"),
        "video_url" | "video_embeds" => Some("video"),
        _ => None,
    }
}

/// The keys beside role and content that the engine passes on.
fn more(
    role: &str,
    message: &Map<String, Value>,
    origin: Origin,
) -> Result<Vec<(&'static str, Shown)>, Odd> {
    let given = |key: &str| message.get(key).filter(|value| !value.is_null());
    let mut more = Vec::new();
    if role == "assistant" {
        if let Some(calls) = given("tool_calls") {
            let calls = tool_calls(calls, origin)?;
            more.extend(calls.map(|calls| ("tool_calls", calls)));
        }
        // The engine renames the old field before anything else reads it.
        if let Some(reasoning) = given("reasoning").or_else(|| given("reasoning_content")) {
            more.push(("reasoning", shown(reasoning)));
            more.push(("reasoning_content", shown(reasoning)));
        }
    }
    if let (true, Some(id)) = (role == "tool", given("tool_call_id")) {
        more.push(("tool_call_id", shown(id)));
    }
    for key in ["name", "task"] {
        if let Some(Value::String(text)) = message.get(key) {
            more.push((key, Shown::from(text.as_str())));
        }
    }
    if let (true, Some(tools)) = (role == "developer", given("tools")) {
        more.push(("tools", shown(tools)));
    }
    Ok(more)
}

/// Tool calls with their arguments as mappings; `None` for an empty list.
fn tool_calls(calls: &Value, origin: Origin) -> Result<Option<Shown>, Odd> {
    let calls = calls.as_array().ok_or(Odd)?;
    if calls.is_empty() {
        return Ok(None);
    }
    let calls: Result<Vec<Shown>, Odd> = calls.iter().map(|call| tool_call(call, origin)).collect();
    Ok(Some(calls?.into()))
}

/// The keys of a call come in the order of the engine's request model, others after
/// them; only what it makes of `/v1/responses` never passes through that model.
fn tool_call(call: &Value, origin: Origin) -> Result<Shown, Odd> {
    let call = call.as_object().ok_or(Odd)?;
    let function = call.get("function").and_then(Value::as_object).ok_or(Odd)?;
    let kind = call.get("type").map_or(Some("function"), Value::as_str);
    if kind != Some("function") {
        return Err(Odd);
    }
    let (of_function, of_call): (&[&str], &[&str]) = match origin {
        Origin::Responses => (&["name", "arguments"], &[]),
        Origin::ChatCompletions | Origin::Messages => {
            (&["arguments", "name"], &["id", "function", "type"])
        }
    };
    let arguments = arguments(function.get("arguments"));
    let function = in_order(function, of_function, ("arguments", arguments));
    Ok(in_order(call, of_call, ("function", function)))
}

/// The entries of `map` under `first` and then the rest, one of them replaced.
fn in_order(map: &Map<String, Value>, first: &[&str], replaced: (&str, Shown)) -> Shown {
    let value = |key: &str| match key == replaced.0 {
        true => Some(replaced.1.clone()),
        false => map.get(key).map(shown),
    };
    let rest = map.keys().map(String::as_str);
    let rest = rest.filter(|key| !first.contains(key));
    let keys = first.iter().copied().chain(rest);
    Shown::from_pairs(keys.filter_map(|key| Some((key.to_owned(), value(key)?))))
}

/// The arguments as a mapping: parsed if they are text, empty if they are
/// anything that is not a mapping.
fn arguments(arguments: Option<&Value>) -> Shown {
    let parsed = match arguments {
        Some(Value::String(text)) => serde_json::from_str(text).ok(),
        other => other.cloned(),
    };
    match parsed {
        Some(map @ Value::Object(_)) => shown(&map),
        _ => shown(&Value::Object(Map::new())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_of_a_call_come_in_the_order_of_the_engines_model() {
        let call = json!({
            "x": 1, "type": "function", "id": "c",
            "function": {"name": "f", "y": 2, "arguments": "{\"a\": 1}"}
        });
        let shown = |origin| tool_call(&call, origin).unwrap().to_string();
        assert_eq!(
            shown(Origin::ChatCompletions),
            "{'id': 'c', 'function': {'arguments': {'a': 1}, 'name': 'f', 'y': 2}, \
             'type': 'function', 'x': 1}"
        );
        assert_eq!(shown(Origin::Messages), shown(Origin::ChatCompletions));
        assert_eq!(
            shown(Origin::Responses),
            "{'x': 1, 'type': 'function', 'id': 'c', \
             'function': {'name': 'f', 'arguments': {'a': 1}, 'y': 2}}"
        );
    }

    #[test]
    fn a_part_is_what_the_engine_takes_it_for() {
        let kinds = [
            (json!({"type": "text", "image_url": "x"}), Some("text")),
            (
                json!({"type": "text", "uuid": "u", "image_url": "x"}),
                Some("image_url"),
            ),
            (
                json!({"type": "text", "uuid": 0, "video_url": "x", "audio_url": "y"}),
                Some("audio_url"),
            ),
            (json!({"type": "text", "uuid": "u", "text": "x"}), None),
            (
                json!({"type": "text", "uuid": null, "input_audio": {}}),
                Some("text"),
            ),
            (
                json!({"type": null, "input_audio": {}}),
                Some("input_audio"),
            ),
            (json!({"image_embeds": null}), Some("image_embeds")),
            (json!({"audio_embeds": "x"}), Some("audio_embeds")),
            (json!({"image_pil": "x"}), Some("image_pil")),
            (json!({"input_image": "x"}), None),
            (json!({"type": 1, "image_url": "x"}), None),
        ];
        for (part, kind) in &kinds {
            assert_eq!(part_kind(part.as_object().unwrap()), *kind, "{part}");
        }
    }

    #[test]
    fn a_call_without_arguments_has_none() {
        let call = json!({"type": "function", "function": {"name": "f"}});
        assert_eq!(
            tool_call(&call, Origin::ChatCompletions)
                .unwrap()
                .to_string(),
            "{'function': {'arguments': {}, 'name': 'f'}, 'type': 'function'}"
        );
    }
}
