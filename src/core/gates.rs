//! What stands between a request and a backend: the gates by name.
//!
//! Placement asks them for every decision, so what is told of a request is what
//! was, or would be, done with it. Nothing is changed here.

use super::backend::{ServedId, Tier};
use super::demand::{Demand, OffloadRule, Work};
use super::pace::Prefill;
use super::placement::{Asked, Fleet, LongOnStandard};
use super::roster::Backend;
use super::table::Kind;

/// Why a request cannot go to one backend now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Barrier {
    /// It has been taken out, or its engine is another since.
    Gone,
    /// It does not serve the model asked.
    Model,
    /// The tenant, or the request, allows no offload.
    Offload,
    /// The tenant may not use its tier.
    TierForbidden,
    /// Nothing is known of its capacity yet.
    CapacityUnknown,
    /// It cannot hold the request even when it is empty.
    Size,
    /// Its first token would come too late even with nothing else to do.
    Late,
    /// It is down, starting, asleep or drained.
    Health,
    /// It has failed lately, and is given no more than one request to prove itself.
    Trust,
    /// Its tier is not open to the request now: another is its home.
    TierClosed,
    /// Its free blocks are kept for a request that has waited too long.
    SetAside,
    /// Enough prefill is on its way to it.
    Prefill,
    /// Its time per token would be longer than promised.
    Pace,
    /// All sequences that it runs at one time are taken.
    Seats,
    /// Too little of its memory will be free.
    Memory,
    /// It lends to smaller tiers only what it does not keep for its own.
    Reserve,
}

/// How a backend was chosen among those that the gates let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Choice {
    /// There was no other.
    Only,
    /// It is the best: soonest first token, pressure counted.
    Best,
    /// Better ones have no room.
    Next,
    /// It was sent without asking whether there is room.
    Forced,
}

// === impl Barrier ===

impl Barrier {
    /// Whether waiting does not remove it: only a change of configuration, of the
    /// request or of the engine does.
    pub const fn is_for_good(self) -> bool {
        match self {
            Self::Gone
            | Self::Model
            | Self::Offload
            | Self::TierForbidden
            | Self::Size
            | Self::Late => true,
            Self::CapacityUnknown
            | Self::Health
            | Self::Trust
            | Self::TierClosed
            | Self::SetAside
            | Self::Prefill
            | Self::Pace
            | Self::Seats
            | Self::Memory
            | Self::Reserve => false,
        }
    }

    /// In one word, for machines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::Model => "model",
            Self::Offload => "offload",
            Self::TierForbidden => "tier_forbidden",
            Self::CapacityUnknown => "capacity_unknown",
            Self::Size => "size",
            Self::Late => "late",
            Self::Health => "health",
            Self::Trust => "trust",
            Self::TierClosed => "tier_closed",
            Self::SetAside => "set_aside",
            Self::Prefill => "prefill",
            Self::Pace => "pace",
            Self::Seats => "seats",
            Self::Memory => "memory",
            Self::Reserve => "reserve",
        }
    }
}

// === impl Choice ===

impl Choice {
    /// In one word, for machines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Only => "only",
            Self::Best => "best",
            Self::Next => "next",
            Self::Forced => "forced",
        }
    }
}

// === impl Backend ===

impl Backend {
    /// Why the model, the tenant or the request does not allow this backend.
    pub(super) fn forbids(&self, demand: &Demand) -> Option<Barrier> {
        if self.is_active() {
            forbidden((self.tier, &self.serves), demand)
        } else {
            Some(Barrier::Gone)
        }
    }
}

/// Why the model, the tenant or the request does not allow a backend of this tier
/// that serves these.
pub(super) fn forbidden((tier, serves): (Tier, &[ServedId]), demand: &Demand) -> Option<Barrier> {
    if !serves.contains(&demand.served) {
        Some(Barrier::Model)
    } else if tier == Tier::Offload && demand.offload == OffloadRule::Never {
        Some(Barrier::Offload)
    } else {
        let allowed = demand.tiers.contains(tier);
        (!allowed).then_some(Barrier::TierForbidden)
    }
}

// === impl Fleet ===

impl Fleet<'_> {
    /// The first gate of `backend` that does not let `asked` through, room aside;
    /// trust is asked by whoever calls.
    pub(super) fn barrier(
        &self,
        backend: &Backend,
        asked: Asked<'_>,
        (is_open, work): (&[bool; Tier::ALL.len()], Prefill),
    ) -> Option<Barrier> {
        let aside = asked.demand.work == Work::Aside;
        let kept = |ticket| !aside && asked.ticket != Some(ticket);
        if let Some(forbidden) = backend.forbids(asked.demand) {
            Some(forbidden)
        } else if !backend.admits() {
            Some(Barrier::Health)
        } else if !is_open[backend.tier as usize] {
            Some(Barrier::TierClosed)
        } else if backend.set_aside.is_some_and(kept) {
            Some(Barrier::SetAside)
        } else if !aside && !self.is_open(backend) {
            Some(Barrier::Prefill)
        } else if !self.is_in_time(asked, backend.pace.known_prefill(work)) {
            Some(Barrier::Late)
        } else {
            let kept = self.keeps_pace(backend, asked);
            (!kept).then_some(Barrier::Pace)
        }
    }

    /// Which tiers traffic at home in `home` may use at all now.
    pub(super) fn open_tiers(&self, asked: Asked<'_>, home: Tier) -> [bool; Tier::ALL.len()] {
        Tier::ALL.map(|tier| self.tier_is_open(asked, home, tier))
    }

    /// Whether time alone may open `tier` to traffic at home in `home`: not where it is
    /// the configuration that keeps it closed.
    pub(super) fn tier_may_open(&self, home: Tier, tier: Tier) -> bool {
        match tier {
            _ if tier == home => true,
            Tier::Standard => {
                home == Tier::Large
                    && self.tiers.long_on_standard == LongOnStandard::WhenNothingLarger
            }
            Tier::Large => home < tier,
            Tier::Offload => true,
        }
    }

    /// Whether traffic at home in `home` may use `tier` at all now.
    pub(super) fn tier_is_open(&self, asked: Asked<'_>, home: Tier, tier: Tier) -> bool {
        match tier {
            _ if tier == home || asked.demand.work == Work::Aside => true,
            Tier::Standard => {
                let is_larger_up = |kind: &Kind| {
                    kind.tier == Tier::Large && kind.trusted > 0 && kind.may_serve(asked.demand)
                };
                self.tier_may_open(home, tier) && !self.table.kinds.iter().any(is_larger_up)
            }
            Tier::Large => self.tier_may_open(home, tier) && self.waiting[tier as usize] == 0,
            Tier::Offload => {
                asked.demand.offload == OffloadRule::WhenFaster && self.offload_is_faster(asked)
            }
        }
    }

    /// Whether the slow tier would have its first token out before the queue
    /// for the faster ones has drained.
    fn offload_is_faster(&self, asked: Asked<'_>) -> bool {
        let offload = self
            .backends
            .iter()
            .filter(|backend| backend.tier == Tier::Offload && backend.admits());
        let work = self.overlap.uncached(asked.demand);
        let soonest = offload
            .map(|backend| self.first_token_after(backend, work.on(backend.id)))
            .min();
        let (drain, waiting) = self.drain;
        let queued = self.waiting.iter().any(|&waiting| waiting > 0);
        let wait = queued.then(|| drain.time_for(self.now, waiting)).flatten();
        soonest
            .zip(wait)
            .is_some_and(|(first_token, wait)| first_token < wait)
    }
}
