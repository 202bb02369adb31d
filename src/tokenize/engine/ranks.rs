//! Vocabularies in tiktoken's form: byte strings with a rank each.
//!
//! Decides how such a vocabulary is put as the `tokenizer.json` that the tail
//! engine reads. Never encodes. Invariant: a pair is merged by what is written
//! here exactly when tiktoken would merge it, since a token's last merge is the
//! one that its own bytes take below its own rank.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

/// A byte-level vocabulary whose ranks are both token ids and merge order.
#[derive(Clone, Debug, Default)]
pub(in crate::tokenize) struct Ranks {
    /// Bytes and rank of every ordinary token.
    pub(in crate::tokenize) ranks: Vec<(Vec<u8>, u32)>,
    /// The pattern that splits text before it is merged.
    pub(in crate::tokenize) pattern: String,
    /// Control tokens, spelled out in text; their ids are not ranks.
    pub(in crate::tokenize) special_tokens: Vec<(String, u32)>,
}

// === impl Ranks ===

impl Ranks {
    /// The same vocabulary as a parsed `tokenizer.json`.
    ///
    /// # Errors
    /// A token that no two other tokens merge into; tiktoken can still produce
    /// it, a list of merges cannot.
    pub(in crate::tokenize) fn tokenizer_json(&self) -> Result<Value, String> {
        let by_bytes: HashMap<&[u8], u32> = self
            .ranks
            .iter()
            .map(|(bytes, rank)| (bytes.as_slice(), *rank))
            .collect();
        let spelled: HashMap<&[u8], String> = self
            .ranks
            .iter()
            .map(|(bytes, _)| (bytes.as_slice(), spell(bytes)))
            .collect();
        let mut ordered: Vec<&(Vec<u8>, u32)> = self.ranks.iter().collect();
        ordered.sort_unstable_by_key(|(_, rank)| *rank);
        let mut merges = Vec::with_capacity(ordered.len());
        for (bytes, rank) in ordered.into_iter().filter(|(bytes, _)| bytes.len() > 1) {
            let middle = last_merge(bytes, *rank, &by_bytes)
                .ok_or_else(|| format!("rank {rank} is no merge of two others"))?;
            let (left, right) = bytes.split_at(middle);
            merges.push(json!([spelled[left], spelled[right]]));
        }
        let vocabulary: Map<String, Value> = self
            .ranks
            .iter()
            .map(|(bytes, rank)| (spelled[bytes.as_slice()].clone(), json!(rank)))
            .collect();
        let added: Vec<Value> = self.special_tokens.iter().map(added_token).collect();
        Ok(json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": added,
            "normalizer": null,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": self.pattern},
                 "behavior": "Isolated", "invert": false},
                {"type": "ByteLevel", "add_prefix_space": false,
                 "trim_offsets": true, "use_regex": false},
            ]},
            "post_processor": null,
            "decoder": {"type": "ByteLevel", "add_prefix_space": true,
                        "trim_offsets": true, "use_regex": true},
            "model": {
                "type": "BPE", "dropout": null, "unk_token": null,
                "continuing_subword_prefix": null, "end_of_word_suffix": null,
                "fuse_unk": false, "byte_fallback": false, "ignore_merges": true,
                "vocab": vocabulary, "merges": merges,
            },
        }))
    }
}

fn added_token((content, id): &(String, u32)) -> Value {
    json!({"id": id, "content": content, "single_word": false, "lstrip": false,
           "rstrip": false, "normalized": false, "special": true})
}

/// Where the bytes of the token of `rank` fall in two just before it is made:
/// merging by the lowest rank below its own leaves two parts. `None` if more.
fn last_merge(bytes: &[u8], rank: u32, ranks: &HashMap<&[u8], u32>) -> Option<usize> {
    // Ends of the parts, the first part starting at 0.
    let mut ends: Vec<usize> = (1..=bytes.len()).collect();
    while ends.len() > 2 {
        let joined = |at: usize| {
            let start = if at == 0 { 0 } else { ends[at - 1] };
            let made = ranks.get(&bytes[start..ends[at + 1]])?;
            (*made < rank).then_some((*made, at))
        };
        let (_, at) = (0..ends.len() - 1).filter_map(joined).min()?;
        ends.remove(at);
    }
    ranks.get(&bytes[..ends[0]])?;
    ranks.get(&bytes[ends[0]..])?;
    Some(ends[0])
}

/// The bytes as `tokenizer.json` spells them: printable Latin-1 as itself, every
/// other byte as a character from 256 on, in order.
fn spell(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| letter(*byte)).collect()
}

fn letter(byte: u8) -> char {
    let itself = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if itself(byte) {
        return char::from(byte);
    }
    let moved_before = (0..byte).filter(|other| !itself(*other)).count();
    u32::try_from(256 + moved_before)
        .ok()
        .and_then(char::from_u32)
        .expect("256 + 255 is a character")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_spelled_as_byte_level_vocabularies_do() {
        assert_eq!(spell(b" a\n!"), "\u{120}a\u{10a}!");
        assert_eq!(spell(&[0, 0x7f, 0xad, 0xff]), "\u{100}\u{121}\u{143}\u{ff}");
    }

    #[test]
    fn a_token_is_made_by_its_last_merge() {
        let ranks = Ranks {
            ranks: [("a", 0), ("b", 1), ("c", 2), ("bc", 3), ("abc", 4)]
                .map(|(bytes, rank)| (bytes.as_bytes().to_vec(), rank))
                .to_vec(),
            pattern: ".".to_owned(),
            special_tokens: vec![("<e>".to_owned(), 5)],
        };
        let json = ranks.tokenizer_json().unwrap();
        assert_eq!(json["model"]["merges"], json!([["b", "c"], ["a", "bc"]]));
        assert_eq!(json["added_tokens"][0]["id"], 5);
    }

    #[test]
    fn a_token_out_of_reach_is_an_error_that_names_it() {
        let ranks = Ranks {
            ranks: vec![(b"a".to_vec(), 0), (b"aaa".to_vec(), 1)],
            ..Ranks::default()
        };
        let error = ranks.tokenizer_json().unwrap_err();
        assert_eq!(error, "rank 1 is no merge of two others");
    }
}
