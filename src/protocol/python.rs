//! JSON values as Python spells them: engines hand such text to the model.
//!
//! Decides spelling alone. Never fails. Invariant: the same text as CPython for
//! values whose whole numbers fit 64 bits.

use std::fmt::Write as _;

use serde_json::{Number, Value};

/// The text of `json.dumps(value)`: one line, blanks after commas and colons,
/// everything beyond ASCII escaped.
pub(super) fn dumps(value: &Value) -> String {
    let mut text = String::new();
    dump(value, &mut text);
    text
}

/// The text of `repr(value)`.
pub(super) fn repr(value: &Value) -> String {
    let mut text = String::new();
    show(value, &mut text);
    text
}

fn dump(value: &Value, text: &mut String) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(flag) => text.push_str(if *flag { "true" } else { "false" }),
        Value::Number(value) => text.push_str(&number(value)),
        Value::String(value) => dump_string(value, text),
        Value::Array(values) => {
            list(values, text, dump);
        }
        Value::Object(map) => {
            text.push('{');
            for (index, (key, value)) in map.iter().enumerate() {
                separate(index, text);
                dump_string(key, text);
                text.push_str(": ");
                dump(value, text);
            }
            text.push('}');
        }
    }
}

fn show(value: &Value, text: &mut String) {
    match value {
        Value::Null => text.push_str("None"),
        Value::Bool(flag) => text.push_str(if *flag { "True" } else { "False" }),
        Value::Number(value) => text.push_str(&number(value)),
        Value::String(value) => show_string(value, text),
        Value::Array(values) => list(values, text, show),
        Value::Object(map) => {
            text.push('{');
            for (index, (key, value)) in map.iter().enumerate() {
                separate(index, text);
                show_string(key, text);
                text.push_str(": ");
                show(value, text);
            }
            text.push('}');
        }
    }
}

fn list(values: &[Value], text: &mut String, each: fn(&Value, &mut String)) {
    text.push('[');
    for (index, value) in values.iter().enumerate() {
        separate(index, text);
        each(value, text);
    }
    text.push(']');
}

fn separate(index: usize, text: &mut String) {
    if index > 0 {
        text.push_str(", ");
    }
}

fn number(value: &Number) -> String {
    match value.as_f64().filter(|_| value.is_f64()) {
        Some(value) => float(value),
        None => value.to_string(),
    }
}

/// The shortest digits that read back the same; an exponent of two digits or
/// more below 1e-4 and from 1e16 on.
fn float(value: f64) -> String {
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific
        .split_once('e')
        .expect("a float in this format has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is a whole number");
    if (-4..16).contains(&exponent) {
        let plain = format!("{value}");
        let is_whole = !plain.contains('.');
        return if is_whole { plain + ".0" } else { plain };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

fn dump_string(value: &str, text: &mut String) {
    text.push('"');
    for c in value.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            ' '..='\u{7f}' => text.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    escape(text, format_args!("\\u{unit:04x}"));
                }
            }
        }
    }
    text.push('"');
}

fn show_string(value: &str, text: &mut String) {
    let quote = if value.contains('\'') && !value.contains('"') {
        '"'
    } else {
        '\''
    };
    text.push(quote);
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            c if c == quote => text.extend(['\\', c]),
            c if is_printable(c) => text.push(c),
            c if u32::from(c) < 0x100 => escape(text, format_args!("\\x{:02x}", u32::from(c))),
            c if u32::from(c) < 0x1_0000 => escape(text, format_args!("\\u{:04x}", u32::from(c))),
            c => escape(text, format_args!("\\U{:08x}", u32::from(c))),
        }
    }
    text.push(quote);
}

fn escape(text: &mut String, escaped: std::fmt::Arguments<'_>) {
    text.write_fmt(escaped)
        .expect("writing to a string cannot fail");
}

/// Whether `repr` leaves a character as it is: no control, format, private or
/// separating character but the blank.
fn is_printable(c: char) -> bool {
    !(c.is_control()
        || matches!(c,
            '\u{a0}' | '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
            | '\u{1680}' | '\u{180e}' | '\u{2000}'..='\u{200f}' | '\u{2028}'..='\u{202f}'
            | '\u{205f}'..='\u{206f}' | '\u{3000}' | '\u{e000}'..='\u{f8ff}' | '\u{feff}'
            | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' | '\u{f0000}'..))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn floats_are_spelled_as_in_python() {
        for (value, expected) in [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (1.5, "1.5"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (1.25e-7, "1.25e-07"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
        ] {
            assert_eq!(float(value), expected);
        }
    }

    #[test]
    fn json_is_escaped_beyond_ascii_and_spaced() {
        let value = json!({"é": [1, null, true, {}], "b": "\u{2028}\"\\\u{1}\u{7f}😀"});
        assert_eq!(
            dumps(&value),
            "{\"\\u00e9\": [1, null, true, {}], \"b\": \"\\u2028\\\"\\\\\\u0001\u{7f}\\ud83d\\ude00\"}"
        );
    }

    #[test]
    fn values_are_shown_as_in_python() {
        let value = json!([{"a": "it's", "b": "a \"b\" it's\n\\", "c": "é\u{a0}\u{1}\u{200b}"}, null, false, 2.0]);
        assert_eq!(
            repr(&value),
            r#"[{'a': "it's", 'b': 'a "b" it\'s\n\\', 'c': 'é\xa0\x01\u200b'}, None, False, 2.0]"#
        );
    }
}
