//! Which headers cross the gateway towards an engine and back.
//!
//! Decides by RFC 9110 §7.6.1 what belongs to one connection only, and never
//! lets the client's credentials or its choice of a rank through.

use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, ORIGIN,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName};

use super::Endpoint;
use crate::upstream::capacity::RANK_HEADER;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
/// Where some client libraries put their key.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Headers of one connection, whoever sends them.
static HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Headers of a client that no engine gets, and those that are set anew.
static OURS: [HeaderName; 8] = [
    AUTHORIZATION,
    API_KEY,
    COOKIE,
    // What pages may read is decided here, so no engine need have an opinion.
    ORIGIN,
    CONTENT_LENGTH,
    EXPECT,
    ACCEPT_ENCODING,
    RANK_HEADER,
];

/// Removes what belongs to one connection, the headers that `Connection` names
/// included, and a length beside a transfer coding, which overrides it (RFC 9112
/// §6.3): passed on alone it would cut the message short.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in &named {
        headers.remove(name);
    }
    remove_all(headers, &HOP_BY_HOP);
}

/// Removes what there is of `names`: messages have few headers, and of these none.
fn remove_all(headers: &mut HeaderMap, names: &[HeaderName]) {
    let there = |headers: &HeaderMap| headers.keys().find(|name| names.contains(name)).cloned();
    while let Some(name) = there(headers) {
        headers.remove(name);
    }
}

/// Makes the headers of a client's request those of a request to `endpoint`.
///
/// The body's length is left to hyper, which knows it after any edit. An encoded
/// answer could not be scanned, so none is asked for.
pub(super) fn towards(endpoint: &Endpoint, headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
    remove_all(headers, &OURS);
    headers.insert(HOST, endpoint.host.clone());
    if let Some(key) = &endpoint.authorization {
        headers.insert(AUTHORIZATION, key.clone());
    }
    for (name, value) in &endpoint.own {
        headers.insert(name, value.clone());
    }
    if let Some(rank) = &endpoint.rank {
        headers.insert(RANK_HEADER, rank.clone());
    }
}
