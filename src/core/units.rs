//! Tokens, KV blocks and the block size: the only numbers the books are kept in.
//!
//! Arithmetic is checked. An overflow or an underflow means the books are
//! wrong, and a wrong ledger must stop, not drift: the operators panic. Where
//! clipping is right the caller says so with [`Tokens::saturating_sub`].

use std::fmt;
use std::iter::Sum;
use std::num::NonZeroU32;
use std::ops::{Add, AddAssign, Mul, Sub, SubAssign};

/// A number of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tokens(u64);

/// A number of KV blocks, vLLM's allocation unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Blocks(u64);

/// Tokens per KV block; never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockSize(NonZeroU32);

macro_rules! checked_arithmetic {
    ($unit:ident) => {
        impl $unit {
            /// None of them.
            pub const ZERO: Self = Self(0);
            /// More than any engine can hold; stands for "no limit".
            pub const MAX: Self = Self(u64::MAX);
            /// 2^40: more than any engine holds, and small enough to be summed up
            /// and multiplied by sequences without overflow.
            pub const BELIEVABLE: Self = Self(1 << 40);

            /// Wraps a bare number at the edge of the program.
            pub const fn new(count: u64) -> Self {
                Self(count)
            }

            /// Unwraps for metrics, JSON and messages.
            pub const fn get(self) -> u64 {
                self.0
            }

            /// Whether there are none.
            pub const fn is_zero(self) -> bool {
                self.0 == 0
            }

            /// Subtracts, stopping at zero. Only where the clipped value is right.
            pub const fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }

            /// Adds, stopping at [`Self::MAX`]. Only where a limit may be "no limit".
            pub const fn saturating_add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }

            /// Multiplies, stopping at [`Self::MAX`]. Only where "too many" is an answer.
            pub const fn saturating_mul(self, times: u64) -> Self {
                Self(self.0.saturating_mul(times))
            }

            /// Holds what another process claims to [`Self::BELIEVABLE`]: a
            /// broken or hostile engine must not overflow the books.
            pub const fn believable(self) -> Self {
                if self.0 > Self::BELIEVABLE.0 {
                    Self::BELIEVABLE
                } else {
                    self
                }
            }

            /// Subtracts, or `None` where the result would be negative.
            pub const fn checked_sub(self, other: Self) -> Option<Self> {
                match self.0.checked_sub(other.0) {
                    Some(rest) => Some(Self(rest)),
                    None => None,
                }
            }

            /// A share of this amount, rounded **down**. `share` is clamped to 0..=1.
            pub fn share(self, share: f64) -> Self {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    clippy::cast_precision_loss,
                    reason = "a clamped share of a count fits the count's type"
                )]
                let part = (self.0 as f64 * share.clamp(0.0, 1.0)) as u64;
                Self(part.min(self.0))
            }

            /// As a float, for rates and metrics; exact below 2^53.
            #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
            pub const fn as_f64(self) -> f64 {
                self.0 as f64
            }
        }

        impl Add for $unit {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(
                    self.0
                        .checked_add(other.0)
                        .expect("a count of tokens or blocks fits u64"),
                )
            }
        }

        impl Sub for $unit {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(
                    self.0
                        .checked_sub(other.0)
                        .expect("never more is given back than is held"),
                )
            }
        }

        impl Mul<u64> for $unit {
            type Output = Self;
            fn mul(self, times: u64) -> Self {
                Self(
                    self.0
                        .checked_mul(times)
                        .expect("a count of tokens or blocks fits u64"),
                )
            }
        }

        impl AddAssign for $unit {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }

        impl SubAssign for $unit {
            fn sub_assign(&mut self, other: Self) {
                *self = *self - other;
            }
        }

        impl Sum for $unit {
            fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
                counts.fold(Self::ZERO, Add::add)
            }
        }

        impl fmt::Display for $unit {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

checked_arithmetic!(Tokens);
checked_arithmetic!(Blocks);

// === impl Tokens ===

impl Tokens {
    /// Blocks that hold these tokens, rounded **up**.
    pub const fn blocks_up(self, size: BlockSize) -> Blocks {
        Blocks(self.0.div_ceil(size.0.get() as u64))
    }

    /// Blocks these tokens fill to the last place, rounded **down**.
    pub const fn blocks_down(self, size: BlockSize) -> Blocks {
        Blocks(self.0 / size.0.get() as u64)
    }
}

// === impl Blocks ===

impl Blocks {
    /// Tokens that fit in these blocks.
    pub fn tokens(self, size: BlockSize) -> Tokens {
        Tokens(self.0) * u64::from(size.0.get())
    }
}

// === impl BlockSize ===

impl BlockSize {
    /// A block size, or `None` for zero.
    pub const fn new(tokens: u32) -> Option<Self> {
        match NonZeroU32::new(tokens) {
            Some(size) => Some(Self(size)),
            None => None,
        }
    }

    /// Holds what an engine claims to 2^20, so that a believable number of
    /// blocks is a countable number of tokens.
    pub const fn believable(self) -> Self {
        const MOST: NonZeroU32 = NonZeroU32::new(1 << 20).expect("2^20 is not zero");
        if self.0.get() > MOST.get() {
            Self(MOST)
        } else {
            self
        }
    }

    /// Tokens per block.
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_up_to_whole_blocks() {
        let size = BlockSize::new(16).expect("not zero");
        assert_eq!(Tokens::new(0).blocks_up(size), Blocks::new(0));
        assert_eq!(Tokens::new(1).blocks_up(size), Blocks::new(1));
        assert_eq!(Tokens::new(16).blocks_up(size), Blocks::new(1));
        assert_eq!(Tokens::new(17).blocks_up(size), Blocks::new(2));
        assert_eq!(Tokens::new(31).blocks_down(size), Blocks::new(1));
        assert_eq!(Blocks::new(3).tokens(size), Tokens::new(48));
    }

    #[test]
    #[should_panic(expected = "never more is given back than is held")]
    fn giving_back_more_than_is_held_panics() {
        let rest = Blocks::new(1) - Blocks::new(2);
        panic!("reached with {rest}");
    }

    #[test]
    fn a_share_rounds_down_and_never_passes_the_whole() {
        assert_eq!(Tokens::new(10).share(0.25), Tokens::new(2));
        assert_eq!(Tokens::new(10).share(7.0), Tokens::new(10));
        assert_eq!(Tokens::new(10).share(-1.0), Tokens::new(0));
    }
}
