//! Shadow mode: everything is sent, and it is told what would have been done.
//!
//! Decides where a request goes that the pool would not have let in now: the
//! emptiest backend of its home tier that could hold it alone. What no backend
//! can ever hold, what is above its tenant's share, and what no backend is there
//! for is left to the ordinary way. Such leases are outside of the promise never
//! to overflow, and are not counted against it. Invariant: the books hold every
//! lease, however it was given; what is told is what those books say, which are
//! fuller than they would have been.

use super::{Admission, Admitted, Decision, Grant};
use crate::core::backend::{Tier, Trust};
use crate::core::demand::{Demand, OutputLimit, Progress, Work};
use crate::core::fit::Sketch;
use crate::core::footprint::Shape;
use crate::core::gates::Choice;
use crate::core::placement::{Asked, Placement, Prospect, Reservation};
use crate::core::reject::Reject;
use crate::core::roster::Backend;
use crate::core::time::Time;
use crate::core::units::Tokens;
use crate::core::waits::Predicted;

/// What would have become of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Would {
    /// Admitted at once, in its home tier.
    Admit,
    /// Admitted at once, in another tier.
    Move(Tier),
    /// It would have waited, about so long.
    Wait(Predicted),
    /// It would have been refused.
    Refuse(Reject),
}

/// A request, and where it belongs.
struct Homed<'a> {
    demand: &'a Demand,
    shape: &'a Shape,
    home: Tier,
    output: OutputLimit,
}

// === impl Admission ===

impl Admission {
    /// Sends `demand` at once and says what [`decide`](Self::decide) would have
    /// done. `None` where it cannot be sent at all: nothing has happened then, and
    /// the ordinary way says why. O(backends) beside the decision.
    pub fn shadow(&mut self, now: Time, demand: &Demand) -> Option<(Grant, Would)> {
        let decision = self.decide(now, demand);
        if let Decision::Reject(
            Reject::ContextTooLong { .. }
            | Reject::TooManySequences { .. }
            | Reject::AboveTenantShare { .. },
        ) = decision
        {
            return None;
        }
        let shape = Shape::of(demand);
        let (home, output) = self.home_of(now, demand, &shape)?;
        let (place, would) = match decision {
            Decision::Admit(place) if place.tier == home => (place, Would::Admit),
            Decision::Admit(place) => (place, Would::Move(place.tier)),
            Decision::Wait { .. } | Decision::Reject(_) => {
                let homed = Homed {
                    demand,
                    shape: &shape,
                    home,
                    output,
                };
                (self.anywhere(&homed)?, told(decision))
            }
        };
        self.totals.received += 1;
        let overdrawn = self.totals.overdrawn;
        let request = Admitted {
            demand,
            shape,
            since: now,
        };
        let grant = self.take(now, request, place);
        self.totals.overdrawn = overdrawn;
        Some((grant, would))
    }

    fn home_of(&self, now: Time, demand: &Demand, shape: &Shape) -> Option<(Tier, OutputLimit)> {
        let asked = Asked {
            demand,
            shape,
            ticket: None,
            sketch: &Sketch::default(),
        };
        match self.fleet(now).prospect(asked) {
            Prospect::Possible { home, output } => Some((home, output)),
            Prospect::Unknown | Prospect::TooLong { .. } | Prospect::Nowhere => None,
        }
    }

    /// The emptiest backend that could hold the request alone: in whole trust
    /// before others, in the home tier before larger ones before smaller ones.
    fn anywhere(&self, homed: &Homed<'_>) -> Option<Placement> {
        let able = |backend: &&Backend| {
            backend.admits()
                && backend.may_serve(homed.demand)
                && backend.could_hold(homed.shape, homed.output)
        };
        let order = |backend: &&Backend| {
            let account = self.ledger.account(backend.id);
            let blocks = backend.capacity.map_or(1, |capacity| capacity.blocks.get());
            (
                backend.trust != Trust::Whole,
                backend.tier < homed.home,
                backend.tier,
                account.held().get().saturating_mul(1000) / blocks.max(1),
                account.sequences(),
                backend.id.slot,
            )
        };
        let backend = self.backends.iter().filter(able).min_by_key(order)?;
        self.forced(backend, homed)
    }

    /// What the request takes there, whether or not that is free.
    fn forced(&self, backend: &Backend, homed: &Homed<'_>) -> Option<Placement> {
        let (capacity, shape) = (backend.capacity.as_ref()?, homed.shape);
        let room = shape.largest_output(capacity)?;
        let place = |generated: Tokens, output| Placement {
            backend: backend.id,
            tier: backend.tier,
            blocks: shape.blocks(generated, capacity),
            output,
            home: homed.home,
            choice: Choice::Forced,
        };
        if homed.demand.work == Work::Aside {
            return Some(place(Tokens::ZERO, homed.output));
        }
        let bound = match homed.output {
            OutputLimit::Asked(bound) => bound,
            OutputLimit::Open { at_most } => at_most.unwrap_or(room).min(room),
        };
        let seen = homed.demand.progress == Progress::Streamed;
        Some(match self.policy.reservation {
            Reservation::Strict => place(bound, OutputLimit::Asked(bound)),
            Reservation::Forecast(_) if seen => place(Tokens::new(1), homed.output),
            Reservation::Forecast(_) => {
                let expected = self.policy.reservation.expected_output(homed.output);
                place(expected.min(bound), homed.output)
            }
        })
    }
}

/// A decision not to admit, as what would have been.
fn told(decision: Decision) -> Would {
    match decision {
        Decision::Reject(reject) => Would::Refuse(reject),
        Decision::Wait { predicted, .. } => Would::Wait(predicted),
        Decision::Admit(_) => Would::Admit,
    }
}
