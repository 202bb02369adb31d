//! Tools of a Messages body as the functions that a template is shown.
//!
//! Decides which tools hold at the end of the conversation, since messages may
//! add and remove some. Never refuses: a change of a tool that is not there
//! changes nothing.

use serde_json::{Map, Value, json};

/// One tool by its name, and whether it was removed.
struct Held {
    name: String,
    tool: Map<String, Value>,
    removed: bool,
}

/// The functions that `tools` are after the changes in `messages`; `None`
/// where the body has neither.
pub(super) fn functions(tools: Option<Value>, messages: &[Value]) -> Option<Value> {
    let given = match tools {
        Some(Value::Array(tools)) => Some(tools),
        _ => None,
    };
    let changes: Vec<&Value> = messages.iter().flat_map(changes).collect();
    if changes.is_empty() {
        return given.map(|tools| tools.into_iter().filter_map(function).collect());
    }
    let mut held: Vec<Held> = Vec::new();
    for tool in given.into_iter().flatten() {
        if let Value::Object(tool) = tool {
            declare(&mut held, tool);
        }
    }
    changes
        .into_iter()
        .for_each(|change| apply(&mut held, change));
    let kept = held.into_iter().filter(|held| !held.removed);
    Some(
        kept.filter_map(|held| function(Value::Object(held.tool)))
            .collect(),
    )
}

/// The blocks of a message that add or remove a tool.
fn changes(message: &Value) -> impl Iterator<Item = &Value> {
    let blocks = message.get("content").and_then(Value::as_array);
    blocks.into_iter().flatten().filter(|block| {
        let kind = block.get("type").and_then(Value::as_str);
        matches!(kind, Some("tool_addition" | "tool_removal"))
    })
}

/// Adds a tool or replaces the one of its name where that one stands.
fn declare(held: &mut Vec<Held>, tool: Map<String, Value>) {
    let name = tool.get("name").and_then(Value::as_str).unwrap_or_default();
    let name = name.to_owned();
    match held.iter_mut().find(|held| held.name == name) {
        Some(known) => {
            known.tool = tool;
            known.removed = false;
        }
        None => held.push(Held {
            name,
            tool,
            removed: false,
        }),
    }
}

fn apply(held: &mut Vec<Held>, change: &Value) {
    let Some(tool) = change.get("tool") else {
        return;
    };
    if let Some(Value::Object(definition)) = tool.get("definition") {
        declare(held, definition.clone());
        return;
    }
    let name = tool.get("name").and_then(Value::as_str).unwrap_or_default();
    let Some(known) = held.iter_mut().find(|held| held.name == name) else {
        return;
    };
    known.removed = change
        .get("type")
        .is_some_and(|kind| kind == "tool_removal");
    if !known.removed {
        known.tool.remove("defer_loading");
    }
}

/// A tool as a function; its schema is that of an object unless it says otherwise.
fn function(tool: Value) -> Option<Value> {
    let Value::Object(mut tool) = tool else {
        return None;
    };
    let mut field = |name: &str| tool.get_mut(name).map_or(Value::Null, Value::take);
    let mut parameters = field("input_schema");
    if let Value::Object(schema) = &mut parameters {
        schema
            .entry("type")
            .or_insert_with(|| Value::from("object"));
    }
    Some(json!({"type": "function", "function": {
        "name": field("name"),
        "description": field("description"),
        "parameters": parameters,
        "strict": field("strict"),
        "defer_loading": field("defer_loading"),
    }}))
}
