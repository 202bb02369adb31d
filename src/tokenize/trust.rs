//! Whether our exact counts are still believed, and by how much they are off.
//!
//! Decides, from what engines counted, when a kind of request is no longer
//! counted exactly and which margin its counts then bear. Never counts and never
//! logs. Invariant: while a kind is demoted, none of its counts is called exact.
//!
//! The rule: three differences among the last twenty comparisons demote a kind of
//! request; five hundred agreements in a row restore it, as a new counter does.
//! The margin is `tokens + share x count`. A template that is not the engine's adds
//! a constant, which short prompts show; a vocabulary that is not adds a share,
//! which long ones show. Each is the 95 % quantile of its differences, so the
//! largest of fewer than twenty.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Comparisons that decide.
const RECENT: usize = 20;
/// Differences among them that demote.
const TOO_MANY: usize = 3;
/// Agreements in a row that restore.
const REGAIN: u32 = 500;
/// Differences the margin is learned from.
const LEARNED: usize = 20;
/// Counts from here on tell of a share, below of a constant.
const LONG: u64 = 256;
/// The largest constant: what one client can make others pay is bounded.
const MOST_TOKENS: u64 = 4096;
/// The largest share, in thousandths of the count.
const MOST_SHARE: u64 = 1000;
/// The largest share that short prompts alone can tell of.
const MOST_SHARE_OF_SHORT: u64 = 250;
const THOUSAND: u64 = 1000;

/// What the counts of one model are worth, by kind of request.
#[derive(Debug, Default)]
pub(super) struct Trust {
    /// By the kind's name, of which there are a few. Held for the few steps of one
    /// comparison, never while anything is counted.
    kinds: Mutex<BTreeMap<&'static str, Record>>,
}

/// What a comparison led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Both count the same.
    Agrees,
    /// They differ, and the kind is believed or demoted as before.
    Differs,
    /// They differ once too often: from now on the kind is estimated.
    Demoted,
    /// They have agreed for so long that the kind is exact again.
    Restored,
}

/// What is added to the counts of a demoted kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Margin {
    /// Tokens added to each prompt.
    pub tokens: u64,
    /// Thousandths of the count added to that, rounded up.
    pub thousandths: u64,
}

/// A kind of request that is demoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demotion {
    /// The kind, as the comparisons named it.
    pub kind: &'static str,
    /// What its counts bear.
    pub margin: Margin,
}

/// The comparisons of one kind of request.
#[derive(Debug, Default)]
struct Record {
    /// Whether each of the last comparisons differed.
    recent: VecDeque<bool>,
    /// The last differences.
    differences: VecDeque<Difference>,
    agreed: u32,
    demoted: bool,
}

#[derive(Clone, Copy, Debug)]
struct Difference {
    ours: u64,
    /// What the engine counted above that; zero where it counted less.
    missing: u64,
}

// === impl Trust ===

impl Trust {
    /// Compares what we counted with what the engine did.
    pub(super) fn compare(&self, kind: &'static str, (ours, theirs): (u64, u64)) -> Verdict {
        let mut kinds = self.kinds();
        kinds.entry(kind).or_default().compare(ours, theirs)
    }

    /// Demotes a kind at once, for the reason that these counts differ.
    pub(super) fn demote(&self, kind: &'static str, (ours, theirs): (u64, u64)) {
        let mut kinds = self.kinds();
        let record = kinds.entry(kind).or_default();
        record.compare(ours, theirs);
        record.demoted = true;
    }

    /// What exact counts of a kind bear from now on, if it is demoted.
    pub(super) fn margin(&self, kind: &'static str) -> Option<Margin> {
        let kinds = self.kinds();
        let record = kinds.get(kind).filter(|record| record.demoted)?;
        Some(record.margin())
    }

    /// The demoted kinds, in the order of their names.
    pub(super) fn demotions(&self) -> Vec<Demotion> {
        let kinds = self.kinds();
        let demoted = kinds.iter().filter(|(_, record)| record.demoted);
        demoted
            .map(|(kind, record)| Demotion {
                kind,
                margin: record.margin(),
            })
            .collect()
    }

    /// A record is whole after each step, whatever panics.
    fn kinds(&self) -> MutexGuard<'_, BTreeMap<&'static str, Record>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Record ===

impl Record {
    fn compare(&mut self, ours: u64, theirs: u64) -> Verdict {
        let differs = ours != theirs;
        push(&mut self.recent, differs, RECENT);
        if !differs {
            self.agreed = self.agreed.saturating_add(1);
            if self.demoted && self.agreed >= REGAIN {
                *self = Self::default();
                return Verdict::Restored;
            }
            return Verdict::Agrees;
        }
        self.agreed = 0;
        let missing = theirs.saturating_sub(ours);
        push(&mut self.differences, Difference { ours, missing }, LEARNED);
        let differed = self.recent.iter().filter(|differed| **differed).count();
        if self.demoted || differed < TOO_MANY {
            return Verdict::Differs;
        }
        self.demoted = true;
        Verdict::Demoted
    }

    fn margin(&self) -> Margin {
        let differences = self.differences.iter().copied();
        let (long, short): (Vec<Difference>, Vec<Difference>) =
            differences.partition(|seen| seen.ours >= LONG);
        // Whatever is constant is in the smallest difference too.
        let tokens = upper(short.iter().map(|seen| seen.missing))
            .or_else(|| long.iter().map(|seen| seen.missing).min());
        let short_share = upper(short.iter().map(|seen| seen.share()));
        let thousandths = upper(long.iter().map(|seen| seen.share()))
            .or_else(|| short_share.map(|share| share.min(MOST_SHARE_OF_SHORT)));
        Margin {
            tokens: tokens.unwrap_or(0).min(MOST_TOKENS),
            thousandths: thousandths.unwrap_or(0).min(MOST_SHARE),
        }
    }
}

// === impl Difference ===

impl Difference {
    /// Thousandths of our count that are missing, rounded **up**.
    fn share(self) -> u64 {
        let missing = self.missing.saturating_mul(THOUSAND);
        missing.div_ceil(self.ours.max(1))
    }
}

/// The 95 % quantile, by nearest rank.
fn upper(values: impl Iterator<Item = u64>) -> Option<u64> {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    let rank = (values.len() * 95).div_ceil(100);
    values.get(rank.checked_sub(1)?).copied()
}

fn push<T>(ring: &mut VecDeque<T>, value: T, most: usize) {
    if ring.len() == most {
        ring.pop_front();
    }
    ring.push_back(value);
}

// === impl Margin ===

impl Margin {
    /// `tokens` with the margin, rounded **up**.
    #[must_use]
    pub fn over(self, tokens: u64) -> u64 {
        let share = tokens.saturating_mul(self.thousandths).div_ceil(THOUSAND);
        tokens.saturating_add(share).saturating_add(self.tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: &str = "completions";

    /// What a prompt of so many tokens is charged; `None` as counted.
    fn charged(trust: &Trust, tokens: u64) -> Option<u64> {
        Some(trust.margin(KIND)?.over(tokens))
    }

    #[test]
    fn two_differences_in_twenty_are_borne_and_the_third_demotes() {
        let trust = Trust::default();
        for round in 0..200_u64 {
            let theirs = 100 + u64::from(round % 10 == 0);
            let verdict = trust.compare(KIND, (100, theirs));
            assert_ne!(verdict, Verdict::Demoted, "{round}");
        }
        assert_eq!(charged(&trust, 100), None);
        // The last twenty hold two differences; the older leaves with the tenth.
        assert_eq!(trust.compare(KIND, (100, 101)), Verdict::Differs);
        assert_eq!(trust.compare(KIND, (100, 90)), Verdict::Demoted);
        assert_eq!(trust.compare(KIND, (100, 101)), Verdict::Differs);
    }

    #[test]
    fn other_kinds_are_left_alone() {
        let trust = Trust::default();
        trust.demote("chat_completions", (20, 27));
        assert_eq!(charged(&trust, 500), None);
        let demotions = trust.demotions();
        assert_eq!(demotions.len(), 1);
        assert_eq!(demotions[0].kind, "chat_completions");
        assert_eq!(demotions[0].margin.tokens, 7);
    }

    #[test]
    fn a_template_that_adds_seven_tokens_costs_long_prompts_seven_and_a_little() {
        let trust = Trust::default();
        for ours in [20, 50, 1000, 40_000] {
            trust.compare(KIND, (ours, ours + 7));
        }
        // Seven of a thousand is the largest share a long prompt has shown.
        assert_eq!(charged(&trust, 20), Some(28));
        assert_eq!(charged(&trust, 10_000), Some(10_077));
    }

    #[test]
    fn a_vocabulary_that_is_a_tenth_off_costs_a_tenth() {
        let trust = Trust::default();
        for ours in [500, 1000, 10_000, 2000] {
            trust.compare(KIND, (ours, ours + ours / 10));
        }
        assert_eq!(charged(&trust, 1000), Some(1150));
        for round in 1..=REGAIN {
            let restored = trust.compare(KIND, (700, 700)) == Verdict::Restored;
            assert_eq!(restored, round == REGAIN);
        }
        assert_eq!(charged(&trust, 1000), None);
    }

    #[test]
    fn no_difference_makes_others_pay_more_than_double_and_a_constant() {
        let trust = Trust::default();
        for _ in 0..30 {
            trust.compare(KIND, (1, 1_000_000));
            trust.compare(KIND, (1000, u64::MAX));
        }
        assert_eq!(charged(&trust, 1000), Some(2000 + MOST_TOKENS));
    }

    #[test]
    fn short_prompts_alone_tell_little_of_long_ones() {
        let trust = Trust::default();
        trust.demote(KIND, (10, 17));
        assert_eq!(charged(&trust, 10), Some(20));
        assert_eq!(charged(&trust, 10_000), Some(12_507));
    }
}
