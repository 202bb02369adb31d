//! Items of a Responses input, one after another, as chat messages.
//!
//! Decides which items share a message: what an assistant thought, said and
//! called is one. Never refuses: an item no engine takes is kept as it is, to
//! be weighed.

use serde_json::{Map, Value, json};

/// Whether the last item is to be continued instead of answered.
pub(super) fn is_open(item: &Value) -> bool {
    let kind = item.get("type").map_or(Some("message"), Value::as_str);
    let status = item.get("status").and_then(Value::as_str);
    matches!(kind, Some("message" | "reasoning"))
        && matches!(status, Some("in_progress" | "incomplete"))
}

/// Adds an item to the messages so far.
pub(super) fn add(messages: &mut Vec<Value>, item: Value) {
    let Value::Object(mut item) = item else {
        messages.push(item);
        return;
    };
    let kind = item.get("type").and_then(Value::as_str);
    match kind {
        Some("function_call") => {
            let call = function_call(&mut item);
            add_call(messages, call);
        }
        Some("custom_tool_call") => {
            let call = custom_call(&mut item);
            add_call(messages, call);
        }
        Some("reasoning") => {
            let text = reasoning(&mut item);
            say(messages, "reasoning", text);
        }
        Some("function_call_output" | "custom_tool_call_output") => {
            let content = taken(&mut item, "output");
            let id = taken(&mut item, "call_id");
            messages.push(json!({"role": "tool", "content": content, "tool_call_id": id}));
        }
        _ => match assistant_text(&mut item) {
            Some(text) => say(messages, "content", text),
            None => messages.push(Value::Object(item)),
        },
    }
}

fn function_call(item: &mut Map<String, Value>) -> Value {
    let name = taken(item, "name");
    let namespace = item.get("namespace").and_then(Value::as_str);
    let name = match (namespace, name.as_str()) {
        (Some(namespace), Some(name)) if !namespace.is_empty() => {
            Value::from(super::tools::flat(namespace, name))
        }
        _ => name,
    };
    json!({
        "id": taken(item, "call_id"),
        "function": {"name": name, "arguments": taken(item, "arguments")},
        "type": "function",
    })
}

/// A call with free text is shown as one of a function with one argument.
fn custom_call(item: &mut Map<String, Value>) -> Value {
    let input = match taken(item, "input") {
        Value::Null => Value::from(""),
        input => input,
    };
    json!({
        "id": taken(item, "call_id"),
        "function": {"name": taken(item, "name"), "arguments": format!("{{\"input\": {input}}}")},
        "type": "function",
    })
}

fn add_call(messages: &mut Vec<Value>, call: Value) {
    let Some(open) = messages.last_mut().and_then(assistant) else {
        messages.push(json!({"role": "assistant", "tool_calls": [call]}));
        return;
    };
    match open.get_mut("tool_calls").and_then(Value::as_array_mut) {
        Some(calls) => calls.push(call),
        None => {
            open.insert("tool_calls".to_owned(), json!([call]));
        }
    }
}

/// Puts what the assistant said or thought into its message, or begins another
/// where that one has it already.
fn say(messages: &mut Vec<Value>, key: &str, text: Value) {
    let open = messages.last_mut().and_then(assistant);
    match open.filter(|message| message.get(key).is_none_or(Value::is_null)) {
        Some(message) => {
            message.insert(key.to_owned(), text);
        }
        None => messages.push(json!({"role": "assistant", key: text})),
    }
}

fn assistant(message: &mut Value) -> Option<&mut Map<String, Value>> {
    let message = message.as_object_mut()?;
    (message.get("role")?.as_str()? == "assistant").then_some(message)
}

/// The first of the texts, of the summary where there are none.
fn reasoning(item: &mut Map<String, Value>) -> Value {
    first_text(item, "content")
        .or_else(|| first_text(item, "summary"))
        .unwrap_or_else(|| Value::from(""))
}

/// The text of an assistant's message: the first part of several.
fn assistant_text(item: &mut Map<String, Value>) -> Option<Value> {
    if item.get("role")?.as_str()? != "assistant" {
        return None;
    }
    match item.get("content")? {
        Value::String(_) => Some(taken(item, "content")),
        _ => first_text(item, "content"),
    }
}

fn first_text(item: &mut Map<String, Value>, key: &str) -> Option<Value> {
    let first = item.get_mut(key)?.as_array_mut()?.first_mut()?;
    let text = first.get_mut("text")?;
    (!text.is_null()).then(|| text.take())
}

fn taken(item: &mut Map<String, Value>, key: &str) -> Value {
    item.get_mut(key).map_or(Value::Null, Value::take)
}
