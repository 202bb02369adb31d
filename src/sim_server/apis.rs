//! Reads a Responses or Messages request into what the engine is asked.
//!
//! The conversation is the one a real server makes of the body; from there on it
//! is a chat like any other.

use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Map, Value};

use super::prompt::{Opening, Prompt};
use super::read::{self, Asked, Delivery, Kind, Order, Served, UsageEvents};
use super::refuse::Refused;
use crate::protocol::request::{self, Stream};
use crate::protocol::{RequestError, Route, parse};

/// A body, as bytes and as fields.
#[derive(Clone, Copy)]
pub(super) struct Body<'a> {
    pub(super) bytes: &'a Bytes,
    pub(super) fields: &'a Map<String, Value>,
}

/// Reads a request of `kind`, one of the two.
///
/// # Errors
/// In vLLM's order: form, model, prompt, output.
pub(super) fn order(
    kind: Kind,
    served: Served<'_>,
    headers: &HeaderMap,
    body: Body<'_>,
) -> Result<Order, Refused> {
    let (route, key) = match kind {
        Kind::Responses => (Route::Responses, "max_output_tokens"),
        _ => (Route::Messages, "max_tokens"),
    };
    let request = parse(route, body.bytes).map_err(|error| refused(&error))?;
    let model = read::model(body.fields, served.models)?;
    let prompt = prompt(&request.prompt)?;
    let asked = Asked {
        key,
        value: request
            .max_tokens
            .and_then(|tokens| i64::try_from(tokens).ok()),
        kind,
    };
    let limit = read::limit(served.context, &prompt, &asked)?;
    Ok(Order {
        kind,
        model,
        id: read::request_id(headers, body.fields),
        prompts: vec![prompt],
        samples: 1,
        limits: vec![limit],
        output: read::output_hint(body.fields),
        delivery: match request.stream {
            Stream::Once => Delivery::Once,
            Stream::Events { .. } => Delivery::Stream {
                usage: UsageEvents::Last,
            },
        },
    })
}

/// The prompt of a body that is only counted.
///
/// # Errors
/// As [`order`].
pub(super) fn counted(body: Body<'_>, models: &[String]) -> Result<Prompt, Refused> {
    let request = parse(Route::CountTokens, body.bytes).map_err(|error| refused(&error))?;
    read::model(body.fields, models)?;
    prompt(&request.prompt)
}

fn prompt(prompt: &request::Prompt<'_>) -> Result<Prompt, Refused> {
    let request::Prompt::Chat(chat) = prompt else {
        return Err(Refused::bad_request("a chat is needed", None));
    };
    let messages = chat.messages.as_array().map_or(&[][..], Vec::as_slice);
    let opening = match chat.add_generation_prompt {
        true => Opening::Assistant,
        false => Opening::Nothing,
    };
    Ok(Prompt::from_chat(messages, opening))
}

fn refused(error: &RequestError) -> Refused {
    match error {
        RequestError::Missing(field) => {
            Refused::field(field, "missing", "Field required", "<dict>")
        }
        other => Refused::bad_request(other.to_string(), other.param()),
    }
}
