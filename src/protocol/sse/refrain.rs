//! What the events of an answer have in common: all but the text of one token.
//!
//! Decides whether an event says what the one before it said, with another text, so
//! that it need not be looked into. Never guesses: all bytes around the text are the
//! same, and the text is the inside of one JSON string on one line, in which no key can
//! begin and end. Bounded in memory, linear in time.

use super::output::unit_bytes;

/// Longest event that is remembered, in bytes.
const MOST_BYTES: usize = 2048;

/// An event that brought output and nothing else, without its text.
#[derive(Debug, Default)]
pub(super) struct Refrain {
    /// Up to the quote before the text; empty where no event is known.
    before: Vec<u8>,
    /// From the quote behind it to the end of the event.
    after: Vec<u8>,
}

/// An event that was recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heard {
    /// Its length, in bytes.
    pub(super) length: usize,
    /// Bytes of its text, escapes undone; never 0.
    pub(super) output_bytes: usize,
}

// === impl Refrain ===

impl Refrain {
    /// Remembers `event`, which brought one text and nothing else: the string whose
    /// opening quote is `left` bytes before the end of `data`, its last line.
    pub(super) fn learn(&mut self, event: &[u8], data: &[u8], left: usize) {
        self.before.clear();
        let Some(lines) = event.strip_suffix(b"\n\n") else {
            return;
        };
        if event.len() > MOST_BYTES || !lines.ends_with(data) || left > data.len() {
            return;
        }
        let (before, string) = event.split_at(lines.len() - left);
        let Some((length, _)) = string.get(1..).and_then(text) else {
            return;
        };
        self.before.extend_from_slice(before);
        self.before.push(b'"');
        self.after.clear();
        self.after.extend_from_slice(&string[1 + length..]);
    }

    /// The event at the beginning of `rest`, where it is the one remembered with
    /// another text.
    pub(super) fn hear(&self, rest: &[u8]) -> Option<Heard> {
        if self.before.is_empty() {
            return None;
        }
        let string = rest.strip_prefix(&self.before[..])?;
        let (length, output_bytes) = text(string)?;
        string[length..].starts_with(&self.after).then(|| Heard {
            length: self.before.len() + length + self.after.len(),
            output_bytes,
        })
    }
}

/// The length of the text before the closing quote, and that of what it means, where
/// it is one line, whole, well formed and not empty.
fn text(string: &[u8]) -> Option<(usize, usize)> {
    let (mut at, mut bytes) = (0, 0);
    loop {
        match string.get(at)? {
            b'"' => return (at > 0).then_some((at, bytes)),
            b'\n' | b'\r' => return None,
            b'\\' => {
                let (taken, means) = escape(&string[at + 1..])?;
                at += 1 + taken;
                bytes += means;
            }
            _ => {
                at += 1;
                bytes += 1;
            }
        }
    }
}

/// The length of what follows a backslash, and that of what both mean.
fn escape(rest: &[u8]) -> Option<(usize, usize)> {
    match rest {
        [b'u', a, b, c, d, ..] => {
            let digits = [*a, *b, *c, *d];
            let are_digits = digits.iter().all(u8::is_ascii_hexdigit);
            are_digits.then(|| (5, unit_bytes(digits)))
        }
        [b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => Some((1, 1)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(text: &str) -> String {
        format!("data: {{\"choices\":[{{\"text\":\"{text}\",\"index\":0}}]}}\n\n")
    }

    fn learned(event: &str) -> Refrain {
        let mut refrain = Refrain::default();
        let data = event.trim_end().strip_prefix("data: ").unwrap();
        let left = data.len() - data.find(":\"").unwrap() - 1;
        refrain.learn(event.as_bytes(), data.as_bytes(), left);
        refrain
    }

    #[test]
    fn another_text_is_heard_and_nothing_else() {
        let refrain = learned(&event(" the"));
        for (text, output_bytes) in [
            (" cat", 4),
            ("\u{e9}\\u00e9\\n\\\"", 6),
            ("\\\"usage\\\":", 8),
            ("\\ud83d\\ude00", 4),
        ] {
            let event = event(text);
            let more = format!("{event}data: more");
            let heard = Some(Heard {
                length: event.len(),
                output_bytes,
            });
            assert_eq!(refrain.hear(more.as_bytes()), heard, "{text}");
            assert_eq!(refrain.hear(&event.as_bytes()[..event.len() - 1]), None);
        }
        for other in [
            event(""),
            event("a\nb"),
            event("a\\"),
            event("a\\u12"),
            event("a\\x"),
            event("a\",\"b\":\"c"),
            event("a").replace("index\":0", "index\":1"),
            event("a").replace("\n\n", "\r\n\r\n"),
            format!(" {}", event("a")),
        ] {
            assert_eq!(refrain.hear(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn what_is_too_long_or_no_line_of_its_own_is_not_remembered() {
        assert_eq!(Refrain::default().hear(b""), None);
        let long = event(&"x".repeat(MOST_BYTES));
        let crlf = event("x").replace('\n', "\r\n");
        for event in [long, crlf] {
            let mut refrain = learned(&self::event("x"));
            refrain.learn(event.as_bytes(), event.trim_end().as_bytes(), 5);
            assert_eq!(refrain.hear(self::event("y").as_bytes()), None);
        }
    }
}
