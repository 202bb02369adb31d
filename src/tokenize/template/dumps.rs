//! Python's `json.dumps`, whose spacing and spelling decide token counts.
//!
//! Decides how a template value is spelled as JSON. Never escapes for HTML,
//! unlike Jinja's own filter. Invariant: the same text as CPython for values
//! that JSON can hold.

use std::fmt::Write as _;

use minijinja::value::{ValueKind, ValueOrKwargs};
use minijinja::{Error, ErrorKind, Value};

/// The keyword arguments of `json.dumps` that templates use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    ascii: Ascii,
    /// What one level is indented by; `None` puts everything on one line.
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    keys: KeyOrder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ascii {
    Escaped,
    Kept,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyOrder {
    AsMade,
    Sorted,
}

const POSITIONS: [&str; 4] = ["ensure_ascii", "indent", "separators", "sort_keys"];

impl Layout {
    /// Reads the arguments of the filter, by position or by name.
    ///
    /// # Errors
    /// An argument that `json.dumps` would not take either.
    pub(super) fn from_arguments(arguments: &[ValueOrKwargs]) -> Result<Self, Error> {
        let (named, positional) = match arguments.split_last() {
            Some((last, rest)) if last.is_kwargs() => (Some(last), rest),
            _ => (None, arguments),
        };
        if positional.len() > POSITIONS.len() {
            return Err(Error::from(ErrorKind::TooManyArguments));
        }
        let argument = |name: &str| -> Result<Value, Error> {
            let position = POSITIONS.iter().position(|known| *known == name);
            let by_position =
                position.and_then(|index| positional.get(index).map(|value| Value::clone(value)));
            match (by_position, named) {
                (Some(value), _) => Ok(value),
                (None, Some(named)) => named.get_attr(name),
                (None, None) => Ok(Value::UNDEFINED),
            }
        };
        let indent = indent(&argument("indent")?)?;
        let (item_separator, key_separator) =
            separators(&argument("separators")?, indent.as_deref())?;
        Ok(Self {
            ascii: if argument("ensure_ascii")?.is_true() {
                Ascii::Escaped
            } else {
                Ascii::Kept
            },
            indent,
            item_separator,
            key_separator,
            keys: if argument("sort_keys")?.is_true() {
                KeyOrder::Sorted
            } else {
                KeyOrder::AsMade
            },
        })
    }
}

/// A number of spaces or a text; a negative number is zero.
fn indent(value: &Value) -> Result<Option<String>, Error> {
    if value.is_undefined() || value.is_none() {
        return Ok(None);
    }
    if let Some(text) = value.as_str() {
        return Ok(Some(text.to_owned()));
    }
    let spaces = match value.kind() {
        ValueKind::Bool => i64::from(value.is_true()),
        _ => value.as_i64().ok_or_else(|| not_taken("indent", value))?,
    };
    let spaces = usize::try_from(spaces.max(0)).map_err(|_| not_taken("indent", value))?;
    if spaces > 64 {
        return Err(not_taken("indent", value));
    }
    Ok(Some(" ".repeat(spaces)))
}

/// The pair given, or Python's defaults: no space before a line break.
fn separators(value: &Value, indent: Option<&str>) -> Result<(String, String), Error> {
    if value.is_undefined() || value.is_none() {
        let item = if indent.is_some() { "," } else { ", " };
        return Ok((item.to_owned(), ": ".to_owned()));
    }
    let item = value.get_item_by_index(0)?;
    let key = value.get_item_by_index(1)?;
    match (item.as_str(), key.as_str()) {
        (Some(item), Some(key)) => Ok((item.to_owned(), key.to_owned())),
        _ => Err(not_taken("separators", value)),
    }
}

fn not_taken(argument: &str, value: &Value) -> Error {
    Error::new(
        ErrorKind::InvalidOperation,
        format!("tojson does not take {argument}={value:?}"),
    )
}

/// Spells `value`.
///
/// # Errors
/// A value that is not JSON, such as undefined.
pub(super) fn dumps(value: &Value, layout: &Layout) -> Result<String, Error> {
    let mut writer = Writer {
        out: String::new(),
        layout,
        depth: 0,
    };
    writer.value(value)?;
    Ok(writer.out)
}

struct Writer<'a> {
    out: String,
    layout: &'a Layout,
    depth: usize,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(boolean(value)),
            ValueKind::Number => self.out.push_str(&number(value)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => self.list(value)?,
            ValueKind::Map => self.map(value)?,
            kind => {
                return Err(Error::new(
                    ErrorKind::InvalidOperation,
                    format!("{kind} is not JSON serializable"),
                ));
            }
        }
        Ok(())
    }

    fn list(&mut self, list: &Value) -> Result<(), Error> {
        self.out.push('[');
        self.depth += 1;
        let mut empty = true;
        for item in list.try_iter()? {
            self.begin_item(empty);
            empty = false;
            self.value(&item)?;
        }
        self.end(']', empty);
        Ok(())
    }

    fn map(&mut self, map: &Value) -> Result<(), Error> {
        let mut keys: Vec<Value> = map.try_iter()?.collect();
        if self.layout.keys == KeyOrder::Sorted {
            keys.sort();
        }
        self.out.push('{');
        self.depth += 1;
        let empty = keys.is_empty();
        for (index, key) in keys.iter().enumerate() {
            self.begin_item(index == 0);
            self.string(&key_text(key));
            self.out.push_str(&self.layout.key_separator);
            self.value(&map.get_item(key)?)?;
        }
        self.end('}', empty);
        Ok(())
    }

    fn begin_item(&mut self, first: bool) {
        if !first {
            self.out.push_str(&self.layout.item_separator);
        }
        self.new_line();
    }

    fn end(&mut self, bracket: char, empty: bool) {
        self.depth -= 1;
        if !empty {
            self.new_line();
        }
        self.out.push(bracket);
    }

    fn new_line(&mut self) {
        if let Some(indent) = &self.layout.indent {
            self.out.push('\n');
            for _ in 0..self.depth {
                self.out.push_str(indent);
            }
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' => self.escape(c),
                c if self.layout.ascii == Ascii::Escaped && !(' '..='~').contains(&c) => {
                    self.escape(c);
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    fn escape(&mut self, c: char) {
        for unit in c.encode_utf16(&mut [0; 2]) {
            write!(self.out, "\\u{unit:04x}").expect("writing to a string does not fail");
        }
    }
}

fn boolean(value: &Value) -> &'static str {
    if value.is_true() { "true" } else { "false" }
}

fn key_text(key: &Value) -> String {
    match key.kind() {
        ValueKind::None => "null".to_owned(),
        ValueKind::Bool => boolean(key).to_owned(),
        ValueKind::Number => number(key),
        _ => key.to_string(),
    }
}

fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float)
}

/// Python's shortest spelling of a float: an exponent below 1e-4 and from 1e16.
fn float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific
        .split_once('e')
        .expect("the e format has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is a number");
    if (-4..16).contains(&exponent) {
        return format!("{value:?}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use minijinja::Environment;

    fn spell(expression: &str) -> Result<String, Error> {
        let mut environment = Environment::new();
        environment.add_filter(
            "tojson",
            |value: Value, rest: minijinja::value::Rest<ValueOrKwargs>| {
                dumps(&value, &Layout::from_arguments(&rest)?)
            },
        );
        environment.render_str(&format!("{{{{ {expression} }}}}"), ())
    }

    #[test]
    fn spacing_and_spelling_are_those_of_python() {
        for (expression, expected) in [
            (
                "{'a': [1, 2.0, true, none]}|tojson",
                r#"{"a": [1, 2.0, true, null]}"#,
            ),
            ("'<é&\\n\\t\"'|tojson", "\"<é&\\n\\t\\\"\""),
            (
                "'é😀'|tojson(ensure_ascii=true)",
                "\"\\u00e9\\ud83d\\ude00\"",
            ),
            ("[]|tojson(indent=2)", "[]"),
            (
                "[1, {'b': 2}]|tojson(indent=1)",
                "[\n 1,\n {\n  \"b\": 2\n }\n]",
            ),
            ("[1, 2]|tojson(separators=(',', ':'))", "[1,2]"),
            (
                "{'b': 1, 'a': 2}|tojson(sort_keys=true)",
                r#"{"a": 2, "b": 1}"#,
            ),
            (
                "{1: 2, none: 3, false: 4}|tojson",
                r#"{"1": 2, "null": 3, "false": 4}"#,
            ),
            ("[1]|tojson(false, 0)", "[\n1\n]"),
        ] {
            assert_eq!(spell(expression).unwrap(), expected, "{expression}");
        }
    }

    #[test]
    fn floats_are_spelled_as_python_spells_them() {
        for (value, expected) in [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-2.5e-7, "-2.5e-07"),
            (-0.0, "-0.0"),
            (123_456_789.125, "123456789.125"),
        ] {
            assert_eq!(float(value), expected);
        }
    }

    #[test]
    fn what_is_not_json_is_an_error() {
        assert!(spell("nothing|tojson").is_err());
        assert!(spell("1|tojson(indent=[])").is_err());
        assert!(spell("1|tojson(indent=1000000000)").is_err());
    }
}
