//! The limits of its tenant that a request meets, with what is used of each.
//!
//! Decides nothing: whether a limit refuses or holds a request has been decided
//! where that is enforced; here the figures stand side by side.

use serde_json::{Value, json};

use crate::layers::explain::Told;
use crate::tenants::{Gauge, TenantRef};

/// One limit: all in tokens, requests or requests a minute, as its key says.
struct Met {
    key: &'static str,
    limit: Option<u64>,
    used: u64,
    asked: Option<u64>,
}

/// Every limit that is set and that the request has come to.
pub(super) fn of(tenant: &TenantRef, told: &Told) -> Vec<Value> {
    let met = met(tenant, told);
    met.into_iter().filter_map(Met::json).collect()
}

fn met(tenant: &TenantRef, told: &Told) -> Vec<Met> {
    let limits = &tenant.tenant.limits;
    let standing = tenant.rates.standing(limits);
    let longest = told
        .demand
        .as_ref()
        .map(|demand| demand.prompt_longest().get());
    let longest = longest.or(told.prompt_tokens);
    let own = |key, limit, asked| Met {
        key,
        limit,
        used: 0,
        asked,
    };
    let context = longest.map(|longest| longest.saturating_add(told.asked.unwrap_or(0)));
    let mut met = vec![
        own(
            "max_prompt_tokens",
            limits.max_prompt.map(|limit| limit.get()),
            longest,
        ),
        own(
            "max_output_tokens",
            limits.max_output.map(|limit| limit.get()),
            told.asked,
        ),
        own(
            "max_context_tokens",
            limits.max_context.map(|limit| limit.get()),
            context,
        ),
    ];
    let rate = |gauge: Option<Gauge>, key, asked| Met {
        key,
        limit: gauge.map(|gauge| gauge.rate.capacity()),
        used: gauge.map_or(0, |gauge| gauge.rate.capacity() - gauge.remaining),
        asked,
    };
    let cost = told
        .cost
        .map(|cost| cost.prompt.saturating_add(cost.output).get());
    met.push(rate(standing.requests, "requests_per_minute", Some(1)));
    met.push(rate(standing.tokens, "tokens_per_minute", cost));
    if let Some(explanation) = &told.explanation {
        let here = explanation.limits;
        met.push(Met {
            key: "max_in_flight_tokens",
            limit: here.max_in_flight.map(|limit| limit.get()),
            used: here.in_flight.get(),
            asked: Some(explanation.tokens.get()),
        });
        met.push(Met {
            key: "max_waiting",
            limit: here.max_waiting.map(u64::from),
            used: u64::from(here.waiting),
            asked: Some(1),
        });
    }
    met
}

// === impl Met ===

impl Met {
    fn json(self) -> Option<Value> {
        let (limit, asked) = (self.limit?, self.asked?);
        Some(json!({
            "limit": self.key,
            "allowed": limit,
            "used": self.used,
            "asked": asked,
            "binds": self.used.saturating_add(asked) > limit,
        }))
    }
}
