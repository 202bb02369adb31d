//! What prompts and answers are made of: words of one token, and the hashes of blocks.

use super::random::mix;
use crate::core::prefix::{PrefixChain, PrefixHash};
use crate::core::units::BlockSize;

/// Words that are one token each in the vocabulary of the simulated servers.
const WORDS: [&str; 16] = [
    " the", " of", " and", " to", " in", " is", " that", " for", " on", " with", " as", " by",
    " at", " from", " or", " an",
];

/// The word of number `place`, one token long; numbers past the last word begin again.
pub fn word(place: u64) -> &'static str {
    let words = u64::try_from(WORDS.len()).expect("there are sixteen words");
    let place = usize::try_from(place % words).expect("a remainder is below the number of words");
    WORDS[place]
}

/// The chain of a prompt given as token ids: one hash per **full** block, each over its
/// block and everything before it. O(ids).
pub fn prefix_of_ids(ids: &[u32], size: BlockSize) -> PrefixChain {
    let size = usize::try_from(size.get()).expect("a block size fits the address space");
    let mut hash = 0;
    let hashes: Vec<PrefixHash> = ids
        .chunks_exact(size)
        .map(|block| {
            hash = block
                .iter()
                .fold(hash, |hash, &id| mix(hash, u64::from(id)));
            PrefixHash(hash)
        })
        .collect();
    PrefixChain::new(hashes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_prefixes_share_hashes_until_they_differ() {
        let size = BlockSize::new(2).unwrap();
        let one = prefix_of_ids(&[1, 2, 3, 4, 5], size);
        let two = prefix_of_ids(&[1, 2, 3, 9, 5, 6], size);
        assert_eq!(one.hashes().len(), 2);
        assert_eq!(two.hashes().len(), 3);
        assert_eq!(one.hashes()[0], two.hashes()[0]);
        assert_ne!(one.hashes()[1], two.hashes()[1]);
    }
}
