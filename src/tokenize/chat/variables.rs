//! The variables a template is rendered with.

use minijinja::Value as Shown;
use serde_json::{Map, Value};

use super::mapping::Mapping;
use super::tools::tools;
use super::values::shown;
use super::{Conversation, Odd};
use crate::tokenize::ChatInput;

/// Names a client may not set: the engine refuses such a request, or the name
/// would replace the messages themselves.
const RESERVED: [&str; 4] = ["chat_template", "tokenize", "messages", "conversation"];

/// What every template of a model sees: its special tokens and then the operator's
/// variables.
#[derive(Debug)]
pub(in crate::tokenize) struct Defaults(Vec<(String, Shown)>);

// === impl Defaults ===

impl Defaults {
    /// Converted once, for all chats.
    pub(in crate::tokenize) fn new(
        special_tokens: &Map<String, Value>,
        template_kwargs: &Map<String, Value>,
    ) -> Self {
        let of_model = special_tokens.iter().chain(template_kwargs);
        let converted = of_model.map(|(key, value)| (key.clone(), shown(value)));
        Self(converted.collect())
    }
}

/// Everything a template sees: [`arguments`] and the messages.
///
/// # Errors
/// [`Odd`] for variables the engine would refuse.
pub(in crate::tokenize) fn variables(
    defaults: &Defaults,
    input: &ChatInput<'_>,
    conversation: &Conversation,
) -> Result<Shown, Odd> {
    let mut variables = arguments(defaults, input)?;
    variables.push(("messages", conversation.shown()));
    let named = |(name, value)| (Shown::from(name), value);
    Ok(Mapping::shown(variables.into_iter().map(named).collect()))
}

/// What a renderer is given beside the messages; the last of a name wins. Later
/// sources win: special tokens, operator, `tools`, `chat_template_kwargs`, then the
/// request's own fields. Null and `"auto"` never replace anything.
///
/// # Errors
/// [`Odd`] for arguments the engine would refuse.
pub(in crate::tokenize) fn arguments<'a>(
    defaults: &'a Defaults,
    input: &ChatInput<'a>,
) -> Result<Vec<(&'a str, Shown)>, Odd> {
    // Beside the defaults: these two, tools, five fields of the request, messages.
    let mut variables: Vec<(&str, Shown)> = Vec::with_capacity(defaults.0.len() + 9);
    variables.extend(["tools", "documents"].map(|name| (name, Shown::from(()))));
    let of_model = defaults.0.iter();
    variables.extend(of_model.map(|(key, value)| (key.as_str(), value.clone())));
    if let Some(list) = input.tools.filter(|tools| !tools.is_null()) {
        variables.push(("tools", tools(list)?));
    }
    for (key, value) in input.chat_template_kwargs.into_iter().flatten() {
        if RESERVED.contains(&key.as_str()) {
            return Err(Odd);
        }
        if !is_unset(value) {
            variables.push((key, shown(value)));
        }
    }
    variables.extend(fields(input));
    Ok(variables)
}

/// The request's own fields, where they are set.
fn fields(input: &ChatInput<'_>) -> Vec<(&'static str, Shown)> {
    let generate = Shown::from(input.add_generation_prompt);
    let mut fields = vec![("add_generation_prompt", generate)];
    if let Some(documents) = input.documents.filter(|value| !is_unset(value)) {
        fields.push(("documents", shown(documents)));
    }
    if let Some(effort) = input.reasoning_effort {
        fields.push(("reasoning_effort", Shown::from(effort)));
        let set_by_client = input
            .chat_template_kwargs
            .is_some_and(|kwargs| kwargs.contains_key("enable_thinking"));
        if !set_by_client {
            fields.push(("enable_thinking", Shown::from(effort != "none")));
        }
    }
    fields
}

fn is_unset(value: &Value) -> bool {
    value.is_null() || value == "auto"
}
