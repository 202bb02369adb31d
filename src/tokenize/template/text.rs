//! Filters on text where minijinja and Jinja2 part.
//!
//! Decides what `indent` and `safe` do. Never escapes. Invariant: text whose
//! escaping only Jinja2 knows ends in an error, not in another text.

use std::fmt;
use std::sync::Arc;

use minijinja::value::{Kwargs, Object, ObjectRepr};
use minijinja::{Error, ErrorKind, Value};

/// Indents lines by blanks or by a text, the first only if asked, empty ones only if
/// `blank`. Unlike the library's, it keeps a line feed at the end.
pub(super) fn indent(
    text: &str,
    width: Option<Value>,
    first: Option<bool>,
    blank: Option<bool>,
    named: Kwargs,
) -> Result<String, Error> {
    let width = width.map_or_else(|| named.get::<Option<Value>>("width"), |w| Ok(Some(w)))?;
    let first = first.map_or_else(|| named.get("first"), |first| Ok(Some(first)))?;
    let blank = blank.map_or_else(|| named.get("blank"), |blank| Ok(Some(blank)))?;
    named.assert_all_used()?;
    let margin = margin(width.as_ref())?;
    let mut indented = String::with_capacity(text.len());
    if first == Some(true) {
        indented.push_str(&margin);
    }
    // Jinja2 adds a line feed first, so that one at the end starts a line.
    for (at, line) in lines(text).into_iter().enumerate() {
        if at > 0 {
            indented.push('\n');
            if !line.is_empty() || blank == Some(true) {
                indented.push_str(&margin);
            }
        }
        indented.push_str(line);
    }
    Ok(indented)
}

fn margin(width: Option<&Value>) -> Result<String, Error> {
    let Some(width) = width else {
        return Ok(" ".repeat(4));
    };
    if let Some(text) = width.as_str() {
        return Ok(text.to_owned());
    }
    let unfit = || Error::new(ErrorKind::InvalidOperation, "no width to indent by");
    let width = width.as_usize().filter(|width| *width <= 256);
    Ok(" ".repeat(width.ok_or_else(unfit)?))
}

/// The lines as Python splits them; a line end at the end starts an empty one.
fn lines(text: &str) -> Vec<&str> {
    let ends = |c: char| matches!(c, '\n'..='\r' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(end) = rest.find(ends) {
        lines.push(&rest[..end]);
        let first = rest[end..].chars().next().map_or(0, char::len_utf8);
        let pair = rest[end..].starts_with("\r\n");
        rest = &rest[end + if pair { 2 } else { first }..];
    }
    lines.push(rest);
    lines
}

/// Marks a text as safe. Jinja2 escapes whatever is then added to it, even where
/// nothing else is escaped; here adding to it fails, and so does the render.
pub(super) fn safe(text: &str) -> Value {
    Value::from_object(Safe(text.to_owned()))
}

#[derive(Debug)]
struct Safe(String);

// === impl Safe ===

impl Object for Safe {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use crate::tokenize::template::environment;

    fn render(source: &str) -> Option<String> {
        environment::new().render_str(source, ()).ok()
    }

    #[test]
    fn indented_text_keeps_its_last_line_feed() {
        for (source, text) in [
            ("{{ '{\\n'|indent(4, first=true) }}", "    {\n"),
            ("{{ 'a\\n\\nb'|indent }}", "a\n\n    b"),
            ("{{ 'a\\n\\nb'|indent(2, blank=true) }}", "a\n  \n  b"),
            ("{{ 'a\\r\\nb\\u2028c'|indent(width='> ') }}", "a\n> b\n> c"),
            ("{{ ''|indent(2, true) }}", "  "),
            ("{{ 'a\\n'|indent(1, false, true) }}", "a\n "),
        ] {
            assert_eq!(render(source).as_deref(), Some(text), "{source}");
        }
    }

    #[test]
    fn safe_text_is_shown_and_joined_but_never_added_to() {
        assert_eq!(render("{{ '<'|safe }}{{ 'a'|safe ~ '<' }}").unwrap(), "<a<");
        assert_eq!(render("{{ 'a'|safe + '<' }}"), None);
    }
}
