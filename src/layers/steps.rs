//! What a request is at each depth of the stack.
//!
//! What is large is boxed, since each step moves what it takes into its future.
//! Each step takes one of these and makes the next from it, so a request that
//! was not counted cannot be admitted and one that was not admitted cannot be
//! forwarded: there is no value to call the next step with.
//!
//! ```text
//! http::Request ─observe─► Traced ─tenant─► Keyed ─ingest─► Parsed ─measure─► Measured ─admit─► Leased
//! ```

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;

use crate::core::backend::ServedId;
use crate::core::demand::{Arrival, Demand};
use crate::core::units::Tokens;
use crate::gate::Lease;
use crate::protocol::request::Stream;
use crate::protocol::{Request, Route, TopLevel};
use crate::tenants::{Cost, TenantRef};
use crate::tokenize::Sample;

use super::budget::Share;
use super::pool::Pool;
use super::snapshot::Snapshot;
use super::trail::Trail;

/// A request with a trail; its body is not read.
pub struct Traced<B> {
    pub(super) head: Box<Parts>,
    pub(super) body: B,
    pub(super) trail: Trail,
}

/// A request whose tenant is known and let in.
pub struct Keyed<B> {
    pub(super) traced: Traced<B>,
    pub(super) tenant: TenantRef,
    /// What it runs under to its end.
    pub(super) snapshot: Arc<Snapshot>,
}

/// A request that was read to its end, means something and names a pool.
pub struct Parsed {
    pub(super) letter: Box<Letter>,
    pub(super) request: Box<Request<'static>>,
}

/// What is sent on, and for whom; everything of a request but what it asks.
pub struct Letter {
    pub(super) head: Box<Parts>,
    pub(super) body: Body,
    pub(super) trail: Trail,
    pub(super) tenant: TenantRef,
    /// Its place among all requests: when its body was complete.
    pub(super) arrival: Arrival,
    /// What it runs under to its end.
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) route: Route,
    /// The path the backend is asked by.
    pub(super) path: &'static str,
    pub(super) pool: Arc<Pool>,
    pub(super) served: ServedId,
}

/// The body as an engine would read it, unpacked where it came compressed, and its
/// share of the budget.
#[derive(Debug)]
pub struct Body {
    pub(super) bytes: Bytes,
    pub(super) share: Share,
}

/// A request that was counted.
pub struct Measured {
    pub(super) letter: Box<Letter>,
    pub(super) demand: Demand,
    pub(super) outline: Box<Outline>,
}

/// What forward and relay must know of the request once the prompt is counted.
#[derive(Debug)]
pub struct Outline {
    /// Where the editable keys stand.
    pub(super) keys: TopLevel,
    /// One answer or a stream.
    pub(super) stream: Stream,
    /// The bound to write where the body leaves it to the engine's default.
    pub(super) write_max_tokens: Option<Tokens>,
    /// The `cache_salt` to write, where the operator isolates caches.
    pub(super) cache_salt: Option<String>,
    /// What an estimate can learn from once the engine has counted.
    pub(super) sample: Option<Sample>,
    /// What the engine must have counted if our count is exact.
    pub(super) claim: Option<u64>,
    /// Prompt tokens over all prompts.
    pub(super) prompt: Tokens,
    /// The most it may cost its tenant's rate.
    pub(super) cost: Cost,
}

/// A request that holds KV on a backend.
pub struct Leased {
    pub(super) measured: Measured,
    pub(super) lease: Lease,
}
