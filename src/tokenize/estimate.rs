//! Counts without a tokenizer: bytes times a ratio that calibrates itself.
//!
//! Decides how many tokens to charge for text nobody here can tokenize. Never
//! looks at more of it than where its white space is. Invariant: at least one
//! token, and at most one per byte, for any text that is not empty.

use std::sync::atomic::{AtomicU64, Ordering};

use super::runs::dense_bytes;

/// Tokens per byte before anything was observed: the ratio of English prose is
/// near 0.23, of code near 0.3, of Chinese near 0.3.
const FIRST_MEAN: f32 = 0.30;
/// Spread assumed before anything was observed.
const FIRST_DEVIATION: f32 = 0.06;
/// Weight of one observation; about the last sixteen requests decide.
const WEIGHT: f32 = 1.0 / 16.0;
/// Mean deviations added to the mean, so that about one prompt in fifty is
/// estimated too low, not every other one.
const SAFETY: f32 = 2.0;
/// Prompts shorter than this say more about the template than about the text.
const SMALLEST_OBSERVED: u64 = 16;

/// Tokens charged for media parts, which expand into many prompt tokens inside
/// the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaAllowance {
    /// Tokens per image. Default 4096: above the usual 576 to 2,900, below the
    /// 16,384 of the largest pictures some models accept. Too small overfills a
    /// backend, too large wastes it.
    pub image: u64,
    /// Tokens per audio clip. Default 4096, about five minutes at 13 per second.
    pub audio: u64,
    /// Tokens per video. Default 16384.
    pub video: u64,
}

impl Default for MediaAllowance {
    fn default() -> Self {
        Self {
            image: 4096,
            audio: 4096,
            video: 16_384,
        }
    }
}

/// A running tokens-per-byte ratio with its mean deviation.
///
/// Both live in one atomic word, so a reader never sees the mean of one update
/// with the deviation of another.
#[derive(Debug)]
pub(super) struct Calibration(AtomicU64);

impl Default for Calibration {
    fn default() -> Self {
        Self(AtomicU64::new(pack(FIRST_MEAN, FIRST_DEVIATION)))
    }
}

impl Calibration {
    /// Tokens to charge for `text`: the mean ratio plus two deviations, twice that
    /// for stretches like base64, rounded **up**.
    pub(super) fn tokens(&self, text: &str) -> u64 {
        if text.is_empty() {
            return 0;
        }
        let bytes = text.len();
        let charged = u64::try_from(bytes + dense_bytes(text)).unwrap_or(u64::MAX);
        let (mean, deviation) = unpack(self.0.load(Ordering::Relaxed));
        let ratio = f64::from((mean + SAFETY * deviation).clamp(0.05, 1.0));
        let most = u64::try_from(bytes).unwrap_or(u64::MAX);
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a ratio of at most one times twice a length in memory fits"
        )]
        let tokens = (charged as f64 * ratio).ceil() as u64;
        tokens.clamp(1, most)
    }

    /// Learns from one prompt. Ratios above one token per byte are capped:
    /// they are media or template overhead, not text.
    pub(super) fn observe(&self, bytes: usize, tokens: u64) {
        if tokens < SMALLEST_OBSERVED || bytes == 0 {
            return;
        }
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            reason = "a ratio needs few digits"
        )]
        let seen = ((tokens as f64 / bytes as f64) as f32).min(1.0);
        let update = |word| {
            let (mean, deviation) = unpack(word);
            let error = seen - mean;
            Some(pack(
                mean + WEIGHT * error,
                deviation + WEIGHT * (error.abs() - deviation),
            ))
        };
        // Relaxed: the word stands alone, nothing is published through it.
        let stored = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
        debug_assert!(stored.is_ok(), "the update always returns a value");
    }
}

fn pack(mean: f32, deviation: f32) -> u64 {
    (u64::from(mean.to_bits()) << 32) | u64::from(deviation.to_bits())
}

fn unpack(word: u64) -> (f32, f32) {
    let high = u32::try_from(word >> 32).expect("a shifted word has 32 bits left");
    let low = u32::try_from(word & u64::from(u32::MAX)).expect("a masked word has 32 bits left");
    (f32::from_bits(high), f32::from_bits(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prose(bytes: usize) -> String {
        "word ".repeat(bytes / 5)
    }

    #[test]
    fn a_fresh_estimate_is_above_english_and_code_and_never_zero() {
        let fresh = Calibration::default();
        assert_eq!(fresh.tokens(""), 0);
        assert_eq!(fresh.tokens("a"), 1);
        assert_eq!(fresh.tokens(&prose(1000)), 421);
    }

    #[test]
    fn the_ratio_moves_to_what_answers_say_and_stays_above_it() {
        let learned = Calibration::default();
        for _ in 0..200 {
            learned.observe(4000, 1000);
        }
        let tokens = learned.tokens(&prose(4000));
        assert!((1000..=1020).contains(&tokens), "{tokens}");
    }

    #[test]
    fn a_spread_of_ratios_is_charged_near_the_higher_one() {
        let learned = Calibration::default();
        for _ in 0..200 {
            learned.observe(4000, 800);
            learned.observe(4000, 1600);
        }
        let tokens = learned.tokens(&prose(4000));
        assert!((1600..=2200).contains(&tokens), "{tokens}");
    }

    #[test]
    fn one_token_prompts_and_wild_answers_teach_nothing_harmful() {
        let learned = Calibration::default();
        learned.observe(1, 1);
        assert_eq!(learned.tokens(&prose(1000)), 421);
        for _ in 0..500 {
            learned.observe(10, 1_000_000);
        }
        assert_eq!(learned.tokens(&prose(1000)), 1000);
    }
}
