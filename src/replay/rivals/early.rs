//! Early rejection as in Mooncake (FAST 2025): the least predicted time to the first token
//! decides where a call goes, and it is refused on arrival where that, or the pace of
//! tokens it would run at, is beyond what its client accepts.
//!
//! The predictor is given the engine's own step times, which is more than a product has.

use std::time::Duration;

use super::super::setup::Node;
use super::desk::{Desk, Seen};
use super::{Choice, Rule as Decides};
use crate::core::time::Time;
use crate::core::units::Tokens;
use crate::sim::engine::Batch;

#[derive(Debug)]
pub(super) struct Rule;

impl Decides for Rule {
    fn choose(&mut self, now: Time, call: usize, desk: &Desk<'_>) -> Choice {
        let asked = &desk.run.calls[call];
        let after = |node: usize| {
            let tokens = desk.nodes[node].unanswered + asked.prompt;
            prefill(&desk.run.fleet.nodes[node], tokens)
        };
        let Some(node) = desk.usable(call).min_by_key(|&node| after(node)) else {
            return Choice::Wait;
        };
        let slo = &desk.run.fleet.slo;
        let late = now + after(node) > desk.first_token_by(call);
        let slow = pace(&desk.run.fleet.nodes[node], &desk.nodes[node], asked.prompt);
        if late || slow > slo.token_pace {
            return Choice::Refuse;
        }
        Choice::Send(node)
    }
}

/// Time to prefill `tokens` in chunks of whole steps.
fn prefill(node: &Node, tokens: Tokens) -> Duration {
    let chunk = node.spec.max_num_batched_tokens;
    let step = |tokens: Tokens| {
        node.spec.step.duration(&Batch {
            tokens,
            prefill: tokens,
            ..Batch::default()
        })
    };
    let whole = u32::try_from(tokens.get() / chunk.get()).unwrap_or(u32::MAX);
    let rest = Tokens::new(tokens.get() % chunk.get());
    step(chunk) * whole + step(rest)
}

/// Time of a decode step with one more call of that prompt.
fn pace(node: &Node, seen: &Seen, prompt: Tokens) -> Duration {
    let decoding = u32::try_from(seen.outstanding + 1).unwrap_or(u32::MAX);
    node.spec.step.duration(&Batch {
        tokens: Tokens::new(u64::from(decoding)),
        decoding,
        decode_context: seen.held + prompt,
        emitting: decoding,
        ..Batch::default()
    })
}
