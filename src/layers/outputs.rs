//! How many tokens a text is worth that an engine gave no account of.
//!
//! Decides by what the engine's accounts said of other outputs of the model:
//! tokens a byte of text, over the recent past. A sum and a product, so that
//! the end of a stream, however long, costs nothing. Never exact, and said so
//! wherever it is used. Invariant: an estimate is never zero for some text.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::core::units::Tokens;

/// What is believed before anything was seen: four bytes a token.
const FIRST: Seen = Seen {
    bytes: 4096,
    tokens: 1024,
};
/// Bytes after which the past counts half.
const MEMORY: u64 = 1 << 24;
/// Accounts beyond these, in bytes a token, are of something else than the text:
/// thoughts that are not shown, tokens without a character.
const PLAUSIBLE: std::ops::RangeInclusive<u64> = 1..=32;

/// Tokens a byte of one model's outputs. Cheap to read and to add to.
#[derive(Debug)]
pub struct Outputs(Mutex<Seen>);

#[derive(Clone, Copy, Debug)]
struct Seen {
    bytes: u64,
    tokens: u64,
}

// === impl Outputs ===

impl Default for Outputs {
    fn default() -> Self {
        Self(Mutex::new(FIRST))
    }
}

impl Outputs {
    /// The engine counted `tokens` in an output whose texts had `bytes`.
    pub fn learn(&self, bytes: u64, tokens: u64) {
        if tokens == 0 || !PLAUSIBLE.contains(&(bytes / tokens)) {
            return;
        }
        let mut seen = self.seen();
        seen.bytes = seen.bytes.saturating_add(bytes);
        seen.tokens = seen.tokens.saturating_add(tokens);
        if seen.bytes > MEMORY {
            seen.bytes = (seen.bytes / 2).max(1);
            seen.tokens = (seen.tokens / 2).max(1);
        }
    }

    /// Tokens of an output whose texts have `bytes`, rounded up.
    pub fn estimate(&self, bytes: u64) -> Tokens {
        let Seen {
            bytes: seen,
            tokens,
        } = *self.seen();
        let product = u128::from(bytes) * u128::from(tokens);
        let estimate = product.div_ceil(u128::from(seen));
        Tokens::new(u64::try_from(estimate).unwrap_or(u64::MAX))
    }

    /// Held for a few sums; nothing is left half done.
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_follows_what_engines_have_counted() {
        let outputs = Outputs::default();
        assert_eq!(outputs.estimate(0), Tokens::ZERO);
        assert_eq!(outputs.estimate(1), Tokens::new(1));
        assert_eq!(outputs.estimate(188), Tokens::new(47));
        for _ in 0..1000 {
            outputs.learn(20_000, 10_000);
        }
        let learned = outputs.estimate(2000).get();
        assert!((999..=1001).contains(&learned), "{learned}");
    }

    #[test]
    fn what_cannot_be_of_the_text_teaches_nothing() {
        let outputs = Outputs::default();
        for (bytes, tokens) in [(10, 0), (10, 1000), (0, 5), (100_000, 1), (1, u64::MAX)] {
            outputs.learn(bytes, tokens);
        }
        assert_eq!(outputs.estimate(400), Tokens::new(100));
        outputs.learn(u64::MAX, u64::MAX);
        assert!(outputs.estimate(400) <= Tokens::new(400));
    }
}
