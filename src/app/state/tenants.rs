//! The tenants in `/state`: what they may take, what they have used of their
//! rates, and how their requests ended.

use std::time::Duration;

use serde_json::{Value, json};

use crate::config::Limits;
use crate::core::units::Tokens;
use crate::telemetry::Ended;
use crate::tenants::{Gauge, TenantRef};

/// A tenant over all pools; `null` where it has no limit. `ended` is since the start.
pub(super) fn tenant_json(tenant: &TenantRef, ended: &Ended) -> Value {
    let settings = &tenant.tenant;
    let standing = tenant.rates.standing(&settings.limits);
    json!({
        "name": settings.name,
        "requests": standing.requests.map(gauge_json),
        "tokens": standing.tokens.map(gauge_json),
        "booked_tokens": standing.booked.get(),
        "weight": settings.weight,
        "priority": settings.priority,
        "in_flight_share": settings.in_flight_share,
        "limits": limits_json(&settings.limits),
        "ended": {
            "complete": ended.complete,
            "refused": ended.refused,
            "failed": ended.failed,
            "cancelled": ended.cancelled,
        },
        "refusals": ended.reasons,
    })
}

fn gauge_json(gauge: Gauge) -> Value {
    json!({
        "per_minute": gauge.rate.per_minute,
        "burst": gauge.rate.burst,
        "remaining": gauge.remaining,
        "reset_seconds": gauge.full_in.as_secs_f64(),
    })
}

fn limits_json(limits: &Limits) -> Value {
    json!({
        "max_context_tokens": limits.max_context.map(Tokens::get),
        "max_prompt_tokens": limits.max_prompt.map(Tokens::get),
        "max_output_tokens": limits.max_output.map(Tokens::get),
        "max_in_flight_tokens": limits.max_in_flight.map(Tokens::get),
        "max_waiting": limits.max_waiting,
        "max_queue_wait_seconds": limits.max_queue_wait.map(|wait: Duration| wait.as_secs_f64()),
        "requests_per_minute": limits.requests.map(|rate| rate.per_minute),
        "tokens_per_minute": limits.tokens.map(|rate| rate.per_minute),
    })
}
