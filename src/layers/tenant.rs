//! Who asks, and whether there is any point in reading on.
//!
//! Decides the tenant from `Authorization` (or the header of Anthropic's clients),
//! and refuses before the body is read what could not be served anyway: draining,
//! the tenant's waiting places taken, every queue full, the body budget spent.
//! Never reads a body. The door is a cheap look, not a reservation: admission
//! decides again, exactly.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use http::Response;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use ipnet::IpNet;
use tower::{Layer, Service};

use crate::config::ClientAddress;
use crate::gate::Clock;
use crate::protocol::{Dialect, Matched, Route, RouteError, WorkKind, route};
use crate::tenants::{ClientCertificate, Moment, Shown, TenantRef};

use super::BoxFuture;
use super::budget::Budget;
use super::door::Door;
use super::error::{Refusal, TenantError};
use super::ingest::BodyLimits;
use super::origin;
use super::snapshot::{Current, Snapshot};
use super::steps::{Keyed, Traced};
use super::trail::Trail;

/// Where Anthropic's clients put their key.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Who is at the other end of a connection, put into each of its requests by
/// whoever accepted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address.
    pub address: IpAddr,
    /// The certificate it showed in the handshake, verified; `None` without TLS
    /// and for a client that showed none.
    pub certificate: Option<Arc<ClientCertificate>>,
}

/// What the door looks at.
#[derive(Clone)]
pub struct TenantLayer {
    /// What requests run under from here on.
    pub current: Current,
    /// The budget for request bodies.
    pub budget: Budget,
    /// Whether requests are taken and answered.
    pub door: Door,
    /// The clock of the failed-key windows.
    pub clock: Clock,
}

/// Finds the tenant and looks at the door.
#[derive(Clone)]
pub struct TenantStep<S> {
    inner: S,
    layer: Arc<TenantLayer>,
}

// === impl Peer ===

impl From<IpAddr> for Peer {
    /// A peer without a certificate.
    fn from(address: IpAddr) -> Self {
        Self {
            address,
            certificate: None,
        }
    }
}

// === impl TenantLayer ===

impl<S> Layer<S> for TenantLayer {
    type Service = TenantStep<S>;

    fn layer(&self, inner: S) -> TenantStep<S> {
        TenantStep {
            inner,
            layer: Arc::new(self.clone()),
        }
    }
}

impl TenantLayer {
    /// Whose request it is, if it may come in. What is refused here is its tenant's
    /// all the same, wherever that is known.
    fn admit(
        &self,
        head: &Parts,
        snapshot: &Snapshot,
        trail: &Trail,
    ) -> Result<TenantRef, TenantError> {
        if self.door.is_closed() {
            return Err(TenantError::Draining);
        }
        let matched = route(&head.method, head.uri.path());
        let key = key(&head.headers, matched)?;
        let peer = head.extensions.get::<Peer>();
        let shown = Shown {
            header: key.as_deref(),
            certificate: peer.and_then(|peer| peer.certificate.as_deref()),
            from: client(head, snapshot),
        };
        let tenant = snapshot.tenants.identify(shown, self.now())?;
        trail.belongs_to(&tenant);
        self.look(head, (&tenant, snapshot))?;
        Ok(tenant)
    }

    /// Whether there is any point in reading on, as far as can be told now.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn look(
        &self,
        head: &Parts,
        (tenant, snapshot): (&TenantRef, &Snapshot),
    ) -> Result<(), TenantError> {
        if self.door.is_closed() {
            return Err(TenantError::Draining);
        }
        let Ok(matched) = route(&head.method, head.uri.path()) else {
            return Ok(());
        };
        // Only a request that will queue must find room; what holds no KV, the
        // model list, and what is not served at all, get their own answers.
        if matched.route != Route::Models {
            self.look_at_budget(head, tenant, snapshot)?;
        }
        if matched.route.work() != WorkKind::Aside {
            look_ahead(tenant, snapshot)?;
        }
        Ok(())
    }

    fn now(&self) -> Moment {
        Moment {
            now: self.clock.now(),
            date: SystemTime::now(),
        }
    }

    fn look_at_budget(
        &self,
        head: &Parts,
        tenant: &TenantRef,
        snapshot: &Snapshot,
    ) -> Result<(), TenantError> {
        let limits = BodyLimits::of(&snapshot.config.server).within(&tenant.tenant.limits);
        let limit = limits.max_body_bytes;
        let announced = head
            .headers
            .get(CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok()?.parse::<u64>().ok())
            // One that is too large anyway is told so, whatever is free.
            .filter(|length| *length <= limit);
        if !self.budget.has_room(tenant.id, announced.unwrap_or(1)) {
            return Err(TenantError::BodyBudgetSpent);
        }
        Ok(())
    }
}

/// The client's address.
fn client(head: &Parts, snapshot: &Snapshot) -> IpAddr {
    let peer = head
        .extensions
        .get::<Peer>()
        .map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.address);
    origin::client(peer, &head.headers, &snapshot.config.server)
}

/// As much of the client's address as the operator wants to be written down.
fn noted(client: IpAddr, wanted: ClientAddress) -> Option<IpNet> {
    let prefix = match (wanted, client) {
        (ClientAddress::Off, _) => return None,
        (ClientAddress::Full, _) => return Some(IpNet::from(client)),
        (ClientAddress::Network, IpAddr::V4(_)) => 24,
        (ClientAddress::Network, IpAddr::V6(_)) => 48,
    };
    IpNet::new(client, prefix)
        .ok()
        .map(|network| network.trunc())
}

/// Takes one request of the tenant's rate, whichever route is served. The last
/// step at the door: what is refused for want of room costs nothing.
fn take_one(tenant: &TenantRef, trail: &Trail) -> Result<(), TenantError> {
    if trail.read(|facts| facts.route.is_none()) {
        return Ok(());
    }
    let taken = tenant.rates.request(&tenant.tenant.limits);
    trail.look_at_rates(tenant);
    Ok(taken?)
}

fn look_ahead(tenant: &TenantRef, snapshot: &Snapshot) -> Result<(), TenantError> {
    let mut full = None;
    for pool in snapshot.pools.of(tenant) {
        match pool.gate().has_room(tenant.id) {
            Ok(()) => return Ok(()),
            Err(reject) => full = Some(TenantError::Full(reject)),
        }
    }
    // A tenant without any pool is told so by the model lookup.
    full.map_or(Ok(()), Err)
}

/// The key of a request: Anthropic's clients put it into a header of its own,
/// which counts where they ask and no other key is given.
fn key(
    headers: &HeaderMap,
    matched: Result<Matched, RouteError>,
) -> Result<Option<Cow<'_, HeaderValue>>, TenantError> {
    if let Some(value) = only(headers, &AUTHORIZATION, "authorization")? {
        return Ok(Some(Cow::Borrowed(value)));
    }
    if !matched.is_ok_and(|found| found.route.dialect() == Dialect::Messages) {
        return Ok(None);
    }
    let sent = only(headers, &API_KEY, "x-api-key")?;
    let bearer = |sent: &HeaderValue| [b"Bearer ", sent.as_bytes()].concat();
    let bearer = sent.map(bearer);
    Ok(bearer.and_then(|bearer| HeaderValue::from_bytes(&bearer).ok().map(Cow::Owned)))
}

/// The value of a header that may be there once.
fn only<'h>(
    headers: &'h HeaderMap,
    header: &HeaderName,
    name: &'static str,
) -> Result<Option<&'h HeaderValue>, TenantError> {
    let mut values = headers.get_all(header).iter();
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(TenantError::TwoKeys(name)),
        (value, None) => Ok(value),
    }
}

// === impl TenantStep ===

impl<S, B, R> Service<Traced<B>> for TenantStep<S>
where
    S: Service<Keyed<B>, Response = Response<R>, Error = Refusal>,
    S::Future: Send + 'static,
    R: Send + 'static,
{
    type Response = Response<R>;
    type Error = Refusal;
    type Future = BoxFuture<Result<Response<R>, Refusal>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, traced: Traced<B>) -> Self::Future {
        let snapshot = self.layer.current.load();
        let wanted = snapshot.config.log.client_address;
        if let Some(client) = noted(client(&traced.head, &snapshot), wanted) {
            traced
                .trail
                .note(|facts| facts.record.client = Some(client));
        }
        let admitted = self
            .layer
            .admit(&traced.head, &snapshot, &traced.trail)
            .and_then(|tenant| {
                take_one(&tenant, &traced.trail)?;
                Ok(tenant)
            });
        match admitted {
            Ok(tenant) => {
                let over = self.layer.door.over();
                let answer = self.inner.call(Keyed {
                    traced,
                    tenant,
                    snapshot,
                });
                Box::pin(async move {
                    tokio::select! {
                        // First, so that memory given back at the end lets
                        // nobody in.
                        biased;
                        () = over => Err(TenantError::Draining.into()),
                        answer = answer => answer,
                    }
                })
            }
            Err(error) => Box::pin(std::future::ready(Err(error.into()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::reject::{QueueBound, Reject};
    use crate::gate::Submission;
    use crate::layers::fixture::Fixture;
    use std::time::Duration;

    const CHAT: &str =
        r#"{"model":"model","messages":[{"role":"user","content":"hi"}],"max_tokens":900}"#;

    fn layer(fixture: &Fixture) -> TenantLayer {
        TenantLayer {
            current: Current::new(fixture.snapshot(|config| config.server.max_body_bytes = 80)),
            budget: Budget::new(100),
            door: Door::default(),
            clock: Clock::start(),
        }
    }

    fn head(path: &str, length: &str) -> Parts {
        let request = http::Request::post(path).header(CONTENT_LENGTH, length);
        request.body(()).unwrap().into_parts().0
    }

    #[tokio::test]
    async fn the_door_closes_for_a_drain_and_for_a_spent_budget() {
        let fixture = Fixture::new();
        let trail = fixture.parsed(Route::ChatCompletions, CHAT).letter.trail;
        let layer = layer(&fixture);
        let snapshot = layer.current.load();
        let admit = |head: &Parts| layer.admit(head, &snapshot, &trail);
        let chat = head("/v1/chat/completions", "60");
        assert!(admit(&chat).is_ok());
        let mut share = layer.budget.share(crate::core::demand::TenantId(99));
        share.grow(50).unwrap();
        assert_eq!(admit(&chat).err(), Some(TenantError::BodyBudgetSpent));
        // Whose it was is known all the same.
        let whose = trail.read(|facts| facts.record.tenant.clone());
        assert_eq!(whose.as_deref(), Some(fixture.tenant.tenant.name.as_str()));
        // One that is too large is told so by whoever reads it.
        assert!(admit(&head("/v1/chat/completions", "90")).is_ok());
        assert!(admit(&head("/v1/models", "60")).is_ok());
        layer.door.close();
        assert_eq!(admit(&chat).err(), Some(TenantError::Draining));
    }

    #[tokio::test]
    async fn a_full_queue_and_full_places_are_told_before_the_body_is_read() {
        let fixture = Fixture::new();
        let mut limited = (*fixture.tenant.tenant).clone();
        limited.limits.max_waiting = Some(2);
        let measured = fixture.measured(CHAT).await;
        let _held = fixture.lease(&measured);
        let wait = || match fixture.pool.gate().submit(measured.demand.clone()) {
            Submission::Waiting(ticket) => ticket,
            _ => panic!("the pool is full"),
        };
        let mut waiting = vec![wait(), wait()];
        let snapshot = layer(&fixture).current.load();
        let look_ahead = |tenant| super::look_ahead(tenant, &snapshot);
        assert!(look_ahead(&fixture.tenant).is_ok());
        waiting.extend([wait(), wait()]);
        let refused = look_ahead(&fixture.tenant).err();
        let full = Some(TenantError::Full(Reject::Overloaded {
            bound: QueueBound::Requests,
            retry_after: Duration::from_secs(1),
        }));
        assert_eq!(refused, full);
        drop(waiting.split_off(2));
        fixture.pool.gate().update(|admission, _, _| {
            admission.set_tenant(fixture.tenant.id, limited.policy());
        });
        let refused = look_ahead(&fixture.tenant).err();
        let places = Some(TenantError::Full(Reject::TenantQueueFull {
            waiting: 2,
            limit: 2,
            retry_after: Duration::from_secs(1),
        }));
        assert_eq!(refused, places);
    }
}
