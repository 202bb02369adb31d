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
//! | any, where a count is checked | the reference | tiktoken-rs for ranks, else `tokenizers` |
//!
//! The pool of fastokens takes its size from `FASTOKENS_BPE_THREADS`, read once at
//! its first count. Since only text that normalisation makes longer than 64 KiB
//! still reaches it, its threads park; with the variable set to 1 in the
//! service's environment they are never made.

#[cfg(test)]
mod agreement;
mod fast;
mod ranks;
mod tail;
mod tiktoken;
mod unicode;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use serde_json::Value;

use super::runs::has_run_over;
use super::{AddedTokens, Effort, LoadError, Precision};

pub(super) use ranks::Ranks;

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
    /// Both together, as precise as the less precise one.
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            precision: self.precision.and(other.precision),
        }
    }

    fn exact(tokens: usize) -> Option<Self> {
        Some(Self {
            tokens: u64::try_from(tokens).ok()?,
            precision: Precision::Exact,
        })
    }
}

/// The engines loaded for one model.
#[derive(Clone)]
pub(super) struct Engines {
    /// For ordinary text.
    first: Arc<dyn Engine>,
    /// For long and hostile text, where there is a second engine.
    tail: Option<Arc<dyn Engine>>,
    /// What the others are checked against, where that is not the tail.
    reference: Option<Arc<dyn Engine>>,
    max_run_bytes: usize,
}

/// The vocabularies of this binary that were asked for, each loaded once: they are
/// never given back, as their bytes are part of the binary. The lock is held while
/// one is loaded, so that two models do not load it twice.
static BUILTIN: LazyLock<Mutex<HashMap<String, Engines>>> = LazyLock::new(Mutex::default);

// === impl Engines ===

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
        let (first, tail): (Arc<dyn Engine>, Option<Arc<dyn Engine>>) = match (fast, tail) {
            (Ok(fast), Ok(tail)) => (Arc::new(fast), Some(Arc::new(tail))),
            (Ok(fast), Err(_)) => (Arc::new(fast), None),
            (Err(_), Ok(tail)) => (Arc::new(tail), None),
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
            reference: None,
            max_run_bytes,
        })
    }

    /// Loads a vocabulary in tiktoken's form, with tiktoken-rs as its reference.
    ///
    /// Takes seconds for a large vocabulary. One engine is enough: a pattern or a
    /// token the faster ones do not read leaves the reference to count.
    ///
    /// # Errors
    /// [`LoadError::Ranks`] if not even the reference reads it.
    pub(super) fn from_ranks(ranks: &Ranks, max_run_bytes: usize) -> Result<Self, LoadError> {
        let reference = guarded(|| tiktoken::Tiktoken::from_ranks(ranks))
            .map_err(|reason| LoadError::Ranks { reason })?;
        Ok(Self::beside(Arc::new(reference), ranks, max_run_bytes))
    }

    /// Takes a vocabulary this binary carries; two of the same name share memory.
    ///
    /// # Errors
    /// [`LoadError::Vocabulary`] if it carries none of that name.
    pub(super) fn from_vocabulary(name: &str, max_run_bytes: usize) -> Result<Self, LoadError> {
        let reference = tiktoken::Tiktoken::builtin(name)?;
        // A poisoned lock only says that a load panicked; the map is whole.
        let mut loaded = BUILTIN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(engines) = loaded.get(name) {
            let mut engines = engines.clone();
            engines.max_run_bytes = max_run_bytes;
            return Ok(engines);
        }
        let ranks = reference.ranks(name);
        let engines = Self::beside(Arc::new(reference), &ranks, max_run_bytes);
        loaded.insert(name.to_owned(), engines.clone());
        Ok(engines)
    }

    fn beside(reference: Arc<dyn Engine>, ranks: &Ranks, max_run_bytes: usize) -> Self {
        let fast = guarded(|| fast::Fast::from_ranks(ranks));
        let tail = guarded(|| tail::Tail::load(ranks.tokenizer_json()?));
        let tail: Option<Arc<dyn Engine>> = match tail {
            Ok(tail) => Some(Arc::new(tail)),
            Err(_) => Some(Arc::clone(&reference)),
        };
        let first: Arc<dyn Engine> = match fast {
            Ok(fast) => Arc::new(fast),
            Err(_) => Arc::clone(&reference),
        };
        Self {
            first,
            tail,
            reference: Some(reference),
            max_run_bytes,
        }
    }

    /// Counts `text` with no more than `effort`; `None` if the engine fails or
    /// panics on it.
    pub(super) fn count(&self, text: &str, encoding: Encoding, _: &Effort<'_>) -> Option<Counted> {
        match &self.tail {
            Some(tail) if self.is_for_tail(text) => {
                let counted = caught(tail.as_ref(), text, encoding)?;
                let precision = match unicode::is_disputed(text) {
                    true => Precision::Estimated,
                    false => counted.precision,
                };
                Some(Counted {
                    precision,
                    ..counted
                })
            }
            _ => caught(self.first.as_ref(), text, encoding),
        }
    }

    /// Counts `text` by the reference path: a second opinion on [`Self::count`],
    /// for tests and for samples of the traffic. Up to a hundred times slower on
    /// hostile text. `None` if there is only one engine, or it fails or panics.
    pub(super) fn reference_count(&self, text: &str, encoding: Encoding) -> Option<Counted> {
        let engine = self.reference.as_ref().or(self.tail.as_ref())?;
        caught(engine.as_ref(), text, encoding)
    }

    fn is_for_tail(&self, text: &str) -> bool {
        text.len() >= POOL_BYTES || has_run_over(text, self.max_run_bytes)
    }
}

/// The engines' caches stay usable after an unwind: they are rebuilt from the
/// vocabulary, and a poisoned one is an error on the next call.
fn caught(engine: &dyn Engine, text: &str, encoding: Encoding) -> Option<Counted> {
    catch_unwind(AssertUnwindSafe(|| engine.count(text, encoding))).ok()?
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
            first: Arc::new(Panics),
            tail: None,
            reference: None,
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
