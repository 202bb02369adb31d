//! Sequences: how far each is computed, what it holds, when it ends.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use super::blocks::{BlockIndex, ContentKey};
use super::{FinishReason, RequestId, SimRequest};
use crate::core::prefix::PrefixChain;
use crate::core::units::{BlockSize, Blocks, Tokens};
use crate::sim::random::mix;

/// Sequences are numbered in order of arrival and never renumbered.
pub(super) type SequenceId = u64;

/// The sequences that have not ended, found by number in O(1).
#[derive(Clone, Debug, Default)]
pub(super) struct Sequences {
    /// Number of the first slot: all before it have ended.
    first: SequenceId,
    slots: VecDeque<Option<Sequence>>,
}

#[derive(Clone, Debug)]
pub(super) struct Sequence {
    pub(super) request: RequestId,
    pub(super) sample: u32,
    /// Of how many.
    pub(super) samples: u32,
    pub(super) prompt: Tokens,
    pub(super) prefix: PrefixChain,
    /// Tokens it is allowed: `max_tokens`, or the rest of the context.
    pub(super) limit: Tokens,
    /// Tokens after which it stops by itself.
    pub(super) output: Tokens,
    pub(super) generated: Tokens,
    /// Tokens whose KV is computed or planned.
    pub(super) computed: Tokens,
    /// Tokens planned to be generated, not yet known.
    pub(super) pending: Tokens,
    /// KV computed before the last preemption: what is computed below it is done again.
    pub(super) lost: Tokens,
    /// Prompt tokens found in the prefix cache at its first admission.
    pub(super) cached: Tokens,
    pub(super) preemptions: u32,
    /// Of those, how many since its last token.
    pub(super) untold: u32,
    pub(super) blocks: Vec<BlockIndex>,
    /// How many leading blocks can be found by content.
    pub(super) published: usize,
}

// === impl Sequences ===

impl Sequences {
    pub(super) fn insert(&mut self, sequence: Sequence) -> SequenceId {
        let slots = u64::try_from(self.slots.len()).unwrap_or(u64::MAX);
        self.slots.push_back(Some(sequence));
        self.first + slots
    }

    pub(super) fn get_mut(&mut self, id: SequenceId) -> Option<&mut Sequence> {
        let slot = usize::try_from(id.checked_sub(self.first)?).ok()?;
        self.slots.get_mut(slot)?.as_mut()
    }

    pub(super) fn remove(&mut self, id: SequenceId) -> Option<Sequence> {
        let slot = usize::try_from(id.checked_sub(self.first)?).ok()?;
        let sequence = self.slots.get_mut(slot)?.take();
        while matches!(self.slots.front(), Some(None)) {
            self.slots.pop_front();
            self.first += 1;
        }
        sequence
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

impl Index<SequenceId> for Sequences {
    type Output = Sequence;

    fn index(&self, id: SequenceId) -> &Sequence {
        usize::try_from(id - self.first)
            .ok()
            .and_then(|slot| self.slots[slot].as_ref())
            .expect("a scheduled sequence is live")
    }
}

impl IndexMut<SequenceId> for Sequences {
    fn index_mut(&mut self, id: SequenceId) -> &mut Sequence {
        self.get_mut(id).expect("a scheduled sequence is live")
    }
}

// === impl Sequence ===

impl Sequence {
    pub(super) fn new(id: RequestId, sample: u32, request: &SimRequest, room: Tokens) -> Self {
        Self {
            request: id,
            sample,
            samples: request.samples,
            prompt: request.prompt,
            prefix: request.prefix.clone(),
            limit: request
                .max_tokens
                .unwrap_or(room)
                .clamp(Tokens::new(1), room),
            output: request.output.max(Tokens::new(1)),
            generated: Tokens::ZERO,
            computed: Tokens::ZERO,
            pending: Tokens::ZERO,
            lost: Tokens::ZERO,
            cached: Tokens::ZERO,
            preemptions: 0,
            untold: 0,
            blocks: Vec::new(),
            published: 0,
        }
    }

    /// Prompt and known output.
    pub(super) fn tokens(&self) -> Tokens {
        self.prompt + self.generated
    }

    /// Tokens still to be computed before the next one can be generated. None when every
    /// token its limit allows is on its way.
    pub(super) fn wanted(&self) -> Tokens {
        if self.generated + self.pending >= self.limit {
            return Tokens::ZERO;
        }
        self.tokens() + self.pending - self.computed
    }

    /// Why it ends with the tokens it has, if it does.
    pub(super) fn finish(&self) -> Option<FinishReason> {
        if self.generated >= self.limit {
            // A stop that falls on the limit is a stop, unless the limit cut it.
            return Some(if self.output < self.limit {
                FinishReason::Stop
            } else {
                FinishReason::Length
            });
        }
        (self.generated >= self.output).then_some(FinishReason::Stop)
    }

    /// Of its `whole` blocks, the most that another sequence may hold too.
    pub(super) fn shareable(&self, whole: Blocks) -> Blocks {
        if self.samples > 1 {
            return whole;
        }
        Blocks::new(u64::try_from(self.prefix.hashes().len()).unwrap_or(u64::MAX)).min(whole)
    }

    /// The content of its block `index`, once that block is full.
    pub(super) fn content(&self, index: usize, size: BlockSize) -> ContentKey {
        if let Some(hash) = self.prefix.hashes().get(index) {
            return hash.0;
        }
        let place = u64::try_from(index).unwrap_or(u64::MAX);
        let end = (place + 1).saturating_mul(u64::from(size.get()));
        // Samples share the prompt's blocks; a block with output in it is the sample's own.
        let owner = if end <= self.prompt.get() {
            0
        } else {
            u64::from(self.sample) + 1
        };
        mix(mix(mix(0x7469_6465, self.request.0), owner), place)
    }

    /// Forgets what was computed, for recomputation. The caller gives the blocks back.
    pub(super) fn preempt(&mut self) -> Vec<BlockIndex> {
        self.lost = self.lost.max(self.computed);
        self.computed = Tokens::ZERO;
        self.preemptions += 1;
        self.untold += 1;
        self.published = 0;
        std::mem::take(&mut self.blocks)
    }
}
