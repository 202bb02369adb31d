//! Text to token count: one small trait, three engines, one guard.
//!
//! Decides which engine counts a text and catches what an engine may do to the
//! process. Never renders, never guesses: what it does not count it bounds.
//! Invariant: no input makes [`Engines::count`] panic; a panic inside an engine is
//! `None`.
//!
//! | text | engine | why |
//! |---|---|---|
//! | ordinary | fastokens | fastest, and equal to the reference on all code points |
//! | long, without a safe place to cut | `tokenizers` | fastokens would use a thread pool of its own |
//! | a long run of one class | `tokenizers` | best worst case: under 0.2 s per MB |
//! | the same, of a vocabulary of ranks | fastokens | loads in half the time; under 0.7 s per MB |
//! | any, where a count is checked | the reference | tiktoken-rs for ranks, else `tokenizers` |
//!
//! The pool of fastokens takes its size from `FASTOKENS_BPE_THREADS`, read once at
//! its first count. Only runs of a vocabulary of ranks reach it that are long enough
//! to ask for the pool; with the variable at 1 its threads are never made.

#[cfg(test)]
mod agreement;
mod bounds;
mod cache;
mod cuts;
#[cfg(test)]
mod exactness;
mod fast;
#[cfg(test)]
mod hostile;
mod ids;
mod load;
mod marks;
mod ranks;
mod stretches;
mod tail;
mod tally;
mod tiktoken;
mod unicode;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use bounds::Bounds;
use stretches::Stretches;
use tally::Tally;

use super::runs::has_run_over;
use super::{AddedTokens, Effort, Precision};

pub(super) use ranks::Ranks;

/// Texts over this length are kept from fastokens: from 64 KiB of normalised text
/// on its encoder leaves the calling thread, and the normalisers of the models it
/// reads at most triple a text.
const FAST_BYTES: usize = 64 * 1024 / 3;

/// The time the tail takes for one byte of the worst run, and the fast engine where
/// there is no tail. More would bound prompts that could be counted in time, less
/// would let them overrun.
const TAIL_NANOS_PER_BYTE: u64 = 170;
const FAST_NANOS_PER_BYTE: u64 = 650;

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
        u64::try_from(tokens).ok().map(Self::exactly)
    }

    const fn exactly(tokens: u64) -> Self {
        Self {
            tokens,
            precision: Precision::Exact,
        }
    }

    fn is_exact(&self) -> bool {
        self.precision == Precision::Exact
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
    /// Whether the tail takes every added token for text when told to; it does so
    /// only for those that are special.
    tail_reads_ordinary: bool,
    max_run_bytes: usize,
    bounds: Bounds,
    /// How texts are parted; `None` where each has to be counted whole.
    stretches: Option<Arc<Stretches>>,
}

// === impl Engines ===

impl Engines {
    /// Counts `text` with no more than `effort`; `None` if the engines fail or
    /// panic on it.
    ///
    /// Past `effort.enough` the count is a lower bound, told without tokenizing
    /// where the length alone shows it. When time is up, or nobody waits, what is
    /// left is charged by an upper bound.
    pub(super) fn count(
        &self,
        text: &str,
        encoding: Encoding,
        effort: &Effort<'_>,
    ) -> Option<Counted> {
        if let Some(least) = self.too_many(text, effort) {
            return Some(least);
        }
        let tally = Tally::new(effort, 0);
        match &self.stretches {
            Some(stretches) => stretches.count(self, text, encoding, tally),
            None if tally.has_time_for(self.time(text)) => self.whole(text, encoding),
            None => Some(tally.short_of(self.bounds.most(text))),
        }
    }

    /// Counts `text` by the reference path: a second opinion on [`Self::count`],
    /// for tests and for samples of the traffic. Up to a hundred times slower on
    /// hostile text. `None` if there is only one engine, or it fails or panics.
    pub(super) fn reference_count(&self, text: &str, encoding: Encoding) -> Option<Counted> {
        let engine = self.reference.as_ref().or(self.tail.as_ref())?;
        caught(engine.as_ref(), text, encoding)
    }

    /// Pays for what the fast engine makes at its first count, so that no request
    /// does.
    pub(super) fn warm_up(&self) {
        let text = "What the first request would wait for is made now.";
        for added in [AddedTokens::Recognised, AddedTokens::Ordinary] {
            let special = AddSpecial::Bare;
            // Whether it counts is seen when it has to.
            caught(self.first.as_ref(), text, Encoding { special, added });
        }
    }

    /// Tokens that `text` has at least, without tokenizing it: gigabytes a second.
    pub(super) fn at_least(&self, text: &str) -> u64 {
        self.bounds.least(text)
    }

    /// The lower bound, if it alone settles the request.
    fn too_many(&self, text: &str, effort: &Effort<'_>) -> Option<Counted> {
        // No bound passes what the bytes do not.
        let bytes = u64::try_from(text.len()).ok()?;
        if !effort.is_enough(bytes) {
            return None;
        }
        let least = self.at_least(text);
        effort.is_enough(least).then_some(Counted {
            tokens: least,
            precision: Precision::AtLeast,
        })
    }

    /// The longest that [`Self::whole`] may take for `text`. Looked at once before a
    /// long text, since no engine can be stopped.
    fn time(&self, text: &str) -> Duration {
        let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
        let nanos = match self.tail {
            Some(_) => TAIL_NANOS_PER_BYTE,
            None => FAST_NANOS_PER_BYTE,
        };
        Duration::from_nanos(bytes.saturating_mul(nanos))
    }

    /// Counts `text` in one go.
    fn whole(&self, text: &str, encoding: Encoding) -> Option<Counted> {
        let tail = self
            .tail
            .as_ref()
            .filter(|_| encoding.added == AddedTokens::Recognised || self.tail_reads_ordinary)
            .filter(|_| self.is_for_tail(text));
        let Some(tail) = tail else {
            return caught(self.first.as_ref(), text, encoding);
        };
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

    fn is_for_tail(&self, text: &str) -> bool {
        text.len() > FAST_BYTES || has_run_over(text, self.max_run_bytes)
    }
}

/// The engines' caches stay usable after an unwind: they are rebuilt from the
/// vocabulary, and a poisoned one is an error on the next call.
fn caught(engine: &dyn Engine, text: &str, encoding: Encoding) -> Option<Counted> {
    catch_unwind(AssertUnwindSafe(|| engine.count(text, encoding))).ok()?
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
            tail_reads_ordinary: true,
            max_run_bytes: 4096,
            bounds: Bounds::of_ranks(&Ranks::default(), false),
            stretches: None,
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
