//! Counts of stretches of text that were seen before.
//!
//! Decides what is remembered and for how long. Never keeps a text. Invariant: a
//! count is found only under the keyed hash of the very text it was stored for,
//! short of a collision of 128 bits under a key nobody outside knows.
//!
//! An engine that is sent a conversation of a hundred turns has seen all but the
//! last before. Hashing is fifty times cheaper than tokenizing.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use siphasher::sip128::SipHasher13;

/// Locks, so that threads which count at once seldom meet.
const SHARDS: usize = 16;

/// Stretches remembered per shard and generation: 7/8 of a power of two, which is
/// where a table grows. With 25 bytes a place, both generations of all shards take
/// 13 MB when full, for between 229,000 and 458,000 stretches.
const PER_GENERATION: usize = 14 * 1024;

/// The counts of one vocabulary, of at most [`SHARDS`] × 2 × [`PER_GENERATION`]
/// stretches.
#[derive(Debug)]
pub(super) struct Cache {
    hasher: SipHasher13,
    /// Each lock is held for one look-up or one insertion, and every
    /// [`PER_GENERATION`] insertions to free a table.
    shards: [Mutex<Generations>; SHARDS],
}

/// What the hash of a text is; the hash is keyed, so no client chooses its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// Chooses the shard.
    shard: u64,
    /// Chooses the place in it.
    place: u64,
}

#[derive(Debug, Default)]
struct Generations {
    young: Table,
    old: Table,
}

type Table = HashMap<Key, u32, BuildHasherDefault<Place>>;

/// Takes the place of a key for its hash, which is what it is.
#[derive(Debug, Default)]
struct Place(u64);

// === impl Cache ===

impl Cache {
    /// An empty cache with a key of its own.
    pub(super) fn new() -> Self {
        Self {
            hasher: SipHasher13::new_with_key(&rand::random()),
            shards: Default::default(),
        }
    }

    /// The place of `text`. O(bytes), some gigabytes a second.
    pub(super) fn key(&self, text: &str) -> Key {
        let hash = self.hasher.hash(text.as_bytes());
        Key {
            shard: hash.h1,
            place: hash.h2,
        }
    }

    /// The count stored under `key`, which stays for another generation.
    pub(super) fn get(&self, key: Key) -> Option<u64> {
        let mut shard = self.shard(key);
        if let Some(tokens) = shard.young.get(&key) {
            return Some(u64::from(*tokens));
        }
        let tokens = shard.old.remove(&key)?;
        shard.insert(key, tokens);
        Some(u64::from(tokens))
    }

    /// Stores a count; drops the older half of the shard if it is full.
    pub(super) fn insert(&self, key: Key, tokens: u64) {
        let Ok(tokens) = u32::try_from(tokens) else {
            return;
        };
        self.shard(key).insert(key, tokens);
    }

    fn shard(&self, key: Key) -> MutexGuard<'_, Generations> {
        let shards = u64::try_from(SHARDS).expect("sixteen fits");
        let at = usize::try_from(key.shard % shards).expect("below sixteen");
        // A table is whole after a panic: nothing under the lock calls out.
        self.shards[at]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Generations ===

impl Generations {
    fn insert(&mut self, key: Key, tokens: u32) {
        if self.young.len() >= PER_GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, tokens);
    }
}

// === impl Key ===

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.place);
    }
}

// === impl Place ===

impl Hasher for Place {
    fn write(&mut self, _: &[u8]) {
        unreachable!("a key hashes one word");
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_found_under_its_text_only() {
        let cache = Cache::new();
        cache.insert(cache.key("one"), 1);
        assert_eq!(cache.get(cache.key("one")), Some(1));
        assert_eq!(cache.get(cache.key("two")), None);
    }

    #[test]
    fn two_caches_hash_with_keys_of_their_own() {
        assert_ne!(Cache::new().key("one"), Cache::new().key("one"));
    }

    #[test]
    fn what_is_used_survives_and_the_number_of_stretches_is_bounded() {
        let cache = Cache::new();
        let kept = cache.key("kept");
        cache.insert(kept, 7);
        for number in 0..600_000_u64 {
            cache.insert(cache.key(&number.to_string()), number);
            if number % 1000 == 0 {
                assert_eq!(cache.get(kept), Some(7), "after {number}");
            }
        }
        let held: usize = cache
            .shards
            .iter()
            .map(|shard| shard.lock().unwrap())
            .map(|shard| shard.young.len() + shard.old.len())
            .sum();
        assert!(held <= SHARDS * 2 * PER_GENERATION, "{held}");
        assert!(held >= SHARDS * PER_GENERATION, "{held}");
        assert_eq!(cache.get(cache.key("1")), None);
    }
}
