//! Small demands, capacities and pools for unit tests.

use std::time::Duration;

use super::admission::{Admission, PoolPolicy};
use super::backend::{
    BackendFacts, BackendId, Capacity, CapacitySource, Health, PrefixCaching, ServedId, Tier,
    TierSet,
};
use super::demand::{Arrival, Demand, Length, OffloadRule, OutputLimit, Progress, TenantId, Work};
use super::placement::{LongOnStandard, Reservation, TierPolicy};
use super::prefix::PrefixChain;
use super::queue::{QueuePolicy, Unserved};
use super::time::Time;
use super::units::{BlockSize, Blocks, Tokens};

/// A streamed chat of one sequence by tenant 0, patient for ever.
pub(crate) fn demand(prompt: u64, output: u64) -> Demand {
    Demand {
        tenant: TenantId(0),
        arrival: Arrival(0),
        served: ServedId(0),
        prompts: vec![Tokens::new(prompt)],
        samples: 1,
        output: OutputLimit::Asked(Tokens::new(output)),
        kind: crate::core::demand::Kind::default(),
        work: Work::Generate,
        progress: Progress::Streamed,
        tiers: TierSet::ALL,
        offload: OffloadRule::WhenOnly,
        length: Length::ByFootprint,
        prefix: PrefixChain::default(),
        trail: crate::core::prefix::PrefixTrail::default(),
        first_token_by: None,
        deadline: Time::NEVER,
    }
}

/// `blocks` blocks of 16 tokens; one token fits beyond a prompt of the whole pool,
/// since the last token needs no slot.
pub(crate) fn capacity(blocks: u64) -> Capacity {
    Capacity {
        blocks: Blocks::new(blocks),
        block_size: BlockSize::new(16).expect("not zero"),
        max_model_len: Tokens::new(blocks * 16 + 1),
        max_num_seqs: None,
        lookahead: Tokens::ZERO,
        prefix_caching: PrefixCaching::Shared,
        source: CapacitySource::Configured,
    }
}

/// A policy with a roomy queue and a bypass of five seconds.
pub(crate) fn policy(reservation: Reservation) -> PoolPolicy {
    PoolPolicy {
        reservation,
        queue: QueuePolicy {
            max_requests: 1000,
            max_tokens: Tokens::new(10_000_000),
            max_bypass: Duration::from_secs(5),
            unserved: Unserved::Refuse,
        },
        tiers: TierPolicy {
            long_share: 1.0,
            free_reserve: 0.15,
            long_on_standard: LongOnStandard::WhenNothingLarger,
        },
        dispatch: crate::core::dispatch::DispatchPolicy::EAGER,
        observed_for: Duration::from_secs(5),
    }
}

/// A pool of one backend for each given tier and size, all up.
pub(crate) fn pool(policy: PoolPolicy, backends: &[(Tier, u64)]) -> (Admission, Vec<BackendId>) {
    let mut admission = Admission::new(policy);
    let mut out = Vec::new();
    let ids = backends.iter().zip(0..).map(|(&(tier, blocks), slot)| {
        let facts = BackendFacts {
            slot,
            tier,
            serves: vec![ServedId(0)],
            capacity: Some(capacity(blocks)),
            health: Health::Up,
        };
        admission.add_backend(Time::ZERO, facts, &mut out)
    });
    let ids = ids.collect();
    (admission, ids)
}

/// The instant `seconds` after the start.
pub(crate) fn at(seconds: f64) -> Time {
    Time::from_start(Duration::from_secs_f64(seconds))
}
