//! What a gateway can count by itself, and its engines' last scrapes.

use std::collections::HashMap;

use super::super::Run;
use super::super::gateway::{Reach, Scrape};
use crate::core::time::Time;
use crate::core::units::Tokens;
use crate::sim::engine::EngineStats;

/// A rival's knowledge.
pub(super) struct Desk<'a> {
    pub(super) run: Run<'a>,
    pub(super) nodes: Vec<Seen>,
    flights: HashMap<usize, Sent>,
}

/// What is known of one engine.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    reach: Reach,
    /// Calls of ours there.
    pub(super) outstanding: usize,
    /// Prompt tokens of those without a first token.
    pub(super) unanswered: Tokens,
    /// Prompt tokens of all.
    pub(super) prompts: Tokens,
    /// Prompt tokens and what has been generated, by our own count.
    pub(super) held: Tokens,
    /// Prompt and output bound, or the bound the fleet assumes.
    pub(super) worst: Tokens,
    /// The last scrape; zeros before the first.
    pub(super) scraped: EngineStats,
}

/// A call that was sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    node: usize,
    generated: Tokens,
}

// === impl Desk ===

impl<'a> Desk<'a> {
    pub(super) fn new(run: Run<'a>) -> Self {
        let idle = Seen {
            reach: Reach::Up,
            outstanding: 0,
            unanswered: Tokens::ZERO,
            prompts: Tokens::ZERO,
            held: Tokens::ZERO,
            worst: Tokens::ZERO,
            scraped: EngineStats::default(),
        };
        Self {
            nodes: vec![idle; run.fleet.nodes.len()],
            run,
            flights: HashMap::new(),
        }
    }

    /// Engines that are up and whose context holds the call's prompt and a token.
    pub(super) fn usable(&self, call: usize) -> impl Iterator<Item = usize> + '_ {
        let prompt = self.run.calls[call].prompt;
        let nodes = self.nodes.iter().zip(&self.run.fleet.nodes).enumerate();
        nodes
            .filter(move |(_, (seen, node))| {
                seen.reach == Reach::Up && prompt < node.spec.max_model_len
            })
            .map(|(place, _)| place)
    }

    pub(super) fn could_ever_hold(&self, call: usize) -> bool {
        self.run.calls[call].prompt < self.longest()
    }

    /// The longest context of the fleet.
    pub(super) fn longest(&self) -> Tokens {
        let nodes = self.run.fleet.nodes.iter();
        let windows = nodes.map(|node| node.spec.max_model_len);
        windows.max().unwrap_or(Tokens::ZERO)
    }

    /// KV tokens of an engine, as the gateway believes.
    pub(super) fn pool(&self, node: usize) -> Tokens {
        let spec = &self.run.fleet.nodes[node].spec;
        spec.usable().tokens(spec.block_size)
    }

    /// The usable engine with the least of `cost`; the first of several.
    pub(super) fn least(&self, call: usize, cost: impl Fn(usize, &Seen) -> f64) -> Option<usize> {
        self.usable(call).min_by(|&one, &other| {
            cost(one, &self.nodes[one]).total_cmp(&cost(other, &self.nodes[other]))
        })
    }

    pub(super) fn first_token_by(&self, call: usize) -> Time {
        let asked = &self.run.calls[call];
        asked.at + self.run.fleet.slo.first_token_within(asked.prompt)
    }

    /// Prompt and output bound, at most the engine's context.
    pub(super) fn worst_case(&self, call: usize, node: usize) -> Tokens {
        let asked = &self.run.calls[call];
        let bound = asked.asked.unwrap_or(self.run.fleet.assumed_output);
        (asked.prompt + bound).min(self.run.fleet.nodes[node].spec.max_model_len)
    }

    pub(super) fn send(&mut self, call: usize, node: usize) {
        let (prompt, worst) = (self.run.calls[call].prompt, self.worst_case(call, node));
        let seen = &mut self.nodes[node];
        seen.outstanding += 1;
        seen.unanswered += prompt;
        seen.prompts += prompt;
        seen.held += prompt;
        seen.worst += worst;
        let sent = Sent {
            node,
            generated: Tokens::ZERO,
        };
        self.flights.insert(call, sent);
    }

    pub(super) fn on_tokens(&mut self, call: usize, generated: Tokens) {
        let Some(sent) = self.flights.get_mut(&call) else {
            return;
        };
        let seen = &mut self.nodes[sent.node];
        if sent.generated.is_zero() {
            seen.unanswered -= self.run.calls[call].prompt;
        }
        seen.held += generated - sent.generated;
        sent.generated = generated;
    }

    pub(super) fn on_end(&mut self, call: usize) {
        let Some(sent) = self.flights.remove(&call) else {
            return;
        };
        let (prompt, worst) = (
            self.run.calls[call].prompt,
            self.worst_case(call, sent.node),
        );
        let seen = &mut self.nodes[sent.node];
        seen.outstanding -= 1;
        seen.prompts -= prompt;
        seen.held -= prompt + sent.generated;
        seen.worst -= worst;
        if sent.generated.is_zero() {
            seen.unanswered -= prompt;
        }
    }

    pub(super) fn on_scrape(&mut self, scrape: Scrape) {
        self.nodes[scrape.node].scraped = scrape.stats;
    }

    pub(super) fn on_reach(&mut self, node: usize, reach: Reach) {
        self.nodes[node].reach = reach;
        self.nodes[node].scraped = EngineStats::default();
    }
}
