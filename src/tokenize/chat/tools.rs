//! Tool definitions as vLLM hands them to a template.
//!
//! vLLM reads tools into a model of its own and dumps it again, so keys come in
//! that model's order, an absent description is null, and unknown keys of the
//! definition are gone; the parameters' schema stays as it was sent.

use minijinja::Value as Shown;
use serde_json::{Map, Value};

use super::Odd;
use super::values::shown;

/// Converts the `tools` array.
///
/// # Errors
/// [`Odd`] for definitions the engine would refuse.
pub(super) fn tools(tools: &Value) -> Result<Shown, Odd> {
    let list = tools.as_array().ok_or(Odd)?;
    let converted: Result<Vec<_>, _> = list.iter().map(tool).collect();
    Ok(converted?.into())
}

fn tool(tool: &Value) -> Result<Shown, Odd> {
    let function = tool.get("function").and_then(Value::as_object).ok_or(Odd)?;
    let kind = tool.get("type").map_or(Some("function"), Value::as_str);
    if kind != Some("function") || !function.get("name").is_some_and(Value::is_string) {
        return Err(Odd);
    }
    let deferred = tool.get("defer_loading").filter(|value| !value.is_null());
    let mut pairs = vec![
        ("type", Shown::from("function")),
        ("function", definition(function, deferred)),
    ];
    if let Some(deferred) = deferred {
        pairs.push(("defer_loading", shown(deferred)));
    }
    Ok(Shown::from_pairs(pairs))
}

fn definition(function: &Map<String, Value>, deferred: Option<&Value>) -> Shown {
    let field = |name: &'static str| (name, function.get(name).map_or(Shown::from(()), shown));
    let mut pairs = vec![field("name"), field("description"), field("parameters")];
    let given = |name: &str| function.get(name).filter(|value| !value.is_null());
    if let Some(strict) = given("strict") {
        pairs.push(("strict", shown(strict)));
    }
    if let Some(deferred) = given("defer_loading").or(deferred) {
        pairs.push(("defer_loading", shown(deferred)));
    }
    Shown::from_pairs(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn dumped(input: &Value) -> String {
        tools(input).unwrap().to_string()
    }

    #[test]
    fn a_definition_comes_out_in_the_order_of_the_engines_model() {
        let input = json!([{
            "function": {"parameters": {"z": 1, "a": 2}, "x": 1, "name": "f"}, "extra": 1
        }]);
        assert_eq!(
            dumped(&input),
            "[{'type': 'function', 'function': {'name': 'f', 'description': None, \
             'parameters': {'z': 1, 'a': 2}}}]"
        );
    }

    #[test]
    fn strict_and_deferred_appear_only_when_given() {
        let input = json!([{
            "type": "function", "defer_loading": true,
            "function": {"name": "f", "description": "d", "strict": false}
        }]);
        assert_eq!(
            dumped(&input),
            "[{'type': 'function', 'function': {'name': 'f', 'description': 'd', \
             'parameters': None, 'strict': False, 'defer_loading': True}, 'defer_loading': True}]"
        );
    }

    #[test]
    fn what_the_engine_refuses_is_odd() {
        for input in [
            json!({}),
            json!([1]),
            json!([{"type": "x", "function": {"name": "f"}}]),
            json!([{"function": {}}]),
        ] {
            assert_eq!(tools(&input).err(), Some(Odd), "{input}");
        }
    }
}
