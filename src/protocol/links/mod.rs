//! The links to media that a body carries, in every dialect.
//!
//! Decides where an engine could find something to fetch: parts of messages,
//! results of tools, documents, pairs, whatever they nest in. Never judges a
//! link. Invariant: a link that an engine would follow is shown; one that only
//! looks like one may be shown too, except within the arguments of tool calls,
//! which no engine follows.

mod url;

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde_json::{Map, Value};

use super::built;
use super::fields::{Field, Fields};
use super::request::RequestError;

pub use url::{Host, Url, UrlError};

/// Fields with content in them.
const CONTENT: [Field; 15] = [
    Field::Data,
    Field::Data1,
    Field::Data2,
    Field::Documents,
    Field::Input,
    Field::Items,
    Field::Messages,
    Field::PreviousInputMessages,
    Field::Prompt,
    Field::Queries,
    Field::Query,
    Field::System,
    Field::Text1,
    Field::Text2,
    Field::Instructions,
];

/// Keys whose value is a link, or an object with a `url`.
const LINKS: [&str; 10] = [
    "image_url",
    "video_url",
    "audio_url",
    "file_url",
    "input_image",
    "input_video",
    "source",
    "image",
    "video",
    "audio",
];

/// What stands in every body with a link: the keys, what says that a plugin's `data`
/// is one, and the escape of an ASCII letter, which hides a key.
const SIGNS: [&[u8]; 9] = [
    b"_url\"",
    b"\"input_image\"",
    b"\"input_video\"",
    b"\"source\"",
    b"\"image\"",
    b"\"video\"",
    b"\"audio\"",
    b"\"data_format\"",
    b"\\u00",
];

/// What looks for each of [`SIGNS`]: made once, as a short body is searched in less
/// time than that takes.
static FINDERS: LazyLock<[Finder<'static>; 9]> = LazyLock::new(|| SIGNS.map(Finder::new));

/// Shows the links of a body to `judge` until it objects to one.
///
/// Bodies without a sign of a link are searched once and not read. Gives the
/// field, the place within the body as `messages[0].content[1].image_url`, and
/// the objection.
///
/// # Errors
/// Where the body cannot be read.
pub fn first_bad_link<T>(
    body: &[u8],
    judge: impl Fn(&str) -> Option<T>,
) -> Result<Option<BadLink<T>>, RequestError> {
    let has = |sign: &Finder<'_>| sign.find(body).is_some();
    if !FINDERS.iter().any(has) {
        return Ok(None);
    }
    let fields = Fields::read(body)?;
    for field in CONTENT {
        let Some(text) = fields.text(field).filter(|text| !text.starts_with('"')) else {
            continue;
        };
        let mut search = Search {
            judge: &judge,
            place: field.name().to_owned(),
        };
        if let Some(objection) = search.value(&built::value(text)?) {
            let (field, place) = (field.name(), search.place);
            return Ok(Some(BadLink {
                field,
                place,
                objection,
            }));
        }
    }
    Ok(None)
}

/// A link that was objected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLink<T> {
    /// The top-level key it stands in.
    pub field: &'static str,
    /// Where it stands, in words a client can follow.
    pub place: String,
    /// What was said of it.
    pub objection: T,
}

/// A walk through one field; `place` is where it stands, and stays where it
/// ends with an objection.
struct Search<'a, F> {
    judge: &'a F,
    place: String,
}

// === impl Search ===

impl<T, F: Fn(&str) -> Option<T>> Search<'_, F> {
    fn value(&mut self, value: &Value) -> Option<T> {
        match value {
            Value::Array(items) => {
                let mut items = items.iter().enumerate();
                items.find_map(|(index, item)| self.within(&format!("[{index}]"), item))
            }
            Value::Object(object) => self.object(object),
            _ => None,
        }
    }

    fn object(&mut self, object: &Map<String, Value>) -> Option<T> {
        let is = |key: &str, word: &str| object.get(key).is_some_and(|value| value == word);
        let is_call = is("type", "tool_use");
        let is_linked = is("data_format", "url");
        let mut members = object.iter();
        members.find_map(|(key, value)| {
            // What a model wrote to call a tool, not content.
            if key == "arguments" || (is_call && key == "input") {
                return None;
            }
            let name = format!(".{key}");
            let is_link = LINKS.contains(&key.as_str()) || (is_linked && key == "data");
            match value {
                Value::String(link) if is_link => self.link(&name, link),
                Value::Object(inner) if is_link => {
                    let url = inner.get("url").and_then(Value::as_str);
                    let found = url.and_then(|link| self.link(&name, link));
                    found.or_else(|| self.within(&name, value))
                }
                _ => self.within(&name, value),
            }
        })
    }

    fn within(&mut self, name: &str, value: &Value) -> Option<T> {
        if !matches!(value, Value::Array(_) | Value::Object(_)) {
            return None;
        }
        let before = self.place.len();
        self.place.push_str(name);
        let found = self.value(value);
        if found.is_none() {
            self.place.truncate(before);
        }
        found
    }

    fn link(&mut self, name: &str, link: &str) -> Option<T> {
        let objection = (self.judge)(link)?;
        self.place.push_str(name);
        Some(objection)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The place of the first link that holds "bad".
    fn place(body: &Value) -> Option<String> {
        let judge = |link: &str| link.contains("bad").then_some(());
        let found = first_bad_link(body.to_string().as_bytes(), judge).unwrap();
        found.map(|found| found.place)
    }

    #[test]
    fn links_are_found_in_every_dialect_and_depth() {
        for (body, expected) in [
            (
                json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "bad"},
                    {"type": "image_url", "image_url": {"url": "bad"}}]}]}),
                "messages[0].content[1].image_url",
            ),
            (
                json!({"messages": [{"role": "user", "content": [{"video_url": "bad"}]}]}),
                "messages[0].content[0].video_url",
            ),
            (
                json!({"messages": [{"role": "tool", "content": [{"type": "audio_url",
                    "audio_url": {"url": "bad"}, "uuid": "u"}]}]}),
                "messages[0].content[0].audio_url",
            ),
            (
                json!({"input": [{"type": "function_call_output", "output": [
                    {"type": "input_image", "image_url": "bad"}]}]}),
                "input[0].output[0].image_url",
            ),
            (
                json!({"messages": [{"role": "user", "content": [{"type": "tool_result",
                    "content": [{"type": "image", "source": {"type": "url", "url": "bad"}}]}]}]}),
                "messages[0].content[0].content[0].source",
            ),
            (
                json!({"query": "q", "documents": [{"content": [{"type": "image_url",
                    "image_url": {"url": "bad"}}]}]}),
                "documents[0].content[0].image_url",
            ),
            (
                json!({"input": [{"type": "input_file", "file_url": "bad"}]}),
                "input[0].file_url",
            ),
            (
                json!({"data": {"data": "bad", "data_format": "url"}}),
                "data.data",
            ),
        ] {
            assert_eq!(place(&body).as_deref(), Some(expected), "{body}");
        }
    }

    #[test]
    fn what_models_wrote_to_call_tools_is_no_link() {
        for body in [
            json!({"messages": [{"role": "assistant", "tool_calls": [{"type": "function",
                "function": {"name": "f", "arguments": {"image_url": "bad"}}}]}]}),
            json!({"messages": [{"role": "assistant", "content": [{"type": "tool_use",
                "input": {"image_url": "bad"}}]}]}),
            json!({"tools": [{"type": "function", "function": {"parameters":
                {"properties": {"image_url": {"type": "string", "url": "bad"}}}}}]}),
            json!({"messages": [{"role": "user", "content": "\"image_url\": \"bad\""}]}),
        ] {
            assert_eq!(place(&body), None, "{body}");
        }
    }

    #[test]
    fn an_escaped_key_hides_nothing() {
        let body = br#"{"messages":[{"content":[{"image\u005furl":"bad"}]}]}"#;
        let judge = |link: &str| link.contains("bad").then_some(());
        let found = first_bad_link(body, judge).unwrap().unwrap();
        assert_eq!(found.place, "messages[0].content[0].image_url");
    }
}
