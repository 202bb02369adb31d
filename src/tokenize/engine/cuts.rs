//! Places where a text may be cut without changing its tokens.
//!
//! Decides which split pattern a vocabulary has, and where a piece of such a
//! pattern is sure to end whatever stands before or after. Never looks at ranks.
//! Invariant: for a known [`Family`], the tokens of a text are those of its chunks
//! one after the other.
//!
//! All known patterns are matched from left to right without looking back, and
//! look ahead only to ask whether white space goes on (`\s+(?!\S)`). So a place is
//! safe if the match that holds the character before it must end there, with or
//! without what follows:
//!
//! - between anything but white space and a space or tab: no alternative goes on
//!   from one to the other;
//! - between an ASCII letter and an ASCII character that is none, a digit and one
//!   that is none, or a CJK letter and either an ASCII character that is no letter
//!   or CJK punctuation, but never before an apostrophe, which may continue a word
//!   (`don't`);
//! - between a line feed and a letter or digit, as `\s*[\r\n]+` and `[\r\n]*` end at
//!   the last line break and no piece begins with one; not for GPT-2's pattern,
//!   where the end of the text would join line breaks that a letter parts.
//!
//! NFC changes nothing across such a place: what follows is no combining mark, or
//! what precedes is a line feed.

use fastokens::{
    CL100K_BASE_PATTERN, KIMI_PATTERN, O200K_BASE_PATTERN,
    tiktoken::{
        DEEPSEEK_SPLIT1_PATTERN, DEEPSEEK_SPLIT2_PATTERN, DEEPSEEK_SPLIT3_PATTERN, QWEN2_PATTERN,
        QWEN35_PATTERN, TEKKEN_PATTERN,
    },
};
use serde_json::Value;

/// The pattern of the oldest vocabularies.
pub(super) const GPT2_PATTERN: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// The split patterns for which the places above are proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// GPT-2's.
    Gpt2,
    /// Every later one: cl100k, o200k, Qwen, tekken, Kimi, DeepSeek.
    LineBreaking,
}

// === impl Family ===

impl Family {
    /// The family of a vocabulary in tiktoken's form.
    pub(super) fn of_pattern(pattern: &str) -> Option<Self> {
        const LINE_BREAKING: [&str; 6] = [
            CL100K_BASE_PATTERN,
            O200K_BASE_PATTERN,
            QWEN2_PATTERN,
            QWEN35_PATTERN,
            TEKKEN_PATTERN,
            KIMI_PATTERN,
        ];
        match pattern {
            GPT2_PATTERN => Some(Self::Gpt2),
            known if LINE_BREAKING.contains(&known) => Some(Self::LineBreaking),
            _ => None,
        }
    }

    /// The family of a `tokenizer.json`, where its normaliser is none or NFC.
    pub(super) fn of_json(json: &Value) -> Option<Self> {
        if !is_none_or_nfc(&json["normalizer"]) {
            return None;
        }
        let steps = &json["pre_tokenizer"];
        if steps["type"] == "ByteLevel" {
            let plain = steps["add_prefix_space"] == false && steps["use_regex"] != false;
            return plain.then_some(Self::Gpt2);
        }
        let steps = steps["pretokenizers"].as_array()?;
        let (last, splits) = steps.split_last()?;
        let is_bulk = last["type"] == "ByteLevel"
            && last["add_prefix_space"] == false
            && last["use_regex"] == false;
        let patterns: Option<Vec<&str>> = splits.iter().map(split_pattern).collect();
        match patterns?[..] {
            _ if !is_bulk => None,
            [pattern] => Self::of_pattern(pattern),
            [
                DEEPSEEK_SPLIT1_PATTERN,
                DEEPSEEK_SPLIT2_PATTERN,
                DEEPSEEK_SPLIT3_PATTERN,
            ] => Some(Self::LineBreaking),
            _ => None,
        }
    }

    /// The end of the chunk of `text` that begins at its start: at most `most`
    /// bytes if there is a safe place within them, else up to the first one after.
    ///
    /// The same for every text that begins alike as far as `most` bytes and a
    /// character more, so chunks of a growing text stay the same.
    pub(super) fn chunk_end(self, text: &str, most: usize) -> usize {
        if text.len() <= most {
            return text.len();
        }
        let is_cut = |at: &usize| self.is_cut(text, *at);
        let before = (1..=most).rev().find(is_cut);
        before
            .or_else(|| (most + 1..text.len()).find(is_cut))
            .unwrap_or(text.len())
    }

    /// Whether `text` may be cut at byte `at`, which is neither its start nor its
    /// end.
    fn is_cut(self, text: &str, at: usize) -> bool {
        let bytes = text.as_bytes();
        let (before, after) = (bytes[at - 1], bytes[at]);
        match (before, after) {
            (b'!'..=b'~', b' ' | b'\t') => true,
            (_, b'\'') => false,
            (b'a'..=b'z' | b'A'..=b'Z', 0..=127) => !after.is_ascii_alphabetic(),
            (b'0'..=b'9', 0..=127) => !after.is_ascii_digit(),
            (b'\n', _) => self == Self::LineBreaking && is_word(text, at),
            (128.., 0..=127) => is_cut_after_wide(text, at),
            (128.., 128..) => is_cjk_clause_end(text, at),
            _ => false,
        }
    }
}

/// Whether a letter or digit begins at `at`.
fn is_word(text: &str, at: usize) -> bool {
    let after = text.get(at..).and_then(|rest| rest.chars().next());
    after.is_some_and(char::is_alphanumeric)
}

/// After a character beyond ASCII, before one of ASCII that is no apostrophe.
fn is_cut_after_wide(text: &str, at: usize) -> bool {
    let after = text.as_bytes()[at];
    let before = text[..at].chars().next_back();
    match after {
        b' ' | b'\t' => before.is_some_and(|c| c.is_alphanumeric() || is_cjk_punctuation(c)),
        _ => !after.is_ascii_alphabetic() && before.is_some_and(is_cjk_letter),
    }
}

fn is_cjk_clause_end(text: &str, at: usize) -> bool {
    let Some((before, after)) = text.split_at_checked(at) else {
        return false;
    };
    before.chars().next_back().is_some_and(is_cjk_letter)
        && after.chars().next().is_some_and(is_cjk_punctuation)
}

const fn is_cjk_letter(c: char) -> bool {
    matches!(c, '\u{4e00}'..='\u{9fa5}' | 'ぁ'..='ゖ' | 'ァ'..='ヺ' | '가'..='힣')
}

const fn is_cjk_punctuation(c: char) -> bool {
    matches!(c, '、' | '。' | '，' | '！' | '？' | '；' | '：')
}

fn is_none_or_nfc(normalizer: &Value) -> bool {
    let steps = match normalizer["type"].as_str() {
        Some("Sequence") => normalizer["normalizers"].as_array(),
        Some(kind) => return kind == "NFC",
        None => return normalizer.is_null(),
    };
    steps.is_some_and(|steps| steps.iter().all(is_none_or_nfc))
}

/// The pattern of a step that yields its matches and what lies between them; with
/// the known patterns nothing does, and so removing it is the same.
fn split_pattern(step: &Value) -> Option<&str> {
    let isolates = step["behavior"] == "Isolated" && step["invert"] == false
        || step["behavior"] == "Removed" && step["invert"] == true;
    let is_split = step["type"] == "Split" && isolates;
    is_split.then(|| step["pattern"]["Regex"].as_str())?
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cuts(text: &str) -> Vec<usize> {
        let family = Family::LineBreaking;
        (1..text.len())
            .filter(|at| family.is_cut(text, *at))
            .collect()
    }

    #[test]
    fn words_numbers_and_lines_are_cut_apart() {
        assert_eq!(cuts("ab cd"), [2]);
        assert_eq!(cuts("ab  cd"), [2]);
        assert_eq!(cuts("don't"), [] as [usize; 0]);
        assert_eq!(cuts("ab12c"), [2, 4]);
        assert_eq!(cuts("a.\nb.\n\n c"), [1, 3, 4]);
        assert_eq!(cuts(".\n/x"), [] as [usize; 0]);
        assert_eq!(cuts("漢字。漢"), [6]);
        assert_eq!(cuts("é\u{301} ."), [] as [usize; 0]);
    }

    #[test]
    fn a_chunk_ends_at_the_last_safe_place_or_the_first_beyond() {
        let family = Family::LineBreaking;
        assert_eq!(family.chunk_end("ab cd ef", 100), 8);
        assert_eq!(family.chunk_end("ab cd ef", 6), 5);
        assert_eq!(family.chunk_end("abcdefgh ij kl", 4), 8);
        assert_eq!(family.chunk_end("abcdefgh", 4), 8);
    }

    #[test]
    fn only_known_pipelines_have_a_family() {
        let split = |pattern: &str| {
            json!({"type": "Split", "pattern": {"Regex": pattern},
                   "behavior": "Isolated", "invert": false})
        };
        let bulk = json!({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false});
        let model = |normalizer: Value, steps: Value| {
            json!({"normalizer": normalizer,
                   "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}})
        };
        let nfc = json!({"type": "NFC"});
        let qwen = model(nfc, json!([split(QWEN2_PATTERN), bulk]));
        assert_eq!(Family::of_json(&qwen), Some(Family::LineBreaking));
        let splits = [
            DEEPSEEK_SPLIT1_PATTERN,
            DEEPSEEK_SPLIT2_PATTERN,
            DEEPSEEK_SPLIT3_PATTERN,
        ];
        let [a, b, c] = splits.map(split);
        let deepseek = model(Value::Null, json!([a, b, c, bulk]));
        assert_eq!(Family::of_json(&deepseek), Some(Family::LineBreaking));
        let lower = json!({"type": "Lowercase"});
        let lowered = model(lower, json!([split(QWEN2_PATTERN), bulk]));
        assert_eq!(Family::of_json(&lowered), None);
        let unknown = model(Value::Null, json!([split(r"\w+"), bulk]));
        assert_eq!(Family::of_json(&unknown), None);
        let gemma = json!({"normalizer": {"type": "Replace"}, "pre_tokenizer": null});
        assert_eq!(Family::of_json(&gemma), None);
    }
}
