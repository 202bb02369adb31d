//! What every refusal must look like, whatever its cause.

use serde_json::Value;

use super::client::Reply;

/// Codes after which coming back makes sense: these bear `Retry-After`.
const COME_BACK: [&str; 8] = [
    "tenant_limit_exceeded",
    "overloaded",
    "queue_timeout",
    "no_backend",
    "too_many_auth_failures",
    "tokenizer_unavailable",
    "server_shutdown",
    "server_busy",
];

/// Asserts a refusal of this status, code and reason in every detail and
/// returns its `error` object.
pub(crate) fn refused(reply: &Reply, status: u16, code: &str, reason: &str) -> Value {
    let said = (
        reply.status,
        reply.header("x-tidegate-reason").unwrap_or("no reason"),
    );
    assert_eq!(said, (status, reason), "{reply:?}");
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let length = reply.body.len().to_string();
    assert_eq!(reply.header("content-length"), Some(length.as_str()));
    assert!(reply.header("x-request-id").is_some(), "{reply:?}");
    let body = reply.json();
    let error = body["error"].clone();
    let keys: Vec<_> = error.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["message", "type", "param", "code"]);
    assert_eq!(body.as_object().unwrap().len(), 1);
    assert_eq!(error["code"], code, "{body}");
    assert!(error["message"].as_str().unwrap().len() > 10, "{body}");
    assert!(!error["type"].as_str().unwrap().is_empty(), "{body}");
    let wait = reply.header("retry-after");
    let wait = wait.map(|seconds| seconds.parse::<u64>().unwrap());
    let right = match wait {
        Some(seconds) => COME_BACK.contains(&code) && (1..=60).contains(&seconds),
        None => !COME_BACK.contains(&code),
    };
    assert!(right, "{code}: Retry-After {wait:?}");
    error
}
