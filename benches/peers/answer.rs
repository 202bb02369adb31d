//! Whether an answer is the one that was asked for.
//!
//! Decides by what no proxy may change: the status, how often the content's piece
//! stands in the body, and the end of a stream. Proxies do merge, split and rewrite
//! events.

use std::fmt;

use memchr::memmem::Finder;

use super::script::{END, PIECE};

/// Why an answer does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// No connection could be opened.
    Unreachable(String),
    /// The connection ended before the answer did.
    Cut,
    /// Not HTTP as it should be.
    Malformed,
    /// Another status than 200.
    Status(u16),
    /// Another number of pieces than was asked for.
    Pieces { seen: u32, asked: u32 },
    /// A stream without its end mark.
    NoEnd,
    /// No answer after a long time.
    Late,
}

/// What an answer must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    /// Pieces of content.
    pub(crate) pieces: u32,
    /// Whether it is a stream, with an end mark.
    pub(crate) streamed: bool,
}

/// Counts a text in a body that comes in parts.
#[derive(Debug)]
struct Needle {
    finder: Finder<'static>,
    /// The last bytes, in which an occurrence may have begun.
    tail: Vec<u8>,
    seen: u32,
}

/// Reads along with a body.
#[derive(Debug)]
pub(crate) struct Reader {
    pieces: Needle,
    end: Needle,
}

// === impl Needle ===

impl Needle {
    fn new(text: &'static str) -> Self {
        Self {
            finder: Finder::new(text),
            tail: Vec::with_capacity(2 * text.len()),
            seen: 0,
        }
    }

    /// How often the text ends in `part`.
    fn read(&mut self, part: &[u8]) -> u32 {
        let kept = self.finder.needle().len() - 1;
        let mut found = 0;
        if !self.tail.is_empty() {
            // Too short for an occurrence on either side alone.
            self.tail.extend(&part[..kept.min(part.len())]);
            found += count(&self.finder, &self.tail);
        }
        found += count(&self.finder, part);
        if part.len() >= kept {
            self.tail.clear();
            self.tail.extend(&part[part.len() - kept..]);
        } else {
            // Joined above, or the first bytes of all.
            if self.tail.is_empty() {
                self.tail.extend(part);
            }
            let surplus = self.tail.len().saturating_sub(kept);
            self.tail.drain(..surplus);
        }
        self.seen += found;
        found
    }

    fn restart(&mut self) {
        self.tail.clear();
        self.seen = 0;
    }
}

fn count(finder: &Finder<'_>, text: &[u8]) -> u32 {
    finder.find_iter(text).fold(0, |count, _| count + 1)
}

// === impl Reader ===

impl Reader {
    /// Before any answer.
    pub(crate) fn new() -> Self {
        Self {
            pieces: Needle::new(PIECE),
            end: Needle::new(END),
        }
    }

    /// Makes ready for another answer.
    pub(crate) fn restart(&mut self) {
        self.pieces.restart();
        self.end.restart();
    }

    /// Reads the next part of a body; how many pieces it brought.
    pub(crate) fn read(&mut self, part: &[u8]) -> u32 {
        self.end.read(part);
        self.pieces.read(part)
    }

    /// Judges the whole.
    pub(crate) fn judge(&self, expected: Expected) -> Result<(), Flaw> {
        if expected.streamed && self.end.seen != 1 {
            return Err(Flaw::NoEnd);
        }
        let (seen, asked) = (self.pieces.seen, expected.pieces);
        if seen == asked {
            Ok(())
        } else {
            Err(Flaw::Pieces { seen, asked })
        }
    }
}

// === impl Flaw ===

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "not reached: {why}"),
            Self::Cut => f.write_str("the connection ended within the answer"),
            Self::Malformed => f.write_str("not HTTP/1.1"),
            Self::Status(status) => write!(f, "status {status}"),
            Self::Pieces { seen, asked } => write!(f, "{seen} pieces of content, not {asked}"),
            Self::NoEnd => f.write_str("a stream without [DONE]"),
            Self::Late => f.write_str("no answer"),
        }
    }
}
