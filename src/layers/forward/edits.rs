//! What a backend is asked: the client's request with a few documented edits.
//!
//! Edits of the body are splices of top-level keys; edits of the head remove
//! what would let a client steer an engine past us. Everything else passes.

use http::header::{CONTENT_ENCODING, HeaderMap, HeaderValue};
use http::{Request, Uri};
use http_body_util::Full;

use bytes::Bytes;

use crate::core::admission::{Grant, MaxTokens};
use crate::core::units::Tokens;
use crate::protocol::request::{Stream, StreamUsage};
use crate::protocol::{Edit, Key, limit_output, splice};

use crate::layers::observe::REQUEST_ID;
use crate::layers::steps::Measured;

/// Headers by which engines, or we, take orders.
const ORDERS: [&str; 2] = ["x-vllm-", "x-tidegate-"];

/// The request for the backend of `grant`.
pub(super) fn request(measured: &Measured, grant: &Grant) -> Request<Full<Bytes>> {
    let letter = &measured.letter;
    // A form goes as it came.
    let set = output_to_write(measured, grant).filter(|_| !letter.route.takes_form());
    if set.is_some() {
        letter.trail.note(|facts| facts.set_output = set);
    }
    let body = if letter.route.takes_form() {
        letter.body.bytes.clone()
    } else {
        let edits = edits(measured, set);
        splice(&letter.body.bytes, &measured.outline.keys, &edits)
    };
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = letter.head.method.clone();
    *request.uri_mut() = Uri::from_static(letter.path);
    *request.headers_mut() = headers(&letter.head.headers, &letter.trail.id());
    request
}

/// The output bound the body must carry, where it does not carry it yet.
fn output_to_write(measured: &Measured, grant: &Grant) -> Option<Tokens> {
    match grant.max_tokens {
        MaxTokens::Set(tokens) => Some(tokens),
        MaxTokens::AsSent => measured.outline.write_max_tokens,
    }
}

fn edits(measured: &Measured, set: Option<Tokens>) -> Vec<Edit> {
    let mut edits = vec![Edit::Remove(Key::RequestId)];
    edits.push(match measured.letter.tenant.tenant.priority {
        Some(priority) => Edit::Set(Key::Priority, priority.to_string()),
        None => Edit::Remove(Key::Priority),
    });
    if let Some(salt) = &measured.outline.cache_salt {
        edits.push(Edit::text(Key::CacheSalt, salt));
    }
    if let Some(tokens) = set {
        let (route, keys) = (measured.letter.route, &measured.outline.keys);
        edits.extend(limit_output(route, keys, tokens.get()));
    }
    let unasked = Stream::Events {
        usage: StreamUsage::NotAsked,
    };
    if measured.outline.stream == unasked {
        edits.push(Edit::IncludeUsage);
    }
    edits
}

/// The client's headers without its orders, with an id that is unique: engines
/// before 0.14 fail on two requests of one id, and clients repeat theirs.
fn headers(sent: &HeaderMap, id: &str) -> HeaderMap {
    let mut headers = sent.clone();
    let orders: Vec<_> = sent
        .keys()
        .filter(|name| ORDERS.iter().any(|order| name.as_str().starts_with(order)))
        .cloned()
        .collect();
    for name in orders {
        headers.remove(name);
    }
    // A compressed body was unpacked.
    headers.remove(CONTENT_ENCODING);
    let unique = format!("{id}-{:08x}", rand::random::<u32>());
    let unique = HeaderValue::from_str(&unique).expect("a sane id and digits make a header value");
    headers.insert(REQUEST_ID, unique);
    headers
}
