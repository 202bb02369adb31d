//! The bins in which output lengths are counted.
//!
//! Bin `j` holds the lengths above `edge(j)` up to and with `edge(j + 1)`. The
//! edges are 0, 1, … 8, and from there four to each doubling (8, 10, 12, 14, 16,
//! 20, …): a ratio of 1.14 to 1.25, so that a bin is found from the bits of a
//! number. The last bin begins at 114,688 and has no upper end.

use crate::core::units::Tokens;

/// How many bins there are.
pub(super) const BINS: usize = 64;

/// Edges below which every length has its own bin.
const SINGLE: u64 = 8;

/// The lower edge of bin `bin`; `edge(BINS)` is where the last bin would end.
pub(super) const fn edge(bin: usize) -> u64 {
    let bin = bin as u64;
    if bin < SINGLE {
        return bin;
    }
    let (doubling, quarter) = ((bin - SINGLE) / 4, (bin - SINGLE) % 4);
    (4 + quarter) << (doubling + 1)
}

/// The bin whose edges are around the position `at`: `edge(bin) <= at < edge(bin + 1)`.
pub(super) fn around(at: Tokens) -> usize {
    let at = at.get();
    if at < SINGLE {
        return index(at);
    }
    let doubling = u64::from(at.ilog2());
    let quarter = (at >> (doubling - 2)) & 3;
    index(SINGLE + (doubling - 3) * 4 + quarter).min(BINS - 1)
}

/// The bin a finished length falls into; a length of 0 counts as 1.
///
/// A sequence that has emitted `g` tokens and may go on has passed the bins
/// below `of(g)`.
pub(super) fn of(length: Tokens) -> usize {
    around(length.saturating_sub(Tokens::new(1)))
}

/// How much of its bin a sequence of `length` tokens has lived through, 0..=1.
pub(super) fn lived(length: Tokens) -> f64 {
    if length.is_zero() {
        return 0.0;
    }
    let bin = of(length);
    let (from, to) = (Tokens::new(edge(bin)), Tokens::new(edge(bin + 1)));
    ((length - from).as_f64() / (to - from).as_f64()).min(1.0)
}

fn index(bin: u64) -> usize {
    usize::try_from(bin).map_or(BINS - 1, |bin| bin.min(BINS - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_lies_in_its_bin_and_bins_have_no_gaps() {
        for length in (1..3000).chain([32_768, 32_769, 100_000, 131_072]) {
            let bin = of(Tokens::new(length));
            assert!(edge(bin) < length && length <= edge(bin + 1), "{length}");
        }
        assert_eq!((edge(0), edge(8), edge(9), edge(64)), (0, 8, 10, 131_072));
        assert_eq!(of(Tokens::ZERO), 0);
        assert_eq!(of(Tokens::MAX), BINS - 1);
    }

    #[test]
    fn no_bin_is_wider_than_a_quarter_of_its_beginning() {
        for bin in 8..BINS {
            let width = edge(bin + 1) - edge(bin);
            assert!(width * 4 <= edge(bin), "bin {bin} is {width} wide");
        }
    }

    #[test]
    fn what_was_lived_of_a_bin_is_a_share() {
        assert_eq!(lived(Tokens::ZERO), 0.0);
        assert_eq!(lived(Tokens::new(1)), 1.0);
        assert_eq!(lived(Tokens::new(18)), 0.5);
        assert_eq!(lived(Tokens::new(20)), 1.0);
        assert_eq!(lived(Tokens::MAX), 1.0);
    }
}
