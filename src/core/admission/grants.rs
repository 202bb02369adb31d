//! Giving out leases: into the books, onto the clocks, out as a grant.

use super::{Admission, Grant, MaxTokens, Reservation};
use crate::core::backend::{BackendId, PrefixCaching};
use crate::core::demand::{Demand, OutputLimit, Work};
use crate::core::fairness::Charge;
use crate::core::footprint::Shape;
use crate::core::ledger::{Booking, Entry};
use crate::core::lengths::ClassKey;
use crate::core::overlap::is_cacheable;
use crate::core::placement::Placement;
use crate::core::prefix::PrefixTrail;
use crate::core::time::Time;
use crate::core::units::Tokens;
use crate::core::waits::Caller;

/// A request about to get its lease.
pub(super) struct Admitted<'a> {
    pub(super) demand: &'a Demand,
    pub(super) shape: Shape,
    pub(super) since: Time,
}

// === impl Admission ===

impl Admission {
    pub(super) fn take(&mut self, now: Time, request: Admitted<'_>, place: Placement) -> Grant {
        let Admitted {
            demand,
            shape,
            since,
        } = request;
        let entry = self.entry_of(now, (demand, shape), place);
        let charge = Charge {
            tokens: entry.charged,
            cost: entry.cost,
        };
        let cached = self.overlap.cached(place.backend, demand);
        self.overlap.on_sent(place.backend, &entry.trail);
        let lease = self.ledger.take(place.backend, entry);
        self.age(now, place.backend);
        if demand.work != Work::Aside {
            self.on_taken(place.backend, lease);
            self.on_sent(now, (place.backend, lease), (demand, cached));
        }
        self.note(now, place.backend);
        let capacity = self.capacity_of(place.backend);
        // What holds nothing may go where too much is held.
        let held = self.ledger.account(place.backend).held();
        if held > capacity.blocks && !place.blocks.is_zero() {
            self.totals.overdrawn += 1;
        }
        self.flows.on_admitted(demand.tenant, charge);
        self.waits.on_granted(now, charge.cost);
        self.returns.on_granted(now, Caller::of(demand, since));
        self.totals.admitted += 1;
        self.totals.prompt = self.totals.prompt.saturating_add(demand.prompt_total());
        Grant {
            lease,
            backend: place.backend,
            tier: place.tier,
            home: place.home,
            choice: place.choice,
            max_tokens: max_tokens(demand, place.output),
            waited: now - since,
            block_size: capacity.block_size,
            blocks: place.blocks,
            cached,
        }
    }

    /// The beginnings that `id` will have of `demand`, if it keeps any.
    fn left_on(&self, id: BackendId, demand: &Demand) -> PrefixTrail {
        let keeps = self.capacity_of(id).prefix_caching == PrefixCaching::Shared;
        if keeps && is_cacheable(demand) {
            demand.trail.clone()
        } else {
            PrefixTrail::default()
        }
    }

    fn entry_of(&self, now: Time, (demand, shape): (&Demand, Shape), place: Placement) -> Entry {
        let class = (demand.work == Work::Generate).then(|| ClassKey::of(demand));
        let usage = self.usage_of(demand, place.output);
        Entry {
            tenant: demand.tenant,
            growing: self.growing(demand, &shape, place),
            shape,
            output: place.output,
            progress: demand.progress,
            class,
            foreseen: self.foreseen(class, place.output),
            generated: Tokens::ZERO,
            own: place.blocks,
            booking: match self.policy.reservation {
                Reservation::Strict => Booking::Whole,
                Reservation::Forecast(_) => Booking::AsItGrows,
            },
            prefix: demand.prefix.clone(),
            trail: self.left_on(place.backend, demand),
            charged: self.tokens_of(demand, place.output),
            usage,
            cost: self.cost_of(usage),
            admitted: now,
        }
    }
}

/// What the engine must be told where the bound is not as sent.
pub(super) fn max_tokens(demand: &Demand, output: OutputLimit) -> MaxTokens {
    match output {
        OutputLimit::Asked(bound) if output != demand.output && demand.work == Work::Generate => {
            MaxTokens::Set(bound)
        }
        _ => MaxTokens::AsSent,
    }
}
