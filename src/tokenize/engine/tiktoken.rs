//! tiktoken-rs: the vocabularies inside this binary, and the reference for every
//! vocabulary in tiktoken's form.

use std::collections::{HashMap, HashSet};

use fastokens::{CL100K_BASE_PATTERN, O200K_BASE_PATTERN};
use tiktoken_rs::CoreBPE;

use super::cuts::GPT2_PATTERN;
use super::{AddedTokens, Counted, Encoding, Engine, Ranks};
use crate::tokenize::runs::{has_run_over, pieces};
use crate::tokenize::{LoadError, Precision};

/// No run longer than this reaches tiktoken-rs: its pattern engine overflows its
/// stack, and panics, somewhere between 700 kB and 1 MB of spaces.
const LONGEST_RUN: usize = 64 * 1024;

/// Runs over that length are cut into pieces of this one: the encoder's time per
/// byte grows with the piece.
const CUT: usize = 4096;

/// Ids looked at beyond the last token found before a vocabulary is over.
const LARGEST_GAP: u32 = 4096;

/// The last control token of gpt-oss.
const HARMONY_END_OF_PROMPT: u32 = 200_018;

/// The vocabularies this binary carries.
const NAMES: [&str; 6] = [
    "cl100k_base",
    "o200k_base",
    "o200k_harmony",
    "p50k_base",
    "p50k_edit",
    "r50k_base",
];

/// A vocabulary read by tiktoken-rs.
pub(super) struct Tiktoken {
    core: Core,
    has_specials: bool,
}

enum Core {
    Builtin(&'static CoreBPE),
    Own(Box<CoreBPE>),
}

// === impl Tiktoken ===

impl Tiktoken {
    /// One of the vocabularies tiktoken-rs carries.
    ///
    /// # Errors
    /// [`LoadError::Vocabulary`] for any other name.
    pub(super) fn builtin(name: &str) -> Result<Self, LoadError> {
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
        Ok(Self {
            core: Core::Builtin(core),
            has_specials: true,
        })
    }

    /// # Errors
    /// What tiktoken-rs says about a pattern it does not read.
    pub(super) fn from_ranks(ranks: &Ranks) -> Result<Self, String> {
        let encoder = ranks.ranks.iter().cloned().collect();
        let specials = ranks.special_tokens.iter().cloned().collect();
        let core = CoreBPE::new(encoder, specials, &ranks.pattern)
            .map_err(|error| format!("tiktoken-rs: {error}"))?;
        Ok(Self {
            core: Core::Own(Box::new(core)),
            has_specials: !ranks.special_tokens.is_empty(),
        })
    }

    /// The vocabulary of a name that [`Self::builtin`] takes, read back out of
    /// tiktoken-rs token by token, for the faster engines.
    pub(super) fn ranks(&self, name: &str) -> Ranks {
        let core = self.core();
        let mut special_tokens: Vec<(String, u32)> = core
            .special_tokens()
            .into_iter()
            .filter_map(|token| match core.encode_with_special_tokens(token)[..] {
                [id] => Some((token.to_owned(), id)),
                _ => None,
            })
            .collect();
        let special_ids: HashSet<u32> = special_tokens.iter().map(|(_, id)| *id).collect();
        if name == "o200k_harmony" {
            // gpt-oss knows none of the reserved tokens from there on, and this one.
            special_tokens.retain(|(_, id)| *id < HARMONY_END_OF_PROMPT);
            special_tokens.push(("<|endofprompt|>".to_owned(), HARMONY_END_OF_PROMPT));
        }
        special_tokens.sort_unstable_by_key(|(_, id)| *id);
        let mut ranks = Vec::new();
        let (mut id, mut end) = (0, LARGEST_GAP);
        while id < end {
            if let Ok(bytes) = core.decode_bytes(&[id]) {
                end = id + LARGEST_GAP;
                if !special_ids.contains(&id) {
                    ranks.push((bytes, id));
                }
            }
            id += 1;
        }
        let pattern = match name {
            "cl100k_base" => CL100K_BASE_PATTERN,
            "o200k_base" | "o200k_harmony" => O200K_BASE_PATTERN,
            _ => GPT2_PATTERN,
        };
        Ranks {
            ranks,
            pattern: pattern.to_owned(),
            special_tokens,
        }
    }

    fn core(&self) -> &CoreBPE {
        match &self.core {
            Core::Builtin(core) => core,
            Core::Own(core) => core,
        }
    }
}

impl Engine for Tiktoken {
    /// These vocabularies have no post-processor, so framed and bare are the same.
    fn count(&self, text: &str, encoding: Encoding) -> Option<Counted> {
        let encode = |text: &str| match encoding.added {
            AddedTokens::Recognised if self.has_specials => {
                self.core().count_with_special_tokens(text)
            }
            _ => self.core().count_ordinary(text),
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
        let vocabulary = Tiktoken::builtin(name).unwrap();
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
        let error = Tiktoken::builtin("gpt-9").err().unwrap().to_string();
        assert!(
            error.contains("\"gpt-9\"") && error.contains("o200k_base"),
            "{error}"
        );
    }

    #[test]
    fn the_ranks_read_back_are_all_of_them() {
        for (name, ranks, specials) in [
            ("cl100k_base", 100_256, 5),
            ("o200k_harmony", 199_998, 21),
            ("p50k_edit", 50_280, 4),
        ] {
            let read = Tiktoken::builtin(name).unwrap().ranks(name);
            assert_eq!(read.special_tokens.len(), specials, "{name}");
            assert_eq!(read.ranks.len(), ranks, "{name}");
        }
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
