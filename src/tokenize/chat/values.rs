//! JSON values as template values.

use minijinja::Value as Shown;
use serde_json::{Number, Value};

use super::Odd;
use crate::tokenize::template::python_json;

/// Reads JSON as Python's `json.loads` does; `None` for what is none.
///
/// # Errors
/// [`Odd`] where Python reads more than is read here: numbers beyond 64 bits,
/// `NaN`, half surrogates, deep nesting.
pub(in crate::tokenize) fn python_loads(text: &str) -> Result<Option<Value>, Odd> {
    match serde_json::from_str(text) {
        Ok(value) if is_huge(&value) => Err(Odd),
        Ok(value) => Ok(Some(value)),
        Err(_) if ["NaN", "Infinity"].iter().any(|word| text.contains(word)) => Err(Odd),
        Err(error) => {
            let said = error.to_string();
            let beyond = ["out of range", "surrogate", "recursion"];
            match beyond.iter().any(|words| said.contains(words)) {
                true => Err(Odd),
                false => Ok(None),
            }
        }
    }
}

/// Whether a number may have been an integer beyond 64 bits.
fn is_huge(value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            number.is_f64() && number.as_f64().is_some_and(|number| number.abs() > 9e18)
        }
        Value::Array(items) => items.iter().any(is_huge),
        Value::Object(map) => map.values().any(is_huge),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

/// Spells JSON as Python's `json.dumps` does.
///
/// # Errors
/// [`Odd`] for a number that JSON has no spelling for.
pub(in crate::tokenize) fn spelled(value: &Value) -> Result<String, Odd> {
    python_json(&shown(value)).ok_or(Odd)
}

/// Converts, keeping the order of keys and the kind of numbers.
pub(super) fn shown(value: &Value) -> Shown {
    match value {
        Value::Null => Shown::from(()),
        Value::Bool(truth) => Shown::from(*truth),
        Value::Number(number) => shown_number(number),
        Value::String(text) => Shown::from(text.as_str()),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().into(),
        Value::Object(map) => {
            Shown::from_pairs(map.iter().map(|(key, value)| (key.as_str(), shown(value))))
        }
    }
}

fn shown_number(number: &Number) -> Shown {
    if let Some(integer) = number.as_i64() {
        Shown::from(integer)
    } else if let Some(integer) = number.as_u64() {
        Shown::from(integer)
    } else {
        Shown::from(number.as_f64().unwrap_or(f64::NAN))
    }
}
