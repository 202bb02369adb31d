//! The functions, filters and tests that Hugging Face templates rely on.
//!
//! Decides how close minijinja comes to the Jinja2 environment of the reference
//! library. Never renders. Invariant: an environment carries no state between
//! renders.

use std::error::Error as StdError;

use jiff::ZonedDateTime;
use jiff::fmt::strtime;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, ValueKind, ValueOrKwargs};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;
use thiserror::Error as ThisError;

use super::{dumps, text};

/// Work units of one render, one per instruction and one per 64 bytes made:
/// far above the largest prompts (a 32 MB body needs about 2 million), and
/// tenths of a second of work, half a gigabyte of text in all.
const FUEL: u64 = 8_000_000;
/// Nesting of macros and blocks; the most minijinja allows without growing the
/// stack.
const RECURSION: usize = 500;

/// Marks an error that the template itself raised.
#[derive(Debug, ThisError)]
#[error("{0}")]
pub(super) struct Raised(String);

impl Raised {
    /// The message of `raise_exception`, if that is what `error` comes from.
    pub(super) fn within(error: &Error) -> Option<&str> {
        let mut source: Option<&(dyn StdError + 'static)> = Some(error);
        while let Some(cause) = source {
            if let Some(raised) = cause.downcast_ref::<Self>() {
                return Some(&raised.0);
            }
            source = cause.source();
        }
        None
    }
}

/// Makes an environment without templates.
pub(super) fn new() -> Environment<'static> {
    let mut environment = bare();
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment
}

/// Makes an environment without what the reference library adds to Jinja2.
pub(super) fn bare() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .expect("the default delimiters do not clash");
    environment.set_syntax(syntax);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(RECURSION);
    environment.set_debug(false);
    environment.set_unknown_method_callback(python_method);
    environment.add_filter("tojson", tojson);
    environment.add_filter("indent", text::indent);
    environment.add_filter("safe", text::safe);
    environment.add_filter("length", length);
    environment.add_filter("count", length);
    environment.add_test("iterable", is_iterable);
    environment.add_test("sequence", is_sequence);
    environment.add_function("dict", dict);
    environment
}

/// Rewrites `{% generation %}` to `{% if true %}` and its end likewise, keeping
/// the marks that trim white space: the tag only matters to training.
pub(super) fn without_generation_tags(source: &str) -> String {
    let mut rewritten = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        // A tag's end is none of its beginning, as in `{%}`.
        let open = start + 2;
        let Some(end) = rest[open..].find("%}").map(|end| open + end) else {
            break;
        };
        let tag = &rest[open..end];
        let plain = match tag.trim_matches(|c: char| c == '-' || c == '+' || c.is_whitespace()) {
            "generation" => Some(tag.replace("generation", "if true")),
            "endgeneration" => Some(tag.replace("endgeneration", "endif")),
            _ => None,
        };
        rewritten.push_str(&rest[..open]);
        rewritten.push_str(plain.as_deref().unwrap_or(tag));
        rewritten.push_str("%}");
        rest = &rest[end + 2..];
    }
    rewritten.push_str(rest);
    rewritten
}

/// Methods of Python's types. Only `str.title` is ours: the library's starts words
/// at white space, Python's after every character without case.
fn python_method(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    match (method, value.as_str(), arguments) {
        ("title", Some(text), []) => Ok(Value::from(title(text))),
        _ => pycompat::unknown_method_callback(state, value, method, arguments),
    }
}

fn title(text: &str) -> String {
    let mut titled = String::with_capacity(text.len());
    let mut in_word = false;
    for c in text.chars() {
        if in_word {
            titled.extend(c.to_lowercase());
        } else {
            titled.extend(c.to_uppercase());
        }
        in_word = c.is_lowercase() || c.is_uppercase();
    }
    titled
}

fn raise_exception(message: Value) -> Result<Value, Error> {
    let raised = Raised(message.to_string());
    Err(Error::new(ErrorKind::InvalidOperation, "raised by the template").with_source(raised))
}

/// The server's local time, as the engine's own templates see it.
fn strftime_now(format: &str) -> Result<String, Error> {
    strtime::format(format, &ZonedDateTime::now())
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))
}

/// Python's `json.dumps` with the arguments the reference library exposes.
fn tojson(value: Value, arguments: Rest<ValueOrKwargs>) -> Result<String, Error> {
    let layout = dumps::Layout::from_arguments(&arguments)?;
    dumps::dumps(&value, &layout)
}

/// Python's `len`, and zero for none as for undefined.
fn length(value: Value) -> Result<usize, Error> {
    if value.is_none() || value.is_undefined() {
        return Ok(0);
    }
    let unsized_value = || {
        let kind = value.kind();
        Error::new(ErrorKind::InvalidOperation, format!("{kind} has no length"))
    };
    value.len().ok_or_else(unsized_value)
}

/// minijinja iterates over none; Python does not.
fn is_iterable(value: Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// Strings and mappings are sequences to Jinja2: they have a length and items.
fn is_sequence(value: Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Seq | ValueKind::String | ValueKind::Map | ValueKind::Undefined
    )
}

/// Python's `dict` of a mapping or of pairs, updated with keywords.
fn dict(base: Option<Value>, update: Kwargs) -> Result<Value, Error> {
    let mut pairs: Vec<(Value, Value)> = Vec::new();
    if let Some(base) = base {
        let is_map = base.kind() == ValueKind::Map;
        for entry in base.try_iter()? {
            let pair = if is_map {
                (entry.clone(), base.get_item(&entry)?)
            } else {
                (entry.get_item_by_index(0)?, entry.get_item_by_index(1)?)
            };
            pairs.push(pair);
        }
    }
    for key in update.args() {
        pairs.push((Value::from(key), update.get(key)?));
    }
    Ok(Value::from_pairs(pairs))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(source: &str) -> Result<String, Error> {
        new().render_str(source, ())
    }

    #[test]
    fn generation_tags_keep_their_trim_marks() {
        assert_eq!(
            without_generation_tags("a{%- generation -%} b {% endgeneration %}{% if x %}"),
            "a{%- if true -%} b {% endif %}{% if x %}"
        );
        assert_eq!(without_generation_tags("{% broken"), "{% broken");
        // The end of a tag is not sought within its beginning.
        assert_eq!(without_generation_tags("a{%}b"), "a{%}b");
        assert_eq!(without_generation_tags("a{%}b%}c"), "a{%}b%}c");
    }

    #[test]
    fn a_raised_message_is_found_through_macros_and_includes() {
        let source = "{% macro m() %}{{ raise_exception('no ' ~ 2) }}{% endmacro %}{{ m() }}";
        let error = render(source).unwrap_err();
        assert_eq!(Raised::within(&error), Some("no 2"));
        assert_eq!(Raised::within(&render("{{ 1 / 'a' }}").unwrap_err()), None);
    }

    #[test]
    fn an_endless_template_runs_out_of_fuel() {
        let source =
            "{% for a in range(9999) %}{% for b in range(9999) %}{{ a }}{% endfor %}{% endfor %}";
        assert_eq!(render(source).unwrap_err().kind(), ErrorKind::OutOfFuel);
    }

    #[test]
    fn the_year_is_four_digits() {
        assert_eq!(render("{{ strftime_now('%Y') }}").unwrap().len(), 4);
    }

    #[test]
    fn titles_start_words_after_anything_without_case() {
        assert_eq!(
            render("{{ 'they\\'re 4x4 a_b'.title() }}").unwrap(),
            "They'Re 4X4 A_B"
        );
    }

    #[test]
    fn dict_takes_pairs_mappings_and_keywords() {
        let source =
            "{{ dict([['a', 1]], b=2)|tojson }}{{ dict({'c': 3})|tojson }}{{ dict()|tojson }}";
        assert_eq!(render(source).unwrap(), "{\"a\": 1, \"b\": 2}{\"c\": 3}{}");
    }
}
