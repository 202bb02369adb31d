//! Rules that reserve KV memory by a fixed amount for each call.
//!
//! The worst case is what vLLM users get by setting a concurrency from `max_model_len`;
//! prompt-only is what an engine's own scheduler looks at when it lets a request in.

use super::super::policy::Late;
use super::desk::Desk;
use super::{Choice, Rule};
use crate::core::time::Time;

/// Prompt and output bound fit into the pool beside those of all others.
#[derive(Debug)]
pub(super) struct WorstCase;

/// The prompt fits into the pool beside what others hold now.
#[derive(Debug)]
pub(super) struct Prompt;

impl Rule for WorstCase {
    fn choose(&mut self, _: Time, call: usize, desk: &Desk<'_>) -> Choice {
        let share = |node: usize| {
            let asked = desk.nodes[node].worst + desk.worst_case(call, node);
            asked.as_f64() / desk.pool(node).as_f64()
        };
        emptiest_that_fits(call, desk, share, |node| desk.nodes[node].outstanding == 0)
    }

    fn late(&self) -> Late {
        Late::Dropped
    }
}

impl Rule for Prompt {
    fn choose(&mut self, _: Time, call: usize, desk: &Desk<'_>) -> Choice {
        let share = |node: usize| {
            let asked = desk.nodes[node].held + desk.run.calls[call].prompt;
            asked.as_f64() / desk.pool(node).as_f64()
        };
        emptiest_that_fits(call, desk, share, |node| desk.nodes[node].outstanding == 0)
    }

    fn late(&self) -> Late {
        Late::Dropped
    }
}

/// The engine that is least full with the call, where it fits or nothing else is.
fn emptiest_that_fits(
    call: usize,
    desk: &Desk<'_>,
    share: impl Fn(usize) -> f64,
    is_empty: impl Fn(usize) -> bool,
) -> Choice {
    let best = desk.least(call, |node, _| share(node));
    best.filter(|&node| share(node) <= 1.0 || is_empty(node))
        .map_or(Choice::Wait, Choice::Send)
}
