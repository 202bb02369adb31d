//! Times of one step, for its quantiles.

use std::time::Duration;

/// Bins of an octave: a quantile is off by 4 % at the most.
const PER_OCTAVE: usize = 8;

/// From a millisecond to a quarter of an hour; what is longer counts as that.
const OCTAVES: usize = 20;

/// Times, counted in bins of equal ratio. Below a millisecond is 0.
#[derive(Clone, Debug)]
pub(super) struct Spread {
    bins: [u32; BINS],
    count: u32,
}

const BINS: usize = PER_OCTAVE * OCTAVES + 1;

// === impl Spread ===

impl Default for Spread {
    fn default() -> Self {
        Self {
            bins: [0; BINS],
            count: 0,
        }
    }
}

impl Spread {
    pub(super) fn see(&mut self, time: Duration) {
        let bin = &mut self.bins[bin(time)];
        *bin = bin.saturating_add(1);
        self.count = self.count.saturating_add(1);
    }

    /// Seconds that a `share` of them did not pass; `None` where there were none.
    pub(super) fn quantile(&self, share: f64) -> Option<f64> {
        let rank = (f64::from(self.count) * share).max(1.0);
        let mut below = 0;
        let found = self.bins.iter().position(|&count| {
            below += count;
            f64::from(below) >= rank
        });
        found.filter(|_| self.count > 0).map(seconds)
    }

    /// Begins anew.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

fn bin(time: Duration) -> usize {
    let mut upper = Duration::from_millis(1);
    for octave in 0..OCTAVES {
        let lower = upper;
        upper *= 2;
        if time < lower {
            return 0;
        }
        if time < upper {
            let ratio = time.as_secs_f64() / lower.as_secs_f64();
            let parts = (1..PER_OCTAVE).filter(|&part| ratio >= edge(part)).count();
            return octave * PER_OCTAVE + parts + 1;
        }
    }
    BINS - 1
}

/// Where a part of an octave begins.
fn edge(part: usize) -> f64 {
    (part as f64 / PER_OCTAVE as f64).exp2()
}

/// The middle of a bin.
fn seconds(bin: usize) -> f64 {
    match bin.checked_sub(1) {
        None => 0.0,
        Some(bin) => 0.001 * ((bin as f64 + 0.5) / PER_OCTAVE as f64).exp2(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_within_a_twentieth() {
        let mut spread = Spread::default();
        assert_eq!(spread.quantile(0.5), None);
        for nth in 1..=1000 {
            spread.see(Duration::from_millis(nth * 3));
        }
        for (share, seconds) in [(0.5, 1.5), (0.99, 2.97), (0.01, 0.03)] {
            let told = spread.quantile(share).unwrap();
            assert!((told / seconds - 1.0).abs() < 0.05, "{share}: {told}");
        }
        spread.clear();
        spread.see(Duration::from_micros(900));
        assert_eq!(spread.quantile(0.99), Some(0.0));
        spread.see(Duration::from_secs(100_000));
        assert!(spread.quantile(1.0).unwrap() > 900.0);
    }
}
