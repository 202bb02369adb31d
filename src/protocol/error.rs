//! The shape of our own errors: JSON or one SSE event, as the route's clients read it.
//!
//! [`Code`] names every refusal and failure the gateway can answer with. Which
//! HTTP status goes with it is decided elsewhere, in one place.

use bytes::Bytes;
use serde_json::{Value, json};

use super::route::Dialect;

/// What went wrong, as the `code` field spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// Prompt, or prompt and output, larger than what may serve it or the tenant's limit.
    ContextLengthExceeded,
    /// A limit of the tenant: rate, waiting places, in-flight share.
    TenantLimitExceeded,
    /// The queue is full, or the predicted wait too long.
    Overloaded,
    /// Waited until the deadline.
    QueueTimeout,
    /// No backend of the model is usable.
    NoBackend,
    /// No such model, or the tenant may not use it.
    ModelNotFound,
    /// No such route.
    NotFound,
    /// No key, or not a known one.
    InvalidApiKey,
    /// The body is larger than the limit.
    RequestTooLarge,
    /// The body is not one JSON object in UTF-8.
    InvalidJson,
    /// JSON, but not what any engine would read.
    InvalidRequest,
    /// The path is served with another method.
    MethodNotAllowed,
    /// The media type is not served.
    UnsupportedMediaType,
    /// The content encoding is not served.
    UnsupportedEncoding,
    /// The `Expect` header asks for what is not served.
    ExpectationFailed,
    /// The header block is too large.
    HeadersTooLarge,
    /// Headers or body came too slowly.
    RequestTimeout,
    /// Too many failed keys from one address.
    TooManyAuthFailures,
    /// The tokenizer of the model is not usable, and estimating is not allowed.
    TokenizerUnavailable,
    /// The gateway is shutting down.
    ServerShutdown,
    /// The memory for request bodies is spent.
    ServerBusy,
    /// A bug of ours.
    InternalError,
    /// The backend refused, reset or died.
    UpstreamFailed,
    /// The backend did not answer in time.
    UpstreamTimeout,
}

/// One error answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorBody {
    /// For a person to read.
    pub message: String,
    /// The request field at fault, if one is.
    pub param: Option<&'static str>,
    /// What went wrong; `type` follows from it.
    pub code: Code,
}

// === impl Code ===

impl Code {
    /// Every code.
    pub const ALL: [Self; 24] = [
        Self::ContextLengthExceeded,
        Self::TenantLimitExceeded,
        Self::Overloaded,
        Self::QueueTimeout,
        Self::NoBackend,
        Self::ModelNotFound,
        Self::NotFound,
        Self::InvalidApiKey,
        Self::RequestTooLarge,
        Self::InvalidJson,
        Self::InvalidRequest,
        Self::MethodNotAllowed,
        Self::UnsupportedMediaType,
        Self::UnsupportedEncoding,
        Self::ExpectationFailed,
        Self::HeadersTooLarge,
        Self::RequestTimeout,
        Self::TooManyAuthFailures,
        Self::TokenizerUnavailable,
        Self::ServerShutdown,
        Self::ServerBusy,
        Self::InternalError,
        Self::UpstreamFailed,
        Self::UpstreamTimeout,
    ];

    /// The value of the `code` field.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ContextLengthExceeded => "context_length_exceeded",
            Self::TenantLimitExceeded => "tenant_limit_exceeded",
            Self::Overloaded => "overloaded",
            Self::QueueTimeout => "queue_timeout",
            Self::NoBackend => "no_backend",
            Self::ModelNotFound => "model_not_found",
            Self::NotFound => "not_found",
            Self::InvalidApiKey => "invalid_api_key",
            Self::RequestTooLarge => "request_too_large",
            Self::InvalidJson => "invalid_json",
            Self::InvalidRequest => "invalid_request",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::UnsupportedEncoding => "unsupported_encoding",
            Self::ExpectationFailed => "expectation_failed",
            Self::HeadersTooLarge => "headers_too_large",
            Self::RequestTimeout => "request_timeout",
            Self::TooManyAuthFailures => "too_many_auth_failures",
            Self::TokenizerUnavailable => "tokenizer_unavailable",
            Self::ServerShutdown => "server_shutdown",
            Self::ServerBusy => "server_busy",
            Self::InternalError => "internal_error",
            Self::UpstreamFailed => "upstream_failed",
            Self::UpstreamTimeout => "upstream_timeout",
        }
    }

    /// The value of the `type` field: the class of error a client library switches on.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::ContextLengthExceeded
            | Self::ModelNotFound
            | Self::NotFound
            | Self::RequestTooLarge
            | Self::InvalidJson
            | Self::InvalidRequest
            | Self::MethodNotAllowed
            | Self::UnsupportedMediaType
            | Self::UnsupportedEncoding
            | Self::ExpectationFailed
            | Self::HeadersTooLarge
            | Self::RequestTimeout => "invalid_request_error",
            Self::InvalidApiKey => "authentication_error",
            Self::TenantLimitExceeded | Self::TooManyAuthFailures => "rate_limit_error",
            Self::Overloaded | Self::QueueTimeout | Self::ServerBusy => "overloaded_error",
            Self::NoBackend
            | Self::TokenizerUnavailable
            | Self::ServerShutdown
            | Self::InternalError => "server_error",
            Self::UpstreamFailed => "upstream_failed",
            Self::UpstreamTimeout => "upstream_timeout",
        }
    }
}

// === impl Code, for Anthropic's clients ===

impl Code {
    /// The value of the `type` field in Anthropic's errors.
    pub const fn message_kind(self) -> &'static str {
        match self {
            Self::ContextLengthExceeded
            | Self::InvalidJson
            | Self::InvalidRequest
            | Self::MethodNotAllowed
            | Self::UnsupportedMediaType
            | Self::UnsupportedEncoding
            | Self::ExpectationFailed
            | Self::HeadersTooLarge
            | Self::RequestTimeout => "invalid_request_error",
            Self::RequestTooLarge => "request_too_large",
            Self::ModelNotFound | Self::NotFound => "not_found_error",
            Self::InvalidApiKey => "authentication_error",
            Self::TenantLimitExceeded | Self::TooManyAuthFailures => "rate_limit_error",
            Self::Overloaded
            | Self::QueueTimeout
            | Self::NoBackend
            | Self::ServerShutdown
            | Self::ServerBusy => "overloaded_error",
            Self::UpstreamTimeout => "timeout_error",
            Self::TokenizerUnavailable | Self::InternalError | Self::UpstreamFailed => "api_error",
        }
    }
}

// === impl ErrorBody ===

impl ErrorBody {
    /// An error that no single field caused.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            param: None,
            code,
        }
    }

    /// The body of an HTTP answer, media type `application/json`.
    pub fn to_json(&self, dialect: Dialect) -> Bytes {
        let value = match dialect {
            Dialect::OpenAi | Dialect::Responses => json!({"error": self.value()}),
            Dialect::Messages => self.message(),
        };
        Bytes::from(value.to_string())
    }

    /// One event for a stream already begun.
    ///
    /// Whatever part of an event went before must have been closed by a blank
    /// line. A response's error has its fields at the top,
    /// as its own events do, and once more where client libraries look for the
    /// error of any stream.
    pub fn to_sse_event(&self, dialect: Dialect) -> Bytes {
        let event = match dialect {
            Dialect::OpenAi => format!("data: {}", json!({"error": self.value()})),
            Dialect::Messages => format!("event: error\ndata: {}", self.message()),
            Dialect::Responses => {
                let data = json!({
                    "type": "error",
                    "code": self.code.as_str(),
                    "message": self.message,
                    "param": self.param,
                    "sequence_number": 0,
                    "error": self.value(),
                });
                format!("event: error\ndata: {data}")
            }
        };
        Bytes::from(format!("{event}\n\n"))
    }

    fn value(&self) -> Value {
        json!({
            "message": self.message,
            "type": self.code.kind(),
            "param": self.param,
            "code": self.code.as_str(),
        })
    }

    /// Anthropic's shape; its clients pass over the fields it does not have.
    fn message(&self) -> Value {
        json!({"type": "error", "error": {
            "type": self.code.message_kind(),
            "message": self.message,
            "param": self.param,
            "code": self.code.as_str(),
        }})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_body_has_the_four_fields_in_order() {
        let body = ErrorBody {
            message: "say \"hi\"\n".into(),
            param: Some("messages"),
            code: Code::InvalidRequest,
        };
        assert_eq!(
            body.to_json(Dialect::OpenAi),
            r#"{"error":{"message":"say \"hi\"\n","type":"invalid_request_error","param":"messages","code":"invalid_request"}}"#
        );
    }

    #[test]
    fn a_stream_error_is_one_event_of_one_line() {
        let body = ErrorBody::new(Code::UpstreamFailed, "the backend died\nmid-stream");
        let event = body.to_sse_event(Dialect::OpenAi);
        assert_eq!(
            event,
            "data: {\"error\":{\"message\":\"the backend died\\nmid-stream\",\"type\":\"upstream_failed\",\
             \"param\":null,\"code\":\"upstream_failed\"}}\n\n"
        );
    }

    #[test]
    fn each_dialect_has_a_shape_of_its_own() {
        let body = ErrorBody::new(Code::Overloaded, "later");
        assert_eq!(
            body.to_json(Dialect::Messages),
            r#"{"type":"error","error":{"type":"overloaded_error","message":"later","param":null,"code":"overloaded"}}"#
        );
        assert_eq!(
            body.to_json(Dialect::Responses),
            body.to_json(Dialect::OpenAi)
        );
        let event = body.to_sse_event(Dialect::Messages);
        assert!(event.starts_with(b"event: error\ndata: {\"type\":\"error\",\"error\":{"));
        let event = body.to_sse_event(Dialect::Responses);
        assert_eq!(
            event,
            "event: error\ndata: {\"type\":\"error\",\"code\":\"overloaded\",\"message\":\"later\",\
             \"param\":null,\"sequence_number\":0,\"error\":{\"message\":\"later\",\
             \"type\":\"overloaded_error\",\"param\":null,\"code\":\"overloaded\"}}\n\n"
        );
    }

    #[test]
    fn codes_are_distinct_and_in_snake_case() {
        let mut names: Vec<_> = Code::ALL.into_iter().map(Code::as_str).collect();
        assert!(
            names
                .iter()
                .all(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
        );
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 24);
    }
}
