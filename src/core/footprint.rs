//! From a demand to KV blocks: what a request takes now, and at most.
//!
//! The rules are those of vLLM's KV cache manager (`v1/core/kv_cache_manager.py`):
//! a sequence of `t` tokens takes `ceil(t / block_size)` blocks, the last sampled
//! token has no KV yet, and samples of one prompt share its full blocks when
//! the prefix cache is on. Everything rounds **up**: a footprint is never less
//! than what the engine will ask for. Sums saturate: samples times prompts times
//! output may be past any number, and that means "fits nowhere".

use super::backend::{Capacity, PrefixCaching};
use super::demand::{Demand, Work};
use super::units::{Blocks, Tokens};

/// The shape of a request's sequences, enough to know its blocks at any age.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Lengths of the prompts, ascending, each with how many prompts have it: a
    /// list of thousands is mostly a few lengths, and every look at a footprint,
    /// under the pool's lock, walks this.
    prompts: Vec<(Tokens, u64)>,
    samples: u64,
    work: Work,
}

// === impl Shape ===

impl Shape {
    /// The shape of `demand`.
    pub fn of(demand: &Demand) -> Self {
        // What holds nothing has no sequences at all.
        let prompts = match demand.work {
            Work::Generate | Work::Pool => by_length(&demand.prompts),
            Work::Aside => Vec::new(),
        };
        Self {
            prompts,
            samples: u64::from(demand.samples.max(1)),
            work: demand.work,
        }
    }

    /// Sequences the engine runs.
    pub fn sequences(&self) -> u64 {
        self.samples * self.prompts.iter().map(|&(_, times)| times).sum::<u64>()
    }

    /// The longest prompt.
    pub fn longest(&self) -> Tokens {
        self.prompts
            .last()
            .map_or(Tokens::ZERO, |&(longest, _)| longest)
    }

    /// The prompt of the one sequence that it is, if it is one that generates.
    pub(super) fn one_prompt(&self) -> Option<Tokens> {
        match (self.work, self.samples, &self.prompts[..]) {
            (Work::Generate, 1, &[(prompt, 1)]) => Some(prompt),
            _ => None,
        }
    }

    /// All prompt tokens together.
    pub fn prompt_total(&self) -> Tokens {
        let prompts = self.prompts.iter();
        prompts.map(|&(length, times)| length * times).sum()
    }

    /// Blocks held once every sequence has emitted `generated` tokens.
    ///
    /// A sequence that has emitted `g ≥ 1` tokens holds KV for `prompt + g − 1`
    /// of them, plus the engine's lookahead; before the first token it holds
    /// its prompt. Never past `max_model_len`. A list of prompts that generate
    /// nothing takes no more than the pool: none of them grows, so the engine
    /// works the list off as its memory allows.
    pub fn blocks(&self, generated: Tokens, capacity: &Capacity) -> Blocks {
        let all = self
            .prompts
            .iter()
            .map(|&(prompt, times)| {
                self.prompt_blocks(prompt, generated, capacity)
                    .saturating_mul(times)
            })
            .fold(Blocks::ZERO, Blocks::saturating_add);
        match self.work {
            Work::Generate => all,
            Work::Pool | Work::Aside => all.min(capacity.blocks),
        }
    }

    /// Tokens of all sequences once each has emitted `generated`, a shared prompt
    /// block counted once: linear in `generated`, and never more than one block
    /// a sequence below what [`blocks`](Self::blocks) holds.
    pub fn tokens(&self, generated: Tokens, capacity: &Capacity) -> Tokens {
        let alike = |&(prompt, times): &(Tokens, u64)| {
            let shared = match capacity.prefix_caching {
                PrefixCaching::Shared if self.samples > 1 => {
                    prompt.blocks_down(capacity.block_size)
                }
                _ => Blocks::ZERO,
            };
            let shared = shared.tokens(capacity.block_size);
            let grown = generated.saturating_add(capacity.lookahead);
            let own = (prompt - shared).saturating_add(grown);
            let each = shared.saturating_add(own.saturating_mul(self.samples));
            each.saturating_mul(times)
        };
        let prompts = self.prompts.iter().map(alike);
        prompts.fold(Tokens::ZERO, Tokens::saturating_add)
    }

    fn prompt_blocks(&self, prompt: Tokens, generated: Tokens, capacity: &Capacity) -> Blocks {
        let size = capacity.block_size;
        let tokens = match self.work {
            Work::Pool | Work::Aside => prompt,
            Work::Generate => sequence_tokens(prompt, generated, capacity),
        };
        let own = tokens.blocks_up(size);
        if self.samples == 1 {
            return own;
        }
        match capacity.prefix_caching {
            PrefixCaching::PerSequence => own.saturating_mul(self.samples),
            PrefixCaching::Shared => {
                let shared = prompt.blocks_down(size);
                shared.saturating_add((own - shared).saturating_mul(self.samples))
            }
        }
    }

    /// Whether every sequence may emit `output` tokens on an empty backend, at least
    /// one where it generates.
    pub fn could_emit(&self, output: Tokens, capacity: &Capacity) -> bool {
        if self.work != Work::Generate {
            return self
                .largest_output(capacity)
                .is_some_and(|room| output <= room);
        }
        let output = output.max(Tokens::new(1));
        let context = self.longest().saturating_add(output);
        context <= capacity.max_model_len && self.blocks(output, capacity) <= capacity.blocks
    }

    /// The largest output per sequence that still fits an empty backend, or
    /// `None` where not even one token does.
    pub fn largest_output(&self, capacity: &Capacity) -> Option<Tokens> {
        let room = capacity.max_model_len.checked_sub(self.longest())?;
        if self.work != Work::Generate {
            let longest = self.longest().blocks_up(capacity.block_size);
            return (longest <= capacity.blocks).then_some(Tokens::ZERO);
        }
        let fits = |output: u64| self.blocks(Tokens::new(output), capacity) <= capacity.blocks;
        if room.is_zero() || !fits(1) {
            return None;
        }
        if fits(room.get()) {
            return Some(room);
        }
        // Blocks never fall as the output grows, so the edge can be bisected.
        let (mut fitting, mut failing) = (1, room.get());
        while failing - fitting > 1 {
            let middle = fitting + (failing - fitting) / 2;
            if fits(middle) {
                fitting = middle
            } else {
                failing = middle
            }
        }
        Some(Tokens::new(fitting))
    }
}

/// Blocks of one sequence that generates, once it has emitted `generated` tokens after
/// `prompt`: what [`Shape::blocks`] says of it.
#[inline]
pub(super) fn sequence_blocks(prompt: Tokens, generated: Tokens, capacity: &Capacity) -> Blocks {
    sequence_tokens(prompt, generated, capacity).blocks_up(capacity.block_size)
}

fn sequence_tokens(prompt: Tokens, generated: Tokens, capacity: &Capacity) -> Tokens {
    let emitted = generated.saturating_sub(Tokens::new(1));
    let grown = emitted.saturating_add(capacity.lookahead);
    prompt
        .saturating_add(grown)
        .min(capacity.max_model_len.max(prompt))
}

/// Each length once, ascending, with how often it occurs.
fn by_length(prompts: &[Tokens]) -> Vec<(Tokens, u64)> {
    if let &[prompt] = prompts {
        return vec![(prompt, 1)];
    }
    let mut sorted = prompts.to_vec();
    sorted.sort_unstable();
    let alike = sorted.chunk_by(|a, b| a == b);
    alike
        .map(|group| (group[0], u64::try_from(group.len()).unwrap_or(u64::MAX)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::backend::CapacitySource;
    use crate::core::units::BlockSize;

    fn capacity(blocks: u64) -> Capacity {
        Capacity {
            blocks: Blocks::new(blocks),
            block_size: BlockSize::new(16).expect("not zero"),
            max_model_len: Tokens::new(8192),
            max_num_seqs: None,
            lookahead: Tokens::ZERO,
            prefix_caching: PrefixCaching::Shared,
            source: CapacitySource::Configured,
        }
    }

    fn shape(prompts: &[u64], samples: u64) -> Shape {
        let prompts: Vec<Tokens> = prompts.iter().map(|&p| Tokens::new(p)).collect();
        Shape {
            prompts: by_length(&prompts),
            samples,
            work: Work::Generate,
        }
    }

    #[test]
    fn the_last_token_needs_no_slot() {
        assert_eq!(
            shape(&[16], 1).blocks(Tokens::new(1), &capacity(100)),
            Blocks::new(1)
        );
        assert_eq!(
            shape(&[16], 1).blocks(Tokens::new(2), &capacity(100)),
            Blocks::new(2)
        );
        assert_eq!(
            shape(&[1500], 1).blocks(Tokens::new(1500), &capacity(999)),
            Blocks::new(188)
        );
    }

    #[test]
    fn a_list_that_generates_nothing_takes_at_most_the_pool() {
        let pooled = |prompts: &[u64]| Shape {
            work: Work::Pool,
            ..shape(prompts, 1)
        };
        let blocks = |prompts| pooled(prompts).blocks(Tokens::ZERO, &capacity(10));
        assert_eq!(blocks(&[17, 16]), Blocks::new(3));
        assert_eq!(blocks(&[160, 160]), Blocks::new(10));
        let fits = |prompts| pooled(prompts).largest_output(&capacity(10));
        assert_eq!(fits(&[160, 160]), Some(Tokens::ZERO));
        // Each must still fit by itself.
        assert_eq!(fits(&[16, 161]), None);
        let empty = Shape {
            prompts: Vec::new(),
            ..pooled(&[])
        };
        assert_eq!(empty.blocks(Tokens::ZERO, &capacity(10)), Blocks::ZERO);
    }

    #[test]
    fn samples_share_full_prompt_blocks_only_when_the_prefix_cache_is_on() {
        let eight = shape(&[100], 8);
        // 6 full prompt blocks once, then 8 × (ceil(1099 / 16) − 6).
        assert_eq!(
            eight.blocks(Tokens::new(1000), &capacity(999)),
            Blocks::new(6 + 8 * 63)
        );
        let apart = Capacity {
            prefix_caching: PrefixCaching::PerSequence,
            ..capacity(999)
        };
        assert_eq!(eight.blocks(Tokens::new(1000), &apart), Blocks::new(8 * 69));
    }

    #[test]
    fn every_prompt_of_a_list_is_charged() {
        assert_eq!(
            shape(&[16, 17, 1], 2).blocks(Tokens::new(1), &capacity(99)),
            Blocks::new(1 + 3 + 2)
        );
    }

    #[test]
    fn prompts_of_one_length_are_kept_as_one() {
        let many = shape(&[7; 16_384], 2);
        assert_eq!(many.prompts, [(Tokens::new(7), 16_384)]);
        assert_eq!(many.sequences(), 32_768);
        let mixed = shape(&[9, 16, 9, 40], 3);
        assert_eq!((mixed.sequences(), mixed.prompts.len()), (12, 3));
        let (total, longest) = (mixed.prompt_total(), mixed.longest());
        assert_eq!((total, longest), (Tokens::new(74), Tokens::new(40)));
        for generated in [0, 1, 17, 900].map(Tokens::new) {
            let apart = [9, 16, 9, 40].map(|prompt| shape(&[prompt], 3));
            let blocks = apart.iter().map(|one| one.blocks(generated, &capacity(99)));
            assert_eq!(mixed.blocks(generated, &capacity(99)), blocks.sum());
            let tokens = apart.iter().map(|one| one.tokens(generated, &capacity(99)));
            assert_eq!(mixed.tokens(generated, &capacity(99)), tokens.sum());
        }
    }

    #[test]
    fn the_largest_output_is_bounded_by_the_window_and_by_the_pool() {
        assert_eq!(
            shape(&[8000], 1).largest_output(&capacity(1000)),
            Some(Tokens::new(192))
        );
        assert_eq!(
            shape(&[100], 1).largest_output(&capacity(10)),
            Some(Tokens::new(61))
        );
        assert_eq!(
            shape(&[160], 1).largest_output(&capacity(10)),
            Some(Tokens::new(1))
        );
        assert_eq!(shape(&[161], 1).largest_output(&capacity(10)), None);
        assert_eq!(shape(&[9000], 1).largest_output(&capacity(1000)), None);
        // Two samples: one shared block, so 9 blocks are left for two tails.
        let two = shape(&[16], 2).largest_output(&capacity(9)).expect("fits");
        assert_eq!(two, Tokens::new(65));
        assert!(shape(&[16], 2).blocks(two, &capacity(9)) <= Blocks::new(9));
    }
}
