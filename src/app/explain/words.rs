//! The gates in plain words, for whoever asks why.
//!
//! Decides words only; each says what is so, and where something can be done, what.

use crate::core::gates::{Barrier, Choice};
use crate::core::stats::Hold;

/// Why a request cannot go to a backend now.
pub(super) const fn barrier(barrier: Barrier) -> &'static str {
    match barrier {
        Barrier::Gone => "it has been taken out",
        Barrier::Model => "it does not serve this model",
        Barrier::Offload => "the tenant or x-tidegate-allow-offload forbids the offload tier",
        Barrier::TierForbidden => "the tenant may not use this tier",
        Barrier::CapacityUnknown => "its KV capacity is not known yet",
        Barrier::Size => "even empty it cannot hold prompt and output",
        Barrier::Late => "even idle its first token would come too late",
        Barrier::Health => "it is not up: starting, asleep, drained or down",
        Barrier::Trust => "it failed lately and has its one trial request",
        Barrier::TierClosed => "another tier is its home, and this one is not open to it now",
        Barrier::SetAside => "its free blocks are kept for a request that waited too long",
        Barrier::Prefill => "enough prefill is on its way to it",
        Barrier::Pace => "its time per token would pass admission.token_pace",
        Barrier::Seats => "all its sequences (max_num_seqs) are taken",
        Barrier::Memory => "too few blocks will stay free",
        Barrier::Reserve => "what is free is kept for the requests of its own tier",
    }
}

/// Why a request can never go to a backend.
pub(super) const fn for_good(gate: Barrier) -> &'static str {
    match gate {
        Barrier::TierClosed => {
            "another tier is its home, and by configuration this one stays closed to it"
        }
        gate => barrier(gate),
    }
}

/// What a request waits for.
pub(super) const fn hold(hold: Hold) -> &'static str {
    match hold {
        Hold::Turn => "others that wait come first",
        Hold::Memory => "no backend it may go to has room for it",
        Hold::Prefill => "every backend it may go to has enough prefill on its way",
        Hold::Cached => "a backend that has its beginning cached is about to be the soonest",
        Hold::TenantLimit => "its tenant holds as much as max_in_flight_tokens allows",
        Hold::OthersShare => "a tenant below its in_flight_share waits for memory",
        Hold::NoBackend => "no backend that could serve it is up",
        Hold::SetAside => "what comes free on one backend is kept for it",
    }
}

/// Why a backend was chosen.
pub(super) const fn choice(choice: Choice) -> &'static str {
    match choice {
        Choice::Only => "the only one that may take it",
        Choice::Best => "the best: soonest first token, pressure counted",
        Choice::Next => "better ones have no room",
        Choice::Forced => "sent without asking for room",
    }
}
