//! The markup in which DeepSeek's models call tools.

use minijinja::Value as Shown;

use crate::tokenize::chat::Odd;
use crate::tokenize::template::python_json;

/// The keys of a function's definition, in the order the engine's model keeps.
const DEFINITION: [&str; 4] = ["name", "description", "parameters", "strict"];

/// A call of a tool.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// What results name it by; empty if it has none.
    pub(super) id: String,
    name: String,
    /// Arguments in their order, each with its value as it is written.
    arguments: Vec<Argument>,
}

#[derive(Clone, Debug)]
struct Argument {
    name: String,
    value: String,
    is_text: bool,
}

/// Reads the calls of a turn.
///
/// # Errors
/// [`Odd`] for calls the engine would refuse.
pub(super) fn calls(calls: &Shown) -> Result<Vec<Call>, Odd> {
    calls
        .try_iter()
        .map_err(|_| Odd)?
        .map(|call| read(&call))
        .collect()
}

fn read(call: &Shown) -> Result<Call, Odd> {
    let function = at(call, "function")?;
    let given = at(&function, "arguments")?;
    let arguments: Result<Vec<_>, Odd> = given
        .try_iter()
        .map_err(|_| Odd)?
        .map(|name| argument(&given, &name))
        .collect();
    Ok(Call {
        id: at(call, "id")?.as_str().unwrap_or_default().to_owned(),
        name: at(&function, "name")?.as_str().ok_or(Odd)?.to_owned(),
        arguments: arguments?,
    })
}

fn argument(given: &Shown, name: &Shown) -> Result<Argument, Odd> {
    let value = given.get_item(name).map_err(|_| Odd)?;
    Ok(Argument {
        name: name.as_str().ok_or(Odd)?.to_owned(),
        is_text: value.as_str().is_some(),
        value: match value.as_str() {
            Some(text) => text.to_owned(),
            None => python_json(&value).ok_or(Odd)?,
        },
    })
}

fn at(value: &Shown, key: &str) -> Result<Shown, Odd> {
    value.get_attr(key).map_err(|_| Odd)
}

/// The calls of a message as a block of the given name.
pub(super) fn block(calls: &[Call], name: &str) -> String {
    let calls: Vec<String> = calls.iter().map(invoke).collect();
    format!("<｜DSML｜{name}>\n{}\n</｜DSML｜{name}>", calls.join("\n"))
}

fn invoke(call: &Call) -> String {
    let arguments = call.arguments.iter().map(|Argument { name, value, is_text }| {
        format!("<｜DSML｜parameter name=\"{name}\" string=\"{is_text}\">{value}</｜DSML｜parameter>")
    });
    let arguments: Vec<String> = arguments.collect();
    let (name, arguments) = (&call.name, arguments.join("\n"));
    format!("<｜DSML｜invoke name=\"{name}\">\n{arguments}\n</｜DSML｜invoke>")
}

/// The definitions of a request's tools, one JSON text each.
///
/// # Errors
/// [`Odd`] for what is no list of functions.
pub(super) fn request_tools(tools: &Shown) -> Result<Vec<String>, Odd> {
    if tools.is_none() {
        return Ok(Vec::new());
    }
    let functions = tools.try_iter().map_err(|_| Odd)?;
    functions
        .map(|tool| python_json(&at(&tool, "function")?).ok_or(Odd))
        .collect()
}

/// The same for the tools of a developer's message, which the engine has read
/// into a model that keeps only what was given.
///
/// # Errors
/// As [`request_tools`].
pub(super) fn turn_tools(tools: &Shown) -> Result<Vec<String>, Odd> {
    let functions = tools.try_iter().map_err(|_| Odd)?;
    functions
        .map(|tool| {
            let function = at(&tool, "function")?;
            let kept = DEFINITION.into_iter().filter_map(|key| {
                let value = function.get_attr(key).ok()?;
                (!value.is_undefined()).then_some((key, value))
            });
            python_json(&Shown::from_pairs(kept)).ok_or(Odd)
        })
        .collect()
}

/// A description of tools with their definitions in its place for them.
pub(super) fn described(description: &str, tools: &[String]) -> String {
    description.replacen("{tool_schemas}", &tools.join("\n"), 1)
}
