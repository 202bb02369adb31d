//! Tool definitions as the namespace that a developer message shows.

use serde_json::{Map, Value};

use super::typescript;
use crate::tokenize::chat::Odd;

/// The section that lists the functions.
///
/// # Errors
/// [`Odd`] for definitions the engine would refuse.
pub(super) fn section(tools: &Value) -> Result<String, Odd> {
    let list = tools.as_array().filter(|list| !list.is_empty());
    let mut lines = vec![
        "## functions\n".to_owned(),
        "namespace functions {\n".to_owned(),
    ];
    for tool in list.ok_or(Odd)? {
        let kind = tool.get("type").map_or(Some("function"), Value::as_str);
        let function = tool.get("function").and_then(Value::as_object);
        let function = function.filter(|_| kind == Some("function")).ok_or(Odd)?;
        add_function(function, &mut lines)?;
    }
    lines.push("} // namespace functions".to_owned());
    Ok(format!("# Tools\n\n{}", lines.join("\n")))
}

fn add_function(function: &Map<String, Value>, lines: &mut Vec<String>) -> Result<(), Odd> {
    let name = function.get("name").and_then(Value::as_str).ok_or(Odd)?;
    let description = match function.get("description") {
        None | Some(Value::Null) => "",
        Some(Value::String(text)) => text,
        Some(_) => return Err(Odd),
    };
    lines.extend(description.lines().map(|line| format!("// {line}")));
    lines.push(match function.get("parameters") {
        None | Some(Value::Null) => format!("type {name} = () => any;\n"),
        Some(schema @ Value::Object(_)) => {
            format!(
                "type {name} = (_: {}) => any;\n",
                typescript::of(schema, "")
            )
        }
        Some(_) => return Err(Odd),
    });
    Ok(())
}
