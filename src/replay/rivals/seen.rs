//! Which prompt chunks were sent to an engine lately: what routers keep as a prefix tree.
//!
//! Bounded; the chunk used longest ago is forgotten first. A guess: the engine may have
//! evicted what is remembered here.

use std::collections::{BTreeMap, HashMap};

use super::super::setup::Call;
use crate::core::units::Tokens;

/// The chunks remembered of one engine.
#[derive(Clone, Debug)]
pub(super) struct Chunks {
    most: usize,
    clock: u64,
    used: HashMap<u64, u64>,
    by_use: BTreeMap<u64, u64>,
}

// === impl Chunks ===

impl Chunks {
    /// Remembers at most `tokens` of prompts.
    pub(super) fn holding(tokens: Tokens) -> Self {
        let chunks = tokens.get() / Call::CHUNK.get();
        Self {
            most: usize::try_from(chunks).unwrap_or(usize::MAX).max(1),
            clock: 0,
            used: HashMap::new(),
            by_use: BTreeMap::new(),
        }
    }

    /// Leading tokens of the prompt that are remembered.
    pub(super) fn overlap(&self, call: &Call) -> Tokens {
        let known = call
            .chunks
            .iter()
            .take_while(|chunk| self.used.contains_key(chunk));
        let known = u64::try_from(known.count()).unwrap_or(u64::MAX);
        (Call::CHUNK * known).min(call.prompt)
    }

    /// The prompt was sent there.
    pub(super) fn remember(&mut self, call: &Call) {
        // The last chunk first: of one prompt its end is forgotten before its beginning.
        for &chunk in call.chunks.iter().rev() {
            self.clock += 1;
            if let Some(before) = self.used.insert(chunk, self.clock) {
                self.by_use.remove(&before);
            }
            self.by_use.insert(self.clock, chunk);
        }
        while self.used.len() > self.most {
            let Some((_, oldest)) = self.by_use.pop_first() else {
                return;
            };
            self.used.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::time::Time;

    fn call(chunks: &[u64]) -> Call {
        let prompt = Call::CHUNK * u64::try_from(chunks.len()).unwrap();
        Call {
            chunks: chunks.into(),
            ..Call::new(Time::ZERO, prompt, Tokens::new(1))
        }
    }

    #[test]
    fn only_a_leading_match_counts() {
        let mut chunks = Chunks::holding(Tokens::new(10_000));
        chunks.remember(&call(&[1, 2, 3]));
        assert_eq!(chunks.overlap(&call(&[1, 2, 9])), Tokens::new(1024));
        assert_eq!(chunks.overlap(&call(&[9, 2, 3])), Tokens::ZERO);
    }

    #[test]
    fn the_end_of_the_oldest_prompt_is_forgotten_first() {
        let mut chunks = Chunks::holding(Tokens::new(4 * 512));
        chunks.remember(&call(&[1, 2, 3]));
        chunks.remember(&call(&[7, 8]));
        assert_eq!(chunks.overlap(&call(&[1, 2, 3])), Tokens::new(1024));
        assert_eq!(chunks.overlap(&call(&[7, 8])), Tokens::new(1024));
    }
}
