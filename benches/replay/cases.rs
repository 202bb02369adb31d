//! The cases: what is changed in each.

use std::time::Duration;

use tidegate::core::backend::Tier;
use tidegate::core::placement::Reservation;
use tidegate::core::time::Time;
use tidegate::replay::fleet::Plan;
use tidegate::replay::policy::{Beginnings, Lengths, Ours};
use tidegate::replay::traces::Trace;
use tidegate::replay::{Conditions, Crash};

/// What a case may change, beside the fleet.
pub(crate) struct Changed {
    pub(crate) ours: Ours,
    pub(crate) conditions: Conditions,
    pub(crate) traces: Vec<Trace>,
}

/// One row of the table.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) change: fn(&mut Changed, &mut Plan),
}

/// As shipped, mechanisms off, more told, wrong inputs.
pub(crate) const CASES: [Case; 21] = [
    Case {
        name: "as shipped",
        change: |_, _| {},
    },
    Case {
        name: "true lengths told",
        change: |changed, _| changed.ours.lengths = Lengths::True,
    },
    Case {
        name: "work gate off",
        change: |changed, _| changed.ours.pool.dispatch.late = Duration::MAX,
    },
    Case {
        name: "earliest deadline first",
        change: |changed, _| changed.ours.pool.dispatch.order_weight = 1.0,
    },
    Case {
        name: "planned by the mean (confidence 0)",
        change: |changed, _| confidence(changed, 0.0),
    },
    Case {
        name: "confidence 3",
        change: |changed, _| confidence(changed, 3.0),
    },
    Case {
        name: "worst case reserved (strict)",
        change: |changed, _| changed.ours.pool.reservation = Reservation::Strict,
    },
    Case {
        name: "tiers off",
        change: |_, plan| {
            for node in &mut plan.fleet.nodes {
                node.tier = Tier::Standard;
            }
        },
    },
    Case {
        name: "nothing set aside for long heads",
        change: |changed, _| changed.ours.pool.queue.max_bypass = Duration::MAX,
    },
    Case {
        name: "beginnings of prompts not told",
        change: |changed, _| changed.ours.beginnings = Beginnings::Untold,
    },
    Case {
        name: "tenants as one",
        change: |changed, _| {
            for row in changed.traces.iter_mut().flat_map(|trace| &mut trace.rows) {
                row.tenant = 0;
            }
        },
    },
    Case {
        name: "pool believed 10 % larger",
        change: |changed, _| changed.conditions.capacity_error = 0.1,
    },
    Case {
        name: "pool believed 10 % smaller",
        change: |changed, _| changed.conditions.capacity_error = -0.1,
    },
    Case {
        name: "prompts counted 20 % high",
        change: |changed, _| changed.conditions.token_error = 0.2,
    },
    Case {
        name: "prompts counted 20 % low",
        change: |changed, _| changed.conditions.token_error = -0.2,
    },
    Case {
        name: "scrapes 0.2 s old",
        change: |changed, _| changed.conditions.scrape_age = Duration::from_millis(200),
    },
    Case {
        name: "scrapes 5 s old",
        change: |changed, _| changed.conditions.scrape_age = Duration::from_secs(5),
    },
    Case {
        name: "no scrapes",
        change: |changed, _| changed.conditions.scrape = Duration::from_secs(1_000_000),
    },
    Case {
        name: "30 % of traffic foreign",
        change: |changed, _| changed.conditions.foreign = 0.3,
    },
    Case {
        name: "an engine dies for a minute",
        change: |changed, _| {
            changed.conditions.crashes = vec![Crash {
                node: 0,
                at: Time::from_start(Duration::from_secs(120)),
                back: Time::from_start(Duration::from_secs(180)),
            }];
        },
    },
    Case {
        name: "30 % foreign, scrapes 5 s old",
        change: |changed, _| {
            changed.conditions.foreign = 0.3;
            changed.conditions.scrape_age = Duration::from_secs(5);
        },
    },
];

fn confidence(changed: &mut Changed, confidence: f64) {
    if let Reservation::Forecast(policy) = &mut changed.ours.pool.reservation {
        policy.confidence = confidence;
    }
}
