//! Why admission refuses or drops a request; each reason is one metric label.

use std::time::Duration;

use thiserror::Error;

use super::units::Tokens;

/// A refusal by admission. The layer above turns each into exactly one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Reject {
    /// No backend that could ever serve this request is large enough.
    #[error("{prompt} prompt and {output} output tokens, at most {limit} fit anywhere")]
    ContextTooLong {
        /// Tokens of the longest prompt.
        prompt: Tokens,
        /// Output tokens asked; zero where the client did not ask.
        output: Tokens,
        /// The largest context any backend allowed to serve it could hold.
        limit: Tokens,
    },
    /// Each of its sequences fits somewhere, all of them together nowhere.
    #[error("{sequences} sequences of {tokens} tokens together, at most {pool} fit anywhere")]
    TooManySequences {
        /// Sequences the engine would run.
        sequences: u64,
        /// Their prompts and outputs together, saturated.
        tokens: Tokens,
        /// The largest context of one sequence.
        limit: Tokens,
        /// The most that any backend allowed to serve it holds of all sequences.
        pool: Tokens,
    },
    /// One request alone is above the tenant's in-flight share.
    #[error("{asked} tokens asked, the tenant may hold {limit} at a time")]
    AboveTenantShare {
        /// Tokens the request would hold.
        asked: Tokens,
        /// The tenant's share.
        limit: Tokens,
    },
    /// The tenant's places in the queue are taken.
    #[error("{waiting} requests of the tenant are waiting, the limit is {limit}")]
    TenantQueueFull {
        /// Requests of the tenant already waiting.
        waiting: u32,
        /// The tenant's limit.
        limit: u32,
        /// When to come back.
        retry_after: Duration,
    },
    /// The queue is full, or the predicted wait passes the deadline.
    #[error("the queue is full or its wait too long")]
    Overloaded {
        /// Which bound was met.
        bound: QueueBound,
        /// When to come back.
        retry_after: Duration,
    },
    /// Waited until its deadline.
    #[error("waited {waited:?} in the queue")]
    QueueTimeout {
        /// Time spent waiting.
        waited: Duration,
        /// When to come back.
        retry_after: Duration,
    },
    /// Backends of the model exist, none is usable now.
    #[error("no backend of this model is usable")]
    NoBackend {
        /// When to come back.
        retry_after: Duration,
    },
}

/// Which bound of the queue refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueBound {
    /// Number of waiting requests.
    Requests,
    /// Tokens of waiting requests.
    Tokens,
    /// The predicted wait is longer than the request may wait.
    PredictedWait,
}

impl Reject {
    /// The reason as a metric label and a log field.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::ContextTooLong { .. } | Self::TooManySequences { .. } => "context_too_long",
            Self::AboveTenantShare { .. } => "above_tenant_share",
            Self::TenantQueueFull { .. } => "tenant_queue_full",
            Self::Overloaded { bound, .. } => match bound {
                QueueBound::Requests => "queue_requests_full",
                QueueBound::Tokens => "queue_tokens_full",
                QueueBound::PredictedWait => "predicted_wait_too_long",
            },
            Self::QueueTimeout { .. } => "queue_timeout",
            Self::NoBackend { .. } => "no_backend",
        }
    }

    /// When the client should come back, where coming back makes sense.
    pub const fn retry_after(&self) -> Option<Duration> {
        match *self {
            Self::ContextTooLong { .. }
            | Self::TooManySequences { .. }
            | Self::AboveTenantShare { .. } => None,
            Self::TenantQueueFull { retry_after, .. }
            | Self::Overloaded { retry_after, .. }
            | Self::QueueTimeout { retry_after, .. }
            | Self::NoBackend { retry_after } => Some(retry_after),
        }
    }
}
