//! Error answers, word for word as vLLM 0.32 gives them.

use http::StatusCode;
use serde_json::{Value, json};

use crate::core::units::Tokens;

/// An error answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Refused {
    pub(super) status: StatusCode,
    pub(super) body: Value,
}

pub(super) const DEAD: &str =
    "EngineCore encountered an issue. See stack trace (above) for the root cause.";

// === impl Refused ===

impl Refused {
    /// What the engine's own checks say.
    pub(super) fn bad_request(message: impl Into<String>, param: Option<&str>) -> Self {
        Self::openai(
            StatusCode::BAD_REQUEST,
            "BadRequestError",
            message.into(),
            param,
        )
    }

    /// What the reader of the body says: one problem, printed as Python prints it.
    pub(super) fn invalid(problem: &str, param: Option<&str>) -> Self {
        let message = format!("1 validation error:\n  {problem}");
        Self::openai(StatusCode::BAD_REQUEST, "Bad Request", message, param)
    }

    /// A field that cannot be read. `kind` and `what` are pydantic's words.
    pub(super) fn field(field: &str, kind: &str, what: &str, input: &str) -> Self {
        let place = if field.is_empty() {
            String::from("body")
        } else {
            format!("body.{field}")
        };
        let problem =
            format!("{{'type': '{kind}', 'loc': '{place}', 'msg': '{what}', 'input': '{input}'}}");
        Self::invalid(&problem, Some(&place))
    }

    pub(super) fn json(at: usize, what: &str) -> Self {
        let place = format!("body.{at}");
        let problem = format!(
            "{{'type': 'json_invalid', 'loc': '{place}', 'msg': 'JSON decode error', 'input': '<dict of 0 items>', 'ctx': {{'error': \"{what}\"}}}}"
        );
        let problem = if what.contains('\'') {
            problem
        } else {
            problem.replace('"', "'")
        };
        Self::invalid(&problem, Some(&place))
    }

    pub(super) fn media_type() -> Self {
        Self::invalid(
            "Unsupported Media Type: Only 'application/json' is allowed",
            None,
        )
    }

    pub(super) fn unknown_model(model: &str, known: &[String]) -> Self {
        let known = known.join(", ");
        let message = format!("The model `{model}` does not exist. Valid aliases: {known}.");
        Self::openai(
            StatusCode::NOT_FOUND,
            "NotFoundError",
            message,
            Some("model"),
        )
    }

    /// A prompt longer than the context. A text is only counted to one past the limit.
    pub(super) fn prompt_too_long(limit: Tokens, counted: PromptSize) -> Self {
        let (words, value) = match counted {
            PromptSize::Exactly(tokens) => (tokens.to_string(), tokens),
            PromptSize::AtLeast(tokens) => (format!("at least {tokens}"), tokens),
        };
        let message = format!(
            "This model's maximum context length is {limit} tokens. However, your prompt contains {words} input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value={value})"
        );
        Self::bad_request(message, Some("input_tokens"))
    }

    pub(super) fn max_tokens_too_small(value: i64) -> Self {
        let message = format!(
            "max_tokens must be at least 1, got {value}. (parameter=max_tokens, value={value})"
        );
        Self::bad_request(message, Some("max_tokens"))
    }

    pub(super) fn max_tokens_too_large(param: &str, value: i64, limit: Tokens) -> Self {
        let message = format!(
            "{param}={value} cannot be greater than max_model_len={limit}. Please request fewer output tokens. (parameter={param}, value={value})"
        );
        Self::bad_request(message, Some(param))
    }

    pub(super) fn busy() -> Self {
        let message = "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance.";
        Self::openai(
            StatusCode::SERVICE_UNAVAILABLE,
            "Service Unavailable",
            message.to_owned(),
            None,
        )
    }

    pub(super) fn dead() -> Self {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Self::openai(status, "InternalServerError", DEAD.to_owned(), None)
    }

    /// The event a stream gets when the engine dies under it, printed as Python prints it.
    pub(super) fn dead_event() -> String {
        format!(
            "data: {{\"error\": {{\"message\": \"{DEAD}\", \"type\": \"InternalServerError\", \"param\": null, \"code\": 500}}}}\n\n"
        )
    }

    /// As `/v1/messages` tells it: errors of the engine have Anthropic's shape,
    /// those of the body's reader do not.
    #[must_use]
    pub(super) fn told_by_messages(mut self) -> Self {
        let error = &self.body["error"];
        if error.is_object() && error["type"] != "Bad Request" {
            let error = json!({"type": error["type"], "message": error["message"]});
            self.body = json!({"type": "error", "error": error});
        }
        self
    }

    pub(super) fn unauthorized() -> Self {
        Self {
            status: StatusCode::UNAUTHORIZED,
            body: json!({"error": "Unauthorized"}),
        }
    }

    /// What the web framework says, in its own shape.
    pub(super) fn detail(status: StatusCode, detail: &str) -> Self {
        Self {
            status,
            body: json!({"detail": detail}),
        }
    }

    fn openai(status: StatusCode, kind: &str, message: String, param: Option<&str>) -> Self {
        let code = status.as_u16();
        Self {
            status,
            body: json!({"error": {"message": message, "type": kind, "param": param, "code": code}}),
        }
    }
}

/// How well the length of a refused prompt is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PromptSize {
    Exactly(Tokens),
    AtLeast(Tokens),
}
