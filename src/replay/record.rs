//! What came of a run: one outcome for each call, and what each engine did.
//!
//! Facts only; every figure of a report is computed from them elsewhere. Invariant:
//! `outcomes` has exactly one entry for each call, in the calls' order.

use std::time::Duration;

use crate::core::reject::Reject;
use crate::core::time::Time;
use crate::core::units::Tokens;
use crate::sim::engine::EngineStats;

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// It was answered to the end.
    Finished {
        /// When its first token came; the wait counts from [`Call::at`](super::Call::at).
        first_token: Time,
        /// When its last token came.
        end: Time,
        /// Tokens it generated.
        generated: Tokens,
        /// Prompt tokens found in the engine's prefix cache.
        cached: Tokens,
        /// Place of the engine in the fleet.
        node: usize,
        /// Time it waited in the gateway.
        queued: Duration,
        /// How often the engine preempted it.
        preempted: u32,
    },
    /// The gateway refused it.
    Refused {
        /// When.
        at: Time,
        /// Why, and when to come back; a rival's refusals carry the nearest of the
        /// core's reasons.
        reject: Reject,
    },
    /// Its engine died under it after its first token, or did not take it because its
    /// context is shorter than the prompt.
    Failed {
        /// When.
        at: Time,
        /// Place of the engine in the fleet.
        node: usize,
    },
    /// It went past the gateway.
    Foreign,
    /// It had not ended when the world did.
    Unfinished {
        /// When its first token came, if it came.
        first_token: Option<Time>,
    },
}

/// What the gateway said of a call's wait when it arrived, and what came.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Promise {
    /// Which call.
    pub call: usize,
    /// When it was said.
    pub at: Time,
    /// The wait it is as likely to have longer as shorter, where one was predicted.
    pub q50: Option<Duration>,
    /// The wait that four of five stay below, where one was predicted.
    pub q80: Option<Duration>,
    /// How long it waited; `None` where it left the line unserved.
    pub waited: Option<Duration>,
}

/// A call that was refused, and came back when it had been told to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Return {
    /// Which call.
    pub call: usize,
    /// When it was refused.
    pub refused: Time,
    /// After how long it was told to come back.
    pub told: Duration,
    /// What became of it then, with as long for its first token as it had at first.
    pub outcome: Outcome,
}

/// One engine over the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeRecord {
    /// Its counters at the end, those of lives that ended in a crash added.
    pub stats: EngineStats,
    /// KV tokens that sequences held, integrated over the run: token-seconds.
    pub kv_token_seconds: f64,
    /// KV tokens it can hold.
    pub pool: Tokens,
    /// Time it was up.
    pub up: Duration,
    /// Calls sent to it by the gateway.
    pub sent: u64,
}

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// What became of each call, by its place among the calls.
    pub outcomes: Vec<Outcome>,
    /// Calls that waited in the gateway, in order of arrival.
    pub promises: Vec<Promise>,
    /// Calls that came back after a refusal; what became of them at first is in
    /// `outcomes`.
    pub returns: Vec<Return>,
    /// The engines, by their place in the fleet.
    pub nodes: Vec<NodeRecord>,
    /// When the last call ended, or the world did.
    pub until: Time,
}
