//! Rules that need only counts of their own calls.
//!
//! Round-robin, least outstanding and power of two choices as any load balancer has them
//! (nginx, Envoy); a semaphore is the concurrency limit an operator tunes by hand.

use super::super::policy::{Late, Semaphore as Settings};
use super::desk::Desk;
use super::{Choice, Rule};
use crate::core::time::Time;
use crate::sim::random::Random;

/// One engine after the other.
#[derive(Debug, Default)]
pub(super) struct RoundRobin {
    next: usize,
}

/// The fewest calls of ours; of several the next in turn.
#[derive(Debug, Default)]
pub(super) struct LeastOutstanding {
    last: usize,
}

/// The better of two drawn at random.
#[derive(Debug)]
pub(super) struct PowerOfTwo {
    random: Random,
}

/// The fewest calls of ours, where that is below a bound.
#[derive(Debug)]
pub(super) struct Semaphore {
    settings: Settings,
}

// === impl rules ===

impl Rule for RoundRobin {
    fn choose(&mut self, _: Time, call: usize, desk: &Desk<'_>) -> Choice {
        let place = desk.usable(call).find(|&node| node >= self.next);
        let Some(node) = place.or_else(|| desk.usable(call).next()) else {
            return Choice::Wait;
        };
        self.next = node + 1;
        Choice::Send(node)
    }
}

impl Rule for LeastOutstanding {
    fn choose(&mut self, _: Time, call: usize, desk: &Desk<'_>) -> Choice {
        let count = desk.nodes.len();
        let turn = |node: usize| (node + count - self.last - 1) % count;
        let best = desk
            .usable(call)
            .min_by_key(|&node| (desk.nodes[node].outstanding, turn(node)));
        let Some(node) = best else {
            return Choice::Wait;
        };
        self.last = node;
        Choice::Send(node)
    }
}

impl PowerOfTwo {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed).fork(2),
        }
    }
}

impl Rule for PowerOfTwo {
    fn choose(&mut self, _: Time, call: usize, desk: &Desk<'_>) -> Choice {
        let usable: Vec<usize> = desk.usable(call).collect();
        let most = u64::try_from(usable.len()).unwrap_or(u64::MAX);
        let mut draw = |below: u64| {
            let drawn = self.random.between(0, below.saturating_sub(1));
            usize::try_from(drawn).expect("a place in a list")
        };
        let one = draw(most);
        // Another one, if there is another.
        let step = if most > 1 { 1 + draw(most - 1) } else { 0 };
        let other = (one + step) % usable.len();
        let pair = [usable[one], usable[other]];
        let best = pair
            .into_iter()
            .min_by_key(|&node| desk.nodes[node].outstanding);
        best.map_or(Choice::Wait, Choice::Send)
    }
}

impl Semaphore {
    pub(super) const fn new(settings: Settings) -> Self {
        Self { settings }
    }
}

impl Rule for Semaphore {
    fn choose(&mut self, _: Time, call: usize, desk: &Desk<'_>) -> Choice {
        let best = desk
            .usable(call)
            .min_by_key(|&node| desk.nodes[node].outstanding);
        best.filter(|&node| desk.nodes[node].outstanding < self.settings.each)
            .map_or(Choice::Wait, Choice::Send)
    }

    fn late(&self) -> Late {
        self.settings.late
    }
}
