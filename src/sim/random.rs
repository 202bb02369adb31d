//! The simulation's own random numbers: the same on every machine and in every version.

/// A small seeded generator (splitmix64): not for secrets, only for reproducible load.
#[derive(Clone, Debug)]
pub struct Random(u64);

// === impl Random ===

impl Random {
    /// The generator of `seed`; equal seeds give equal numbers.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator of its own for `stream`, so that drawing from one never shifts another.
    #[must_use]
    pub const fn fork(&self, stream: u64) -> Self {
        Self(mix(self.0, stream))
    }

    /// 64 random bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scramble(self.0)
    }

    /// Evenly within `[0, 1)`.
    pub const fn unit(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits are exact in a float")]
        let bits = (self.next_u64() >> 11) as f64;
        bits / 9_007_199_254_740_992.0
    }

    /// Evenly within `least..=most`; `least` where the range is empty.
    pub const fn between(&mut self, least: u64, most: u64) -> u64 {
        let span = most.saturating_sub(least);
        if span == u64::MAX {
            return self.next_u64();
        }
        least + self.next_u64() % (span + 1)
    }

    /// A waiting time with this mean, in the mean's unit: the gap between the arrivals of a
    /// Poisson process.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// A positive length with this median and spread (the standard deviation of its
    /// logarithm): long tails, as real prompts and answers have.
    pub fn log_normal(&mut self, median: f64, spread: f64) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * self.unit()).cos();
        median * (spread * normal).exp()
    }
}

/// Mixes two words into one that looks random.
pub const fn mix(state: u64, word: u64) -> u64 {
    scramble(
        state
            .wrapping_mul(0xd6e8_feb8_6659_fd93)
            .wrapping_add(word)
            .wrapping_add(0x9e37_79b9_7f4a_7c15),
    )
}

const fn scramble(word: u64) -> u64 {
    let mut z = word;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_numbers_and_forks_differ() {
        let mut one = Random::new(7);
        let mut two = Random::new(7);
        assert_eq!(one.next_u64(), two.next_u64());
        assert_ne!(
            Random::new(7).fork(1).next_u64(),
            Random::new(7).fork(2).next_u64()
        );
    }

    #[test]
    fn draws_stay_within_their_bounds() {
        let mut random = Random::new(3);
        let mut sum = 0.0;
        for _ in 0..10_000 {
            assert!((5..=9).contains(&random.between(5, 9)));
            sum += random.exponential(2.0);
        }
        assert!((sum / 10_000.0 - 2.0).abs() < 0.1, "{sum}");
        assert_eq!(random.between(4, 4), 4);
    }
}
