//! What a backend is asked: the client's request with a few documented edits.
//!
//! Edits of the body are splices of top-level keys; everything else of it passes.
//! Of the head only what is named here passes, so that no header there is or
//! will be lets a client steer an engine past us, or tells it who the client is.

use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::{Request, Uri};
use http_body_util::Full;

use bytes::Bytes;

use crate::core::admission::{Grant, MaxTokens};
use crate::core::units::Tokens;
use crate::protocol::request::{Stream, StreamUsage};
use crate::protocol::{Edit, Key, limit_output, splice};

use crate::layers::observe::{REQUEST_ID, push_hexadecimal};
use crate::layers::steps::Measured;

/// Headers of a client that pass: what says how the body is to be read and the
/// answer to be written, and what ties traces together. Everything else stays
/// here: keys and cookies, where the client is and who it says it is, and orders
/// that engines or routers before them take (ranks, priorities, fairness).
static PASSED: [HeaderName; 8] = [
    ACCEPT,
    CONTENT_TYPE,
    USER_AGENT,
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
    HeaderName::from_static("anthropic-version"),
    HeaderName::from_static("anthropic-beta"),
    HeaderName::from_static("x-session-id"),
];

/// The request for the backend of `grant`.
pub(super) fn request(measured: &Measured, grant: &Grant) -> Request<Full<Bytes>> {
    let letter = &measured.letter;
    // A form goes as it came.
    let set = output_to_write(measured, grant.max_tokens);
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
pub(in crate::layers) fn output_to_write(
    measured: &Measured,
    granted: MaxTokens,
) -> Option<Tokens> {
    let set = match granted {
        MaxTokens::Set(tokens) => Some(tokens),
        MaxTokens::AsSent => measured.outline.write_max_tokens,
    };
    set.filter(|_| !measured.letter.route.takes_form())
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

/// What an engine reads of the client's headers, with an id that is unique:
/// engines before 0.14 fail on two requests of one id, and clients repeat theirs.
fn headers(sent: &HeaderMap, id: &str) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(PASSED.len() + 1);
    for (name, value) in sent {
        if PASSED.contains(name) {
            headers.append(name, value.clone());
        }
    }
    let mut unique = String::with_capacity(id.len() + 9);
    unique.push_str(id);
    unique.push('-');
    push_hexadecimal(&rand::random::<[u8; 4]>(), &mut unique);
    let unique = HeaderValue::try_from(unique).expect("a sane id and digits make a header value");
    headers.insert(REQUEST_ID, unique);
    headers
}
