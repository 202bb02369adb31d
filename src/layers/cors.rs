//! Which pages of other origins may ask from within a browser.
//!
//! Decides by the operator's list, none by default; answers a browser's
//! question before the request, and says in every answer, a refusal too,
//! whether the page may read it. What a backend says of it never passes, or a
//! browser would see two opinions. Never allows cookies: keys travel in
//! headers, and a page that has one was given it.

use std::convert::Infallible;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderName, HeaderValue, ORIGIN, VARY,
};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use tower::{Layer, Service};

use crate::telemetry::Finish;

use super::BoxFuture;
use super::answer::AnswerBody;
use super::snapshot::Current;
use super::steps::Traced;

/// What a page may read of an answer beside what every page may.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "retry-after, x-request-id, x-tidegate-prompt-tokens, x-tidegate-backend, x-tidegate-tier, \
     x-tidegate-queue-ms, x-tidegate-max-tokens, x-tidegate-reason, x-ratelimit-limit-requests, \
     x-ratelimit-limit-tokens, x-ratelimit-remaining-requests, x-ratelimit-remaining-tokens, \
     x-ratelimit-reset-requests, x-ratelimit-reset-tokens",
);
/// What a page may ask with where it does not say.
const ALLOWED: HeaderValue = HeaderValue::from_static("authorization, content-type, x-request-id");
/// Longest list of headers that is granted as asked, in bytes.
const LONGEST_LIST: usize = 1024;
/// How long a browser may remember an answer to its question, in seconds.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// Adds [`Cors`].
#[derive(Clone)]
pub struct CorsLayer {
    current: Current,
}

/// Answers browsers.
#[derive(Clone)]
pub struct Cors<S> {
    inner: S,
    current: Current,
}

/// What a request's answer says to a browser.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// No page of another origin is served.
    Off,
    /// Pages are, not this one.
    Denied,
    /// This page may read the answer.
    Granted(HeaderValue),
}

// === impl CorsLayer ===

impl CorsLayer {
    /// Goes by the configuration in force.
    pub fn new(current: Current) -> Self {
        Self { current }
    }
}

impl<S> Layer<S> for CorsLayer {
    type Service = Cors<S>;

    fn layer(&self, inner: S) -> Cors<S> {
        Cors {
            inner,
            current: self.current.clone(),
        }
    }
}

// === impl Verdict ===

impl Verdict {
    fn of(origins: &[String], headers: &HeaderMap) -> Self {
        if origins.is_empty() {
            return Self::Off;
        }
        let Some(origin) = headers.get(ORIGIN) else {
            return Self::Denied;
        };
        let is_listed = |listed: &String| listed == "*" || listed.as_bytes() == origin.as_bytes();
        if origins.iter().any(is_listed) {
            Self::Granted(origin.clone())
        } else {
            Self::Denied
        }
    }

    /// Puts it into the headers of an answer.
    fn say(self, headers: &mut HeaderMap) {
        let theirs: Vec<HeaderName> = headers
            .keys()
            .filter(|name| name.as_str().starts_with("access-control-"))
            .cloned()
            .collect();
        for name in theirs {
            headers.remove(name);
        }
        if self != Self::Off && !varies(headers) {
            headers.append(VARY, HeaderValue::from_static("origin"));
        }
        if let Self::Granted(origin) = self {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        }
    }
}

/// Whether an answer says already that it depends on the origin.
fn varies(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(VARY).into_iter();
    let mut names = lists.flat_map(|list| list.as_bytes().split(|byte| *byte == b','));
    names.any(|name| {
        let name = name.trim_ascii();
        name == b"*" || name.eq_ignore_ascii_case(b"origin")
    })
}

/// The answer to a browser's question before a request.
fn preflight<U>(head: &Parts) -> Response<AnswerBody<U>> {
    let mut answer = Response::new(AnswerBody::whole(Bytes::new()));
    *answer.status_mut() = StatusCode::NO_CONTENT;
    let headers = answer.headers_mut();
    let methods = HeaderValue::from_static("GET, POST");
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
    // What passes is decided elsewhere; libraries send headers of their own.
    let asked = head.headers.get(ACCESS_CONTROL_REQUEST_HEADERS);
    let asked = asked.filter(|asked| asked.len() <= LONGEST_LIST);
    let granted = asked.cloned().unwrap_or(ALLOWED);
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, granted);
    headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    answer
}

// === impl Cors ===

impl<S, B, U> Service<Traced<B>> for Cors<S>
where
    S: Service<Traced<B>, Response = Response<AnswerBody<U>>, Error = Infallible>,
    S::Future: Send + 'static,
    U: Send + 'static,
{
    type Response = Response<AnswerBody<U>>;
    type Error = Infallible;
    type Future = BoxFuture<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Traced<B>) -> Self::Future {
        let head = &request.head;
        let snapshot = self.current.load();
        let verdict = Verdict::of(&snapshot.config.server.cors_origins, &head.headers);
        let asks_first = head.method == Method::OPTIONS
            && head.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        if asks_first && let Verdict::Granted(origin) = &verdict {
            request.trail.ended(Finish::Complete, None);
            let mut answer = preflight(head);
            let headers = answer.headers_mut();
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            headers.insert(VARY, HeaderValue::from_static("origin"));
            return Box::pin(std::future::ready(Ok(answer)));
        }
        let answer = self.inner.call(request);
        Box::pin(async move {
            let Ok(mut answer) = answer.await;
            verdict.say(answer.headers_mut());
            Ok(answer)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(origins: &[&str], origin: Option<&'static str>) -> Verdict {
        let origins: Vec<String> = origins.iter().map(|&origin| origin.to_owned()).collect();
        let mut headers = HeaderMap::new();
        if let Some(origin) = origin {
            headers.insert(ORIGIN, HeaderValue::from_static(origin));
        }
        Verdict::of(&origins, &headers)
    }

    #[test]
    fn an_origin_is_granted_only_where_it_is_listed_as_it_is() {
        let listed = ["https://a.example", "http://localhost:3000"];
        let granted = |origin| matches!(verdict(&listed, Some(origin)), Verdict::Granted(_));
        assert!(granted("https://a.example") && granted("http://localhost:3000"));
        let others = [
            "http://a.example",
            "https://a.example:8443",
            "https://a.example.evil.example",
            "https://evil.example/https://a.example",
            "null",
            "*",
        ];
        for other in others {
            assert!(!granted(other), "{other}");
        }
        assert_eq!(verdict(&listed, None), Verdict::Denied);
        assert_eq!(verdict(&[], Some("https://a.example")), Verdict::Off);
        let any = verdict(&["*"], Some("https://a.example"));
        let same = HeaderValue::from_static("https://a.example");
        assert_eq!(any, Verdict::Granted(same));
    }
}
