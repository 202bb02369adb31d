//! One pass over the data of an event with choices, for all that is asked of it.
//!
//! Decides what of an event is usage, output, an end or an error. Keys are searched
//! for as bytes, all in one go, and nothing is parsed but usage: an answer has an event
//! for each token, and most say nothing else. Within a JSON string a quote is escaped,
//! so a quoted word followed by a colon is always a key, whatever text a model writes.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, Match, packed};

use super::super::usage::{Finish, Usage, usage_of_value};
use super::event::{after, colon, is_empty};
use super::output::text_bytes;

/// What a word is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Choices,
    Delta,
    /// Counts without a colon too: whatever names it is parsed.
    Error,
    FinishReason,
    /// A string that is output, within a delta or an item of one.
    Output,
    /// The same of a completion, which has no deltas.
    Text,
    Usage,
}

/// Every word that is looked for.
const WORDS: [(&str, Name); 11] = [
    ("\"choices\"", Name::Choices),
    ("\"delta\"", Name::Delta),
    ("\"error\"", Name::Error),
    ("\"finish_reason\"", Name::FinishReason),
    ("\"content\"", Name::Output),
    ("\"reasoning\"", Name::Output),
    ("\"reasoning_content\"", Name::Output),
    ("\"arguments\"", Name::Output),
    ("\"refusal\"", Name::Output),
    ("\"text\"", Name::Text),
    ("\"usage\"", Name::Usage),
];

/// A searcher for all words at once.
enum Search {
    /// Many bytes in one instruction. The general one takes each quote for a beginning
    /// and is three times slower, slower than word by word (an event of 240 bytes: 120,
    /// 400 and 280 ns).
    Packed(packed::Searcher),
    /// Where the processor has no such instruction.
    General(AhoCorasick),
}

static SEARCH: LazyLock<Search> = LazyLock::new(|| {
    let words = WORDS.map(|(word, _)| word);
    let packed = packed::Searcher::new(words);
    packed.map_or_else(
        || Search::General(AhoCorasick::new(words).expect("a few short words are a searcher")),
        Search::Packed,
    )
});

/// The list of choices of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Choices {
    /// There is none.
    #[default]
    Missing,
    /// There is one, with nothing in it.
    Empty,
    /// There is one, and what follows is counted to it.
    Some,
}

/// Which of what was found carries output.
#[derive(Clone, Copy, Debug, Default)]
enum Carrier {
    /// Nothing that could.
    #[default]
    Nothing,
    /// A text, where no delta is.
    Text,
    /// Deltas, none of which does.
    EmptyDelta,
    /// One of the deltas.
    Delta,
}

/// What an event says.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// The first usage that can be read.
    pub(super) usage: Option<Usage>,
    /// Whether there is an account, readable or not.
    pub(super) is_account: bool,
    /// The first list of choices.
    pub(super) choices: Choices,
    /// Bytes of output in it.
    pub(super) output_bytes: u64,
    /// The worst of its ends.
    pub(super) finish: Option<Finish>,
    /// Whether an error is named anywhere.
    pub(super) names_error: bool,
    carrier: Carrier,
    /// Texts in it, and how many bytes before the end of the data the last begins.
    texts: (u32, usize),
}

// === impl Findings ===

impl Findings {
    /// What `data` says. Linear.
    pub(super) fn of(data: &[u8]) -> Self {
        let mut found = Self::default();
        let note = |word: Match| {
            let (_, name) = WORDS[word.pattern().as_usize()];
            found.names_error |= name == Name::Error;
            if let Some(value) = colon(&data[word.end()..]) {
                found.note(name, value);
            }
        };
        match &*SEARCH {
            Search::Packed(search) => search.find_iter(data).for_each(note),
            Search::General(search) => search.find_iter(data).for_each(note),
        }
        found
    }

    /// Whether the choices carry text, reasoning, tool calls or anything else but
    /// a role.
    pub(super) const fn carries_output(&self) -> bool {
        matches!(self.carrier, Carrier::Text | Carrier::Delta)
    }

    /// Where the one text begins that is all the event brings, as the bytes from
    /// there to the end of the data; `None` where it brings more, or less.
    pub(super) fn only_text(&self) -> Option<usize> {
        let is_plain = self.choices == Choices::Some
            && self.carries_output()
            && self.usage.is_none()
            && self.finish.is_none()
            && !self.is_account
            && !self.names_error;
        match self.texts {
            (1, left) if is_plain && self.output_bytes > 0 => Some(left),
            _ => None,
        }
    }

    fn note(&mut self, name: Name, value: &[u8]) {
        match name {
            Name::Usage => {
                self.is_account |= value.starts_with(b"{");
                self.usage = self.usage.or_else(|| usage_of_value(value));
            }
            Name::Choices if self.choices == Choices::Missing => {
                self.choices = match is_empty(value, b'[', b']') {
                    true => Choices::Empty,
                    false => Choices::Some,
                };
            }
            _ if self.choices == Choices::Some => self.note_choice(name, value),
            _ => {}
        }
    }

    fn note_choice(&mut self, name: Name, value: &[u8]) {
        match name {
            Name::Delta if !matches!(self.carrier, Carrier::Delta) => {
                self.carrier = match has_output(value) {
                    true => Carrier::Delta,
                    false => Carrier::EmptyDelta,
                };
            }
            Name::FinishReason => {
                let end = value.strip_prefix(b"\"").map(reason);
                self.finish = end.map_or(self.finish, |end| {
                    Some(self.finish.map_or(end, |before| before.worse(end)))
                });
            }
            Name::Output => self.note_output(value),
            Name::Text => {
                let carries = value.starts_with(b"\"") && !value.starts_with(b"\"\"");
                if carries && matches!(self.carrier, Carrier::Nothing) {
                    self.carrier = Carrier::Text;
                }
                self.note_output(value);
            }
            _ => {}
        }
    }

    fn note_output(&mut self, value: &[u8]) {
        if let Some(text) = value.strip_prefix(b"\"") {
            self.texts = (self.texts.0.saturating_add(1), value.len());
            self.output_bytes = self.output_bytes.saturating_add(text_bytes(text));
        }
    }
}

/// What the string means whose opening quote was taken off.
fn reason(text: &[u8]) -> Finish {
    let end = memchr::memchr(b'"', text).unwrap_or(text.len());
    Finish::from_reason(&String::from_utf8_lossy(&text[..end]))
}

/// Whether a `delta` object carries text, reasoning, tool calls or anything else
/// but a role; it is walked member by member up to the first that does.
fn has_output(delta: &[u8]) -> bool {
    let Some(mut rest) = delta.strip_prefix(b"{") else {
        return false;
    };
    while let Some((key, value)) = member(rest) {
        rest = match value.first() {
            Some(b'"') if key == b"role" => after(&value[1..], b'"'),
            Some(b'"') if !value.starts_with(b"\"\"") => return true,
            Some(b'"') => &value[2..],
            Some(b'[') if !is_empty(value, b'[', b']') => return true,
            Some(b'[') => after(value, b']'),
            Some(b'{') if !is_empty(value, b'{', b'}') => return true,
            Some(b'{') => after(value, b'}'),
            _ => &value[memchr::memchr2(b',', b'}', value).unwrap_or(value.len())..],
        };
        match rest.trim_ascii_start().strip_prefix(b",") {
            Some(next) => rest = next,
            None => return false,
        }
    }
    false
}

/// The key at the start of `rest` and what follows its colon.
fn member(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let key = rest.trim_ascii_start().strip_prefix(b"\"")?;
    let end = memchr::memchr(b'"', key)?;
    Some((&key[..end], colon(&key[end + 1..])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_a_model_wrote_is_output_and_nothing_else_is() {
        let choices = br#"{"choices":[{"index":0,"delta":{"role":"assistant","content":"abc","reasoning":"de","x":"no"},"logprobs":{"content":[{"token":"abc"}]}},{"index":1,"delta":{"tool_calls":[{"id":"call-1","function":{"name":"f","arguments":"{\"a\":1}"}}]}},{"text":"fg"}]}"#;
        let found = Findings::of(choices);
        assert_eq!(found.output_bytes, 3 + 2 + 7 + 2);
        assert!(found.carries_output());
        let nothing =
            Findings::of(br#"{"content":"before","choices":[{"delta":{"content":null}}]}"#);
        assert_eq!(nothing.output_bytes, 0);
        assert!(!nothing.carries_output());
    }

    #[test]
    fn the_first_choices_the_first_usage_and_the_worst_end_count() {
        let found = Findings::of(
            br#"{"usage":null,"choices":[{"finish_reason":"abort"},{"finish_reason":"stop"}],"usage":{"prompt_tokens":1},"usage":{"prompt_tokens":2},"choices":[]}"#,
        );
        assert_eq!(found.choices, Choices::Some);
        assert_eq!(found.usage.map(|usage| usage.prompt_tokens), Some(1));
        assert_eq!(found.finish, Some(Finish::Abort));
        assert!(found.is_account && !found.names_error);
        let unread = Findings::of(br#"{"choices":[],"usage":{"prompt_tokens":"many"},"error"}"#);
        assert_eq!((unread.choices, unread.usage), (Choices::Empty, None));
        assert!(unread.is_account && unread.names_error);
    }
}
