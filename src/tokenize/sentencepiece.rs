//! SentencePiece models of Mistral's: byte-pair encoding without a word split.
//!
//! Decides how such a model is put as the `tokenizer.json` that the engines read.
//! Never encodes. Invariant: a model with a normalizer of its own, or of another
//! kind than byte-pair encoding, is refused.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::{LoadError, disk};

/// What stands for a blank, and in front of every text.
pub(super) const BLANK: char = '▁';

/// The kinds of pieces that matter: all others are control tokens or bytes.
const NORMAL: u64 = 1;
const USER_DEFINED: u64 = 4;

/// One entry of the vocabulary.
struct Piece {
    text: String,
    score: f32,
    kind: u64,
}

/// Reads a model as a parsed `tokenizer.json`. Texts must be prepared for it as
/// [`prepared`] does. Blocking.
///
/// # Errors
/// It cannot be read, or is no model of this kind.
pub(super) fn read(path: &Path) -> Result<Value, LoadError> {
    let bytes = disk::bytes(path).map_err(|source| LoadError::Read {
        path: path.to_owned(),
        source,
    })?;
    pieces(&bytes)
        .map(|pieces| tokenizer_json(&pieces))
        .ok_or_else(|| LoadError::Unsupported {
            path: path.to_owned(),
        })
}

/// A text as the model takes it.
pub(super) fn prepared(text: &str) -> String {
    let mut prepared = String::with_capacity(text.len() + BLANK.len_utf8());
    if !text.is_empty() {
        prepared.push(BLANK);
    }
    prepared.extend(text.chars().map(|c| if c == ' ' { BLANK } else { c }));
    prepared
}

/// The vocabulary; `None` for a model that is none of this kind.
fn pieces(model: &[u8]) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    let (mut is_bpe, mut is_plain) = (false, false);
    for field in Fields(model) {
        match field? {
            (1, Wire::Bytes(piece)) => pieces.push(self::piece(piece)?),
            (2, Wire::Bytes(trainer)) => is_bpe = number(trainer, 3)? == Some(2),
            (3, Wire::Bytes(normalizer)) => {
                let rules = Fields(normalizer).flatten().find(|(key, _)| *key == 2);
                let has_rules = matches!(rules, Some((_, Wire::Bytes(rules))) if !rules.is_empty());
                let prefixes = number(normalizer, 3)?.unwrap_or(1) == 1;
                let squeezes = number(normalizer, 4)?.unwrap_or(1) == 1;
                is_plain = prefixes && !squeezes && !has_rules;
            }
            _ => {}
        }
    }
    (is_bpe && is_plain).then_some(pieces)
}

fn piece(message: &[u8]) -> Option<Piece> {
    let mut piece = Piece {
        text: String::new(),
        score: 0.0,
        kind: NORMAL,
    };
    for field in Fields(message) {
        match field? {
            (1, Wire::Bytes(text)) => piece.text = String::from_utf8(text.to_vec()).ok()?,
            (2, Wire::Word(score)) => piece.score = f32::from_bits(score),
            (3, Wire::Number(kind)) => piece.kind = kind,
            _ => {}
        }
    }
    Some(piece)
}

/// The last number under a key.
fn number(message: &[u8], wanted: u64) -> Option<Option<u64>> {
    let mut found = None;
    for field in Fields(message) {
        if let (key, Wire::Number(number)) = field?
            && key == wanted
        {
            found = Some(number);
        }
    }
    Some(found)
}

/// A value on the wire of protocol buffers.
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Word(u32),
    Long,
}

/// The fields of a message; one that is no field is `None`, and the last.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Option<(u64, Wire<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<(u64, Wire<'a>)> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Wire::Number(self.varint()?),
            1 => self.take(8).map(|_| Wire::Long)?,
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Word(u32::from_le_bytes(self.take(4)?.try_into().ok()?)),
            _ => return None,
        };
        Some((tag >> 3, value))
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }
}

/// Merges in the order of the merged pieces' scores, which is that in which the
/// model's own encoder makes them.
fn tokenizer_json(pieces: &[Piece]) -> Value {
    let normal: HashMap<&str, usize> = pieces
        .iter()
        .enumerate()
        .filter(|(_, piece)| piece.kind == NORMAL)
        .map(|(id, piece)| (piece.text.as_str(), id))
        .collect();
    let mut ordered: Vec<&Piece> = pieces.iter().filter(|piece| piece.kind == NORMAL).collect();
    ordered.sort_by(|one, other| other.score.total_cmp(&one.score));
    let mut merges = Vec::new();
    for piece in ordered {
        let splits = piece.text.char_indices().skip(1);
        let mut halves: Vec<_> = splits
            .filter_map(|(at, _)| {
                let (left, right) = piece.text.split_at(at);
                Some((normal.get(left)?, normal.get(right)?, left, right))
            })
            .collect();
        halves.sort_unstable();
        merges.extend(
            halves
                .into_iter()
                .map(|(_, _, left, right)| json!([left, right])),
        );
    }
    let vocabulary: Map<String, Value> = pieces
        .iter()
        .enumerate()
        .map(|(id, piece)| (piece.text.clone(), json!(id)))
        .collect();
    let added: Vec<Value> = pieces
        .iter()
        .enumerate()
        .filter(|(_, piece)| piece.kind == USER_DEFINED)
        .map(|(id, piece)| {
            json!({
                "id": id, "content": piece.text, "special": false, "normalized": false,
                "single_word": false, "lstrip": false, "rstrip": false,
            })
        })
        .collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": "<unk>",
            "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": vocabulary, "merges": merges,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field of bytes, as the wire has it.
    fn field(key: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u8::try_from(bytes.len()).unwrap();
        [&[key << 3 | 2, length], bytes].concat()
    }

    fn model(normalizer: &[u8]) -> Vec<u8> {
        let piece = |text: &str, score: f32, kind: u8| {
            let score = score.to_le_bytes();
            let fields = [field(1, text.as_bytes()), [&[0x15][..], &score].concat()];
            field(1, &[&fields.concat()[..], &[0x18, kind]].concat())
        };
        let pieces = [
            piece("[A]", 0.0, 4),
            piece("ab", -2.0, 1),
            piece("aab", -1.0, 1),
            piece("a", -3.0, 1),
            piece("b", -4.0, 1),
        ];
        [pieces.concat(), field(2, &[0x18, 2]), field(3, normalizer)].concat()
    }

    #[test]
    fn merges_come_in_the_order_of_scores_and_own_symbols_are_added() {
        let pieces = pieces(&model(&[0x20, 0])).unwrap();
        let json = tokenizer_json(&pieces);
        assert_eq!(json["model"]["merges"], json!([["a", "ab"], ["a", "b"]]));
        assert_eq!(json["added_tokens"][0]["content"], "[A]");
        assert_eq!(json["model"]["vocab"]["b"], 4);
    }

    #[test]
    fn a_model_that_squeezes_blanks_or_maps_characters_is_refused() {
        assert!(pieces(&model(&[])).is_none());
        let mapped = [&[0x20, 0][..], &field(2, b"map")].concat();
        assert!(pieces(&model(&mapped)).is_none());
    }

    #[test]
    fn what_is_no_model_is_refused_wherever_it_ends() {
        let whole = model(&[0x20, 0]);
        for end in 0..whole.len() {
            assert!(pieces(&whole[..end]).is_none(), "{end}");
        }
        assert!(pieces(&[0xff; 64]).is_none());
        assert!(pieces(b"{\"version\": 1}").is_none());
    }

    #[test]
    fn a_text_begins_with_a_blank_unless_it_is_empty() {
        assert_eq!(prepared(""), "");
        assert_eq!(prepared(" a b"), "▁▁a▁b");
    }
}
