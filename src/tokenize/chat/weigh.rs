//! What a conversation weighs, without rendering it.
//!
//! Decides how much text and media a request holds, whatever its shape. Never
//! fails. Invariant: every text in the messages, tools, documents and the template's
//! variables is weighed; links and embedded data of media are not text.

use serde_json::{Map, Value};

use super::turn::{has_uuid, media, part_kind};
use crate::tokenize::media::Media;
use crate::tokenize::{ChatInput, Sample};

/// Tokens that templates put around one message: five in most.
const PER_MESSAGE: u64 = 6;
/// Tokens of the header of the answer and of what else surrounds a prompt.
const PER_PROMPT: u64 = 8;
/// Tokens of a system message that a template writes by itself, at the most: that
/// of gpt-oss has 60, others have 20 to 40.
const PER_SYSTEM: u64 = 64;
/// Tokens of the words in which templates explain tools, at the most: DeepSeek's
/// have 280.
const PER_TOOLS: u64 = 300;
/// Added to the bytes of a request's own template, as a share of them: one in four.
const TEMPLATE_MARGIN: u64 = 4;
/// Bytes of base64 that hold one row of prompt embeddings, at the smallest:
/// 512 half-precision numbers.
const BYTES_PER_EMBEDDING: usize = 1365;

/// The media of a request, in order. O(messages and parts).
pub(in crate::tokenize) fn media_parts(messages: &Value) -> impl Iterator<Item = Media<'_>> {
    let contents = messages.as_array().into_iter().flatten();
    let parts = contents.filter_map(|message| message.get("content")?.as_array());
    parts
        .flatten()
        .filter_map(|part| one_media(part.as_object()?))
}

/// Whether a part is charged as media.
pub(in crate::tokenize) fn is_media(part: &Map<String, Value>) -> bool {
    one_media(part).is_some()
}

/// A media part; `None` for one that is text, or unknown.
fn one_media(part: &Map<String, Value>) -> Option<Media<'_>> {
    let kind = part_kind(part)?;
    match media(kind) {
        Some("image") => Some(Media::Image(link(kind, part))),
        Some("audio") => Some(Media::Audio),
        Some(_) => Some(Media::Video),
        None if kind == "prompt_embeds" => Some(Media::Embeddings(embedded(part))),
        None => None,
    }
}

/// The link of an image part, in any of the shapes the APIs know; `None` where the
/// engine may look at another image.
fn link<'a>(kind: &str, part: &'a Map<String, Value>) -> Option<&'a str> {
    if has_uuid(part) || !matches!(kind, "image_url" | "input_image") {
        return None;
    }
    let link = part.get("image_url")?;
    link.as_str().or_else(|| link.get("url")?.as_str())
}

fn embedded(part: &Map<String, Value>) -> &str {
    let data = part.get("data").and_then(Value::as_str);
    data.unwrap_or_default()
}

/// Rows of prompt embeddings in a base64 text, at the most.
pub(in crate::tokenize) fn embedding_rows(data: &str) -> u64 {
    u64::try_from(data.len().div_ceil(BYTES_PER_EMBEDDING)).unwrap_or(u64::MAX)
}

/// A token for each byte of a request's own template, and a margin: it may write its
/// text several times, so to count that would be low.
fn template_tokens(template: &str) -> u64 {
    let bytes = u64::try_from(template.len()).unwrap_or(u64::MAX);
    bytes.saturating_add(bytes.div_ceil(TEMPLATE_MARGIN))
}

/// The text of a request that will become tokens.
#[derive(Debug, Default)]
pub(in crate::tokenize) struct Weight<'a> {
    /// All texts, as they are.
    pub(in crate::tokenize) texts: Vec<&'a str>,
    /// JSON that a template would spell out, spelled out here.
    pub(in crate::tokenize) spelled: Vec<String>,
    messages: u64,
    has_tools: bool,
    /// Tokens charged for the request's own template.
    template: u64,
}

impl<'a> Weight<'a> {
    /// Weighs a request without its media. O(its size).
    pub(in crate::tokenize) fn of(input: &ChatInput<'a>) -> Self {
        let mut weight = Self::default();
        match input.messages {
            Value::Array(messages) => {
                for message in messages {
                    weight.add_message(message);
                }
            }
            other => weight.spell(other),
        }
        for extra in [input.tools, input.documents].into_iter().flatten() {
            weight.spell(extra);
        }
        let kwargs = input.chat_template_kwargs;
        let variables = kwargs.into_iter().flat_map(Map::values);
        // A switch is not shown.
        for variable in variables.filter(|variable| !variable.is_boolean()) {
            weight.add_value(variable);
        }
        weight.texts.extend(input.reasoning_effort);
        let tools = kwargs.and_then(|kwargs| kwargs.get("tools"));
        let tools = [input.tools, tools];
        weight.has_tools = tools.into_iter().flatten().any(|tools| !tools.is_null());
        weight.template = input.chat_template.map_or(0, template_tokens);
        weight
    }

    /// Tokens that a template writes by itself, at the most. Only worth a charge where
    /// texts are counted: estimates of texts learn it from what engines count.
    pub(in crate::tokenize) const fn unseen(&self) -> u64 {
        match self.has_tools {
            true => PER_SYSTEM + PER_TOOLS,
            false => PER_SYSTEM,
        }
    }

    /// Tokens that surround the texts, and those of a template of the request's own.
    pub(in crate::tokenize) const fn overhead(&self) -> u64 {
        self.messages
            .saturating_mul(PER_MESSAGE)
            .saturating_add(PER_PROMPT)
            .saturating_add(self.template)
    }

    /// All texts joined by line feeds.
    pub(in crate::tokenize) fn text(&self) -> String {
        self.texts.join("\n")
    }

    /// All JSON joined by line feeds.
    pub(in crate::tokenize) fn json(&self) -> String {
        self.spelled.join("\n")
    }

    /// What all text is like.
    pub(in crate::tokenize) fn sample(&self) -> Sample {
        let spelled = self.spelled.iter().map(String::as_str);
        Sample::of(self.texts.iter().copied().chain(spelled))
    }

    /// Bytes of all text.
    pub(in crate::tokenize) fn bytes(&self) -> usize {
        let texts: usize = self.texts.iter().map(|text| text.len()).sum();
        let spelled: usize = self.spelled.iter().map(String::len).sum();
        texts.saturating_add(spelled)
    }

    fn add_message(&mut self, message: &'a Value) {
        self.messages += 1;
        let Some(fields) = message.as_object() else {
            self.spell(message);
            return;
        };
        for (key, value) in fields {
            match (key.as_str(), value) {
                ("content", Value::Array(parts)) => {
                    for part in parts {
                        self.add_part(part);
                    }
                }
                (_, Value::String(text)) => self.texts.push(text),
                _ => self.spell(value),
            }
        }
    }

    fn add_part(&mut self, part: &'a Value) {
        match part.as_object() {
            Some(fields) if one_media(fields).is_some() => {}
            Some(fields) => fields.values().for_each(|value| self.add_value(value)),
            None => self.add_value(part),
        }
    }

    fn add_value(&mut self, value: &'a Value) {
        match value {
            Value::String(text) => self.texts.push(text),
            other => self.spell(other),
        }
    }

    fn spell(&mut self, value: &Value) {
        if !value.is_null() {
            self.spelled.push(value.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_that_a_template_could_print_of_its_variables_is_weighed() {
        let messages = json!([{"role": "user", "content": "hi"}]);
        let kwargs = json!({
            "note": "a text", "enable_thinking": true, "nothing": null,
            "tools": [{"name": "f"}], "documents": [{"text": "d"}], "budget": 7
        });
        let mut input = ChatInput::new(&messages);
        let plain = Weight::of(&input);
        input.chat_template_kwargs = kwargs.as_object();
        input.reasoning_effort = Some("high");
        let weight = Weight::of(&input);
        assert!(weight.texts.contains(&"a text") && weight.texts.contains(&"high"));
        assert_eq!(weight.texts.len(), plain.texts.len() + 2);
        let mut spelled = weight.spelled.clone();
        spelled.sort_unstable();
        assert_eq!(spelled, ["7", r#"[{"name":"f"}]"#, r#"[{"text":"d"}]"#]);
        assert_eq!(weight.unseen(), plain.unseen() + PER_TOOLS);
        assert_eq!(weight.overhead(), plain.overhead());
    }

    #[test]
    fn a_template_of_the_requests_own_is_charged_by_its_bytes_and_a_margin() {
        let messages = json!([{"role": "user", "content": "hi"}]);
        let template = "{% for i in range(99) %}again {% endfor %}".repeat(10);
        let mut input = ChatInput::new(&messages);
        let plain = Weight::of(&input);
        input.chat_template = Some(&template);
        let weight = Weight::of(&input);
        assert_eq!(template.len(), 420);
        assert_eq!(weight.overhead(), plain.overhead() + 525);
        assert_eq!(weight.bytes(), plain.bytes());
    }
}
