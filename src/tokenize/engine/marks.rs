//! Added tokens spelled out in a text, which part it into independent stretches.
//!
//! Decides where they are, as the served stack finds them: the longest of those
//! that begin first, those matched before normalisation ahead of those matched
//! after it. Never tokenizes. Invariant: a stretch between two of them has the same
//! tokens wherever it stands; a vocabulary for which that is not so (added tokens
//! that swallow white space or ask for word ends) has no [`Marks`].

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value;

/// The added tokens of a vocabulary.
#[derive(Debug)]
pub(super) struct Marks {
    /// Matched on the text as it is.
    raw: Option<AhoCorasick>,
    /// Matched after normalisation, and so only on text that it leaves alone.
    normalized: Option<AhoCorasick>,
    normalizing: Normalizing,
}

/// What the normaliser can do to the added tokens that are matched after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Normalizing {
    /// Nothing.
    Never,
    /// Break one, by a combining mark after it, but make none.
    Breaks,
    /// Anything, beyond ASCII.
    Wide,
}

/// A stretch of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stretch<'a> {
    /// One added token.
    Mark(&'a str),
    /// Text that holds none.
    Plain(&'a str),
    /// Text of which only an engine can tell.
    Unsure(&'a str),
}

// === impl Marks ===

impl Marks {
    /// The added tokens of a `tokenizer.json`; `None` where they do not part it.
    pub(super) fn of_json(json: &Value) -> Option<Self> {
        let added = json["added_tokens"]
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        let is_set = |token: &Value, flag: &str| token[flag] == true;
        let merges = |token: &Value| {
            ["lstrip", "rstrip", "single_word"]
                .iter()
                .any(|flag| is_set(token, flag))
        };
        let normalizer = &json["normalizer"];
        let contents = |normalized: bool| {
            added
                .iter()
                .filter(move |token| is_set(token, "normalized") == normalized)
                .filter_map(|token| token["content"].as_str())
        };
        let normalizing = match () {
            () if normalizer.is_null() => Normalizing::Never,
            () if is_all(normalizer, &["NFC"]) && !contents(true).any(is_made_by_nfc) => {
                Normalizing::Breaks
            }
            () => Normalizing::Wide,
        };
        let keeps_ascii = is_all(normalizer, &["NFC", "NFD", "NFKC", "NFKD"]);
        let is_lost = normalizing == Normalizing::Wide && !keeps_ascii;
        if added.iter().any(merges) || is_lost && contents(true).next().is_some() {
            return None;
        }
        Some(Self {
            raw: automaton(contents(false))?,
            normalized: automaton(contents(true))?,
            normalizing,
        })
    }

    /// The added tokens of a vocabulary in tiktoken's form.
    pub(super) fn of_tokens(tokens: &[(String, u32)]) -> Option<Self> {
        Some(Self {
            raw: automaton(tokens.iter().map(|(content, _)| content.as_str()))?,
            normalized: None,
            normalizing: Normalizing::Never,
        })
    }

    /// Calls `each` for the stretches of `text` in order, until it answers `false`;
    /// whether it never did.
    pub(super) fn part<'a>(
        &self,
        text: &'a str,
        mut each: impl FnMut(Stretch<'a>) -> bool,
    ) -> bool {
        part_by(self.raw.as_ref(), text, &mut |stretch| match stretch {
            Stretch::Plain(plain) => self.part_normalized(plain, &mut each),
            other => each(other),
        })
    }

    fn part_normalized<'a>(
        &self,
        text: &'a str,
        each: &mut impl FnMut(Stretch<'a>) -> bool,
    ) -> bool {
        if let (Some(normalized), false) = (&self.normalized, text.is_ascii()) {
            match self.normalizing {
                Normalizing::Never => {}
                Normalizing::Breaks if !normalized.is_match(text) => {
                    return each(Stretch::Plain(text));
                }
                _ => return each(Stretch::Unsure(text)),
            }
        }
        part_by(self.normalized.as_ref(), text, each)
    }
}

/// Whether every step of a normaliser is one of `kinds`.
fn is_all(normalizer: &Value, kinds: &[&str]) -> bool {
    match normalizer["type"].as_str() {
        Some("Sequence") => {
            let steps = normalizer["normalizers"].as_array();
            steps.is_some_and(|steps| steps.iter().all(|step| is_all(step, kinds)))
        }
        Some(kind) => kinds.contains(&kind),
        None => false,
    }
}

/// Whether NFC can make a part of `content` out of something else: the Kelvin sign,
/// the Greek question mark and the oxia become ASCII.
fn is_made_by_nfc(content: &str) -> bool {
    !content.is_ascii() || content.contains(['K', ';', '`'])
}

/// An automaton of `contents`; the inner `None` if there are none.
#[expect(clippy::option_option, reason = "no automaton is not a failed one")]
fn automaton<'a>(contents: impl Iterator<Item = &'a str>) -> Option<Option<AhoCorasick>> {
    let contents: Vec<&str> = contents.filter(|content| !content.is_empty()).collect();
    if contents.is_empty() {
        return Some(None);
    }
    let built = AhoCorasick::builder()
        .match_kind(MatchKind::LeftmostLongest)
        .build(contents);
    built.ok().map(Some)
}

/// Whether `each` always answered `true`.
fn part_by<'a>(
    automaton: Option<&AhoCorasick>,
    text: &'a str,
    each: &mut impl FnMut(Stretch<'a>) -> bool,
) -> bool {
    let mut start = 0;
    let matches = automaton
        .into_iter()
        .flat_map(|automaton| automaton.find_iter(text));
    for found in matches {
        let plain = &text[start..found.start()];
        let mark = Stretch::Mark(&text[found.range()]);
        if !plain.is_empty() && !each(Stretch::Plain(plain)) || !each(mark) {
            return false;
        }
        start = found.end();
    }
    start == text.len() || each(Stretch::Plain(&text[start..]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn part<'a>(marks: &Marks, text: &'a str) -> Vec<Stretch<'a>> {
        let mut stretches = Vec::new();
        marks.part(text, |stretch| {
            stretches.push(stretch);
            true
        });
        stretches
    }

    fn token(content: &str, normalized: bool) -> Value {
        json!({"content": content, "normalized": normalized, "lstrip": false,
               "rstrip": false, "single_word": false, "special": true})
    }

    #[test]
    fn the_longest_of_those_that_begin_first_is_found() {
        let marks = Marks::of_tokens(&[("\n".into(), 1), ("\n\n".into(), 2)]).unwrap();
        let found = part(&marks, "a\n\n\nb");
        let (mark, plain) = (Stretch::Mark, Stretch::Plain);
        assert_eq!(found, [plain("a"), mark("\n\n"), mark("\n"), plain("b")]);
        assert_eq!(part(&marks, ""), []);
    }

    #[test]
    fn what_normalisation_could_change_is_left_to_an_engine() {
        let json = json!({"normalizer": {"type": "NFC"},
                          "added_tokens": [token("<a>", false), token("<b>", true)]});
        let marks = Marks::of_json(&json).unwrap();
        let found = part(&marks, "x<b>y<a>é<b>\u{338}");
        let (mark, plain) = (Stretch::Mark, Stretch::Plain);
        let unsure = Stretch::Unsure("é<b>\u{338}");
        let sure = [plain("x"), mark("<b>"), plain("y"), mark("<a>"), unsure];
        assert_eq!(found, sure);
        assert_eq!(part(&marks, "é<c>"), [plain("é<c>")]);
        let json = json!({"normalizer": {"type": "NFKC"}, "added_tokens": [token("<b>", true)]});
        let marks = Marks::of_json(&json).unwrap();
        assert_eq!(part(&marks, "é<c>"), [Stretch::Unsure("é<c>")]);
    }

    #[test]
    fn tokens_that_swallow_white_space_part_nothing() {
        let mut stripping = token("<a>", false);
        stripping["rstrip"] = json!(true);
        assert!(Marks::of_json(&json!({"added_tokens": [stripping]})).is_none());
    }

    #[test]
    fn parting_stops_when_told_to() {
        let marks = Marks::of_tokens(&[("|".into(), 1)]).unwrap();
        let mut calls = 0;
        let is_whole = marks.part("a|b|c", |_| {
            calls += 1;
            calls < 2
        });
        assert_eq!((calls, is_whole), (2, false));
    }
}
