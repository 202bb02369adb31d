//! Decisions of a pool, one rule a test, with the numbers.

mod beginnings;
mod claims;
mod engines;
mod explain;
mod heads;
mod late;
mod load;
mod order;
mod passed;
mod places;
mod reference;
mod reloads;
mod shadow;
mod spread;
mod trust;
mod work;

use super::*;
use crate::core::backend::{BackendFacts, Health, Observed, ServedId, TierSet, Trust};
use crate::core::demand::{Arrival, Length, OffloadRule};
use crate::core::fixtures::{at, capacity, demand, policy, pool};
use crate::core::placement::{ForecastPolicy, LongOnStandard};
use crate::core::units::Blocks;

pub(super) const STANDARD: Tier = Tier::Standard;

pub(super) fn submit(pool: &mut Admission, now: f64, demand: Demand) -> Verdict {
    let decision = pool.decide(at(now), &demand);
    pool.commit(at(now), demand, decision)
}

pub(super) fn admit(pool: &mut Admission, now: f64, demand: Demand) -> Grant {
    match submit(pool, now, demand) {
        Verdict::Admit(grant) => grant,
        other => panic!("expected a grant, got {other:?}"),
    }
}

pub(super) fn wait(pool: &mut Admission, now: f64, demand: Demand) -> TicketId {
    match submit(pool, now, demand) {
        Verdict::Wait(ticket) => ticket,
        other => panic!("expected a ticket, got {other:?}"),
    }
}

pub(super) fn refuse(pool: &mut Admission, now: f64, demand: Demand) -> Reject {
    match submit(pool, now, demand) {
        Verdict::Reject(reject) => reject,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

pub(super) fn release(pool: &mut Admission, now: f64, grant: Grant) -> Vec<(TicketId, Grant)> {
    let mut out = Vec::new();
    let end = End::Finished {
        prompt: Tokens::new(1),
        generated: Tokens::new(1),
    };
    pool.release(at(now), grant.lease, end, &mut out);
    grants(out)
}

pub(super) fn grants(effects: Vec<Effect>) -> Vec<(TicketId, Grant)> {
    let granted = effects.into_iter().filter_map(|effect| match effect {
        Effect::Grant { ticket, grant } => Some((ticket, grant)),
        _ => None,
    });
    granted.collect()
}

pub(super) fn strict(backends: &[(Tier, u64)]) -> Admission {
    pool(policy(Reservation::Strict), backends).0
}

pub(super) fn forecast(margin: f64, backends: &[(Tier, u64)]) -> Admission {
    let open_output = Tokens::new(64);
    pool(
        policy(Reservation::Forecast(ForecastPolicy {
            open_output,
            margin,
            ..ForecastPolicy::default()
        })),
        backends,
    )
    .0
}
