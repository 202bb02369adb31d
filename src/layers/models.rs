//! `GET /v1/models`: one list over all pools, as the tenant may see it.
//!
//! Decides which ids a tenant sees and the longest context it could get with
//! each. Asks no backend; what the probes know of capacity is enough.

use bytes::Bytes;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};

use crate::core::units::Tokens;
use crate::protocol::models::{ListedModel, write_models};
use crate::telemetry::Finish;
use crate::tenants::TenantRef;

use super::answer::AnswerBody;
use super::pool::{Pool, Pools};
use super::trail::Trail;

/// The models `tenant` may use, with `created` as their age.
pub(super) fn list(pools: &Pools, tenant: &TenantRef, created: u64) -> Vec<ListedModel> {
    let mut listed = Vec::new();
    for pool in pools.of(tenant) {
        let longest = longest_context(pool, tenant).map(Tokens::get);
        listed.extend(pool.served().map(|(_, id)| ListedModel {
            id: id.to_string(),
            parent: None,
            max_model_len: longest,
            created,
        }));
    }
    listed
}

/// The answer that carries the list.
pub(super) fn answer<U>(listed: &[ListedModel], trail: &Trail) -> Response<AnswerBody<U>> {
    trail.ended(Finish::Complete, None);
    let body: Bytes = write_models(listed);
    let mut answer = Response::new(AnswerBody::whole(body));
    let json = HeaderValue::from_static("application/json");
    answer.headers_mut().insert(CONTENT_TYPE, json);
    answer
}

/// The longest context any backend of the tenant's tiers can hold, cut to the
/// tenant's own limit; `None` while no capacity is known.
pub(super) fn longest_context(pool: &Pool, tenant: &TenantRef) -> Option<Tokens> {
    let state = pool.gate().state();
    let longest = state
        .backends
        .iter()
        .filter(|backend| tenant.tenant.tiers.contains(backend.tier))
        .filter_map(|backend| backend.capacity)
        .map(|capacity| capacity.context_limit())
        .max()?;
    let own = tenant.tenant.limits.max_context.unwrap_or(Tokens::MAX);
    Some(longest.min(own))
}
