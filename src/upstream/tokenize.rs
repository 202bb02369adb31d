//! Asks an engine's own `/tokenize` (or its count of messages) how long a prompt is.
//!
//! Exact for what the route reads; it ignores `reasoning_effort`, `documents`
//! and `tool_choice`, so a request with those may count differently. The route
//! has no length limit, and images in a chat are fetched and expanded: whoever
//! calls decides what is worth asking.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, StatusCode};
use http_body_util::Full;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use super::client::{Bounds, Client, Connector, Endpoint, FetchError};

/// What is to be counted. Fields left out take the engine's defaults.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Question<'a> {
    /// A conversation, rendered with the engine's template.
    Chat(Chat<'a>),
    /// One text. The route takes no lists and no token ids.
    Text {
        /// Served model id.
        model: &'a str,
        /// The text.
        prompt: &'a str,
        /// Whether the tokenizer adds its begin and end tokens; true by default.
        #[serde(skip_serializing_if = "Option::is_none")]
        add_special_tokens: Option<bool>,
    },
}

/// A conversation to count.
#[derive(Clone, Debug, Serialize)]
pub struct Chat<'a> {
    /// Served model id.
    pub model: &'a str,
    /// Its messages, as the client sent them.
    pub messages: &'a Value,
    /// Its tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<&'a Value>,
    /// Template of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat_template: Option<&'a str>,
    /// Template variables of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat_template_kwargs: Option<&'a Map<String, Value>>,
    /// Whether the header of an answer is added; true by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add_generation_prompt: Option<bool>,
    /// Whether the last message is left open; false by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continue_final_message: Option<bool>,
    /// Whether the tokenizer adds special tokens; false by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add_special_tokens: Option<bool>,
}

/// What an engine counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Counted {
    /// Tokens of the prompt.
    pub count: u64,
    /// Longest context the engine serves, prompt plus output.
    pub max_model_len: u64,
}

/// Why there is no count.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TokenizeError {
    /// No answer in time and size.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The engine will not count this.
    #[error("engine answered {0}")]
    Status(StatusCode),
    /// What came is no count.
    #[error("answer holds no count")]
    NoCount,
}

/// Asks `endpoint` for the length of a prompt.
///
/// The answer lists every token: `bounds.bytes` must leave about eight bytes
/// for each that may come. Dropping the future closes the connection.
///
/// # Errors
/// Where the engine does not answer in time, or not with a count.
pub async fn tokenize<C: Connector>(
    client: &Client<C>,
    endpoint: &Endpoint,
    question: &Question<'_>,
    bounds: Bounds,
) -> Result<Counted, TokenizeError> {
    let body = serde_json::to_vec(question).expect("strings and JSON values serialise");
    ask(client, endpoint, ("/tokenize", Bytes::from(body)), bounds).await
}

async fn ask<C: Connector, A: DeserializeOwned>(
    client: &Client<C>,
    endpoint: &Endpoint,
    (path, body): (&'static str, Bytes),
    bounds: Bounds,
) -> Result<A, TokenizeError> {
    let mut request = Request::post(path)
        .body(Full::new(body))
        .expect("a constant path is a URI");
    request
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let answer = client.fetch(endpoint, request, bounds).await?;
    if !answer.status.is_success() {
        return Err(TokenizeError::Status(answer.status));
    }
    serde_json::from_slice(&answer.body).map_err(|_| TokenizeError::NoCount)
}

/// Asks `endpoint` for the prompt tokens of a `/v1/messages` body, sent as it is.
///
/// Exact for everything that route reads. Dropping the future closes the connection.
///
/// # Errors
/// As [`tokenize`]; a prompt longer than the model takes is a [`TokenizeError::Status`].
pub async fn count_message<C: Connector>(
    client: &Client<C>,
    endpoint: &Endpoint,
    body: Bytes,
    bounds: Bounds,
) -> Result<u64, TokenizeError> {
    #[derive(Deserialize)]
    struct Answer {
        input_tokens: u64,
    }
    let answer: Answer = ask(
        client,
        endpoint,
        ("/v1/messages/count_tokens", body),
        bounds,
    )
    .await?;
    Ok(answer.input_tokens)
}

#[cfg(test)]
mod tests;
