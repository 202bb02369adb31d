//! A pure, deterministic model of one vLLM V1 engine in virtual time.
//!
//! Decides, step by step, which sequences run, which KV blocks they take, who is
//! preempted and how long the step lasts. Never reads a clock, sleeps or sends:
//! the caller passes `now` in and gets [`SimEvent`]s out, so one engine runs under
//! a virtual-time simulation and, behind HTTP, in real time. It is `Clone`: a
//! what-if is a copy that is run on.
//!
//! Invariant: blocks in use + free blocks = the pool without its null block, and a
//! block is in use exactly while some running sequence holds it.

mod blocks;
mod scheduler;
mod sequence;
mod step_time;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::core::backend::PrefixCaching;
use crate::core::prefix::PrefixChain;
use crate::core::time::Time;
use crate::core::units::{BlockSize, Blocks, Tokens};

pub use step_time::{Batch, StepTime};

use scheduler::Scheduler;

/// What an engine was started with.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineSpec {
    /// KV blocks including the null block: `--num-gpu-blocks-override`. One less is usable.
    pub blocks: Blocks,
    /// Tokens per KV block: `--block-size`.
    pub block_size: BlockSize,
    /// Longest context, prompt plus output: `--max-model-len`.
    pub max_model_len: Tokens,
    /// Most sequences running at once: `--max-num-seqs`; at least 1.
    pub max_num_seqs: u32,
    /// Most tokens computed in one step, the chunk of a chunked prefill:
    /// `--max-num-batched-tokens`; at least 1.
    pub max_num_batched_tokens: Tokens,
    /// Whether full blocks are kept by content and reused.
    pub prefix_caching: PrefixCaching,
    /// KV slots a sequence takes beyond the tokens it computes (speculative decoding); 0 for most.
    pub lookahead: Tokens,
    /// Whether the next step is planned before this one has answered.
    pub scheduling: Scheduling,
    /// Share of the pool that stays free when a request is admitted beside running ones:
    /// `--watermark`, 0 in vLLM by default. Rounded down to blocks.
    pub watermark: f64,
    /// How long a step lasts.
    pub step: StepTime,
    /// What happens when the pool runs out.
    pub on_overflow: OnOverflow,
}

/// When the engine plans a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduling {
    /// After the step before has answered.
    Sync,
    /// One step ahead, vLLM's default since 0.14: a sequence that ends by its own stop is
    /// scheduled once more and keeps its blocks one step longer.
    Async,
}

/// What the engine does when a running sequence cannot get its next KV block, or when
/// the footprints declared for its requests pass the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnOverflow {
    /// As vLLM: preempt the newest and recompute it later. Declared footprints are only counted.
    Preempt,
    /// Panic. For tests of strict reservation: the engine itself asserts.
    Panic,
}

/// One request as the engine sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct SimRequest {
    /// Prompt tokens; at least 1.
    pub prompt: Tokens,
    /// Hashes of the prompt's leading full blocks, for this engine's block size. Blocks
    /// beyond the chain are taken to be this request's own.
    pub prefix: PrefixChain,
    /// Sequences generated from the prompt (`n`); at least 1.
    pub samples: u32,
    /// Output bound of each sequence; `None` is the rest of the context.
    pub max_tokens: Option<Tokens>,
    /// Tokens each sequence would generate before it stops by itself; at least 1.
    pub output: Tokens,
    /// KV blocks the sender has reserved for the whole request, for the self-check; zero for none.
    pub declared: Blocks,
}

/// Identity of a request within its engine, in order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Why a sequence ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FinishReason {
    /// By itself.
    Stop,
    /// At `max_tokens` or `max_model_len`.
    Length,
}

/// What a step brought, in the order it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimEvent {
    /// A sequence has left the waiting line for the first time.
    Started {
        /// Its request.
        request: RequestId,
        /// Which sample of the request.
        sample: u32,
        /// When.
        at: Time,
        /// Prompt tokens found in the prefix cache.
        cached: Tokens,
    },
    /// A sequence has its first token.
    FirstToken {
        /// Its request.
        request: RequestId,
        /// Which sample of the request.
        sample: u32,
        /// When.
        at: Time,
        /// Prompt tokens that came from the prefix cache.
        cached: Tokens,
    },
    /// A sequence has new tokens; also sent with its first.
    Tokens {
        /// Its request.
        request: RequestId,
        /// Which sample of the request.
        sample: u32,
        /// When.
        at: Time,
        /// Tokens generated so far.
        total: Tokens,
    },
    /// A sequence lost its blocks and waits to be recomputed.
    Preempted {
        /// Its request.
        request: RequestId,
        /// Which sample of the request.
        sample: u32,
        /// When.
        at: Time,
    },
    /// A sequence has ended and its blocks are free.
    Finished {
        /// Its request.
        request: RequestId,
        /// Which sample of the request.
        sample: u32,
        /// When.
        at: Time,
        /// Why.
        reason: FinishReason,
        /// Tokens it generated.
        generated: Tokens,
    },
    /// The last sequence of a request has ended: the engine forgets it.
    Ended {
        /// The request.
        request: RequestId,
        /// When.
        at: Time,
    },
}

/// Levels and counters of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Sequences running now.
    pub running: u32,
    /// Sequences waiting now, preempted ones among them.
    pub waiting: u32,
    /// KV blocks held by running sequences; cached blocks that nobody holds are free.
    pub used: Blocks,
    /// KV blocks that can be held: the pool without its null block.
    pub usable: Blocks,
    /// Most blocks ever held at once.
    pub peak_used: Blocks,
    /// Sum of the footprints declared for live requests.
    pub declared: Blocks,
    /// Times the declared sum passed the pool.
    pub declared_overflows: u64,
    /// Steps that computed something.
    pub steps: u64,
    /// Preemptions so far.
    pub preemptions: u64,
    /// Preemptions whose victim has a token since: what the counter of a real engine shows,
    /// which moves with the victim's next output.
    pub preemptions_told: u64,
    /// Tokens computed again because of preemptions, prefix hits left out.
    pub recomputed: Tokens,
    /// Tokens whose KV a preemption gave up.
    pub discarded: Tokens,
    /// Tokens computed as prefill: prompts, and what is computed again.
    pub prefilled: Tokens,
    /// Prompt tokens of sequences whose prefill is complete; recomputation does not count.
    pub prompt: Tokens,
    /// Tokens generated so far.
    pub generated: Tokens,
    /// Tokens looked up in the prefix cache; recomputation does not count.
    pub prefix_queries: Tokens,
    /// Tokens found there.
    pub prefix_hits: Tokens,
    /// Sequences that ended by themselves.
    pub stopped: u64,
    /// Sequences that ended at their limit.
    pub length_limited: u64,
    /// Requests aborted.
    pub aborted: u64,
}

/// The engine: requests in, events out.
///
/// ```text
/// add/abort at any time ─► next_step() says when ─► step(that instant) ─► events
/// ```
#[derive(Clone, Debug)]
pub struct Engine {
    scheduler: Scheduler,
    clock: StepClock,
    /// The step after the one being computed, where it is planned ahead.
    ahead: Option<Batch>,
}

/// Where the engine stands in its current step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepClock {
    /// Nothing to do, or nothing that can be done.
    Idle,
    /// Work has arrived; a step may be planned from this instant on.
    Ready(Time),
    /// A step is being computed and answers at this instant.
    Computing(Time),
}

// === impl EngineSpec ===

impl EngineSpec {
    /// A pool of `usable` tokens, rounded **down** to blocks, with vLLM's defaults for
    /// everything else: block size 16, 256 sequences, 2048 tokens a step, prefix caching,
    /// asynchronous scheduling. `max_model_len` is the pool.
    pub fn with_pool(usable: Tokens) -> Self {
        let block_size = BlockSize::new(16).expect("16 is not zero");
        Self {
            blocks: usable.blocks_down(block_size) + Blocks::new(1),
            block_size,
            max_model_len: usable,
            max_num_seqs: 256,
            max_num_batched_tokens: Tokens::new(2048),
            prefix_caching: PrefixCaching::Shared,
            lookahead: Tokens::ZERO,
            scheduling: Scheduling::Async,
            watermark: 0.0,
            step: StepTime::rtx_pro_6000_8b(),
            on_overflow: OnOverflow::Preempt,
        }
    }

    /// Blocks that sequences can hold: all but the null block.
    pub fn usable(&self) -> Blocks {
        self.blocks.saturating_sub(Blocks::new(1))
    }
}

// === impl SimRequest ===

impl SimRequest {
    /// One sequence with a prompt of its own that runs to `output` tokens and stops there by
    /// its `max_tokens`.
    pub fn new(prompt: Tokens, output: Tokens) -> Self {
        Self {
            prompt,
            prefix: PrefixChain::default(),
            samples: 1,
            max_tokens: Some(output),
            output,
            declared: Blocks::ZERO,
        }
    }
}

// === impl Engine ===

impl Engine {
    /// An idle engine with an empty pool.
    pub fn new(spec: EngineSpec) -> Self {
        Self {
            scheduler: Scheduler::new(spec),
            clock: StepClock::Idle,
            ahead: None,
        }
    }

    /// What the engine was started with.
    pub fn spec(&self) -> &EngineSpec {
        self.scheduler.spec()
    }

    /// Puts `request` at the end of the waiting line. It takes part from the next step on,
    /// so everything added before that step is planned together.
    ///
    /// # Panics
    /// If the prompt leaves no room for a token below `max_model_len`: a server refuses that
    /// before the engine sees it. Under [`OnOverflow::Panic`], when the declared footprints
    /// pass the pool.
    pub fn add(&mut self, now: Time, request: SimRequest) -> RequestId {
        let id = self.scheduler.add(request);
        self.wake(now);
        id
    }

    /// Ends `id` without an event and frees its blocks at once; ended requests are ignored.
    pub fn abort(&mut self, now: Time, id: RequestId) {
        self.scheduler.abort(id);
        self.wake(now);
    }

    /// Whether `id` has not ended.
    pub fn is_live(&self, id: RequestId) -> bool {
        self.scheduler.is_live(id)
    }

    /// When [`Engine::step`] has something to do; `None` while the engine is idle or holds
    /// only what can never fit.
    pub fn next_step(&self) -> Option<Time> {
        match self.clock {
            StepClock::Idle => None,
            StepClock::Ready(at) | StepClock::Computing(at) => Some(at),
        }
    }

    /// Takes in the results of the step that ends at or before `now` and begins the next
    /// one at `now`. Call it with the instant of [`Engine::next_step`]; later is a stall of
    /// the engine, earlier does nothing.
    pub fn step(&mut self, now: Time, out: &mut Vec<SimEvent>) {
        match self.next_step() {
            Some(at) if at <= now => {}
            _ => return,
        }
        if matches!(self.clock, StepClock::Computing(_)) {
            self.scheduler.collect(now, out);
        }
        let batch = match self.ahead.take() {
            Some(planned) => Some(planned),
            None => self.scheduler.plan(now, out),
        };
        self.clock = match &batch {
            Some(batch) => StepClock::Computing(now + self.step_duration(batch)),
            None => StepClock::Idle,
        };
        if batch.is_some() && self.spec().scheduling == Scheduling::Async {
            self.ahead = self.scheduler.plan(now, out);
        }
    }

    /// Levels and counters now.
    pub fn stats(&self) -> EngineStats {
        self.scheduler.stats()
    }

    /// KV blocks held by running sequences, as in [`Engine::stats`] but at no cost.
    pub fn used(&self) -> Blocks {
        self.scheduler.used()
    }

    /// How long a step of this engine lasts for `batch`.
    pub fn step_duration(&self, batch: &Batch) -> Duration {
        self.spec().step.duration(batch)
    }

    fn wake(&mut self, now: Time) {
        if self.clock == StepClock::Idle && self.scheduler.has_work() {
            self.clock = StepClock::Ready(now);
        }
    }
}
