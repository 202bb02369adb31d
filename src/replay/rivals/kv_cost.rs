//! The cost of NVIDIA Dynamo's KV router: prefill blocks plus decode blocks, lowest first.
//!
//! Prefill blocks are prompt tokens without a first token, this call's included, less what
//! the engine is believed to have cached; decode blocks are the KV of everything there,
//! this call's included. Overlap weight 1, temperature 0, as shipped.

use super::super::Run;
use super::desk::Desk;
use super::seen::Chunks;
use super::{Choice, Rule as Decides};
use crate::core::time::Time;
use crate::core::units::Tokens;

pub(super) struct Rule {
    cached: Vec<Chunks>,
}

// === impl Rule ===

impl Rule {
    pub(super) fn new(run: Run<'_>) -> Self {
        let pools = run.fleet.nodes.iter().map(|node| {
            let spec = &node.spec;
            Chunks::holding(spec.usable().tokens(spec.block_size))
        });
        Self {
            cached: pools.collect(),
        }
    }
}

impl Decides for Rule {
    fn choose(&mut self, _: Time, call: usize, desk: &Desk<'_>) -> Choice {
        let asked = &desk.run.calls[call];
        let best = desk.least(call, |node, seen| {
            let new = asked.prompt - self.cached[node].overlap(asked);
            let prefill: Tokens = seen.unanswered + new;
            (prefill + seen.held + asked.prompt).as_f64()
        });
        best.map_or(Choice::Wait, Choice::Send)
    }

    fn on_sent(&mut self, call: usize, node: usize, desk: &Desk<'_>) {
        self.cached[node].remember(&desk.run.calls[call]);
    }
}
