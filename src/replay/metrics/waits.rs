//! What was said of waits, against what came.
//!
//! Who was refused is asked to come back: of a sample each does, when it was told to. What
//! was told was true if it is then let in, give or take a quarter of what it was told or a
//! second, and has its first token in time. Where it waits longer in the line, by that the
//! told was too short:
//!
//! ```text
//! error = (let in − told) / let in      both counted from the refusal, in whole seconds
//! ```
//!
//! and all of it where it was refused once more.
//!
//! Of a call that waited and was served, the real wait is known. One that left the line
//! would have been served when calls like it (of its tenant, that arrived no earlier, with
//! prompts of once to twice its own) were: after the last of them that was refused, by the
//! first that was served. Where these are further apart than a quarter of the wait and two
//! seconds, nobody knows, and the call is left out and counted.
//!
//! Waits are told in whole seconds and at least one, so real ones are rounded **up** alike.

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
/// How far apart the bounds of a wait may be where it is short.
const APART: Duration = Duration::from_secs(2);

/// Waits told against real ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Audit {
    /// Waits that were told and are known.
    pub known: u64,
    /// Share of those that were not longer than was told to hold for four of five.
    pub p80_coverage: Option<f64>,
    /// |told − real| / real, median. Where a median was told it is that, else the only
    /// figure there is.
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

/// What was told to calls when they were refused, by those that came back.
pub(super) fn retry_after(measured: Measured<'_>) -> Audit {
    let returns = &measured.record.returns;
    let (mut covered, mut unknown, mut errors) = (0, 0, Vec::new());
    let told = returns.iter().filter(|back| back.told < CAP);
    for back in told.clone() {
        let call = &measured.calls[back.call];
        let within = measured.fleet.slo.first_token_within(call.prompt);
        let (in_time, error) = match back.outcome {
            Outcome::Finished {
                first_token,
                queued,
                ..
            } => {
                let told = whole(back.told);
                let real = whole(call.at + queued - back.refused);
                let error = real.saturating_sub(told).as_secs_f64() / real.as_secs_f64();
                let most = back.told + (back.told / 4).max(Duration::from_secs(1));
                let let_in = call.at + queued <= back.refused + most;
                (
                    let_in && first_token <= back.refused + back.told + within,
                    error,
                )
            }
            Outcome::Refused { .. } => (false, 1.0),
            _ => {
                unknown += 1;
                continue;
            }
        };
        covered += usize::from(in_time);
        errors.push(error);
    }
    Audit {
        known: u64::try_from(errors.len()).expect("a length fits"),
        p80_coverage: share(covered, errors.len()),
        median_error: stats::quantile(&errors, 0.5),
        capped: share(returns.len() - told.count(), returns.len()),
        unknown,
    }
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
        let (real, q50, q80) = (whole(real), whole(told.q50), whole(told.q80));
        covered += usize::from(real <= q80);
        errors.push(q50.abs_diff(real).as_secs_f64() / real.as_secs_f64());
    }
    Audit {
        known: u64::try_from(errors.len()).expect("a length fits"),
        p80_coverage: share(covered, errors.len()),
        median_error: stats::quantile(&errors, 0.5),
        capped: share(capped, all),
        unknown,
    }
}

/// Rounded **up** to whole seconds, at least one.
fn whole(wait: Duration) -> Duration {
    let more = u64::from(wait.subsec_nanos() > 0);
    Duration::from_secs((wait.as_secs() + more).max(1))
}

/// When calls of each tenant were given to an engine, or refused.
struct Served<'a> {
    measured: Measured<'a>,
    by_tenant: BTreeMap<TenantId, Vec<Ended>>,
}

/// How a call left the line.
struct Ended {
    arrived: Time,
    prompt: Tokens,
    at: Time,
    how: How,
}

#[derive(PartialEq, Eq)]
enum How {
    Served,
    Refused,
}

// === impl Served ===

impl<'a> Served<'a> {
    fn of(measured: Measured<'a>) -> Self {
        let mut by_tenant: BTreeMap<TenantId, Vec<_>> = BTreeMap::new();
        for (call, outcome) in measured.calls.iter().zip(&measured.record.outcomes) {
            let (at, how) = match *outcome {
                Outcome::Finished { queued, .. } => (call.at + queued, How::Served),
                Outcome::Refused { at, .. } => (at, How::Refused),
                _ => continue,
            };
            by_tenant.entry(call.tenant).or_default().push(Ended {
                arrived: call.at,
                prompt: call.prompt,
                at,
                how,
            });
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
        let later = line.partition_point(|ended| ended.arrived < call.at);
        let like = call.prompt..=call.prompt * 2;
        let alike = line[later..]
            .iter()
            .filter(|ended| like.contains(&ended.prompt) && ended.at >= told.at);
        let of = |wanted: How| {
            alike
                .clone()
                .filter(move |ended| ended.how == wanted)
                .map(|ended| ended.at)
        };
        let by = of(How::Served).min()?;
        let after = of(How::Refused)
            .filter(|at| *at <= by)
            .max()
            .unwrap_or(told.at);
        let wait = by - told.at;
        (by - after <= APART.max(wait / 4)).then_some(wait)
    }
}
