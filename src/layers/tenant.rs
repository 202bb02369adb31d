//! Who asks, and whether there is any point in reading on.
//!
//! Decides the tenant from `Authorization`, and refuses before the body is read
//! what could not be served anyway: draining, the tenant's waiting places
//! taken, every queue full, the body budget spent. Never reads a body. The door
//! is a cheap look, not a reservation: admission decides again, exactly.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::Response;
use http::header::{AUTHORIZATION, CONTENT_LENGTH};
use http::request::Parts;
use tower::{Layer, Service};

use crate::core::reject::QueueBound;
use crate::gate::Clock;
use crate::protocol::{Route, route};
use crate::tenants::{TenantRef, Tenants};

use super::BoxFuture;
use super::budget::Budget;
use super::error::{Refusal, TenantError};
use super::pool::{Pool, Pools};
use super::steps::{Keyed, Traced};

/// The address of the client, put into the request by whoever accepted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

/// Whether new requests are taken.
#[derive(Clone, Debug, Default)]
pub struct Door(Arc<AtomicBool>);

/// What the door looks at.
#[derive(Clone)]
pub struct TenantLayer {
    /// All tenants; replaced by a reload.
    pub tenants: Arc<ArcSwap<Tenants>>,
    /// All pools; replaced by a reload.
    pub pools: Arc<ArcSwap<Pools>>,
    /// The budget for request bodies.
    pub budget: Budget,
    /// Whether new requests are taken.
    pub door: Door,
    /// Largest request body, in bytes.
    pub max_body_bytes: u64,
    /// The clock of the failed-key windows.
    pub clock: Clock,
}

/// Finds the tenant and looks at the door.
#[derive(Clone)]
pub struct TenantStep<S> {
    inner: S,
    layer: Arc<TenantLayer>,
}

// === impl Door ===

impl Door {
    /// Takes no new requests from now on.
    pub fn close(&self) {
        // Release pairs with the load below: whoever sees the closed door also
        // sees what was done before it was closed.
        self.0.store(true, Ordering::Release);
    }

    /// Whether the door is closed.
    pub fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire)
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
    fn admit(&self, head: &Parts) -> Result<TenantRef, TenantError> {
        if self.door.is_closed() {
            return Err(TenantError::Draining);
        }
        let from = head
            .extensions
            .get::<Peer>()
            .map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0);
        let key = head.headers.get(AUTHORIZATION);
        let tenant = self
            .tenants
            .load()
            .authenticate(key, from, self.clock.now())?;
        // Only a request that will queue must find room; the model list, and
        // what is not served at all, get their own answers.
        if let Ok(Route::ChatCompletions | Route::Completions) =
            route(&head.method, head.uri.path())
        {
            self.look_ahead(head, &tenant)?;
        }
        Ok(tenant)
    }

    fn look_ahead(&self, head: &Parts, tenant: &TenantRef) -> Result<(), TenantError> {
        let announced = head
            .headers
            .get(CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok()?.parse::<u64>().ok())
            // One that is too large anyway is told so, whatever is free.
            .filter(|length| *length <= self.max_body_bytes);
        if self.budget.free() < announced.unwrap_or(1) {
            return Err(TenantError::BodyBudgetSpent);
        }
        let pools = self.pools.load();
        let mut full = None;
        for pool in pools.of(tenant) {
            match pool_room(pool, tenant) {
                Ok(()) => return Ok(()),
                Err(error) => full = Some(error),
            }
        }
        // A tenant without any pool is told so by the model lookup.
        full.map_or(Ok(()), Err)
    }
}

/// Whether one more request of `tenant` could wait in `pool`.
fn pool_room(pool: &Pool, tenant: &TenantRef) -> Result<(), TenantError> {
    let state = pool.gate().state();
    let limits = pool.queue_limits();
    let retry_after = state
        .drain_tokens_per_second
        .filter(|rate| *rate > 0.0)
        .and_then(|rate| Duration::try_from_secs_f64(state.queue.tokens.as_f64() / rate).ok())
        .unwrap_or(Duration::from_secs(1));
    let bound = if state.queue.requests >= limits.max_requests {
        Some(QueueBound::Requests)
    } else {
        (state.queue.tokens >= limits.max_tokens).then_some(QueueBound::Tokens)
    };
    if let Some(bound) = bound {
        return Err(TenantError::QueuesFull { bound, retry_after });
    }
    let waiting = state
        .tenants
        .iter()
        .find(|seen| seen.tenant == tenant.id)
        .map_or(0, |seen| seen.waiting);
    match tenant.tenant.limits.max_waiting {
        // A limit of zero waiters still lets in what does not have to wait.
        Some(limit) if limit > 0 && waiting >= limit => Err(TenantError::WaitingPlacesFull {
            waiting,
            limit,
            retry_after,
        }),
        _ => Ok(()),
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
        match self.layer.admit(&traced.head) {
            Ok(tenant) => {
                traced.trail.belongs_to(&tenant);
                Box::pin(self.inner.call(Keyed { traced, tenant }))
            }
            Err(error) => Box::pin(std::future::ready(Err(error.into()))),
        }
    }
}
