//! The paged KV pool: who holds a block, what it contains, which is reused next.
//!
//! Decides which free block is taken (the front of a queue in eviction order) and which
//! content is still found. Never decides who may take one. Invariant: a block is in the
//! free queue exactly while nobody holds it; a block with content stays findable until it
//! is taken for something else. Block 0 is the null block: never held, never in the queue,
//! and so the queue's own end mark.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::core::units::Blocks;

/// Place of a block in the pool.
pub(super) type BlockIndex = usize;

/// What a full block contains, and everything before it.
pub(super) type ContentKey = u64;

/// The end of the free queue and of the chains of equal content.
const NULL: BlockIndex = 0;

#[derive(Clone, Debug)]
pub(super) struct Pool {
    slots: Vec<Slot>,
    /// Blocks nobody holds.
    free: usize,
    /// First block of each content; further copies hang behind it.
    by_content: HashMap<ContentKey, BlockIndex, BuildHasherDefault<AsItIs>>,
}

/// Content keys are hashes already.
#[derive(Clone, Copy, Debug, Default)]
struct AsItIs(u64);

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    holders: u32,
    content: Option<ContentKey>,
    /// Next block with the same content.
    copy: BlockIndex,
    /// Neighbours in the free queue. Slot 0 is the ring's anchor.
    before: BlockIndex,
    after: BlockIndex,
}

// === impl AsItIs ===

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }
}

// === impl Pool ===

impl Pool {
    /// A pool of `blocks`, the null block among them.
    pub(super) fn new(blocks: Blocks) -> Self {
        let count = usize::try_from(blocks.get()).expect("a pool fits the address space");
        let mut pool = Self {
            slots: vec![Slot::default(); count.max(1)],
            free: 0,
            by_content: HashMap::default(),
        };
        for block in 1..count {
            pool.append(block);
        }
        pool
    }

    /// Blocks that nobody holds, cached ones among them.
    pub(super) fn free(&self) -> Blocks {
        Blocks::new(u64::try_from(self.free).unwrap_or(u64::MAX))
    }

    /// A block with this content, held or free.
    pub(super) fn find(&self, content: ContentKey) -> Option<BlockIndex> {
        self.by_content.get(&content).copied()
    }

    /// Whether nobody holds `block`.
    pub(super) fn is_free(&self, block: BlockIndex) -> bool {
        self.slots[block].holders == 0
    }

    /// Adds a holder to a block that was found.
    pub(super) fn hold(&mut self, block: BlockIndex) {
        if self.is_free(block) {
            self.unlink(block);
        }
        self.slots[block].holders += 1;
    }

    /// Takes the free block that is evicted first, with one holder and no content.
    pub(super) fn take(&mut self) -> Option<BlockIndex> {
        let block = self.slots[NULL].after;
        if block == NULL {
            return None;
        }
        self.forget(block);
        self.hold(block);
        Some(block)
    }

    /// Makes a held block findable by its content.
    pub(super) fn publish(&mut self, block: BlockIndex, content: ContentKey) {
        debug_assert!(!self.is_free(block), "only a held block is written");
        if self.slots[block].content.is_some() {
            return;
        }
        self.slots[block].content = Some(content);
        if let Some(&first) = self.by_content.get(&content) {
            self.slots[block].copy = self.slots[first].copy;
            self.slots[first].copy = block;
        } else {
            self.by_content.insert(content, block);
        }
    }

    /// Gives back a sequence's blocks, first block first. Content goes to the back of the
    /// queue, the end of the sequence ahead of its beginning; blocks without content go to
    /// the front.
    pub(super) fn release(&mut self, blocks: &[BlockIndex]) {
        for &block in blocks.iter().rev() {
            let slot = &mut self.slots[block];
            slot.holders = slot
                .holders
                .checked_sub(1)
                .expect("a block is given back by its holders only");
            if slot.holders > 0 {
                continue;
            }
            if slot.content.is_some() {
                self.append(block);
            } else {
                self.link(block, NULL);
            }
        }
    }

    fn forget(&mut self, block: BlockIndex) {
        let Some(content) = self.slots[block].content.take() else {
            return;
        };
        let next = std::mem::take(&mut self.slots[block].copy);
        let first = self.by_content[&content];
        if first != block {
            let mut at = first;
            while self.slots[at].copy != block {
                at = self.slots[at].copy;
            }
            self.slots[at].copy = next;
        } else if next == NULL {
            self.by_content.remove(&content);
        } else {
            self.by_content.insert(content, next);
        }
    }

    fn append(&mut self, block: BlockIndex) {
        self.link(block, self.slots[NULL].before);
    }

    /// Puts `block` behind `before` in the free queue.
    fn link(&mut self, block: BlockIndex, before: BlockIndex) {
        let after = self.slots[before].after;
        self.slots[block].before = before;
        self.slots[block].after = after;
        self.slots[before].after = block;
        self.slots[after].before = block;
        self.free += 1;
    }

    fn unlink(&mut self, block: BlockIndex) {
        let Slot { before, after, .. } = self.slots[block];
        self.slots[before].after = after;
        self.slots[after].before = before;
        self.free -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_null_block_is_never_given_out() {
        let mut pool = Pool::new(Blocks::new(4));
        let taken: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(taken, [1, 2, 3]);
        assert_eq!(pool.free(), Blocks::ZERO);
    }

    #[test]
    fn the_end_of_a_sequence_is_evicted_before_its_beginning() {
        let mut pool = Pool::new(Blocks::new(5));
        let blocks = [
            pool.take().unwrap(),
            pool.take().unwrap(),
            pool.take().unwrap(),
        ];
        for (block, content) in blocks.into_iter().zip([10, 11, 12]) {
            pool.publish(block, content);
        }
        pool.release(&blocks);
        assert_eq!(pool.free(), Blocks::new(4));
        pool.take().unwrap(); // the one block never used
        pool.take().unwrap();
        assert_eq!(pool.find(12), None);
        assert_eq!(pool.find(10), Some(1));
        pool.take().unwrap();
        assert_eq!((pool.find(10), pool.find(11)), (Some(1), None));
    }

    #[test]
    fn blocks_without_content_are_reused_first() {
        let mut pool = Pool::new(Blocks::new(4));
        let blocks = [pool.take().unwrap(), pool.take().unwrap()];
        pool.publish(blocks[0], 7);
        pool.release(&blocks);
        assert_eq!(pool.take(), Some(blocks[1]));
        assert_eq!(pool.find(7), Some(blocks[0]));
    }

    #[test]
    fn a_copy_stays_findable_when_the_first_is_evicted() {
        let mut pool = Pool::new(Blocks::new(3));
        let (first, second) = (pool.take().unwrap(), pool.take().unwrap());
        pool.publish(first, 7);
        pool.publish(second, 7);
        pool.release(&[first]);
        assert_eq!(pool.take(), Some(first));
        assert_eq!(pool.find(7), Some(second));
        pool.release(&[second]);
        pool.take().unwrap();
        assert_eq!(pool.find(7), None);
    }

    #[test]
    fn a_found_block_leaves_the_free_queue() {
        let mut pool = Pool::new(Blocks::new(3));
        let block = pool.take().unwrap();
        pool.publish(block, 7);
        pool.release(&[block]);
        pool.hold(block);
        pool.hold(block);
        assert_eq!(pool.free(), Blocks::new(1));
        pool.release(&[block]);
        assert_eq!(pool.free(), Blocks::new(1));
        pool.release(&[block]);
        assert_eq!(pool.free(), Blocks::new(2));
    }
}
