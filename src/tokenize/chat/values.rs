//! JSON values as template values.

use minijinja::Value as Shown;
use serde_json::{Number, Value};

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
