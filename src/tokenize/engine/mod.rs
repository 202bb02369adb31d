//! Text to token count: one small trait, three engines, one guard.
//!
//! Decides which engine counts a text and catches what an engine may do to the
//! process. Never renders, never estimates. Invariant: no input makes
//! [`Engines::count`] panic; a panic inside an engine is `None`.
//!
//! | text | engine | why |
//! |---|---|---|
//! | ordinary | fastokens | fastest, and equal to the reference on all code points |
//! | 64 KiB and more | `tokenizers` | fastokens would spread it over a thread pool of its own |
//! | a long run without a split point | `tokenizers` | best worst case: under 0.2 s per MB |
//! | `tiktoken:` vocabularies | tiktoken-rs | carries the vocabularies inside the binary |
//!
//! The pool of fastokens takes its size from `FASTOKENS_BPE_THREADS`, read once at
//! its first count. Since only text that normalisation makes longer than 64 KiB
//! still reaches it, its threads park; with the variable set to 1 in the
//! service's environment they are never made.

mod fast;
mod tail;
mod tiktoken;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use serde_json::Value;

use super::runs::has_run_over;
use super::{AddedTokens, Effort, LoadError, Precision};

/// Texts from this length on are kept from fastokens; below it, its encoder
/// never leaves the calling thread.
const POOL_BYTES: usize = 64 * 1024;

/// One tokenizer implementation with one vocabulary loaded.
trait Engine: Send + Sync {
    /// Tokens of `text`, or `None` if the implementation gives an error.
    fn count(&self, text: &str, encoding: Encoding) -> Option<Counted>;
}

/// How a text is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Encoding {
    /// Whether the post-processor frames it.
    pub(super) special: AddSpecial,
    /// What a control token spelled out in it is.
    pub(super) added: AddedTokens,
}

/// Whether the post-processor frames the text with its own tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum AddSpecial {
    /// As `/v1/completions` does.
    Framed,
    /// As `/v1/chat/completions` does.
    Bare,
}

impl Encoding {
    /// The text of a prompt whose control tokens count as such.
    pub(super) const fn recognised(special: AddSpecial) -> Self {
        Self {
            special,
            added: AddedTokens::Recognised,
        }
    }
}

impl AddSpecial {
    /// From the request's field.
    pub(super) const fn from_field(add_special_tokens: bool) -> Self {
        if add_special_tokens {
            Self::Framed
        } else {
            Self::Bare
        }
    }
}

/// Tokens of one text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) tokens: u64,
    pub(super) precision: Precision,
}

impl Counted {
    fn exact(tokens: usize) -> Option<Self> {
        Some(Self {
            tokens: u64::try_from(tokens).ok()?,
            precision: Precision::Exact,
        })
    }
}

/// The engines loaded for one model.
pub(super) struct Engines {
    /// For ordinary text.
    first: Box<dyn Engine>,
    /// For long and hostile text, where there is a second engine.
    tail: Option<Box<dyn Engine>>,
    max_run_bytes: usize,
}

impl Engines {
    /// Loads the engines that read `json`, the parsed text of `path`.
    ///
    /// Takes seconds for a large vocabulary. One of the two engines is enough.
    ///
    /// # Errors
    /// [`LoadError::Tokenizer`] if neither reads the file.
    pub(super) fn from_json(
        path: &Path,
        json: Value,
        max_run_bytes: usize,
    ) -> Result<Self, LoadError> {
        let tail = guarded(|| tail::Tail::load(json.clone()));
        let fast = guarded(|| fast::Fast::load(json));
        let (first, tail): (Box<dyn Engine>, Option<Box<dyn Engine>>) = match (fast, tail) {
            (Ok(fast), Ok(tail)) => (Box::new(fast), Some(Box::new(tail))),
            (Ok(fast), Err(_)) => (Box::new(fast), None),
            (Err(_), Ok(tail)) => (Box::new(tail), None),
            (Err(fast), Err(tail)) => {
                return Err(LoadError::Tokenizer {
                    path: path.to_owned(),
                    fast,
                    tail,
                });
            }
        };
        Ok(Self {
            first,
            tail,
            max_run_bytes,
        })
    }

    /// Takes a vocabulary this binary carries.
    ///
    /// # Errors
    /// [`LoadError::Vocabulary`] if it carries none of that name.
    pub(super) fn from_vocabulary(name: &str) -> Result<Self, LoadError> {
        Ok(Self {
            first: Box::new(tiktoken::Tiktoken::load(name)?),
            tail: None,
            max_run_bytes: usize::MAX,
        })
    }

    /// Counts `text` with no more than `effort`; `None` if the engine fails or
    /// panics on it.
    pub(super) fn count(&self, text: &str, encoding: Encoding, _: &Effort<'_>) -> Option<Counted> {
        let engine = match &self.tail {
            Some(tail) if self.is_for_tail(text) => tail.as_ref(),
            _ => self.first.as_ref(),
        };
        // The engines' caches stay usable after an unwind: they are rebuilt from
        // the vocabulary, and a poisoned one is an error on the next call.
        catch_unwind(AssertUnwindSafe(|| engine.count(text, encoding))).ok()?
    }

    fn is_for_tail(&self, text: &str) -> bool {
        text.len() >= POOL_BYTES || has_run_over(text, self.max_run_bytes)
    }
}

/// Runs a loader so that a panic inside it is an error like any other.
fn guarded<T>(load: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(load))
        .unwrap_or_else(|_| Err("the reader panicked on this file".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Panics;

    impl Engine for Panics {
        fn count(&self, _: &str, _: Encoding) -> Option<Counted> {
            panic!("an engine bug")
        }
    }

    #[test]
    fn a_panicking_engine_is_no_count_and_no_crash() {
        let engines = Engines {
            first: Box::new(Panics),
            tail: None,
            max_run_bytes: 4096,
        };
        let effort = Effort::default();
        for special in [AddSpecial::Bare, AddSpecial::Framed] {
            let encoding = Encoding {
                special,
                added: AddedTokens::Recognised,
            };
            assert_eq!(engines.count("hello", encoding, &effort), None);
        }
    }
}
