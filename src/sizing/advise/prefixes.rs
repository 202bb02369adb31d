//! How much of the prompts an engine has had before.
//!
//! Decides by the salted hashes of prompts' beginnings, each of one step of about 512
//! tokens more than the one before: a prompt whose first `k` are known began as an earlier
//! one did for `k` steps. Never says what an engine's cache still holds: that is what the
//! engines report, told beside it. Beginnings shorter than a step are not seen, nor any
//! that are only known from before the gateway's last start, whose salt was another.

use std::collections::HashSet;

use serde::Serialize;

use crate::core::prefix::TRAIL_STEP;
use crate::core::units::Tokens;

/// Tokens of one step.
const STEP: u64 = TRAIL_STEP;

/// What was seen, by model.
#[derive(Debug, Default)]
pub struct Prefixes {
    models: Vec<Seen>,
}

/// Beginnings of one model's prompts.
#[derive(Debug, Default)]
struct Seen {
    known: HashSet<u64>,
    told: PrefixBenefit,
}

/// What a prefix cache has to gain, and what the engines' caches gained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PrefixBenefit {
    /// Prompts that were answered.
    pub prompts: u64,
    /// Their tokens.
    pub prompt_tokens: u64,
    /// Of these, tokens of beginnings that an earlier prompt had too: a lower bound, in
    /// whole steps of 512.
    pub seen_tokens: u64,
    /// Prompts whose engine told what its cache had.
    pub reported_prompts: u64,
    /// Their tokens.
    pub reported_prompt_tokens: u64,
    /// Of these, tokens the engine took from its cache.
    pub cached_tokens: u64,
}

// === impl Prefixes ===

impl Prefixes {
    /// Learns an answered prompt. O(steps).
    pub(super) fn see(
        &mut self,
        model: usize,
        prompt: Tokens,
        steps: &[u64],
        cached: Option<Tokens>,
    ) {
        if self.models.len() <= model {
            self.models.resize_with(model + 1, Seen::default);
        }
        let Seen { known, told } = &mut self.models[model];
        let before = steps.iter().take_while(|step| known.contains(step)).count();
        let before = u64::try_from(before)
            .unwrap_or(u64::MAX)
            .saturating_mul(STEP);
        known.extend(steps);
        told.prompts += 1;
        told.prompt_tokens += prompt.get();
        told.seen_tokens += before.min(prompt.get());
        if let Some(cached) = cached {
            told.reported_prompts += 1;
            told.reported_prompt_tokens += prompt.get();
            told.cached_tokens += cached.min(prompt).get();
        }
    }

    /// What was seen of the model at that place.
    pub fn of(&self, model: usize) -> PrefixBenefit {
        self.models
            .get(model)
            .map(|seen| seen.told)
            .unwrap_or_default()
    }
}

// === impl PrefixBenefit ===

impl PrefixBenefit {
    /// Share of prompt tokens that had been seen before, 0..=1; `None` without any.
    pub fn seen_share(&self) -> Option<f64> {
        share(self.seen_tokens, self.prompt_tokens)
    }

    /// Share of prompt tokens that engines took from their caches, of those prompts whose
    /// engine told; `None` where none did.
    pub fn cached_share(&self) -> Option<f64> {
        share(self.cached_tokens, self.reported_prompt_tokens)
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| Tokens::new(part).as_f64() / Tokens::new(whole).as_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_earlier_prompt_began_with_is_seen_in_whole_steps_and_by_model() {
        let mut prefixes = Prefixes::default();
        let prompt = Tokens::new(2000);
        prefixes.see(1, prompt, &[1, 2, 3], Some(Tokens::ZERO));
        prefixes.see(1, prompt, &[1, 2, 9], Some(Tokens::new(1008)));
        // Another model, and a beginning that is not one of a known prompt.
        prefixes.see(0, prompt, &[1, 2, 3], None);
        prefixes.see(1, prompt, &[7, 2, 3], None);
        let told = prefixes.of(1);
        assert_eq!((told.prompts, told.seen_tokens), (3, 1024));
        assert_eq!(told.seen_share(), Some(1024.0 / 6000.0));
        assert_eq!(told.cached_share(), Some(1008.0 / 4000.0));
        assert_eq!(prefixes.of(0).seen_tokens, 0);
        assert_eq!(prefixes.of(0).cached_share(), None);
        assert_eq!(prefixes.of(7).seen_share(), None);
    }

    #[test]
    fn no_more_is_seen_of_a_prompt_than_it_has() {
        let mut prefixes = Prefixes::default();
        prefixes.see(0, Tokens::new(600), &[1, 2], None);
        prefixes.see(0, Tokens::new(600), &[1, 2], None);
        assert_eq!(prefixes.of(0).seen_tokens, 600);
    }
}
