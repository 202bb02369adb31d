//! The scheduler of llm-d and the Gateway API inference extension, with flow control.
//!
//! Engines are scored from their last scrape: queue (weight 2), KV usage (2) and prefix
//! match (3), best score first, ties at random. While every engine counts as full by its
//! last scrape, calls are held, first come first served; between two scrapes nothing is
//! known to have changed, so a whole line may go out at once.

use super::super::Run;
use super::super::policy::FlowControl;
use super::desk::Desk;
use super::seen::Chunks;
use super::{Choice, Reads, Rule as Decides};
use crate::core::time::Time;
use crate::sim::engine::EngineStats;
use crate::sim::random::Random;

const QUEUE_WEIGHT: f64 = 2.0;
const KV_WEIGHT: f64 = 2.0;
const PREFIX_WEIGHT: f64 = 3.0;

pub(super) struct Rule {
    settings: FlowControl,
    cached: Vec<Chunks>,
    random: Random,
}

// === impl Rule ===

impl Rule {
    pub(super) fn new(settings: FlowControl, run: Run<'_>) -> Self {
        let pools = run.fleet.nodes.iter().map(|node| {
            let spec = &node.spec;
            Chunks::holding(spec.usable().tokens(spec.block_size))
        });
        Self {
            settings,
            cached: pools.collect(),
            random: Random::new(run.seed).fork(3),
        }
    }

    fn is_full(&self, stats: &EngineStats) -> bool {
        stats.waiting > self.settings.queue_depth || usage(stats) > self.settings.kv_usage
    }
}

impl Decides for Rule {
    fn choose(&mut self, _: Time, call: usize, desk: &Desk<'_>) -> Choice {
        let scraped = |node: usize| &desk.nodes[node].scraped;
        if desk.usable(call).all(|node| self.is_full(scraped(node))) {
            return Choice::Wait;
        }
        let asked = &desk.run.calls[call];
        let waiting = |node: usize| f64::from(scraped(node).waiting);
        let most = desk.usable(call).map(waiting).fold(0.0, f64::max);
        let least = desk.usable(call).map(waiting).fold(most, f64::min);
        let score = |node: usize| {
            let queue = if most > least {
                (most - waiting(node)) / (most - least)
            } else {
                1.0
            };
            let matched = self.cached[node].overlap(asked).as_f64() / asked.prompt.as_f64();
            QUEUE_WEIGHT * queue
                + KV_WEIGHT * (1.0 - usage(scraped(node)))
                + PREFIX_WEIGHT * matched
        };
        let scores: Vec<_> = desk.usable(call).map(|node| (node, score(node))).collect();
        let best = scores.iter().map(|&(_, score)| score).fold(0.0, f64::max);
        let ties: Vec<_> = scores
            .into_iter()
            .filter(|&(_, score)| score >= best)
            .collect();
        let last = u64::try_from(ties.len())
            .unwrap_or(u64::MAX)
            .saturating_sub(1);
        let drawn = usize::try_from(self.random.between(0, last)).unwrap_or_default();
        ties.get(drawn)
            .map_or(Choice::Wait, |&(node, _)| Choice::Send(node))
    }

    fn on_sent(&mut self, call: usize, node: usize, desk: &Desk<'_>) {
        self.cached[node].remember(&desk.run.calls[call]);
    }

    fn reads(&self) -> Reads {
        Reads::Scrapes
    }
}

/// Share of the KV pool in use.
fn usage(stats: &EngineStats) -> f64 {
    stats.used.as_f64() / stats.usable.as_f64().max(1.0)
}
