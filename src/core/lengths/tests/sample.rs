//! Answers drawn from known distributions, and how a learner is shown them.

use super::*;

/// A stream of pseudo-random numbers (splitmix64).
pub(super) struct Dice(pub(super) u64);

/// How long answers are.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    /// Lognormal of this median and spread.
    Lognormal(f64, f64),
    /// Log-t: a lognormal whose spread varies, so its tail is heavier.
    HeavyTailed(f64, f64),
    /// Half short, half long.
    TwoKinds(f64, f64),
}

// === impl Dice ===

impl Dice {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Uniform in 0..1.
    pub(super) fn share(&mut self) -> f64 {
        Tokens::new(self.bits() >> 11).as_f64() / 2_f64.powi(53)
    }

    /// Standard normal, nearly: twelve uniform ones.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.share()).sum::<f64>() - 6.0
    }

    pub(super) fn length(&mut self, shape: Shape) -> u64 {
        let length = match shape {
            Shape::Lognormal(median, spread) => median * (spread * self.normal()).exp(),
            Shape::HeavyTailed(median, spread) => {
                let chi = (0..4).map(|_| self.normal().powi(2)).sum::<f64>() / 4.0;
                median * (spread * self.normal() / chi.sqrt()).exp()
            }
            Shape::TwoKinds(short, long) => {
                let median = if self.share() < 0.5 { short } else { long };
                median * (0.15 * self.normal()).exp()
            }
        };
        whole(length.clamp(1.0, 100_000.0))
    }
}

/// Tokens of a float, rounded down.
pub(super) fn whole(tokens: f64) -> u64 {
    Tokens::new(1 << 20).share(tokens / 1_048_576.0).get()
}

/// Share of `lengths` above `than`.
pub(super) fn share_above(lengths: &[u64], than: u64) -> f64 {
    let above = lengths.iter().filter(|&&length| length > than).count();
    above as f64 / lengths.len().max(1) as f64
}

/// Shows the growth of an answer from `from` to `to`, sixteen tokens at a time.
pub(super) fn grow(lengths: &mut Lengths, key: ClassKey, from: u64, to: u64) {
    for at in (from..to).step_by(16) {
        lengths.on_grown(key, growth(at, (at + 16).min(to)));
    }
}

/// Shows a whole answer that stops by itself.
pub(super) fn finish(lengths: &mut Lengths, key: ClassKey, length: u64) {
    let seen = length - length % 16;
    grow(lengths, key, 0, seen.min(length - 1));
    lengths.on_finished(key, growth(seen.min(length - 1), length), OPEN);
}
