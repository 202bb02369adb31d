//! Counts without a tokenizer: bytes times a ratio that calibrates itself.
//!
//! Decides how many tokens to charge for text nobody here can tokenize, from its
//! content class and from what engines counted of such text. Never looks at a
//! vocabulary. Invariant: at least one token, and at most one per byte, for any
//! text that is not empty.
//!
//! The rule: of the last 64 answers for a class of text, the 98 % quantile of
//! tokens per byte is charged. Below sixteen answers it is never less than the
//! class's ratio at the start. A tenant with sixteen answers of its own is charged
//! by those, any other by the model's. Old answers leave, so the ratio follows the
//! traffic up at once and down within 64 answers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::runs::dense_bytes;

/// Answers that are remembered.
const REMEMBERED: usize = 64;
/// Answers that make a ratio one to rely on.
const ENOUGH: usize = 16;
/// Prompts shorter than this say more about the template than about the text.
const SMALLEST_OBSERVED: u64 = 16;
/// Tenants with ratios of their own; about 100 kB for each model. Others are
/// charged by the model's.
const MOST_TENANTS: usize = 128;
const THOUSAND: u64 = 1000;

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

/// What a text is like, as far as its bytes tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// Words of ASCII letters.
    Prose,
    /// An eighth and more of it symbols and digits: code, JSON, tables.
    Code,
    /// A quarter and more of it beyond ASCII: Chinese, Hindi, emoji.
    Wide,
    /// An eighth and more of it in stretches without white space: base64.
    Dense,
}

/// A text whose tokens an engine will tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    class: Class,
    bytes: u64,
}

/// The ratios of one model.
#[derive(Debug, Default)]
pub(super) struct Calibration(
    /// Held for a look at one ratio, or for one answer: a microsecond.
    Mutex<Ratios>,
);

#[derive(Debug, Default)]
struct Ratios {
    model: ByClass,
    /// By the tenant's index.
    tenants: BTreeMap<u32, ByClass>,
}

type ByClass = BTreeMap<Class, Ratio>;

/// Thousandths of a token per byte, in the last answers.
#[derive(Debug, Default)]
struct Ratio {
    seen: VecDeque<u16>,
    /// Their upper quantile.
    upper: u64,
}

// === impl Calibration ===

impl Calibration {
    /// Tokens to charge `tenant` for `text`, rounded **up**. O(bytes), about a
    /// nanosecond each.
    pub(super) fn tokens(&self, tenant: Option<u32>, text: &str) -> u64 {
        if text.is_empty() {
            return 0;
        }
        let Sample { class, bytes } = Sample::of([text]);
        let ratio = self.ratios().of(tenant, class);
        bytes
            .saturating_mul(ratio)
            .div_ceil(THOUSAND)
            .clamp(1, bytes)
    }

    /// Learns what an engine counted in `sample`. Ratios above one token per byte
    /// are capped: they are media or template overhead, not text.
    pub(super) fn observe(&self, tenant: u32, sample: Sample, tokens: u64) {
        let Sample { class, bytes } = sample;
        if tokens < SMALLEST_OBSERVED || bytes == 0 {
            return;
        }
        let ratio = tokens
            .saturating_mul(THOUSAND)
            .div_ceil(bytes)
            .min(THOUSAND);
        let ratio = u16::try_from(ratio).unwrap_or(u16::MAX);
        let mut ratios = self.ratios();
        ratios.model.entry(class).or_default().learn(ratio);
        let known = ratios.tenants.contains_key(&tenant);
        if known || ratios.tenants.len() < MOST_TENANTS {
            let of_tenant = ratios.tenants.entry(tenant).or_default();
            of_tenant.entry(class).or_default().learn(ratio);
        }
    }

    /// A ratio is whole after each step, whatever panics.
    fn ratios(&self) -> MutexGuard<'_, Ratios> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Ratios ===

impl Ratios {
    /// Thousandths of a token charged for each byte.
    fn of(&self, tenant: Option<u32>, class: Class) -> u64 {
        let own = tenant
            .and_then(|tenant| self.tenants.get(&tenant)?.get(&class))
            .filter(|ratio| ratio.seen.len() >= ENOUGH);
        match own.or_else(|| self.model.get(&class)) {
            Some(ratio) if ratio.seen.len() >= ENOUGH => ratio.upper,
            Some(ratio) => ratio.upper.max(class.at_first()),
            None => class.at_first(),
        }
    }
}

// === impl Ratio ===

impl Ratio {
    fn learn(&mut self, ratio: u16) {
        if self.seen.len() == REMEMBERED {
            self.seen.pop_front();
        }
        self.seen.push_back(ratio);
        let mut sorted: Vec<u16> = self.seen.iter().copied().collect();
        sorted.sort_unstable();
        let rank = (sorted.len() * 98).div_ceil(100);
        self.upper = u64::from(sorted[rank - 1]);
    }
}

// === impl Class ===

impl Class {
    /// Thousandths of a token per byte before an engine has told. Above what the
    /// usual vocabularies make of such text: they need 0.23 for English, 0.3 for
    /// code (1 for digits one by one), 0.2 to 0.6 for other scripts, 0.5 to 0.8 for
    /// base64.
    const fn at_first(self) -> u64 {
        match self {
            Self::Prose => 420,
            Self::Code => 600,
            Self::Wide => 750,
            Self::Dense => 900,
        }
    }
}

// === impl Sample ===

impl Sample {
    /// What `texts` together are like. O(bytes).
    pub(super) fn of<'t>(texts: impl IntoIterator<Item = &'t str>) -> Self {
        let (mut bytes, mut wide, mut symbols, mut dense) = (0, 0, 0, 0);
        for text in texts {
            bytes += text.len();
            dense += dense_bytes(text);
            for byte in text.bytes() {
                wide += usize::from(!byte.is_ascii());
                symbols += usize::from(byte.is_ascii_punctuation() || byte.is_ascii_digit());
            }
        }
        let class = if dense * 8 >= bytes && dense > 0 {
            Class::Dense
        } else if wide * 4 >= bytes && wide > 0 {
            Class::Wide
        } else if symbols * 8 >= bytes && symbols > 0 {
            Class::Code
        } else {
            Class::Prose
        };
        Self {
            class,
            bytes: u64::try_from(bytes).unwrap_or(u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prose(bytes: usize) -> String {
        "word ".repeat(bytes / 5)
    }

    fn learned(answers: impl IntoIterator<Item = (u32, u64)>) -> Calibration {
        let calibration = Calibration::default();
        let text = prose(4000);
        for (tenant, tokens) in answers {
            calibration.observe(tenant, Sample::of([text.as_str()]), tokens);
        }
        calibration
    }

    #[test]
    fn texts_are_told_apart_by_their_bytes() {
        let class = |text: &str| Sample::of([text]).class;
        assert_eq!(
            class("It was the best of times, it was the worst."),
            Class::Prose
        );
        assert_eq!(
            class("for (int i = 0; i < n; ++i) { a[i] += b[2*i]; }"),
            Class::Code
        );
        assert_eq!(class("a naïve idea of a café in town"), Class::Prose);
        assert_eq!(class("日本語のテキスト with a word"), Class::Wide);
        assert_eq!(
            class(&format!("data: {}", "QmFzZTY0".repeat(20))),
            Class::Dense
        );
        assert_eq!(
            class(&format!("{} {}", prose(4000), "x".repeat(64))),
            Class::Prose
        );
        assert_eq!(class(""), Class::Prose);
    }

    #[test]
    fn a_fresh_estimate_is_high_for_its_class_and_never_zero() {
        let fresh = Calibration::default();
        let tokens = |text: &str| fresh.tokens(None, text);
        assert_eq!((tokens(""), tokens("a"), tokens(&prose(1000))), (0, 1, 420));
        assert_eq!(tokens(&"{\"a\": 1}".repeat(100)), 480);
        assert_eq!(tokens(&"漢".repeat(100)), 225);
        assert_eq!(tokens(&"x".repeat(1000)), 900);
    }

    #[test]
    fn sixteen_answers_bring_the_ratio_down_and_one_brings_it_up() {
        let few = learned((0..15).map(|_| (1, 1000)));
        assert_eq!(few.tokens(Some(1), &prose(4000)), 1680);
        let enough = learned((0..16).map(|_| (1, 1000)));
        assert_eq!(enough.tokens(Some(1), &prose(4000)), 1000);
        let rising = learned((0..40).map(|answer| (1, if answer == 39 { 2000 } else { 1000 })));
        assert_eq!(rising.tokens(Some(1), &prose(4000)), 2000);
    }

    #[test]
    fn one_odd_answer_in_sixty_four_is_not_charged_and_old_ones_are_forgotten() {
        let odd = learned((0..64).map(|answer| (1, if answer == 7 { 3000 } else { 1000 })));
        assert_eq!(odd.tokens(Some(1), &prose(4000)), 1000);
        let drifted = learned((0..200).map(|answer| (1, if answer < 136 { 2000 } else { 800 })));
        assert_eq!(drifted.tokens(Some(1), &prose(4000)), 800);
    }

    #[test]
    fn a_tenant_pays_for_its_own_text_and_a_new_one_by_the_model() {
        let both =
            learned((0..64).map(|answer| (answer % 2, if answer % 2 == 0 { 900 } else { 2400 })));
        assert_eq!(both.tokens(Some(0), &prose(4000)), 900);
        assert_eq!(both.tokens(Some(1), &prose(4000)), 2400);
        assert_eq!(both.tokens(Some(2), &prose(4000)), 2400);
        assert_eq!(both.tokens(Some(0), &"漢".repeat(1000)), 2250);
    }

    #[test]
    fn many_tenants_take_bounded_memory_and_are_still_charged() {
        let crowd = learned((0..10_000).map(|tenant| (tenant, 1000)));
        assert_eq!(crowd.ratios().tenants.len(), MOST_TENANTS);
        assert_eq!(crowd.tokens(Some(9_999), &prose(4000)), 1000);
    }

    #[test]
    fn one_token_prompts_and_wild_answers_teach_nothing_harmful() {
        let wild = Calibration::default();
        wild.observe(1, Sample::of(["a"]), 1);
        assert_eq!(wild.tokens(Some(1), &prose(1000)), 420);
        for _ in 0..500 {
            wild.observe(1, Sample::of(["0123456789"]), u64::MAX);
        }
        assert_eq!(wild.tokens(Some(1), &"9".repeat(50)), 50);
    }
}
