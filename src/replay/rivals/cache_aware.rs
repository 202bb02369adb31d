//! The cache-aware rule of sglang-router and its successor smg.
//!
//! Where the counts of calls differ by more than both thresholds, the shortest queue is
//! taken; otherwise the engine whose approximate prefix tree matches most of the prompt,
//! if that is more than the match threshold; otherwise the shortest queue again, as smg
//! does (older versions took the smallest tree, which is worse where loads differ).

use super::super::Run;
use super::super::policy::CacheAware;
use super::desk::Desk;
use super::seen::Chunks;
use super::{Choice, Rule as Decides};
use crate::core::time::Time;
use crate::core::units::Tokens;

/// Text that a tree remembers: its default of 2^24 characters, at four a token.
const TREE: Tokens = Tokens::new(1 << 22);

pub(super) struct Rule {
    settings: CacheAware,
    trees: Vec<Chunks>,
}

// === impl Rule ===

impl Rule {
    pub(super) fn new(settings: CacheAware, run: Run<'_>) -> Self {
        Self {
            settings,
            trees: vec![Chunks::holding(TREE); run.fleet.nodes.len()],
        }
    }

    fn loads_differ(&self, call: usize, desk: &Desk<'_>) -> bool {
        let counts = |node: usize| count(desk.nodes[node].outstanding);
        let most = desk.usable(call).map(counts).max().unwrap_or_default();
        let least = desk.usable(call).map(counts).min().unwrap_or_default();
        let relative = Tokens::new(least).as_f64() * self.settings.balance_rel;
        most - least > self.settings.balance_abs && Tokens::new(most).as_f64() > relative
    }
}

impl Decides for Rule {
    fn choose(&mut self, _: Time, call: usize, desk: &Desk<'_>) -> Choice {
        let asked = &desk.run.calls[call];
        let overlap = |node: usize| self.trees[node].overlap(asked);
        let matched = desk.usable(call).max_by_key(|&node| {
            let shorter = std::cmp::Reverse(desk.nodes[node].outstanding);
            (overlap(node), shorter)
        });
        let enough = asked.prompt.as_f64() * self.settings.match_threshold;
        let matched = matched.filter(|&node| overlap(node).as_f64() > enough);
        let matched = matched.filter(|_| !self.loads_differ(call, desk));
        let shortest = || {
            desk.usable(call)
                .min_by_key(|&node| desk.nodes[node].outstanding)
        };
        matched.or_else(shortest).map_or(Choice::Wait, Choice::Send)
    }

    fn on_sent(&mut self, call: usize, node: usize, desk: &Desk<'_>) {
        self.trees[node].remember(&desk.run.calls[call]);
    }
}

fn count(calls: usize) -> u64 {
    u64::try_from(calls).unwrap_or(u64::MAX)
}
