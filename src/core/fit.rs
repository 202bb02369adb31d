//! Whether a request fits a backend now, and what it would take.
//!
//! Strict adds up worst cases; the forecast looks at the future peak. Both ask
//! for seats first. It only looks: nothing is taken here, and which of several
//! backends that fit is best is not asked.

use super::backend::Capacity;
use super::demand::{OutputLimit, Progress, Work};
use super::forecast::{KnownBounds, LengthModel, Runner, stays_within};
use super::ledger::Account;
use super::placement::{Asked, Fleet, ForecastPolicy, Placement, Reservation};
use super::roster::Backend;
use super::units::{Blocks, Tokens};

// === impl Fleet ===

impl Fleet<'_> {
    /// What `asked` would take on `backend`, if that stays within its limits.
    pub(super) fn fits(
        &self,
        backend: &Backend,
        asked: Asked<'_>,
        output: OutputLimit,
    ) -> Option<Placement> {
        let capacity = backend.capacity.as_ref()?;
        if asked.demand.work == Work::Aside {
            return Some(Placement {
                backend: backend.id,
                tier: backend.tier,
                blocks: Blocks::ZERO,
                output,
            });
        }
        let account = self.ledger.account(backend.id);
        let sequences = account.sequences() + asked.shape.sequences();
        let has_seats = account.sequences() == 0
            || capacity
                .max_num_seqs
                .is_none_or(|seats| sequences <= u64::from(seats));
        if !has_seats || !backend.could_hold(asked.shape, output) {
            return None;
        }
        let foreign = backend.foreign(self.now, self.observed_for);
        let place = |blocks, output| Placement {
            backend: backend.id,
            tier: backend.tier,
            blocks,
            output,
        };
        match self.reservation {
            Reservation::Strict => {
                let room = asked.shape.largest_output(capacity)?;
                let bound = match output {
                    OutputLimit::Asked(bound) => bound,
                    OutputLimit::Open { at_most } => at_most.unwrap_or(room).min(room),
                };
                let blocks = asked.shape.blocks(bound, capacity);
                let fresh = blocks - account.pinned(&asked.demand.prefix);
                let fits = account.held() + foreign + fresh <= capacity.blocks;
                fits.then(|| place(blocks, OutputLimit::Asked(bound)))
            }
            Reservation::Forecast(policy) => {
                let blocks = forecast_fit(
                    policy,
                    asked,
                    Site {
                        account,
                        capacity,
                        foreign,
                    },
                    output,
                )?;
                Some(place(blocks, output))
            }
        }
    }
}

/// A backend's books and size, for the forecast.
struct Site<'a> {
    account: &'a Account,
    capacity: &'a Capacity,
    foreign: Blocks,
}

/// Blocks to take now under the forecast, if the future peak stays within plan.
fn forecast_fit(
    policy: &ForecastPolicy,
    asked: Asked<'_>,
    site: Site<'_>,
    output: OutputLimit,
) -> Option<Blocks> {
    let lengths = KnownBounds::new(policy.open_output);
    let Site {
        account,
        capacity,
        foreign,
    } = site;
    let alone = account.sequences() == 0 && foreign.is_zero();
    // An empty backend takes whatever fits it: waiting would bring nothing.
    let limit = if alone {
        capacity.blocks
    } else {
        capacity.blocks.share(policy.margin)
    };
    let room = asked.shape.largest_output(capacity)?;
    let remaining = lengths
        .remaining(output, Tokens::ZERO)
        .min(room.max(Tokens::new(1)));
    let full = asked.shape.blocks(remaining, capacity);
    let start = asked
        .shape
        .blocks(Tokens::ZERO, capacity)
        .max(asked.shape.blocks(Tokens::new(1), capacity));
    let seen = asked.demand.progress == Progress::Streamed && asked.demand.work == Work::Generate;
    let now = if seen { start } else { full };
    let pinned = account.pinned(&asked.demand.prefix);
    if account.held() + foreign + now - pinned > limit {
        return None;
    }
    let (mut runners, mut fixed) = account.outlook(&lengths);
    fixed += foreign;
    if seen {
        runners.push(Runner {
            shape: asked.shape,
            generated: Tokens::ZERO,
            remaining,
        });
    } else {
        fixed += now;
    }
    let fixed = fixed.saturating_sub(pinned); // pinned blocks of the newcomer are counted by their first holder
    stays_within(&mut runners, fixed, capacity, limit).then_some(now)
}
