//! How full a backend will get: the future-peak test.
//!
//! Sequences that run together grow together, one token a step, and leave at
//! different times. The fullest moment is always just before one of them
//! leaves, so it is enough to look at those moments: sort what is in flight by
//! how many tokens each has still to emit, and at each end add up what is then
//! still there (the "Past-Future" scheduler of LightLLM, ASPLOS 2025). Staggered
//! requests share memory that a worst-case reservation would leave idle.
//!
//! Nothing here is stored: a forecast is derived from the books, never put in.

use super::backend::Capacity;
use super::demand::OutputLimit;
use super::footprint::Shape;
use super::units::{Blocks, Tokens};

/// Says how many tokens a running sequence is still to emit.
///
/// A trait because something will learn here; the facts arrive through
/// [`on_finished`](Self::on_finished) and one number comes out.
pub trait LengthModel {
    /// Tokens still to come of a sequence that has emitted `generated`, at
    /// least 1, so that a running sequence never counts as gone.
    fn remaining(&self, output: OutputLimit, generated: Tokens) -> Tokens;

    /// A sequence ended by itself after `generated` tokens.
    fn on_finished(&mut self, output: OutputLimit, generated: Tokens);
}

/// Lengths known by their bounds: `max_tokens` where the client said, else a
/// configured expectation that doubles whenever it is outlived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownBounds {
    open_output: Tokens,
}

/// One lease as the forecast sees it.
#[derive(Clone, Debug)]
pub struct Runner<'a> {
    /// Its sequences.
    pub shape: &'a Shape,
    /// Tokens each sequence has emitted so far.
    pub generated: Tokens,
    /// Tokens each sequence is still to emit.
    pub remaining: Tokens,
}

/// Whether the fullest future moment of a backend stays within `limit` blocks.
///
/// `fixed` are blocks that stay whatever happens: leases whose growth is not
/// seen, shared prefixes, traffic of others. Exact for sequences that emit one
/// token a step. Sorts the runners; O(n log n), and O(n) more for each end that
/// is within rounding of the limit.
pub fn stays_within(
    runners: &mut [Runner<'_>],
    fixed: Blocks,
    capacity: &Capacity,
    limit: Blocks,
) -> bool {
    let Some(room) = limit.checked_sub(fixed) else {
        return false;
    };
    runners.sort_by_key(|runner| std::cmp::Reverse(runner.remaining));
    let size = u64::from(capacity.block_size.get());
    // Tokens of those that run longest, and how many sequences they are.
    let (mut held, mut sequences) = (Tokens::ZERO, 0);
    let mut doubtful = Vec::new();
    for (end, runner) in runners.iter().enumerate() {
        held += runner.shape.tokens(runner.generated, capacity);
        sequences += runner.shape.sequences();
        // Of several that end together only the last adds up to the whole.
        let next = runners.get(end + 1).map(|next| next.remaining);
        if next == Some(runner.remaining) {
            continue;
        }
        let then = held + runner.remaining * sequences;
        // Each sequence fills its last block in part, or is cut off at the window.
        let slack = Tokens::new(1) + capacity.lookahead;
        let least = then.saturating_sub(slack * sequences).get() / size;
        let most = then.get() / size + sequences;
        if least > room.get() {
            return false;
        }
        if most > room.get() {
            doubtful.push(end);
        }
    }
    doubtful
        .iter()
        .all(|&end| held_at_end(&runners[..=end], capacity) <= room)
}

/// Blocks held when the last of `runners` is about to end.
fn held_at_end(runners: &[Runner<'_>], capacity: &Capacity) -> Blocks {
    let ahead = runners.last().map_or(Tokens::ZERO, |last| last.remaining);
    let held = |runner: &Runner<'_>| runner.shape.blocks(runner.generated + ahead, capacity);
    runners.iter().map(held).sum()
}

// === impl KnownBounds ===

impl KnownBounds {
    /// Expects `open_output` tokens, at least 1, of requests that set no limit.
    pub fn new(open_output: Tokens) -> Self {
        Self {
            open_output: open_output.max(Tokens::new(1)),
        }
    }
}

impl LengthModel for KnownBounds {
    fn remaining(&self, output: OutputLimit, generated: Tokens) -> Tokens {
        let expected = match output {
            OutputLimit::Asked(bound) => bound,
            OutputLimit::Open { at_most } => {
                // Outliving the expectation says "long": expect as much again.
                let expected = if generated < self.open_output {
                    self.open_output
                } else {
                    generated * 2
                };
                expected.min(at_most.unwrap_or(Tokens::MAX))
            }
        };
        expected.saturating_sub(generated).max(Tokens::new(1))
    }

    fn on_finished(&mut self, _output: OutputLimit, _generated: Tokens) {
        // Bounds do not change with what was seen.
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::backend::{CapacitySource, PrefixCaching, TierSet};
    use crate::core::demand::{Demand, Length, OffloadRule, Progress, TenantId, Work};
    use crate::core::prefix::PrefixChain;
    use crate::core::time::Time;
    use crate::core::units::BlockSize;

    fn capacity() -> Capacity {
        Capacity {
            blocks: Blocks::new(1_000_000),
            block_size: BlockSize::new(1).expect("not zero"),
            max_model_len: Tokens::new(100_000),
            max_num_seqs: None,
            lookahead: Tokens::ZERO,
            prefix_caching: PrefixCaching::Shared,
            source: CapacitySource::Configured,
        }
    }

    fn shape(prompt: u64) -> Shape {
        Shape::of(&Demand {
            tenant: TenantId(0),
            arrival: crate::core::demand::Arrival(0),
            served: crate::core::backend::ServedId(0),
            prompts: vec![Tokens::new(prompt)],
            samples: 1,
            output: OutputLimit::Asked(Tokens::new(1)),
            kind: crate::core::demand::Kind::default(),
            work: Work::Generate,
            progress: Progress::Streamed,
            tiers: TierSet::ALL,
            offload: OffloadRule::WhenOnly,
            length: Length::ByFootprint,
            prefix: PrefixChain::default(),
            trail: crate::core::prefix::PrefixTrail::default(),
            first_token_by: None,
            deadline: Time::NEVER,
        })
    }

    fn runner(shape: &Shape, generated: u64, remaining: u64) -> Runner<'_> {
        Runner {
            shape,
            generated: Tokens::new(generated),
            remaining: Tokens::new(remaining),
        }
    }

    fn peak(runners: &mut [Runner<'_>], fixed: u64) -> u64 {
        let within = |limit: &u64| {
            let mut runners = runners.to_vec();
            stays_within(
                &mut runners,
                Blocks::new(fixed),
                &capacity(),
                Blocks::new(*limit),
            )
        };
        (0..20_000).find(within).expect("peaks below 20,000 blocks")
    }

    #[test]
    fn staggered_requests_peak_below_the_sum_of_their_bounds() {
        let thousand = shape(1000);
        // One has 100 tokens to go, the other 1000: when the first leaves they
        // hold (1000 + 999) + (1000 + 100 − 1); the second peaks alone later.
        let mut both = [runner(&thousand, 900, 100), runner(&thousand, 0, 1000)];
        assert_eq!(peak(&mut both, 0), 1999 + 1099);
    }

    #[test]
    fn requests_that_end_together_peak_at_the_sum_of_their_bounds() {
        let thousand = shape(1000);
        let mut both = [runner(&thousand, 0, 500), runner(&thousand, 0, 500)];
        assert_eq!(peak(&mut both, 7), 2 * 1499 + 7);
    }

    #[test]
    fn the_limit_is_met_to_the_block_whatever_the_block_size() {
        for size in [1, 7, 16, 128] {
            let capacity = Capacity {
                block_size: BlockSize::new(size).expect("not zero"),
                lookahead: Tokens::new(1),
                ..capacity()
            };
            let shapes: Vec<Shape> = (1..12).map(|nth| shape(nth * 37)).collect();
            let all: Vec<Runner<'_>> = shapes
                .iter()
                .zip(1..)
                .map(|(shape, nth)| runner(shape, nth * 5, 400 - nth * 31))
                .collect();
            let exact = (0..all.len())
                .map(|end| held_at_end(&all[..=end], &capacity))
                .max();
            let exact = exact.expect("there are runners");
            let within = |limit| stays_within(&mut all.clone(), Blocks::ZERO, &capacity, limit);
            assert!(within(exact), "size {size}");
            assert!(!within(exact - Blocks::new(1)), "size {size}");
        }
    }

    #[test]
    fn an_open_request_that_outlives_its_expectation_is_expected_to_double() {
        let bounds = KnownBounds::new(Tokens::new(100));
        let open = OutputLimit::Open { at_most: None };
        assert_eq!(bounds.remaining(open, Tokens::new(40)), Tokens::new(60));
        assert_eq!(bounds.remaining(open, Tokens::new(100)), Tokens::new(100));
        assert_eq!(bounds.remaining(open, Tokens::new(250)), Tokens::new(250));
        let capped = OutputLimit::Open {
            at_most: Some(Tokens::new(300)),
        };
        assert_eq!(bounds.remaining(capped, Tokens::new(250)), Tokens::new(50));
        assert_eq!(
            bounds.remaining(OutputLimit::Asked(Tokens::new(9)), Tokens::new(9)),
            Tokens::new(1)
        );
    }
}
