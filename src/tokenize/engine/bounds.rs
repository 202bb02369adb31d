//! What can be said of a text's tokens without tokenizing it.
//!
//! Decides the most and the fewest tokens a text can have. Never looks at merges.
//! Invariant: `least ≤ tokens ≤ most` for every text, where the vocabulary's
//! normaliser is one that is known here; else the least is nothing.

use serde_json::Value;

use super::Ranks;

/// Sizes of a vocabulary that bound the tokens of any text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Tokens that a byte beyond ASCII, and one of ASCII, can become at most.
    wide: u64,
    narrow: u64,
    /// Tokens that are added to any text.
    extra: u64,
    /// Bytes of text that one token can stand for at most; `None` if unknown.
    longest: Option<u64>,
    /// The same, of bytes beyond ASCII.
    longest_wide: Option<u64>,
    /// Whether a word and the space after it are never one token.
    words_apart: bool,
}

/// What a normaliser does to the length of a text at most.
#[derive(Clone, Copy)]
struct Normalizing {
    /// Bytes that a byte beyond ASCII becomes at most.
    grows: u64,
    /// Bytes beyond ASCII that become one byte at most.
    shrinks: u64,
}

// === impl Bounds ===

impl Bounds {
    /// The bounds of a `tokenizer.json`; `words_apart` is whether its pattern is
    /// known to part a word from a space after it.
    pub(super) fn of_json(json: &Value, words_apart: bool) -> Self {
        let normalizing = normalizing(&json["normalizer"]);
        let is_byte_level = has_byte_level(&json["pre_tokenizer"]);
        let vocabulary = json["model"]["vocab"].as_object();
        let spelled = vocabulary.into_iter().flatten().map(|(token, _)| token);
        let added = json["added_tokens"].as_array().into_iter().flatten();
        let added = added.filter_map(|token| token["content"].as_str());
        let sizes = match is_byte_level {
            true => Sizes::of(spelled.map(|token| byte_level_sizes(token))),
            false => Sizes::of(spelled.map(text_sizes)),
        };
        let sizes = sizes.and(Sizes::of(added.clone().map(text_sizes)));
        let is_metaspace = vocabulary.is_some_and(|tokens| tokens.contains_key("\u{2581}"));
        // Without a token of its own, the sign that replaces a space is three bytes.
        let space = if is_byte_level || is_metaspace { 1 } else { 3 };
        let prefix = u64::from(prefixes(&json["pre_tokenizer"]));
        let known = normalizing.filter(|_| is_byte_level && vocabulary.is_some());
        let swallow = swallows(json);
        Self {
            wide: normalizing.map_or(WORST, |normalizing| normalizing.grows) + prefix,
            narrow: space + prefix,
            extra: u64::from(!is_byte_level) * space,
            longest: known.filter(|_| !swallow).map(|n| sizes.bytes * n.shrinks),
            longest_wide: known.filter(|_| !swallow).map(|n| sizes.wide * n.shrinks),
            words_apart: words_apart && !swallow && !added.clone().any(holds_words),
        }
    }

    /// The same where a post-processor adds up to `frame` tokens.
    pub(super) const fn framed(mut self, frame: u64) -> Self {
        self.extra += frame;
        self
    }

    /// The bounds of a vocabulary in tiktoken's form.
    pub(super) fn of_ranks(ranks: &Ranks, words_apart: bool) -> Self {
        let ordinary = ranks.ranks.iter().map(|(bytes, _)| sizes_of(bytes));
        let special = || ranks.special_tokens.iter().map(|(token, _)| token.as_str());
        let sizes = Sizes::of(ordinary).and(Sizes::of(special().map(text_sizes)));
        Self {
            wide: 1,
            narrow: 1,
            extra: 0,
            longest: Some(sizes.bytes),
            longest_wide: Some(sizes.wide),
            words_apart: words_apart && !special().any(holds_words),
        }
    }

    /// Tokens that `text` has at most. O(bytes), at memory speed.
    pub(super) fn most(&self, text: &str) -> u64 {
        let (narrow, wide) = halves(text);
        let tokens = narrow
            .saturating_mul(self.narrow)
            .saturating_add(wide.saturating_mul(self.wide));
        tokens.saturating_add(self.extra)
    }

    /// Tokens that `text` has at least. O(bytes), at memory speed.
    pub(super) fn least(&self, text: &str) -> u64 {
        let (narrow, wide) = halves(text);
        let by = |bytes: u64, longest: Option<u64>| match longest {
            Some(longest) => bytes.div_ceil(longest.max(1)),
            None => 0,
        };
        let words = if self.words_apart { words(text) } else { 0 };
        by(narrow + wide, self.longest)
            .max(by(wide, self.longest_wide))
            .max(words)
    }
}

/// Growth of text by a normaliser that is not known: more than NFKC's, whose worst
/// character becomes eighteen, of 33 bytes.
const WORST: u64 = 11;

/// Bytes of the longest token of a kind.
#[derive(Clone, Copy, Default)]
struct Sizes {
    bytes: u64,
    wide: u64,
}

// === impl Sizes ===

impl Sizes {
    fn of(all: impl Iterator<Item = Self>) -> Self {
        all.fold(Self::default(), Self::and)
    }

    fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.max(other.bytes),
            wide: self.wide.max(other.wide),
        }
    }
}

fn sizes_of(bytes: &[u8]) -> Sizes {
    Sizes {
        bytes: length(bytes.len()),
        wide: length(bytes.iter().filter(|byte| **byte >= 128).count()),
    }
}

fn text_sizes(token: impl AsRef<str>) -> Sizes {
    sizes_of(token.as_ref().as_bytes())
}

/// A token of a byte-level vocabulary spells each byte as one character: the control
/// characters, the space and DEL as the 34 from 256 on, the rest of those moved
/// after them.
fn byte_level_sizes(token: &str) -> Sizes {
    let is_wide = |c: &char| matches!(c, '\u{a1}'..='\u{ff}' | '\u{122}'..);
    Sizes {
        bytes: length(token.chars().count()),
        wide: length(token.chars().filter(is_wide).count()),
    }
}

fn length(of: usize) -> u64 {
    u64::try_from(of).unwrap_or(u64::MAX)
}

/// Bytes of ASCII and bytes beyond it.
fn halves(text: &str) -> (u64, u64) {
    let wide = length(text.bytes().filter(|byte| *byte >= 128).count());
    (length(text.len()) - wide, wide)
}

/// Pieces that are sure to be apart: one more than the places where a space follows
/// a visible ASCII character.
fn words(text: &str) -> u64 {
    let bytes = text.as_bytes();
    let pairs = bytes.iter().zip(bytes.iter().skip(1));
    let ends = pairs.filter(|(before, after)| **after == b' ' && before.is_ascii_graphic());
    length(ends.count()) + u64::from(!text.is_empty())
}

fn holds_words(token: &str) -> bool {
    words(token) > 1
}

/// Whether an added token may stand for more bytes than it has.
fn swallows(json: &Value) -> bool {
    let added = json["added_tokens"].as_array().into_iter().flatten();
    let mut added = added.filter(|token| token["lstrip"] == true || token["rstrip"] == true);
    added.next().is_some()
}

fn has_byte_level(steps: &Value) -> bool {
    let inner = steps["pretokenizers"].as_array();
    steps["type"] == "ByteLevel" || inner.is_some_and(|steps| steps.iter().any(has_byte_level))
}

/// Whether a space is put before every piece.
fn prefixes(steps: &Value) -> bool {
    let inner = steps["pretokenizers"].as_array();
    steps["add_prefix_space"] == true || inner.is_some_and(|steps| steps.iter().any(prefixes))
}

/// `None` for a normaliser that may do anything.
fn normalizing(normalizer: &Value) -> Option<Normalizing> {
    let kind = match normalizer["type"].as_str() {
        None if normalizer.is_null() => "none",
        None => return None,
        Some(kind) => kind,
    };
    // Worst growth: U+1D160 in NFC, U+0390 in NFD, U+FDFA in NFKC and NFKD; worst
    // shrinking: U+212A and jamo, in NFKC mathematical letters.
    let (grows, shrinks) = match kind {
        "none" | "Prepend" => (1, 1),
        "Replace" if normalizer["pattern"]["String"] == " " => (1, 1),
        "NFC" | "NFD" => (3, 3),
        "NFKC" | "NFKD" => (WORST, 4),
        "Sequence" => {
            let steps = normalizer["normalizers"].as_array()?;
            return steps
                .iter()
                .map(normalizing)
                .try_fold(Normalizing::NONE, |all, step| Some(all.then(step?)));
        }
        _ => return None,
    };
    Some(Normalizing { grows, shrinks })
}

// === impl Normalizing ===

impl Normalizing {
    const NONE: Self = Self {
        grows: 1,
        shrinks: 1,
    };

    fn then(self, next: Self) -> Self {
        Self {
            grows: self.grows * next.grows,
            shrinks: self.shrinks * next.shrinks,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_are_counted_where_a_space_ends_them() {
        assert_eq!(words(""), 0);
        assert_eq!(words("one"), 1);
        assert_eq!(words("one two  three. "), 4);
        assert_eq!(words("漢 字"), 1);
    }

    #[test]
    fn a_vocabulary_bounds_any_text() {
        let json = json!({
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "ByteLevel"},
            "added_tokens": [{"content": "<|end|>"}],
            "model": {"vocab": {"abcdefgh": 0, "Ã©Ã©": 1, "a": 2}},
        });
        let bounds = Bounds::of_json(&json, true).framed(1);
        assert_eq!(bounds.most("abc"), 4);
        assert_eq!(bounds.most("é"), 7);
        assert_eq!(bounds.least(&"x".repeat(240)), 10);
        assert_eq!(bounds.least("a b c d"), 4);
        assert_eq!(bounds.least(&"é".repeat(60)), 10);
    }

    #[test]
    fn of_a_normaliser_that_may_do_anything_nothing_is_sure() {
        let json = json!({"normalizer": {"type": "Precompiled"}, "model": {"vocab": {"a": 0}}});
        let bounds = Bounds::of_json(&json, false);
        assert_eq!(bounds.least("hello world"), 0);
        assert!(bounds.most("é") >= 22);
    }
}
