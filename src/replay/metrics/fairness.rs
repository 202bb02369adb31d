//! How tenants fared beside each other.
//!
//! A tenant's cost is its prompts plus twice its outputs, as the literature on virtual
//! token counters weighs them. *Light* tenants ask for less than the equal share of all
//! that is asked; those with fewer than ten calls are left out of their figures, since one
//! call would be a tenth of their goodput and more.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Judged, Measured, share, stats};
use crate::core::demand::TenantId;
use crate::core::time::Time;
use crate::replay::record::Outcome;
use crate::replay::setup::Call;

/// Calls below which a tenant's goodput says little.
const FEW: usize = 10;
/// Tenants whose service is compared pair by pair: the largest.
const COMPARED: usize = 32;
/// Seconds between two looks at what tenants have been served.
const LOOK: u64 = 1;

/// Figures of the tenants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fairness {
    /// Tenants that asked.
    pub tenants: u64,
    /// Light ones with at least ten calls.
    pub light: u64,
    /// Mean goodput of those.
    pub light_mean: Option<f64>,
    /// Goodput of the worst of those.
    pub light_worst: Option<f64>,
    /// Jain's index of the tenants' goodput: 1 where all fare alike.
    pub jain: Option<f64>,
    /// The most by which the service of two tenants differs, in tokens of cost, over any
    /// time in which both have something waiting for its first token.
    pub service_gap: Option<f64>,
}

/// One tenant's calls.
#[derive(Default)]
struct Account {
    calls: usize,
    good: usize,
    cost: f64,
}

// === impl Fairness ===

impl Fairness {
    pub(super) fn of(judged: &[Judged<'_>], measured: Measured<'_>) -> Self {
        let mut accounts: BTreeMap<TenantId, Account> = BTreeMap::new();
        for judged in judged {
            let account = accounts.entry(judged.call.tenant).or_default();
            account.calls += 1;
            account.good += usize::from(judged.good);
            account.cost += cost(judged.call);
        }
        let all: f64 = accounts.values().map(|account| account.cost).sum();
        let equal = all / stats::count(accounts.len().max(1));
        let goodput = |account: &Account| share(account.good, account.calls);
        let light = accounts
            .values()
            .filter(|account| account.cost < equal && account.calls >= FEW)
            .filter_map(goodput);
        let light: Vec<f64> = light.collect();
        let every: Vec<f64> = accounts.values().filter_map(goodput).collect();
        Self {
            tenants: u64::try_from(accounts.len()).expect("a length fits"),
            light: u64::try_from(light.len()).expect("a length fits"),
            light_mean: stats::Estimate::of(&light).map(|light| light.mean),
            light_worst: light.iter().copied().reduce(f64::min),
            jain: jain(&every),
            service_gap: service_gap(&largest(&accounts), judged, measured.record.until),
        }
    }
}

fn cost(call: &Call) -> f64 {
    call.prompt.as_f64() + 2.0 * call.output.as_f64()
}

/// Jain, Chiu and Hawe's index.
fn jain(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    (squares > 0.0).then(|| sum * sum / (stats::count(shares.len()) * squares))
}

fn largest(accounts: &BTreeMap<TenantId, Account>) -> Vec<TenantId> {
    let mut tenants: Vec<(f64, TenantId)> = accounts
        .iter()
        .map(|(tenant, account)| (-account.cost, *tenant))
        .collect();
    tenants.sort_by(|one, two| one.0.total_cmp(&two.0).then(one.1.cmp(&two.1)));
    tenants
        .into_iter()
        .take(COMPARED)
        .map(|(_, tenant)| tenant)
        .collect()
}

/// What a tenant had been served, and whether it was kept waiting, look by look.
struct Course {
    served: Vec<f64>,
    waits: Vec<bool>,
}

/// The largest gap over all pairs. O(pairs × looks).
fn service_gap(tenants: &[TenantId], judged: &[Judged<'_>], until: Time) -> Option<f64> {
    let courses: Vec<Course> = tenants
        .iter()
        .map(|tenant| {
            Course::of(
                judged.iter().filter(|judged| judged.call.tenant == *tenant),
                until,
            )
        })
        .collect();
    let pairs = courses.iter().enumerate().flat_map(|(place, one)| {
        let rest = courses.get(place + 1..).unwrap_or_default();
        rest.iter().filter_map(move |two| one.gap(two))
    });
    pairs.reduce(f64::max)
}

// === impl Course ===

impl Course {
    fn of<'a>(calls: impl Iterator<Item = &'a Judged<'a>>, until: Time) -> Self {
        let looks = look(until) + 2;
        let (mut served, mut waits) = (vec![0.0; looks], vec![false; looks]);
        for judged in calls {
            let call = judged.call;
            let started = match *judged.outcome {
                Outcome::Finished {
                    first_token,
                    end,
                    generated,
                    ..
                } => {
                    served[look(first_token) + 1] += call.prompt.as_f64();
                    spread(
                        &mut served,
                        (look(first_token), look(end)),
                        2.0 * generated.as_f64(),
                    );
                    first_token
                }
                Outcome::Refused { at, .. } | Outcome::Failed { at, .. } => at,
                Outcome::Unfinished { first_token } => first_token.unwrap_or(until),
                Outcome::Foreign => continue,
            };
            // A look at which it waits comes after its arrival and not after its start.
            for waiting in
                &mut waits[(look(call.at) + 1).min(looks)..(look(started) + 1).min(looks)]
            {
                *waiting = true;
            }
        }
        let mut sum = 0.0;
        for served in &mut served {
            sum += *served;
            *served = sum;
        }
        Self { served, waits }
    }

    /// The most by which the difference in service changes over a time in which both wait.
    fn gap(&self, other: &Self) -> Option<f64> {
        let (mut gap, mut bounds): (Option<f64>, Option<(f64, f64)>) = (None, None);
        let looks = self.served.iter().zip(&other.served);
        let both = self
            .waits
            .iter()
            .zip(&other.waits)
            .map(|(one, two)| *one && *two);
        for ((one, two), both) in looks.zip(both) {
            bounds = both.then(|| {
                let apart = one - two;
                let (least, most) = bounds.unwrap_or((apart, apart));
                (least.min(apart), most.max(apart))
            });
            let here = bounds.map(|(least, most)| most - least);
            gap = here.map(|here| gap.unwrap_or(0.0).max(here)).or(gap);
        }
        gap
    }
}

/// `amount` in equal parts over the looks after `from` up to that after `to`.
fn spread(served: &mut [f64], (from, to): (usize, usize), amount: f64) {
    let looks = &mut served[from + 1..=to + 1];
    let each = amount / stats::count(looks.len());
    for served in looks {
        *served += each;
    }
}

/// The last look at or before `at`.
fn look(at: Time) -> usize {
    let seconds = (at - Time::ZERO).as_secs() / LOOK;
    usize::try_from(seconds).expect("seconds of a run fit")
}
