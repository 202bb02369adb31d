//! When those who are sent away should come back, and their place when they do.
//!
//! Whoever is refused is kept for a while, a few of each tenant, until one like it is
//! let in: of its tenant, come no earlier and no smaller. That one's turn is when the
//! refused one would have had its own, and gives the first figure of what is told.
//!
//! What is told is kept by keeping the place: one that comes back when it was told to,
//! known by its tenant and the tokens of its prompt, stands in line where it stood at
//! first. Whether it is then let in, give or take a quarter, says of each tenant how much
//! longer others must stay away, so that 85 % are (adaptive conformal inference,
//! as in `waits`):
//!
//! ```text
//! told = q80 · e^c        c += step · (−0.15 if it was, else 0.85)
//! ```
//!
//! A tenant whose requests are refused whenever they come is soon told the longest.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::{Promise, Waited, Waits};
use crate::core::demand::{Demand, TenantId};
use crate::core::time::Time;
use crate::core::units::Tokens;

/// Refused requests that are kept of one tenant.
const KEPT: usize = 16;

/// Tenants of which they are kept.
const TENANTS: usize = 1024;

/// Places kept for those who come back, of all tenants.
const PLACES: usize = 4096;

/// Between two looks for places that nobody has come back to.
const SWEEP: Duration = Duration::from_secs(10);

/// Whoever comes back does so at least this share of what it was told after it, and
/// this much later, and twice as long, at most.
const SOONEST: f64 = 0.5;
const GRACE: Duration = Duration::from_secs(30);

/// Share of those who come back that are to be let in.
const SHARE: f64 = 0.85;

/// Step of the correction at each return, and its bounds, as a factor's logarithm.
const STEP: f64 = 0.5;
const CORRECTION: (f64, f64) = (-1.0, 4.0);

/// Shortest and longest time a client is told to stay away: SDKs ignore longer ones.
const RANGE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// A request, as far as another may be like it.
#[derive(Clone, Copy, Debug)]
pub(in crate::core) struct Caller {
    pub(in crate::core) tenant: TenantId,
    pub(in crate::core) prompt: Tokens,
    /// When it arrived.
    pub(in crate::core) since: Time,
}

/// Whether what one was told came true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) enum Word {
    /// It was let in when it came back, give or take a quarter of that time or a second.
    Held,
    /// It was refused again, or had to wait longer.
    Broken,
}

/// One that was sent away.
#[derive(Clone, Copy, Debug)]
struct Refused {
    caller: Caller,
    at: Time,
    promise: Promise,
}

/// What is kept for one that may come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) struct Pledge {
    /// Where it stood in its tenant's line.
    pub(in crate::core) key: Time,
    /// After how long it was told to come.
    told: Duration,
}

/// The place of one that may come back.
#[derive(Clone, Copy, Debug)]
struct Place {
    from: Time,
    until: Time,
    kept: Pledge,
}

/// What was learned of those who are sent away.
#[derive(Clone, Debug, Default)]
pub(in crate::core) struct Returns {
    refused: BTreeMap<TenantId, VecDeque<Refused>>,
    waits: Waits,
    places: BTreeMap<(TenantId, Tokens), VecDeque<Place>>,
    /// How many there are, and when they were looked through last.
    kept: usize,
    swept: Time,
    /// Of each tenant, the logarithm of how much longer than foreseen it is told.
    corrections: BTreeMap<TenantId, f64>,
}

// === impl Caller ===

impl Caller {
    /// Who asks `demand`, and did from `since` on.
    pub(in crate::core) fn of(demand: &Demand, since: Time) -> Self {
        Self {
            tenant: demand.tenant,
            prompt: demand.prompt_total(),
            since,
        }
    }
}

// === impl Pledge ===

impl Pledge {
    /// Whether what it was told was true of one that `waited` that long in line before
    /// it was let in; `None` where it was not.
    pub(in crate::core) fn held(self, waited: Option<Duration>) -> Word {
        let most = (self.told / 4).max(Duration::from_secs(1));
        match waited {
            Some(waited) if waited <= most => Word::Held,
            _ => Word::Broken,
        }
    }
}

// === impl Place ===

impl Place {
    fn is_due(&self, now: Time) -> bool {
        self.from <= now && now <= self.until
    }
}

// === impl Returns ===

impl Returns {
    /// When one of `tenant` with this first figure of its wait should come back: 1 to 60
    /// seconds.
    pub(in crate::core) fn after(&self, tenant: TenantId, promise: Promise) -> Duration {
        let factor = &self.waits.factors[super::class(promise.raw)];
        let correction = self.corrections.get(&tenant).copied().unwrap_or_default();
        let told = factor.predict(promise.raw).q80.mul_f64(correction.exp());
        told.clamp(RANGE.0, RANGE.1)
    }

    /// It was sent away with that, and stood in its line at `key`.
    pub(in crate::core) fn on_refused(
        &mut self,
        at: Time,
        caller: Caller,
        (promise, key): (Promise, Time),
    ) -> Duration {
        let told = self.after(caller.tenant, promise);
        self.keep_place(at, caller, (told, key));
        if self.refused.len() >= TENANTS && !self.refused.contains_key(&caller.tenant) {
            return told;
        }
        let kept = self.refused.entry(caller.tenant).or_default();
        if kept.len() == KEPT {
            // Too old to come true soon: it is at least that long.
            let oldest = kept.pop_front().expect("sixteen are kept");
            self.waits
                .learn(oldest.promise, Waited::Longer(at - oldest.at));
        }
        kept.push_back(Refused {
            caller,
            at,
            promise,
        });
        told
    }

    /// One was let in: those like it would have been.
    pub(in crate::core) fn on_granted(&mut self, now: Time, caller: Caller) {
        let Some(kept) = self.refused.get_mut(&caller.tenant) else {
            return;
        };
        let waits = &mut self.waits;
        kept.retain(|refused| {
            let alike =
                refused.caller.since <= caller.since && refused.caller.prompt <= caller.prompt;
            if alike {
                waits.learn(refused.promise, Waited::In(now - refused.at));
            }
            !alike
        });
        if kept.is_empty() {
            self.refused.remove(&caller.tenant);
        }
    }

    /// What is kept for one that comes back now, if `caller` is one.
    pub(in crate::core) fn kept_for(&self, now: Time, caller: Caller) -> Option<Pledge> {
        let places = self.places.get(&(caller.tenant, caller.prompt))?;
        let place = places.iter().find(|place| place.is_due(now))?;
        Some(place.kept)
    }

    /// It has come back: nobody else comes to its place.
    pub(in crate::core) fn redeem(&mut self, now: Time, caller: Caller) {
        let who = (caller.tenant, caller.prompt);
        let Some(places) = self.places.get_mut(&who) else {
            return;
        };
        let due = places.iter().position(|place| place.is_due(now));
        self.kept -= usize::from(due.and_then(|due| places.remove(due)).is_some());
        if places.is_empty() {
            self.places.remove(&who);
        }
    }

    /// What became of one of `tenant` that took its place.
    pub(in crate::core) fn on_returned(&mut self, tenant: TenantId, word: Word) {
        if self.corrections.len() >= TENANTS && !self.corrections.contains_key(&tenant) {
            return;
        }
        let correction = self.corrections.entry(tenant).or_default();
        *correction += STEP
            * match word {
                Word::Held => SHARE - 1.0,
                Word::Broken => SHARE,
            };
        *correction = correction.clamp(CORRECTION.0, CORRECTION.1);
    }

    fn keep_place(&mut self, at: Time, caller: Caller, (told, key): (Duration, Time)) {
        if self.kept >= PLACES && at - self.swept >= SWEEP {
            self.sweep(at);
        }
        if self.kept >= PLACES {
            return;
        }
        self.kept += 1;
        let places = self.places.entry((caller.tenant, caller.prompt));
        places.or_default().push_back(Place {
            from: at + told.mul_f64(SOONEST),
            until: at + told * 2 + GRACE,
            kept: Pledge { key, told },
        });
    }

    /// Forgets places that nobody has come back to. O(places).
    fn sweep(&mut self, now: Time) {
        self.swept = now;
        self.places.retain(|_, places| {
            places.retain(|place| now <= place.until);
            !places.is_empty()
        });
        self.kept = self.places.values().map(VecDeque::len).sum();
    }
}

#[cfg(test)]
mod tests;
