//! What was said of waits, against what came.
//!
//! Of a call that was served after waiting, the real wait is known. Of one that left the
//! line it is the time until the first call of its tenant that arrived no earlier and was
//! no smaller was served: had it stayed, it would have been served by then. Where there is
//! none, the call is left out and counted.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Measured, share, stats};
use crate::core::demand::TenantId;
use crate::core::time::Time;
use crate::core::units::Tokens;
use crate::replay::record::Outcome;

/// The longest `Retry-After`: answers of it say no more than "not soon".
const CAP: Duration = Duration::from_secs(60);
/// Waits are told in whole seconds, so an error is of at least one.
const RESOLUTION_S: f64 = 1.0;

/// Waits told against real ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Audit {
    /// Waits that were told and are known.
    pub known: u64,
    /// Share of those that were not longer than was told to hold for four of five.
    pub p80_coverage: Option<f64>,
    /// |told − real| / real, median, a real wait of less than a second taken as one. Where
    /// a median was told it is that, else the only figure there is.
    pub median_error: Option<f64>,
    /// Share of all waits told that were 60 s, and so left out.
    pub capped: Option<f64>,
    /// Waits told whose real length nobody knows.
    pub unknown: u64,
}

/// A wait that was told.
struct Told {
    call: usize,
    at: Time,
    q50: Duration,
    q80: Duration,
    waited: Option<Duration>,
}

/// What was told to calls when they joined the line.
pub(super) fn foretold(measured: Measured<'_>) -> Audit {
    let promises = measured.record.promises.iter().filter_map(|promise| {
        let q80 = promise.q80?;
        Some(Told {
            call: promise.call,
            at: promise.at,
            q50: promise.q50.unwrap_or(q80),
            q80,
            waited: promise.waited,
        })
    });
    audit(measured, promises)
}

/// What was told to calls when they were refused.
pub(super) fn retry_after(measured: Measured<'_>) -> Audit {
    let refused = measured.record.outcomes.iter().enumerate();
    let told = refused.filter_map(|(call, outcome)| match outcome {
        Outcome::Refused { at, reject } => Some(Told {
            call,
            at: *at,
            q50: reject.retry_after()?,
            q80: reject.retry_after()?,
            waited: None,
        }),
        _ => None,
    });
    audit(measured, told)
}

fn audit(measured: Measured<'_>, told: impl Iterator<Item = Told>) -> Audit {
    let served = Served::of(measured);
    let (mut all, mut capped, mut unknown) = (0, 0, 0);
    let (mut covered, mut errors) = (0, Vec::new());
    for told in told {
        all += 1;
        if told.q80 >= CAP {
            capped += 1;
            continue;
        }
        let Some(real) = told.waited.or_else(|| served.wait(&told)) else {
            unknown += 1;
            continue;
        };
        covered += usize::from(real <= told.q80);
        let apart = told.q50.abs_diff(real).as_secs_f64();
        errors.push(apart / real.as_secs_f64().max(RESOLUTION_S));
    }
    Audit {
        known: u64::try_from(errors.len()).expect("a length fits"),
        p80_coverage: share(covered, errors.len()),
        median_error: stats::quantile(&errors, 0.5),
        capped: share(capped, all),
        unknown,
    }
}

/// When calls of each tenant were given to an engine: arrival, prompt, instant.
struct Served<'a> {
    measured: Measured<'a>,
    by_tenant: BTreeMap<TenantId, Vec<(Time, Tokens, Time)>>,
}

// === impl Served ===

impl<'a> Served<'a> {
    fn of(measured: Measured<'a>) -> Self {
        let mut by_tenant: BTreeMap<TenantId, Vec<_>> = BTreeMap::new();
        for (call, outcome) in measured.calls.iter().zip(&measured.record.outcomes) {
            if let Outcome::Finished { queued, .. } = outcome {
                let line = by_tenant.entry(call.tenant).or_default();
                line.push((call.at, call.prompt, call.at + *queued));
            }
        }
        Self {
            measured,
            by_tenant,
        }
    }

    /// How long the call would have waited from when it was told. O(calls of the tenant).
    fn wait(&self, told: &Told) -> Option<Duration> {
        let call = self.measured.calls.get(told.call)?;
        let line = self.by_tenant.get(&call.tenant)?;
        let later = line.partition_point(|(arrived, _, _)| *arrived < call.at);
        let no_smaller = line[later..]
            .iter()
            .filter(|(_, prompt, _)| *prompt >= call.prompt);
        let served = no_smaller
            .map(|(_, _, served)| *served)
            .filter(|served| *served >= told.at);
        served.min().map(|served| served - told.at)
    }
}
