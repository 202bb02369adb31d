//! Keys of mappings that Python's methods hide from a template.
//!
//! Decides which names a template reads in a way where Jinja2 finds a method of
//! `dict` and minijinja the key: `schema.items` without a call. Never renders.

use serde_json::Value;

/// The methods of Python's `dict`.
const METHODS: [&str; 11] = [
    "clear",
    "copy",
    "fromkeys",
    "get",
    "items",
    "keys",
    "pop",
    "popitem",
    "setdefault",
    "update",
    "values",
];

/// The names of methods that `source` reads as attributes and does not call.
pub(super) fn read_as_keys(source: &str) -> Vec<&'static str> {
    let is_read = |name: &&str| {
        source.match_indices(*name).any(|(at, _)| {
            let is_attribute = source[..at].ends_with('.') && {
                let before = source[..at - 1].chars().next_back();
                before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | ']' | ')'))
            };
            let after = &source[at + name.len()..];
            let goes_on = after.starts_with(|c: char| c.is_alphanumeric() || c == '_');
            is_attribute && !goes_on && !after.trim_start().starts_with('(')
        })
    };
    METHODS.into_iter().filter(is_read).collect()
}

/// Whether a mapping in `value` has one of `names` as a key.
pub(super) fn has_key(value: &Value, names: &[&str]) -> bool {
    match value {
        Value::Object(map) => map
            .iter()
            .any(|(key, value)| names.contains(&key.as_str()) || has_key(value, names)),
        Value::Array(list) => list.iter().any(|value| has_key(value, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_attributes_without_a_call_are_read_as_keys() {
        let calls = "{{ a.items() }}{{ a|items }}{{ b.get ('x') }}{{ c['values'] }}{{ d.itemset }}";
        assert!(read_as_keys(calls).is_empty());
        let reads = "{{ f(a.items) }}{{ b[0].values.x }} e.g. keys";
        assert_eq!(read_as_keys(reads), ["items", "values"]);
    }

    #[test]
    fn a_key_is_found_at_any_depth() {
        let schema = json!([{"a": {"type": "array", "items": {}}}]);
        assert!(has_key(&schema, &["items"]));
        assert!(!has_key(&schema, &["values"]));
        assert!(!has_key(&json!("items"), &["items"]));
    }
}
