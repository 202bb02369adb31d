//! Why a request is not served: one small error per step, joined in [`Refusal`].
//!
//! The steps fail with these values and know no status code; `rescue` turns
//! each [`Reason`](super::reason::Reason) into exactly one answer. The invariant, walked by a test:
//! one reason ⇔ one status, one code, one metric label.

use std::time::Duration;

use thiserror::Error;

use crate::core::reject::Reject;
use crate::core::units::Tokens;
use crate::protocol::{RequestError, RouteError};
use crate::tenants::{AuthError, LimitError, RateError};

use super::threads::Undone;

/// When a tenant whose line for a thread is full should come back.
const LINE_RETRY: Duration = Duration::from_secs(1);

/// Everything a step below `rescue` may fail with.
#[derive(Debug, Error)]
pub enum Refusal {
    /// The caller is not let in.
    #[error(transparent)]
    Tenant(#[from] TenantError),
    /// The request cannot be read or is not served here.
    #[error(transparent)]
    Ingest(#[from] IngestError),
    /// The request cannot be counted or is above a limit of its tenant.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// Admission refuses it.
    #[error(transparent)]
    Admit(#[from] Reject),
    /// The backend did not answer.
    #[error(transparent)]
    Forward(#[from] ForwardError),
    /// A step panicked.
    #[error("a step of the request path panicked")]
    Panicked,
}

/// The caller is not let in.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum TenantError {
    /// Its key says so.
    #[error(transparent)]
    Key(#[from] AuthError),
    /// It shows more than one key, so that two readers could see two callers.
    #[error("the header {0} is given twice")]
    TwoKeys(&'static str),
    /// It does not keep to a rate of its tenant.
    #[error(transparent)]
    Rate(#[from] RateError),
    /// No pool it may use has a waiting place left for it; as the last one said.
    #[error(transparent)]
    Full(Reject),
    /// The budget for request bodies is spent.
    #[error("the budget for request bodies is spent")]
    BodyBudgetSpent,
    /// The process finishes what it has and takes nothing new.
    #[error("the process is shutting down")]
    Draining,
}

/// The request cannot be read or is not served here.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum IngestError {
    /// The route is not served.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// The body is not said to be what the route takes.
    #[error("the content type is not {expected}")]
    MediaType {
        /// What it takes.
        expected: &'static str,
    },
    /// The body is compressed in a way that is not taken, or more than once.
    #[error("the content encoding is not served")]
    Encoding,
    /// The body is not what its content encoding says.
    #[error("the body cannot be decompressed")]
    Undecodable,
    /// `Expect` asks for something other than `100-continue`.
    #[error("the expectation cannot be met")]
    Expectation,
    /// The header block is larger than the limit.
    #[error("the header block is larger than {limit} bytes")]
    HeadersTooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The body is larger than the limit.
    #[error("the body is larger than {limit} bytes")]
    BodyTooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// The body did not arrive in time.
    #[error("the body did not arrive within {limit:?}")]
    BodyTooSlow {
        /// The limit.
        limit: Duration,
    },
    /// Too little of the body came for a while.
    #[error("the body came slower than {least} bytes a second")]
    BodyTrickles {
        /// The least rate, in bytes a second.
        least: u64,
    },
    /// The connection broke while the body was read.
    #[error("the body broke off")]
    BodyBroken,
    /// The budget for request bodies was spent while this body was read.
    #[error("the budget for request bodies is spent")]
    BodyBudgetSpent,
    /// The body means nothing an engine would serve.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The body carries `kv_transfer_params`, which name blocks of other requests.
    #[error("kv_transfer_params are not passed on")]
    KvTransfer,
    /// The body brings a chat template of its own.
    #[error("the request brings its own chat template")]
    ChatTemplate,
    /// The body links to media where it may not.
    #[error("the link at {place} is refused: {problem}")]
    Link {
        /// The top-level key it stands in.
        field: &'static str,
        /// Where it stands in the body.
        place: String,
        /// What is wrong with it; never a part of it.
        problem: String,
    },
    /// No model is named and the tenant may use more than one.
    #[error("no model is named")]
    NoModel,
    /// The model is unknown, or the tenant may not use it.
    #[error("unknown model {model:?}")]
    UnknownModel {
        /// The id asked.
        model: String,
    },
}

/// The request cannot be counted or is above a limit of its tenant.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum MeasureError {
    /// The chat template or the tokenizer refuses the prompt: so would the engine's.
    #[error("{message}")]
    Unrenderable {
        /// What the template said.
        message: String,
    },
    /// No exact count can be made and the model's policy forbids an estimate.
    #[error("the prompt cannot be counted")]
    TokenizerUnavailable,
    /// It is above a limit of its tenant.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// It is above a limit, and nobody went on to see by how much.
    #[error("the prompt has at least {at_least} tokens, the limit is {limit}")]
    TooLong {
        /// Tokens counted when the limit was passed.
        at_least: Tokens,
        /// The limit.
        limit: Tokens,
        /// Whose limit it is.
        whose: Whose,
    },
}

/// Whose limit bounds a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// No backend could ever hold more.
    Fleet,
    /// The tenant's limit on prompt and output.
    TenantContext,
    /// The tenant's limit on prompts.
    TenantPrompt,
}

/// The backend did not answer.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum ForwardError {
    /// It refused or broke the connection before answering.
    #[error("the backend failed before it answered")]
    Failed,
    /// It did not answer in time.
    #[error("the backend did not answer in time")]
    TimedOut,
    /// It answered with what no client could read: a page, a redirect, nothing.
    #[error("the backend answered {status} and nothing readable")]
    Unreadable {
        /// The status of its answer.
        status: u16,
    },
    /// It sheds load and did not say so readably.
    #[error("the backend is overloaded")]
    Busy,
}

// === impl Refusal ===

impl From<Undone> for Refusal {
    /// A line for a thread is a queue like the one for memory, and refuses like it.
    fn from(undone: Undone) -> Self {
        match undone {
            Undone::LineFull { waiting } => Self::Admit(Reject::TenantQueueFull {
                waiting,
                limit: waiting,
                retry_after: LINE_RETRY,
            }),
            Undone::Broken => Self::Panicked,
        }
    }
}
