//! When those who are sent away should come back.
//!
//! Whoever is refused is kept for a while, a few of each tenant, until one like it is
//! let in: of its tenant, come no earlier and no smaller. That one's turn is when the
//! refused one would have had its own, and is compared with what it was told.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::{Promise, Waited, Waits};
use crate::core::demand::TenantId;
use crate::core::time::Time;
use crate::core::units::Tokens;

/// Refused requests that are kept of one tenant.
const KEPT: usize = 16;

/// Tenants of which they are kept.
const TENANTS: usize = 1024;

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

/// One that was sent away.
#[derive(Clone, Copy, Debug)]
struct Refused {
    caller: Caller,
    at: Time,
    promise: Promise,
}

/// What was learned of those who are sent away.
#[derive(Clone, Debug, Default)]
pub(in crate::core) struct Returns {
    refused: BTreeMap<TenantId, VecDeque<Refused>>,
    waits: Waits,
}

// === impl Returns ===

impl Returns {
    /// When one with this first figure of its wait should come back: 1 to 60 seconds.
    pub(in crate::core) fn after(&self, promise: Promise) -> Duration {
        let factor = &self.waits.factors[super::class(promise.raw)];
        let predicted = factor.predict(promise.raw);
        predicted.q80.clamp(RANGE.0, RANGE.1)
    }

    /// It was sent away with that.
    pub(in crate::core) fn on_refused(&mut self, at: Time, caller: Caller, promise: Promise) {
        if self.refused.len() >= TENANTS && !self.refused.contains_key(&caller.tenant) {
            return;
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::fairness::Cost;
    use crate::core::fixtures::at;

    fn caller(prompt: u64, since: f64) -> Caller {
        Caller {
            tenant: TenantId(0),
            prompt: Tokens::new(prompt),
            since: at(since),
        }
    }

    #[test]
    fn nobody_is_sent_away_for_less_than_a_second_or_more_than_sixty() {
        let returns = Returns::default();
        let after = |seconds| {
            let ahead = Cost::of(Duration::from_secs(seconds));
            returns.after(Waits::default().promise(ahead))
        };
        assert_eq!(after(0), Duration::from_secs(1));
        assert_eq!(after(100_000), Duration::from_secs(60));
    }

    #[test]
    fn what_is_told_comes_to_hold_for_four_in_five_of_those_who_return() {
        let mut returns = Returns::default();
        let promise = Waits::default().promise(Cost::of(Duration::from_secs(2)));
        let mut kept = 0;
        for nth in 0_u32..2000 {
            let start = f64::from(nth + 1) * 100.0;
            let told = returns.after(promise);
            returns.on_refused(at(start), caller(100, start - 1.0), promise);
            // A smaller one, and one from before, say nothing of it.
            returns.on_granted(at(start + 0.1), caller(99, start));
            returns.on_granted(at(start + 0.1), caller(500, start - 2.0));
            let real = 5.0 + f64::from(nth.wrapping_mul(2_654_435_761) >> 16) / 8192.0;
            returns.on_granted(at(start + real), caller(100, start));
            kept += u32::from(nth >= 500 && Duration::from_secs_f64(real) <= told);
        }
        assert!((1150..=1250).contains(&kept), "{kept} of 1500");
        assert!(returns.refused.is_empty());
    }
}
