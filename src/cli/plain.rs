//! The only way from a command to a terminal: text without what a terminal obeys.
//!
//! Decides which characters are shown as what they are called. Logs, tenants' names and
//! answers of servers are others' words: an escape sequence among them would recolour,
//! retitle or overwrite what an operator reads, and a direction mark would turn it round.
//! They come out as `\u001b`, which is what JSON calls them too, so that JSON stays the
//! JSON it was. Never touches a line's end or a tab on the way out; within one cell or
//! line of its own [`one_line`] does. Who reads keys draws for itself (`top`).

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io::{self, Write};

use serde_json::Value;

/// A writer of lines that a terminal shows and does not obey. What follows the last
/// line's end is written by `flush`.
pub(super) struct Plain<W: Write> {
    to: W,
    /// Bytes of the line at hand.
    line: Vec<u8>,
}

// === impl Plain ===

impl<W: Write> Plain<W> {
    pub(super) const fn new(to: W) -> Self {
        Self {
            to,
            line: Vec::new(),
        }
    }

    /// Writes what is ready to be seen: whole lines, so whole characters.
    fn pass_on(&mut self, bytes: usize) -> io::Result<()> {
        let text = String::from_utf8_lossy(&self.line[..bytes]);
        let written = self.to.write_all(escaped(&text, is_obeyed).as_bytes());
        self.line.drain(..bytes);
        written
    }
}

impl<W: Write> Write for Plain<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        if let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') {
            let rest = bytes.len() - end - 1;
            self.pass_on(self.line.len() - rest)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pass_on(self.line.len())?;
        self.to.flush()
    }
}

/// Talk: one line on stderr. Whoever closed it does not want to hear more.
pub(super) fn say(words: fmt::Arguments<'_>) {
    let mut stderr = Plain::new(io::stderr().lock());
    let said = writeln!(stderr, "{words}").and_then(|()| stderr.flush());
    drop(said);
}

/// `text` where it is one line or one cell: line ends and tabs are shown too.
pub(super) fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_obeyed(c) || matches!(c, '\n' | '\t'))
}

/// An answer whose texts are lines.
pub(super) fn of_lines(mut value: Value) -> Value {
    match &mut value {
        Value::String(text) => {
            if let Cow::Owned(plain) = one_line(text) {
                *text = plain;
            }
        }
        Value::Array(items) => {
            for item in items {
                *item = of_lines(item.take());
            }
        }
        Value::Object(members) => {
            for (_, member) in members.iter_mut() {
                *member = of_lines(member.take());
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    value
}

/// Whether a terminal would do something in place of showing it: controls of both sets,
/// marks of direction, separators of lines that are none.
fn is_obeyed(c: char) -> bool {
    let direction = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    let separates = matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}');
    direction || separates || (c.is_control() && !matches!(c, '\n' | '\t'))
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' if is_escaped(c) => plain.push_str("\\n"),
            '\t' if is_escaped(c) => plain.push_str("\\t"),
            c if is_escaped(c) => {
                write!(plain, "\\u{:04x}", u32::from(c)).expect("a string takes all");
            }
            c => plain.push(c),
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn passed(parts: &[&[u8]]) -> String {
        let mut out = Plain::new(Vec::new());
        for part in parts {
            out.write_all(part).unwrap();
        }
        out.flush().unwrap();
        String::from_utf8(out.to).unwrap()
    }

    #[test]
    fn what_a_terminal_obeys_is_shown_by_its_name_and_the_rest_as_it_is() {
        let hostile = "\u{1b}[2J\u{1b}]0;own\u{7} \u{9b}31m \r\u{8} \u{202e}txt\u{2069} grüße\t–\n";
        let shown =
            "\\u001b[2J\\u001b]0;own\\u0007 \\u009b31m \\u000d\\u0008 \\u202etxt\\u2069 grüße\t–\n";
        assert_eq!(passed(&[hostile.as_bytes()]), shown);
        // However the bytes come.
        let parts: Vec<&[u8]> = hostile.as_bytes().chunks(1).collect();
        assert_eq!(passed(&parts), shown);
        assert_eq!(passed(&[b"a\xffb"]), "a\u{fffd}b");
    }

    #[test]
    fn json_stays_the_json_it_was() {
        let value = json!({"\u{9b}k": "\u{1b}[31m\u{7f}\u{85}\u{202e}\n"});
        let text = passed(&[value.to_string().as_bytes()]);
        assert!(!text.contains(is_obeyed), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }

    #[test]
    fn a_cell_is_one_line() {
        assert_eq!(one_line("a\nADMIT\t\u{1b}"), "a\\nADMIT\\t\\u001b");
        let told = of_lines(json!({"a": ["x\ny", 1], "b": {"c": "\u{1b}"}}));
        assert_eq!(told, json!({"a": ["x\\ny", 1], "b": {"c": "\\u001b"}}));
    }
}
