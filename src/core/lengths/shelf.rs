//! A bounded set of counts: the least recently used make room for new ones.

use std::collections::BTreeMap;
use std::ops::RangeBounds;
use std::sync::Arc;

use super::counts::Counts;
use super::curve::Table;

/// Counts by key, and who was used when.
#[derive(Clone, Debug)]
pub(super) struct Shelf<K> {
    counts: BTreeMap<K, (u64, Counts)>,
    by_use: BTreeMap<u64, K>,
    uses: u64,
    most: usize,
}

// === impl Shelf ===

impl<K: Ord + Copy> Shelf<K> {
    /// Holds at most `most`, at least 1.
    pub(super) fn new(most: usize) -> Self {
        Self {
            counts: BTreeMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
            most: most.max(1),
        }
    }

    pub(super) fn get(&self, key: K) -> Option<&Counts> {
        self.counts.get(&key).map(|(_, counts)| counts)
    }

    pub(super) fn len(&self) -> usize {
        self.counts.len()
    }

    /// The counts of `key` as the most recently used, made where there are none.
    /// O(log n).
    pub(super) fn take_up(&mut self, key: K, above: &Arc<Table>) -> &mut Counts {
        if !self.counts.contains_key(&key) && self.counts.len() >= self.most {
            self.evict_oldest();
        }
        self.uses += 1;
        let entry = self
            .counts
            .entry(key)
            .or_insert_with(|| (self.uses, Counts::new(Arc::clone(above))));
        self.by_use.remove(&entry.0);
        entry.0 = self.uses;
        self.by_use.insert(self.uses, key);
        &mut entry.1
    }

    /// Makes room for one more among at most `most` keys of `range`. O(keys there).
    pub(super) fn make_room(&mut self, range: impl RangeBounds<K>, most: usize) {
        let there = self.counts.range(range);
        let (mut count, mut oldest) = (0, None);
        for (&key, &(used, _)) in there {
            count += 1;
            oldest = oldest.max(Some((std::cmp::Reverse(used), key)));
        }
        if let Some((std::cmp::Reverse(used), key)) = oldest.filter(|_| count >= most) {
            self.by_use.remove(&used);
            self.counts.remove(&key);
        }
    }

    fn evict_oldest(&mut self) {
        if let Some((_, key)) = self.by_use.pop_first() {
            self.counts.remove(&key);
        }
    }
}
