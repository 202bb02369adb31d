//! What is played: calls, engines, promises to clients, and what goes wrong.
//!
//! Plain data. It decides nothing; readers of traces and fleets build it.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::core::backend::Tier;
use crate::core::demand::{Kind, TenantId};
use crate::core::prefix::{PrefixChain, PrefixHash};
use crate::core::time::Time;
use crate::core::units::{BlockSize, Tokens};
use crate::sim::engine::EngineSpec;
use crate::sim::random::mix;

/// One request of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// When it reaches the gateway. Calls of a run are in this order.
    pub at: Time,
    /// Who asks.
    pub tenant: TenantId,
    /// What its answers are like, as the core takes it.
    pub kind: Kind,
    /// Prompt tokens; at least 1.
    pub prompt: Tokens,
    /// Tokens it generates before it stops by itself; at least 1.
    pub output: Tokens,
    /// Its `max_tokens`, where the trace has one. It binds: no more are generated.
    pub asked: Option<Tokens>,
    /// Content of the prompt, one id for each [`Call::CHUNK`] tokens, the last chunk
    /// perhaps in part. Equal ids mean equal prompts up to the end of that chunk. Empty
    /// where the trace does not say: then nothing is shared.
    pub chunks: Arc<[u64]>,
}

/// One engine of a fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its name in reports.
    pub name: String,
    /// Context class.
    pub tier: Tier,
    /// What it was started with.
    pub spec: EngineSpec,
}

/// What a client counts as served in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slo {
    /// To the first token, for an empty prompt.
    pub first_token: Duration,
    /// More of it for each prompt token.
    pub per_prompt_token: Duration,
    /// Mean time between tokens after the first.
    pub token_pace: Duration,
}

/// The engines a trace is played against.
#[derive(Clone, Debug, PartialEq)]
pub struct Fleet {
    /// The engines; never empty.
    pub nodes: Vec<Node>,
    /// What its clients expect.
    pub slo: Slo,
    /// Output that worst-case reservation assumes of a call without `max_tokens`.
    pub assumed_output: Tokens,
}

/// How far the world is from what a gateway believes, and what breaks.
#[derive(Clone, Debug, PartialEq)]
pub struct Conditions {
    /// The gateway counts a prompt of n tokens as n × (1 + this).
    pub token_error: f64,
    /// The gateway believes an engine's KV pool to be this much larger: ±0.1 is ±10 %.
    pub capacity_error: f64,
    /// Between two scrapes of an engine by ours.
    pub scrape: Duration,
    /// Between two scrapes by a rival that scrapes.
    pub rival_scrape: Duration,
    /// How old what a scrape says is when it arrives.
    pub scrape_age: Duration,
    /// Share of the calls that go past the gateway, round-robin over the engines that
    /// can hold them. They count in no figure but what they do to the others.
    pub foreign: f64,
    /// Engines that die.
    pub crashes: Vec<Crash>,
    /// Of so many refused calls one comes back, once, when ours told it to; `None` for
    /// nobody does.
    pub returning: Option<NonZeroU32>,
    /// How long after the last arrival the world goes on; what has not ended then is
    /// [`Outcome::Unfinished`](super::record::Outcome::Unfinished).
    pub drain: Duration,
}

/// An engine that dies and comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash {
    /// Place in [`Fleet::nodes`].
    pub node: usize,
    /// When it dies, with all its requests.
    pub at: Time,
    /// When it is up again, empty; [`Time::NEVER`] for not at all.
    pub back: Time,
}

// === impl Call ===

impl Call {
    /// Tokens of prompt content that one id stands for.
    pub const CHUNK: Tokens = Tokens::new(512);

    /// A call of tenant 0 with a prompt that nobody shares.
    pub fn new(at: Time, prompt: Tokens, output: Tokens) -> Self {
        Self {
            at,
            tenant: TenantId(0),
            kind: Kind::default(),
            prompt,
            output,
            asked: None,
            chunks: Arc::from([]),
        }
    }

    /// Tokens it will have generated at its end: its own stop, its `max_tokens`, or the
    /// end of a context of `window` tokens.
    pub fn generates(&self, window: Tokens) -> Tokens {
        let room = window.saturating_sub(self.prompt);
        self.output
            .min(self.asked.unwrap_or(Tokens::MAX))
            .min(room)
            .max(Tokens::new(1))
    }

    /// Its prompt as hashes of full blocks of `size`.
    pub fn prefix(&self, size: BlockSize) -> PrefixChain {
        if self.chunks.is_empty() {
            return PrefixChain::default();
        }
        let full = self.prompt.blocks_down(size).get();
        let bytes = u64::from(size.get());
        let hashes = (0..full).map_while(|block| {
            // A block belongs to the chunk that its last token is in.
            let chunk = ((block + 1) * bytes - 1) / Self::CHUNK.get();
            let chunk = self.chunks.get(usize::try_from(chunk).ok()?)?;
            Some(PrefixHash(mix(*chunk, block)))
        });
        PrefixChain::new(hashes.collect::<Vec<_>>())
    }
}

// === impl Slo ===

impl Slo {
    /// How long the first token of `prompt` may take.
    pub fn first_token_within(&self, prompt: Tokens) -> Duration {
        self.first_token + self.per_prompt_token.mul_f64(prompt.as_f64())
    }
}

// === impl Conditions ===

impl Default for Conditions {
    /// Nothing is wrong: exact counts, scrapes each second by ours and each 200 ms by
    /// rivals, half an hour to drain.
    fn default() -> Self {
        Self {
            token_error: 0.0,
            capacity_error: 0.0,
            scrape: Duration::from_secs(1),
            rival_scrape: Duration::from_millis(200),
            scrape_age: Duration::ZERO,
            foreign: 0.0,
            crashes: Vec::new(),
            returning: None,
            drain: Duration::from_secs(1800),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_shared_up_to_the_first_other_chunk() {
        let size = BlockSize::new(16).unwrap();
        let call = |chunks: &[u64]| Call {
            chunks: chunks.into(),
            ..Call::new(Time::ZERO, Tokens::new(1000), Tokens::new(1))
        };
        let (one, two) = (call(&[1, 2]).prefix(size), call(&[1, 3]).prefix(size));
        assert_eq!(one.hashes().len(), 62);
        assert_eq!(one.hashes()[..32], two.hashes()[..32]);
        assert_ne!(one.hashes()[32], two.hashes()[32]);
    }

    #[test]
    fn a_call_ends_by_its_stop_its_bound_or_its_window() {
        let call = Call::new(Time::ZERO, Tokens::new(100), Tokens::new(50));
        let asked = Call {
            asked: Some(Tokens::new(20)),
            ..call.clone()
        };
        assert_eq!(call.generates(Tokens::new(1000)), Tokens::new(50));
        assert_eq!(call.generates(Tokens::new(130)), Tokens::new(30));
        assert_eq!(asked.generates(Tokens::new(1000)), Tokens::new(20));
    }

    #[test]
    fn a_longer_prompt_may_take_longer() {
        let slo = Slo {
            first_token: Duration::from_secs(2),
            per_prompt_token: Duration::from_micros(250),
            token_pace: Duration::from_millis(100),
        };
        assert_eq!(
            slo.first_token_within(Tokens::new(4000)),
            Duration::from_secs(3)
        );
    }
}
