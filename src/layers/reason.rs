//! [`Reason`]: the closed set of refusals, and which error has which reason.
//!
//! Decides nothing about HTTP. Invariant: labels are unique and every error of
//! every step has exactly one reason.

use crate::core::reject::{QueueBound, Reject};
use crate::protocol::{Code, RouteError};
use crate::tenants::{AuthError, LimitError, RateError};

use super::error::{ForwardError, IngestError, MeasureError, Refusal, TenantError, Whose};

/// Why a request was not served, as a closed set: the metric label, the value
/// of `x-tidegate-reason` and the log field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No or a wrong key.
    InvalidApiKey,
    /// Too many wrong keys from one address.
    TooManyAuthFailures,
    /// The tenant's places in the queue are taken.
    TenantQueueFull,
    /// The tenant's requests a minute are used up.
    TenantRequestRate,
    /// The tenant's tokens a minute are used up.
    TenantTokenRate,
    /// One request above what the tenant's token rate lets through at once.
    AboveTokenBurst,
    /// The body budget is spent.
    ServerBusy,
    /// Draining.
    ServerShutdown,
    /// The path is not served.
    UnknownRoute,
    /// The method is not served.
    MethodNotAllowed,
    /// The media type is not served.
    UnsupportedMediaType,
    /// The content encoding is not served.
    UnsupportedEncoding,
    /// The expectation is not served.
    ExpectationFailed,
    /// Header block too large.
    HeadersTooLarge,
    /// Body too large.
    RequestTooLarge,
    /// Body too slow or broken off.
    RequestTimeout,
    /// Not JSON.
    InvalidJson,
    /// No engine would read it.
    InvalidRequest,
    /// Unknown model, or not this tenant's.
    ModelNotFound,
    /// No exact count and no estimate allowed.
    TokenizerUnavailable,
    /// Above the tenant's context limit.
    TenantContextLimit,
    /// Above the tenant's prompt limit.
    TenantPromptLimit,
    /// Above the tenant's output limit.
    TenantOutputLimit,
    /// Fits no backend that could ever serve it.
    ContextTooLong,
    /// One request above the tenant's in-flight share.
    AboveTenantShare,
    /// The queue is full in requests.
    QueueRequestsFull,
    /// The queue is full in tokens.
    QueueTokensFull,
    /// The predicted wait passes the deadline.
    PredictedWaitTooLong,
    /// Waited until the deadline.
    QueueTimeout,
    /// No backend usable.
    NoBackend,
    /// The backend failed before any byte of the answer.
    UpstreamFailed,
    /// The backend did not answer in time.
    UpstreamTimeout,
    /// The backend sheds load.
    BackendBusy,
    /// A bug of ours.
    InternalError,
}

// === impl Reason ===

impl Reason {
    /// All reasons, in declaration order.
    pub const ALL: [Self; 34] = [
        Self::InvalidApiKey,
        Self::TooManyAuthFailures,
        Self::TenantQueueFull,
        Self::TenantRequestRate,
        Self::TenantTokenRate,
        Self::AboveTokenBurst,
        Self::ServerBusy,
        Self::ServerShutdown,
        Self::UnknownRoute,
        Self::MethodNotAllowed,
        Self::UnsupportedMediaType,
        Self::UnsupportedEncoding,
        Self::ExpectationFailed,
        Self::HeadersTooLarge,
        Self::RequestTooLarge,
        Self::RequestTimeout,
        Self::InvalidJson,
        Self::InvalidRequest,
        Self::ModelNotFound,
        Self::TokenizerUnavailable,
        Self::TenantContextLimit,
        Self::TenantPromptLimit,
        Self::TenantOutputLimit,
        Self::ContextTooLong,
        Self::AboveTenantShare,
        Self::QueueRequestsFull,
        Self::QueueTokensFull,
        Self::PredictedWaitTooLong,
        Self::QueueTimeout,
        Self::NoBackend,
        Self::UpstreamFailed,
        Self::UpstreamTimeout,
        Self::BackendBusy,
        Self::InternalError,
    ];

    /// Those for which admission refuses on arrival.
    pub const OF_ADMISSION: [Self; 7] = [
        Self::ContextTooLong,
        Self::AboveTenantShare,
        Self::TenantQueueFull,
        Self::QueueRequestsFull,
        Self::QueueTokensFull,
        Self::PredictedWaitTooLong,
        Self::NoBackend,
    ];

    /// The metric label; unique, and stable once released.
    pub const fn label(self) -> &'static str {
        match self {
            Self::InvalidApiKey => "invalid_api_key",
            Self::TooManyAuthFailures => "too_many_auth_failures",
            Self::TenantQueueFull => "tenant_queue_full",
            Self::TenantRequestRate => "tenant_request_rate",
            Self::TenantTokenRate => "tenant_token_rate",
            Self::AboveTokenBurst => "above_token_burst",
            Self::ServerBusy => "server_busy",
            Self::ServerShutdown => "server_shutdown",
            Self::UnknownRoute => "unknown_route",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::UnsupportedEncoding => "unsupported_encoding",
            Self::ExpectationFailed => "expectation_failed",
            Self::HeadersTooLarge => "headers_too_large",
            Self::RequestTooLarge => "request_too_large",
            Self::RequestTimeout => "request_timeout",
            Self::InvalidJson => "invalid_json",
            Self::InvalidRequest => "invalid_request",
            Self::ModelNotFound => "model_not_found",
            Self::TokenizerUnavailable => "tokenizer_unavailable",
            Self::TenantContextLimit => "tenant_context_limit",
            Self::TenantPromptLimit => "tenant_prompt_limit",
            Self::TenantOutputLimit => "tenant_output_limit",
            Self::ContextTooLong => "context_too_long",
            Self::AboveTenantShare => "above_tenant_share",
            Self::QueueRequestsFull => "queue_requests_full",
            Self::QueueTokensFull => "queue_tokens_full",
            Self::PredictedWaitTooLong => "predicted_wait_too_long",
            Self::QueueTimeout => "queue_timeout",
            Self::NoBackend => "no_backend",
            Self::UpstreamFailed => "upstream_failed",
            Self::UpstreamTimeout => "upstream_timeout",
            Self::BackendBusy => "backend_busy",
            Self::InternalError => "internal_error",
        }
    }
}

// === impl Refusal ===

impl Refusal {
    /// The reason of this refusal.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Tenant(error) => error.reason(),
            Self::Ingest(error) => error.reason(),
            Self::Measure(error) => error.reason(),
            Self::Admit(reject) => reject_reason(reject),
            Self::Forward(ForwardError::Failed | ForwardError::Unreadable { .. }) => {
                Reason::UpstreamFailed
            }
            Self::Forward(ForwardError::TimedOut) => Reason::UpstreamTimeout,
            Self::Forward(ForwardError::Busy) => Reason::BackendBusy,
            Self::Panicked => Reason::InternalError,
        }
    }
}

impl TenantError {
    const fn reason(&self) -> Reason {
        match self {
            Self::Key(AuthError::TooManyFailures { .. }) => Reason::TooManyAuthFailures,
            Self::Key(_) => Reason::InvalidApiKey,
            Self::TwoKeys(_) => Reason::InvalidRequest,
            Self::Rate(RateError::Requests { .. }) => Reason::TenantRequestRate,
            Self::Rate(RateError::Tokens { .. }) => Reason::TenantTokenRate,
            Self::Rate(RateError::AboveBurst { .. }) => Reason::AboveTokenBurst,
            Self::Full(reject) => reject_reason(reject),
            Self::BodyBudgetSpent => Reason::ServerBusy,
            Self::Draining => Reason::ServerShutdown,
        }
    }
}

impl IngestError {
    const fn reason(&self) -> Reason {
        match self {
            Self::Route(RouteError::NotFound) => Reason::UnknownRoute,
            Self::Route(RouteError::MethodNotAllowed { .. }) => Reason::MethodNotAllowed,
            Self::MediaType { .. } => Reason::UnsupportedMediaType,
            Self::Encoding => Reason::UnsupportedEncoding,
            Self::Expectation => Reason::ExpectationFailed,
            Self::HeadersTooLarge { .. } => Reason::HeadersTooLarge,
            Self::BodyTooLarge { .. } => Reason::RequestTooLarge,
            Self::BodyTooSlow { .. } | Self::BodyTrickles { .. } => Reason::RequestTimeout,
            Self::BodyBudgetSpent => Reason::ServerBusy,
            Self::Request(error) => match error.code() {
                Code::InvalidJson => Reason::InvalidJson,
                _ => Reason::InvalidRequest,
            },
            Self::Undecodable
            | Self::BodyBroken
            | Self::KvTransfer
            | Self::ChatTemplate
            | Self::Link { .. }
            | Self::NoModel => Reason::InvalidRequest,
            Self::UnknownModel { .. } => Reason::ModelNotFound,
        }
    }
}

impl MeasureError {
    const fn reason(&self) -> Reason {
        match self {
            Self::Unrenderable { .. } => Reason::InvalidRequest,
            Self::TokenizerUnavailable => Reason::TokenizerUnavailable,
            Self::Limit(LimitError::Context { .. }) => Reason::TenantContextLimit,
            Self::Limit(LimitError::Prompt { .. }) => Reason::TenantPromptLimit,
            Self::Limit(LimitError::Output { .. }) => Reason::TenantOutputLimit,
            Self::TooLong { whose, .. } => match whose {
                Whose::Fleet => Reason::ContextTooLong,
                Whose::TenantContext => Reason::TenantContextLimit,
                Whose::TenantPrompt => Reason::TenantPromptLimit,
            },
        }
    }
}

const fn reject_reason(reject: &Reject) -> Reason {
    match reject {
        Reject::ContextTooLong { .. } | Reject::TooManySequences { .. } => Reason::ContextTooLong,
        Reject::AboveTenantShare { .. } => Reason::AboveTenantShare,
        Reject::TenantQueueFull { .. } => Reason::TenantQueueFull,
        Reject::Overloaded { bound, .. } => queue_reason(*bound),
        Reject::QueueTimeout { .. } => Reason::QueueTimeout,
        Reject::NoBackend { .. } => Reason::NoBackend,
    }
}

const fn queue_reason(bound: QueueBound) -> Reason {
    match bound {
        QueueBound::Requests => Reason::QueueRequestsFull,
        QueueBound::Tokens => Reason::QueueTokensFull,
        QueueBound::PredictedWait => Reason::PredictedWaitTooLong,
    }
}
