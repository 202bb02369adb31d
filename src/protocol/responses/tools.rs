//! Tools of a Responses body as the functions that a template is shown.
//!
//! Decides which tools reach the prompt: functions, those of a namespace under
//! both names, and custom tools as a function of one text. The engine runs the
//! others itself and shows no model their definition.

use serde_json::{Map, Value, json};

/// The functions among `tools`; `None` where there are no tools at all.
pub(super) fn functions(tools: Value) -> Option<Value> {
    let Value::Array(tools) = tools else {
        return None;
    };
    if tools.is_empty() {
        return None;
    }
    let mut shown = Vec::with_capacity(tools.len());
    for tool in tools {
        let Value::Object(tool) = tool else { continue };
        match tool.get("type").and_then(Value::as_str) {
            Some("function") => shown.push(function(tool)),
            Some("custom") => shown.push(custom(&tool)),
            Some("namespace") => shown.extend(namespaced(tool)),
            _ => {}
        }
    }
    Some(Value::Array(shown))
}

/// The name under which a function of a namespace is shown.
pub(super) fn flat(namespace: &str, name: &str) -> String {
    format!("{namespace}__{name}")
}

fn function(mut tool: Map<String, Value>) -> Value {
    tool.remove("type");
    json!({"type": "function", "function": tool})
}

fn custom(tool: &Map<String, Value>) -> Value {
    json!({"type": "function", "function": {
        "name": tool.get("name"),
        "description": tool.get("description"),
        "parameters": {
            "type": "object",
            "properties": {
                "input": {
                    "type": "string",
                    "description": "The freeform text payload for this tool.",
                },
            },
            "required": ["input"],
            "additionalProperties": false,
        },
    }})
}

fn namespaced(mut tool: Map<String, Value>) -> Vec<Value> {
    let inner = match tool.remove("tools") {
        Some(Value::Array(inner)) => inner,
        _ => Vec::new(),
    };
    let namespace = tool.get("name").and_then(Value::as_str).unwrap_or_default();
    let renamed = inner.into_iter().filter_map(|inner| {
        let Value::Object(mut inner) = inner else {
            return None;
        };
        if inner.get("type")?.as_str()? != "function" {
            return None;
        }
        let name = flat(namespace, inner.get("name")?.as_str()?);
        inner.insert("name".to_owned(), Value::from(name));
        Some(function(inner))
    });
    renamed.collect()
}
