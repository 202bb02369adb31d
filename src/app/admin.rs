//! The operator's listener: metrics, health, state, and the page that shows it.
//!
//! Decides who may look (who has the token; on loopback without one everybody but web
//! pages, by the rule of [`super::nearby`]) and what is ready. Balancers have no token: without one `/livez` and `/readyz`
//! answer all the same, with a status and a word. Never touches a request; what
//! an operator may change is in [`super::orders`], what is told of a request that
//! nobody sent in [`super::explain`].

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{Either, Full};
use serde_json::json;
use subtle::ConstantTimeEq;
use tokio::net::TcpListener;
use tower::service_fn;

use crate::config::Secret;
use crate::layers::pool::Pool;
use crate::telemetry::{BackendView, PoolView, RateView};
use crate::tenants::TenantRef;

use super::arriving::Arriving;
use super::connection::{ConnectionLimits, Terms, serve_connection};
use super::dashboard::{Feed, File, Stream, keep_history};
use super::drain::{Drain, Phase, Watcher};
use super::explain;
use super::gateway::Gateway;
use super::listen::listen;
use super::nearby::{Refused, Wish, refused};
use super::orders::Order;
use super::places::{Places, Room};
use super::sockets::prepare;
use super::state;
use super::tls::Handshakes;

type Answer = Response<Either<Full<Bytes>, Stream>>;

/// Whether the token was shown.
#[derive(Clone, Copy)]
enum Bearer {
    NotAsked,
    Known,
    Missing,
}

/// Connections of operators at one time.
const MOST_CONNECTIONS: usize = 512;

/// The media type of Prometheus' text format.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The media type of a word or a line for people.
const PLAIN: &str = "text/plain; charset=utf-8";

/// What there is to see.
const PAGES: [&str; 6] = [
    "/livez", "/readyz", "/metrics", "/state", "/history", "/events",
];

/// What operators may ask.
#[derive(Clone)]
pub(super) struct Admin {
    gateway: Arc<Gateway>,
    watcher: Watcher,
    feed: Feed,
}

// === impl Admin ===

impl Admin {
    pub(super) fn new(gateway: Arc<Gateway>, watcher: Watcher) -> Self {
        Self {
            feed: Feed::new(Arc::clone(&gateway), watcher.clone()),
            gateway,
            watcher,
        }
    }

    /// Serves until dropped: operators watch a drain to its end.
    pub(super) async fn listen(self, listener: TcpListener) {
        let (_never, forever) = Drain::new();
        let connections = forever.clone();
        // Apart from those of clients, so that operators get in whatever happens.
        let places = Places::new(|| Room {
            total: MOST_CONNECTIONS,
            strangers: MOST_CONNECTIONS,
        });
        let (feed, history) = (self.feed.clone(), Arc::clone(&self.gateway));
        let serving = listen(listener, forever, places, move |stream, _, place| {
            let admin = self.clone();
            let config = &admin.gateway.snapshot().config;
            let metrics = Arc::clone(admin.gateway.telemetry().metrics());
            let server = &config.server;
            prepare(&stream, server.dead_client_timeout);
            let limits = ConnectionLimits {
                header_timeout: server.header_timeout,
                max_header_bytes: server.max_header_bytes,
            };
            let service = service_fn(move |request: Request<Arriving>| {
                let admin = admin.clone();
                async move { Ok::<_, Infallible>(admin.respond(request).await) }
            });
            let terms = Terms {
                limits,
                watcher: connections.clone(),
                place,
                secured: Handshakes::of(config.admin.tls.as_ref(), "admin", &metrics),
            };
            serve_connection(stream, service, terms)
        });
        tokio::join!(serving, feed.run(), keep_history(history));
    }

    /// Answers one request; only one page reads a body and takes its time.
    async fn respond(&self, request: Request<Arriving>) -> Answer {
        if request.uri().path() != explain::PATH {
            return self.answer(&request);
        }
        let wish = match *request.method() {
            Method::POST => Wish::Order,
            _ => Wish::Look,
        };
        match (self.bearer(&request, wish), wish) {
            (Err((status, problem)), _) => return text(status, problem),
            (Ok(Bearer::Missing), _) => return unknown_bearer(),
            (Ok(_), Wish::Order) => {}
            (Ok(_), _) => return wrong_method(&Method::POST),
        }
        match explain::answer(&self.gateway, request).await {
            Ok(told) => reply(StatusCode::OK, "application/json", told.to_string()),
            Err(problem) => reply(StatusCode::BAD_REQUEST, PLAIN, problem),
        }
    }

    /// Whether the token was shown. Where none is asked for, a browser is refused what
    /// another's page made it wish for.
    fn bearer<B>(&self, request: &Request<B>, wish: Wish) -> Result<Bearer, Refused> {
        let snapshot = self.gateway.snapshot();
        match &snapshot.config.admin.token {
            Some(token) if bears(request.headers().get(AUTHORIZATION), token) => Ok(Bearer::Known),
            Some(_) => Ok(Bearer::Missing),
            None => refused(request, wish).map_or(Ok(Bearer::NotAsked), Err),
        }
    }

    fn answer<B>(&self, request: &Request<B>) -> Answer {
        let path = request.uri().path();
        // No data is in them, and a browser has no token to show for them.
        if let Some(file) = File::at(path) {
            return match (self.bearer(request, Wish::Page), request.method()) {
                (Err((status, problem)), _) => text(status, problem),
                (Ok(_), &Method::GET) => page(file),
                (Ok(_), _) => wrong_method(&Method::GET),
            };
        }
        let order = Order::of(path);
        let (method, wish) = match (&order, request.method()) {
            (Some(_), asked) if *asked == Method::POST => (Method::POST, Wish::Order),
            (Some(_), _) => (Method::POST, Wish::Look),
            (None, _) => (Method::GET, Wish::Look),
        };
        let bearer = match self.bearer(request, wish) {
            Ok(bearer) => bearer,
            Err((status, problem)) => return text(status, problem),
        };
        match (bearer, order) {
            (Bearer::Missing, _) if *request.method() == Method::GET && path == "/livez" => {
                text(StatusCode::OK, "ok\n")
            }
            (Bearer::Missing, _) if *request.method() == Method::GET && path == "/readyz" => {
                self.ready_in_a_word()
            }
            (Bearer::Missing, _) => unknown_bearer(),
            (_, None) if !PAGES.contains(&path) => text(StatusCode::NOT_FOUND, "no such page\n"),
            _ if *request.method() != method => wrong_method(&method),
            (_, Some(order)) => self.obey(&order),
            (_, None) => self.show(request.uri()),
        }
    }

    fn obey(&self, order: &Order) -> Answer {
        match order.carry_out(&self.gateway.snapshot().pools) {
            Ok(body) => reply(StatusCode::OK, "application/json", body),
            Err((status, problem)) => text(status, problem),
        }
    }

    fn show(&self, uri: &Uri) -> Answer {
        match uri.path() {
            "/livez" => text(StatusCode::OK, "ok\n"),
            "/readyz" => self.ready(),
            "/metrics" => self.metrics(),
            "/state" => {
                let state = state::snapshot(&self.gateway, self.watcher.phase());
                reply(StatusCode::OK, "application/json", state.to_string())
            }
            "/history" => self.history(uri.query().unwrap_or_default()),
            "/events" => self.events(),
            _ => text(StatusCode::NOT_FOUND, "no such page\n"),
        }
    }

    /// The last hour, or what has come since the step that `after=` names.
    fn history(&self, query: &str) -> Answer {
        let mut asked = query
            .split('&')
            .filter_map(|pair| pair.strip_prefix("after="));
        let (first, second) = (asked.next(), asked.next());
        let Ok(after) = first.map_or(Ok(0), str::parse) else {
            return text(
                StatusCode::BAD_REQUEST,
                "after= takes the number of a step\n",
            );
        };
        if second.is_some() {
            let problem = "after= is there twice, and only one can be meant\n";
            return text(StatusCode::BAD_REQUEST, problem);
        }
        let mut told = self.gateway.telemetry().history().json(after);
        told["instance"] = self.gateway.instance().into();
        reply(StatusCode::OK, "application/json", told.to_string())
    }

    fn events(&self) -> Answer {
        let Some(stream) = self.feed.watch() else {
            let mut full = text(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many watch already; ask /state instead\n",
            );
            let soon = HeaderValue::from_static("5");
            full.headers_mut().insert(RETRY_AFTER, soon);
            return full;
        };
        let mut answer = Response::new(Either::Right(stream));
        label(&mut answer, "text/event-stream");
        answer
    }

    fn is_ready(&self) -> bool {
        self.gateway.is_ready() && self.watcher.phase() == Phase::Running
    }

    /// For whoever has no token.
    fn ready_in_a_word(&self) -> Answer {
        if self.is_ready() {
            text(StatusCode::OK, "ready\n")
        } else {
            text(StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
        }
    }

    fn ready(&self) -> Answer {
        let models: Vec<_> = self
            .gateway
            .snapshot()
            .pools
            .all()
            .iter()
            .map(|pool| {
                json!({
                    "model": &**pool.name(),
                    "ready": pool.is_ready(),
                    "counting": state::counting(pool),
                    "problem": pool.provenance().complaint(),
                    "backends": state::standing(pool),
                })
            })
            .collect();
        let phase = self.watcher.phase();
        let ready = self.is_ready();
        let body = json!({
            "ready": ready,
            "phase": phase.name(),
            "models": models,
            "config": state::config(&self.gateway),
        });
        let status = if ready {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        reply(status, "application/json", body.to_string())
    }

    fn metrics(&self) -> Answer {
        let metrics = self.gateway.telemetry().metrics();
        let snapshot = self.gateway.snapshot();
        for pool in snapshot.pools.all() {
            let (seats, failed) = (pool.seats(), scrapes_failed(pool));
            let backends: Vec<_> = seats
                .iter()
                .map(|(&slot, seat)| BackendView {
                    slot,
                    name: seat.name(),
                    scrapes_failed: failed.get(&slot).copied().unwrap_or_default(),
                })
                .collect();
            metrics.show_pool(&PoolView {
                model: pool.name(),
                state: &pool.gate().state(),
                backends: &backends,
                demotions: &pool.counter().demotions(),
                tenants: snapshot.tenants.names(),
                now: self.gateway.clock().now(),
            });
        }
        metrics.show_rates(snapshot.tenants.all_refs().iter().map(rate_view));
        let reload = self.gateway.reload_status();
        metrics.show_config(reload.last, self.gateway.clock().now() - reload.since);
        metrics.show_bodies(self.gateway.body_bytes());
        metrics.show_certificates(&self.gateway.snapshot().config);
        metrics.show_crowd(&self.gateway.crowd());
        reply(StatusCode::OK, PROMETHEUS, metrics.render())
    }
}

fn rate_view(tenant: &TenantRef) -> RateView<'_> {
    let standing = tenant.rates.standing(&tenant.tenant.limits);
    RateView {
        tenant: &tenant.tenant.name,
        requests: standing.requests.map(|gauge| gauge.remaining),
        tokens: standing.tokens.map(|gauge| gauge.remaining),
        booked: standing.booked,
    }
}

/// Failed reads of each backend's metrics, by slot. The ranks of an endpoint
/// are read together.
fn scrapes_failed(pool: &Pool) -> BTreeMap<u32, u64> {
    let endpoints = pool.endpoints().iter();
    let by_slot = endpoints.flat_map(|endpoint| {
        let failed = endpoint.view().scrapes_failed;
        endpoint.target().slots().map(move |slot| (slot, failed))
    });
    by_slot.collect()
}

/// Whether the header is `Bearer <token>`; takes as long for a near miss.
fn bears(header: Option<&HeaderValue>, token: &Secret) -> bool {
    let sent = header.and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    sent.is_some_and(|sent| sent.ct_eq(token.expose().as_bytes()).into())
}

fn unknown_bearer() -> Answer {
    let mut answer = text(StatusCode::UNAUTHORIZED, "token needed\n");
    let bearer = HeaderValue::from_static("Bearer");
    answer.headers_mut().insert(WWW_AUTHENTICATE, bearer);
    answer
}

fn wrong_method(allowed: &Method) -> Answer {
    let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "another method is needed\n");
    let allowed = HeaderValue::from_str(allowed.as_str()).expect("a method is a token");
    answer.headers_mut().insert(ALLOW, allowed);
    answer
}

fn text(status: StatusCode, body: &'static str) -> Answer {
    reply(status, PLAIN, body.to_owned())
}

fn reply(status: StatusCode, media: &'static str, body: String) -> Answer {
    let mut answer = Response::new(Either::Left(Full::from(body)));
    *answer.status_mut() = status;
    label(&mut answer, media);
    answer
}

fn page(file: File) -> Answer {
    let mut answer = Response::new(Either::Left(Full::from(file.text)));
    file.describe(answer.headers_mut());
    answer
}

/// What it is, which a browser must believe and not keep.
fn label(answer: &mut Answer, media: &'static str) {
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
}
