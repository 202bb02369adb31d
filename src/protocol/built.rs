//! JSON values with one reading.
//!
//! Builds a whole value, key order kept. An object that has a key twice is
//! refused wherever it stands: some readers take the first, some the last, and
//! two readers would see two requests.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

use super::request::RequestError;

/// Longest part of a key that is repeated in the message, in characters.
const EXCERPT_CHARS: usize = 40;

/// Any value, built.
///
/// # Errors
/// A number beyond the range of a double, or a key that an object has twice.
pub(super) fn value(text: &str) -> Result<Value, RequestError> {
    let twice = RefCell::new(None);
    let mut json = serde_json::Deserializer::from_str(text);
    let built = Build { twice: &twice }.deserialize(&mut json);
    let built = built.and_then(|value| json.end().map(|()| value));
    let value = built.map_err(|error| RequestError::Syntax(error.to_string()))?;
    match twice.into_inner() {
        Some(key) => Err(RequestError::DuplicateWithin(key)),
        None => Ok(value),
    }
}

/// Builds one value, and notes the first key that an object has twice.
#[derive(Clone, Copy)]
struct Build<'t> {
    twice: &'t RefCell<Option<String>>,
}

// === impl Build ===

impl<'de> DeserializeSeed<'de> for Build<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Build<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            let value = members.next_value_seed(self)?;
            match object.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert(value);
                }
                Entry::Occupied(entry) => {
                    let excerpt = || entry.key().chars().take(EXCERPT_CHARS).collect();
                    self.twice.borrow_mut().get_or_insert_with(excerpt);
                }
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_built_as_it_stands() {
        let text = r#" {"b":[1,-2,2.5,1e3,18446744073709551616,true,null,"\u00e9"],"a":{"":{}}} "#;
        let expected: Value = serde_json::from_str(text).unwrap();
        let built = value(text).unwrap();
        assert_eq!(built, expected);
        assert_eq!(built.to_string(), expected.to_string());
        assert!(matches!(value("1e999"), Err(RequestError::Syntax(_))));
        assert!(matches!(value("{} {}"), Err(RequestError::Syntax(_))));
    }

    #[test]
    fn a_key_that_an_object_has_twice_is_told_however_deep_it_stands() {
        let twice = |text: &str| match value(text) {
            Err(RequestError::DuplicateWithin(key)) => key,
            other => panic!("{other:?}"),
        };
        assert_eq!(twice(r#"{"a":1,"a":1}"#), "a");
        assert_eq!(
            twice(r#"[{"x":[{"url":"a","\u0075rl":"b"}]},{"z":1,"z":2}]"#),
            "url"
        );
        let long = "k".repeat(1000);
        assert_eq!(
            twice(&format!(r#"{{"{long}":1,"{long}":2}}"#)),
            "k".repeat(40)
        );
        assert!(value(r#"[{"a":1},{"a":{"a":2}}]"#).is_ok());
    }
}
