//! THE STACK: a request's way down and an answer's way back, in one place.
//!
//! Each step is a tower service that takes one type and makes the next, so the
//! order below is the only one that compiles. `poll_ready` is always ready:
//! what a request costs is unknown before it exists, so admission happens in
//! `call`. Nothing is spawned: a client that leaves drops the future of its
//! request, and with it its place in line, its lease and its connection to the
//! backend.
//!
//! | step | takes | file |
//! |---|---|---|
//! | observe | `http::Request` | [`observe`] |
//! | cors | [`steps::Traced`] | [`cors`] |
//! | rescue | [`steps::Traced`] | [`rescue`] |
//! | tenant | [`steps::Traced`] | [`tenant`] |
//! | ingest | [`steps::Keyed`] | [`ingest`] |
//! | measure | [`steps::Parsed`] | [`measure`] |
//! | admit | [`steps::Measured`] | [`admit`] |
//! | forward | [`steps::Leased`] | [`forward`] |
//! | relay | the answer | [`relay`] |

pub mod admit;
pub mod answer;
pub mod arrivals;
pub mod budget;
pub mod cors;
pub mod door;
pub mod error;
pub mod explain;
#[cfg(test)]
pub(crate) mod fixture;
pub mod forward;
pub mod ingest;
pub mod measure;
mod message;
mod models;
pub mod observe;
pub mod origin;
pub mod outputs;
mod owned;
pub mod pool;
pub mod provenance;
mod quota;
pub mod reason;
pub mod relay;
pub mod rescue;
#[cfg(test)]
pub(crate) mod script;
pub mod seat;
pub mod seldom;
mod selfcheck;
pub mod snapshot;
pub mod steps;
pub mod tenant;
pub mod threads;
pub mod trail;
mod wait;
pub mod woken;
pub mod zero;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower::{Service, ServiceBuilder};

use crate::telemetry::Telemetry;
use crate::upstream::client::{Answering, Connector};

use admit::AdmitLayer;
use answer::AnswerBody;
use cors::CorsLayer;
use forward::Forward;
use ingest::IngestLayer;
use measure::MeasureLayer;
use observe::{ObserveLayer, Observed};
use rescue::RescueLayer;
use tenant::TenantLayer;

/// A future of a step.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The body of every answer.
pub type StackBody = Observed<AnswerBody<Answering>>;

/// What the steps are made of.
pub struct Parts<C> {
    /// Takes the record of every request.
    pub telemetry: Arc<Telemetry>,
    /// The configuration in force, and the door.
    pub tenant: TenantLayer,
    /// The budget, and threads for long bodies.
    pub ingest: IngestLayer,
    /// Threads for long prompts, and the way to the engine's tokenizer.
    pub measure: MeasureLayer<C>,
    /// The way to the backends.
    pub forward: Forward<C>,
}

/// The whole request path. Always ready; one clone per connection or request.
pub fn stack<C, B>(
    parts: Parts<C>,
) -> impl Service<
    Request<B>,
    Response = Response<StackBody>,
    Error = Infallible,
    Future = BoxFuture<Result<Response<StackBody>, Infallible>>,
> + Clone
+ Send
+ Sync
+ 'static
where
    C: Connector,
    B: Body<Data = Bytes> + Send + 'static,
{
    ServiceBuilder::new()
        // Outermost: even a refusal or a panic below has an id, a time and a record.
        .layer(ObserveLayer::new(parts.telemetry))
        // Above the refusals, so that a page that may ask can read them too.
        .layer(CorsLayer::new(parts.tenant.current.clone()))
        // Above everything that may fail, so that status codes live in one place.
        .layer(RescueLayer)
        // Before the body is read: a stranger or a full house costs us no memory.
        .layer(parts.tenant)
        // Before anything can queue: only a body read to its end lets the
        // connection notice that its client has left.
        .layer(parts.ingest)
        // Before admission, which is given a demand and nothing else.
        .layer(parts.measure)
        // Last before the backend: nothing that can fail or wait on our side
        // stands between holding KV and using it.
        .layer(AdmitLayer)
        // The bottom. Its answer is relayed by a body that owns the lease.
        .service(parts.forward)
}
