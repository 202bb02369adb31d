//! Messages with content blocks, one after another, as chat messages.
//!
//! Decides what becomes of each block. Never refuses: a block no engine takes is
//! kept as it is, to be weighed.

use serde_json::{Map, Value, json};

use crate::protocol::python;

/// How the text begins that one client puts in front of its prompts to account
/// for them; engines drop it, since it differs with every request.
const ACCOUNTING: &str = "x-anthropic-billing-header";

/// What the blocks of one message become.
#[derive(Default)]
struct Content {
    parts: Vec<Value>,
    calls: Vec<Value>,
    /// `None` where nothing was thought; what was may be empty.
    reasoning: Option<String>,
}

/// Adds a message to those so far; results of tools become messages before it.
pub(super) fn add(messages: &mut Vec<Value>, message: Value) {
    let Value::Object(mut message) = message else {
        messages.push(message);
        return;
    };
    let role = take(&mut message, "role");
    let content = take(&mut message, "content");
    if role == "system" {
        add_system(messages, content);
        return;
    }
    let Value::Array(blocks) = content else {
        messages.push(json!({"role": role, "content": content}));
        return;
    };
    let mut made = Content::default();
    for block in blocks {
        let is_result = block.get("type").is_some_and(|kind| kind == "tool_result");
        match block {
            Value::Object(block) if is_result && role == "user" => add_result(messages, block),
            block => made.add(block),
        }
    }
    messages.extend(made.message(role));
}

/// The text of a system prompt given in blocks; empty where there is none.
pub(super) fn system_text(blocks: &[Value]) -> String {
    let texts = blocks
        .iter()
        .filter(|block| block.get("type").is_some_and(|kind| kind == "text"))
        .filter_map(|block| block.get("text")?.as_str())
        .filter(|text| !text.starts_with(ACCOUNTING));
    texts.collect()
}

fn add_system(messages: &mut Vec<Value>, content: Value) {
    let text = match content {
        Value::String(text) if text.starts_with(ACCOUNTING) => return,
        Value::String(text) => text,
        Value::Array(blocks) => system_text(&blocks),
        _ => return,
    };
    if !text.is_empty() {
        messages.push(json!({"role": "system", "content": text}));
    }
}

/// A result in a user's message: its texts, then its images as if the user had
/// sent them, then the tools it refers to.
fn add_result(messages: &mut Vec<Value>, mut block: Map<String, Value>) {
    let id = match take(&mut block, "tool_use_id") {
        Value::Null => Value::from(""),
        id => id,
    };
    let mut texts = Vec::new();
    let mut images = Vec::new();
    let mut references = Vec::new();
    match take(&mut block, "content") {
        Value::String(text) => texts.push(text),
        Value::Array(parts) => {
            for mut part in parts {
                match part.get("type").and_then(Value::as_str) {
                    Some("text") => texts.push(text_of(&mut part)),
                    Some("image") => images.extend(image(&part)),
                    Some("tool_reference") => references.extend(reference(&part)),
                    _ => {}
                }
            }
        }
        _ => {}
    }
    messages.push(json!({"role": "tool", "tool_call_id": id, "content": texts.join("\n")}));
    if !images.is_empty() {
        messages.push(json!({"role": "user", "content": images}));
    }
    if !references.is_empty() {
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": references}));
    }
}

fn text_of(part: &mut Value) -> String {
    match part.get_mut("text").map(Value::take) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    }
}

fn reference(part: &Value) -> Option<Value> {
    let named = |key: &str| part.get(key)?.as_str().filter(|name| !name.is_empty());
    let name = named("tool_name").or_else(|| named("name"))?;
    Some(json!({"type": "tool_reference", "name": name}))
}

/// An image as a part that names its address; the data of an inline one is
/// left out, since it is worth the same tokens without.
fn image(block: &Value) -> Option<Value> {
    let source = block.get("source")?.as_object()?;
    let text = |key: &str| source.get(key).and_then(Value::as_str);
    let url = match text("type") {
        Some("url") => text("url").unwrap_or_default().to_owned(),
        _ => {
            let kind = text("media_type").unwrap_or("image/jpeg");
            let data = text("data").unwrap_or_default();
            format!("data:{kind};base64,{data}")
        }
    };
    (!url.is_empty()).then(|| json!({"type": "image_url", "image_url": {"url": url}}))
}

fn take(map: &mut Map<String, Value>, key: &str) -> Value {
    map.get_mut(key).map_or(Value::Null, Value::take)
}

// === impl Content ===

impl Content {
    fn add(&mut self, mut block: Value) {
        match block.get("type").and_then(Value::as_str) {
            Some("text") => {
                let text = text_of(&mut block);
                if !text.is_empty() {
                    self.parts.push(json!({"type": "text", "text": text}));
                }
            }
            Some("image") => self.parts.extend(image(&block)),
            Some("thinking") => {
                if let Some(text) = block.get("thinking").and_then(Value::as_str) {
                    self.reasoning.get_or_insert_default().push_str(text);
                }
            }
            Some("tool_use") => self.calls.push(call(&block)),
            Some("tool_result") => {
                let result = block.get("content").unwrap_or(&Value::Null);
                let text = format!("Tool result: {}", result_text(result));
                self.parts.push(json!({"type": "text", "text": text}));
            }
            // Hidden thoughts, and what only counts within results or for the tools.
            Some("redacted_thinking" | "tool_reference" | "tool_addition" | "tool_removal") => {}
            _ => self.parts.push(block),
        }
    }

    /// The message; a user's without content is none at all.
    fn message(mut self, role: Value) -> Option<Value> {
        let is_user = role == "user";
        let mut message = Map::new();
        message.insert("role".to_owned(), role);
        let lone = match self.parts.as_slice() {
            [part] if part.get("type").is_some_and(|kind| kind == "text") => true,
            [] if is_user => return None,
            _ => false,
        };
        if lone {
            let text = text_of(&mut self.parts[0]);
            message.insert("content".to_owned(), Value::from(text));
        } else if !self.parts.is_empty() {
            message.insert("content".to_owned(), Value::from(self.parts));
        }
        if !self.calls.is_empty() {
            message.insert("tool_calls".to_owned(), Value::from(self.calls));
        }
        if let Some(reasoning) = self.reasoning {
            message.insert("reasoning".to_owned(), Value::from(reasoning));
        }
        Some(Value::Object(message))
    }
}

fn call(block: &Value) -> Value {
    let text = |key: &str| block.get(key).and_then(Value::as_str).unwrap_or_default();
    let arguments = match block.get("input") {
        Some(input @ Value::Object(_)) => python::dumps(input),
        _ => "{}".to_owned(),
    };
    json!({
        "id": text("id"),
        "type": "function",
        "function": {"name": text("name"), "arguments": arguments},
    })
}

/// A result that is no user's is shown as a programmer would print it.
fn result_text(result: &Value) -> String {
    match result {
        Value::String(text) => text.clone(),
        Value::Array(parts) if !parts.is_empty() => python::repr(result),
        _ => String::new(),
    }
}
