//! One tenant's meters, and what may be taken from them.
//!
//! Decides whether something is let in, all or nothing; never reads a clock. A clone
//! is a try: what it lets in is not taken.

use std::time::Duration;

use crate::config::Limits;
use crate::core::rate::{Excess, Meter, Rate};
use crate::core::time::Time;
use crate::core::units::Tokens;

use super::{Cost, RateError};

#[derive(Clone, Debug, Default)]
pub(super) struct Books {
    /// `None` until there is a limit for the first time.
    pub(super) requests: Option<Meter>,
    pub(super) tokens: Option<Meter>,
    /// Tokens of live charges, not settled yet.
    pub(super) booked: Tokens,
}

// === impl Books ===

impl Books {
    pub(super) fn take_request(&mut self, limits: &Limits, now: Time) -> Result<(), RateError> {
        let Some(meter) = tuned(&mut self.requests, limits.requests, now) else {
            return Ok(());
        };
        meter.take(1, now).map_err(|excess| RateError::Requests {
            per_minute: meter.rate().per_minute,
            retry_after: wait_of(excess),
        })
    }

    /// Books the most that a request may cost; `None` where there is no limit.
    pub(super) fn take_tokens(
        &mut self,
        limits: &Limits,
        cost: Cost,
        now: Time,
    ) -> Result<Option<Tokens>, RateError> {
        let one_more = tuned(&mut self.requests, limits.requests, now)
            .and_then(|meter| meter.check(1, now).err())
            .map_or(Duration::ZERO, wait_of);
        let Some(meter) = tuned(&mut self.tokens, limits.tokens, now) else {
            return Ok(None);
        };
        let asked = cost.prompt.saturating_add(cost.output).believable();
        meter
            .take(asked.get(), now)
            .map_err(|excess| too_many(meter, excess, (asked, one_more, now)))?;
        self.booked = self.booked.saturating_add(asked);
        Ok(Some(asked))
    }
}

/// The meter, keeping to `rate`; `None` where there is no limit. What was used
/// up under another one stays used up, also while there is none.
pub(super) fn tuned(
    meter: &mut Option<Meter>,
    rate: Option<Rate>,
    now: Time,
) -> Option<&mut Meter> {
    let rate = rate?;
    let meter = meter.get_or_insert_with(|| Meter::new(rate, now));
    if meter.rate() != rate {
        meter.set_rate(rate, now);
    }
    Some(meter)
}

const fn wait_of(excess: Excess) -> Duration {
    match excess {
        Excess::For(wait) => wait,
        // One request always fits a burst, which is at least 1.
        Excess::Always => Duration::MAX,
    }
}

fn too_many(
    meter: &Meter,
    excess: Excess,
    (asked, one_more, now): (Tokens, Duration, Time),
) -> RateError {
    match excess {
        Excess::Always => RateError::AboveBurst {
            asked,
            burst: Tokens::new(meter.rate().capacity()),
        },
        Excess::For(wait) => RateError::Tokens {
            asked,
            remaining: Tokens::new(meter.remaining(now)),
            per_minute: Tokens::new(meter.rate().per_minute),
            retry_after: wait.max(one_more),
        },
    }
}
