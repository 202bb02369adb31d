//! What admission answers, as data: decisions, verdicts, grants, effects.

use std::time::Duration;

use crate::core::backend::{BackendId, Tier};
use crate::core::demand::OutputLimit;
use crate::core::fairness::{Cost, Usage};
use crate::core::gates::Choice;
use crate::core::ledger::LeaseId;
use crate::core::placement::Placement;
use crate::core::queue::{Coming, TicketId};
use crate::core::reject::Reject;
use crate::core::stats::Hold;
use crate::core::time::Time;
use crate::core::units::{BlockSize, Blocks, Tokens};
use crate::core::waits::Predicted;

/// What would happen to a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    /// It fits there now.
    Admit(Placement),
    /// It would wait.
    Wait {
        /// The tier it belongs to.
        home: Tier,
        /// Its output bound, after clamping.
        output: OutputLimit,
        /// Predicted wait.
        predicted: Predicted,
        /// What keeps it in line.
        hold: Hold,
        /// Where it stands there.
        standing: Standing,
    },
    /// It is refused.
    Reject(Reject),
}

/// Where a request stands in line, as [`decide`](super::Admission::decide) has found:
/// nothing that its caller needs, but what it would cost to find again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    pub(super) weight: Weight,
    pub(super) key: Time,
    pub(super) coming: Coming,
    /// What is ahead of it there.
    pub(super) ahead: Cost,
    /// When it cannot have its first token in time any more.
    pub(super) in_vain: Option<Time>,
}

/// What a request is expected to use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Weight {
    pub(super) usage: Usage,
    /// Tokens of KV times seconds, before its output was clamped.
    pub(super) size: f64,
}

/// What has happened to a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// It holds a lease.
    Admit(Grant),
    /// It waits; an [`Effect`] with this ticket follows, unless it is cancelled.
    Wait(TicketId),
    /// It is refused.
    Reject(Reject),
}

/// A lease as handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// To be released exactly once.
    pub lease: LeaseId,
    /// Where to send the request.
    pub backend: BackendId,
    /// The tier there.
    pub tier: Tier,
    /// The tier it belongs to.
    pub home: Tier,
    /// Why there and not elsewhere.
    pub choice: Choice,
    /// What to write into the request.
    pub max_tokens: MaxTokens,
    /// Time spent waiting.
    pub waited: Duration,
    /// Tokens per block there: growth is worth reporting in these steps.
    pub block_size: BlockSize,
    /// Blocks taken.
    pub blocks: Blocks,
    /// Tokens of the prompt's beginning that the backend probably has already, by
    /// what was sent there.
    pub cached: Tokens,
}

/// The output limit the engine must be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxTokens {
    /// As the client sent it, or left it out.
    AsSent,
    /// This many tokens: clamped, or set where the client left it open.
    Set(Tokens),
}

/// What follows from a fact, for a request that waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// The waiter holds a lease.
    Grant {
        /// Whose wait is over.
        ticket: TicketId,
        /// What it holds.
        grant: Grant,
    },
    /// The waiter is dropped.
    Refuse {
        /// Whose wait is over.
        ticket: TicketId,
        /// Why.
        reject: Reject,
    },
    /// More waiters want to be looked at: call
    /// [`handle_timeout`](super::Admission::handle_timeout) again, soon.
    Again,
}

/// How a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With an answer.
    Finished {
        /// Prompt tokens, as the engine counted them.
        prompt: Tokens,
        /// Generated tokens of all sequences.
        generated: Tokens,
    },
    /// The client left.
    Cancelled,
    /// The engine failed.
    Failed,
}
