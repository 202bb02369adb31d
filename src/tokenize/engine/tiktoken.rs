//! tiktoken-rs: the vocabularies inside this binary.

use std::collections::HashMap;

use tiktoken_rs::CoreBPE;

use super::{AddedTokens, Counted, Encoding, Engine};
use crate::tokenize::runs::{has_run_over, pieces};
use crate::tokenize::{LoadError, Precision};

/// No run longer than this reaches tiktoken-rs: its pattern engine overflows its
/// stack, and panics, somewhere between 700 kB and 1 MB of spaces.
const LONGEST_RUN: usize = 64 * 1024;

/// Runs over that length are cut into pieces of this one: the encoder's time per
/// byte grows with the piece.
const CUT: usize = 4096;

const NAMES: [&str; 6] = [
    "cl100k_base",
    "o200k_base",
    "o200k_harmony",
    "p50k_base",
    "p50k_edit",
    "r50k_base",
];

/// One of the vocabularies tiktoken-rs carries.
pub(super) struct Tiktoken(&'static CoreBPE);

impl Tiktoken {
    /// # Errors
    /// [`LoadError::Vocabulary`] for any other name.
    pub(super) fn load(name: &str) -> Result<Self, LoadError> {
        let core = match name {
            "cl100k_base" => tiktoken_rs::cl100k_base_singleton(),
            "o200k_base" => tiktoken_rs::o200k_base_singleton(),
            "o200k_harmony" => tiktoken_rs::o200k_harmony_singleton(),
            "p50k_base" => tiktoken_rs::p50k_base_singleton(),
            "p50k_edit" => tiktoken_rs::p50k_edit_singleton(),
            "r50k_base" => tiktoken_rs::r50k_base_singleton(),
            _ => {
                return Err(LoadError::Vocabulary {
                    name: name.to_owned(),
                    known: NAMES.join(", "),
                });
            }
        };
        Ok(Self(core))
    }
}

impl Engine for Tiktoken {
    /// These vocabularies have no post-processor, so framed and bare are the same.
    fn count(&self, text: &str, encoding: Encoding) -> Option<Counted> {
        let encode = |text: &str| match encoding.added {
            AddedTokens::Recognised => self.0.count_with_special_tokens(text),
            AddedTokens::Ordinary => self.0.count_ordinary(text),
        };
        if !has_run_over(text, LONGEST_RUN) {
            return Counted::exact(encode(text));
        }
        // A cut can only lose merges, so the sum is not below the truth. Hostile
        // runs mostly repeat themselves, and then one piece is counted once.
        let mut counted = HashMap::new();
        let tokens: usize = pieces(text, CUT)
            .into_iter()
            .map(|piece| *counted.entry(piece).or_insert_with(|| encode(piece)))
            .sum();
        Some(Counted {
            tokens: u64::try_from(tokens).ok()?,
            precision: Precision::Estimated,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenize::engine::AddSpecial;

    fn count(name: &str, text: &str) -> Counted {
        let vocabulary = Tiktoken::load(name).unwrap();
        vocabulary
            .count(text, Encoding::recognised(AddSpecial::Bare))
            .unwrap()
    }

    #[test]
    fn known_counts_of_known_vocabularies() {
        for (name, tokens) in [("cl100k_base", 6), ("o200k_base", 6), ("r50k_base", 6)] {
            let counted = count(name, "tiktoken is great!");
            assert_eq!(
                (counted.tokens, counted.precision),
                (tokens, Precision::Exact)
            );
        }
        assert_eq!(count("cl100k_base", "<|endoftext|>").tokens, 1);
    }

    #[test]
    fn an_unknown_vocabulary_is_refused_with_the_known_names() {
        let error = Tiktoken::load("gpt-9").err().unwrap().to_string();
        assert!(
            error.contains("\"gpt-9\"") && error.contains("o200k_base"),
            "{error}"
        );
    }

    #[test]
    fn a_megabyte_of_one_character_is_cut_and_counted_without_a_panic() {
        for (run, tokens) in [(" ", 8_192), ("a", 131_072), ("^", 131_072), ("\n", 65_536)] {
            let counted = count("o200k_base", &run.repeat(1 << 20));
            assert_eq!(counted.precision, Precision::Estimated);
            assert_eq!(counted.tokens, tokens, "{run:?}");
        }
    }
}
