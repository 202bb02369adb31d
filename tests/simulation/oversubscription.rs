//! The loads of the real engine in virtual time: more asked than the pool holds.

use std::time::Duration;

use tidegate::core::admission::{Admission, PoolPolicy};
use tidegate::core::backend::{ServedId, Tier, TierSet};
use tidegate::core::demand::{
    Arrival, Demand, Length, OffloadRule, OutputLimit, Progress, TenantId, Work,
};
use tidegate::core::placement::{ForecastPolicy, LongOnStandard, Reservation, TierPolicy};
use tidegate::core::prefix::PrefixChain;
use tidegate::core::queue::{QueuePolicy, Unserved};
use tidegate::core::time::Time;
use tidegate::core::units::{BlockSize, Blocks, Tokens};
use tidegate::sim::engine::EngineSpec;

use crate::world::{Job, World};

/// Preemptions and seconds of engine time of `count` requests sent at once
/// against a pool of 8,192 tokens.
pub(crate) fn run(reservation: Reservation, count: u32, prompt: u64, output: u64) -> (u64, f64) {
    let mut world = World::new(Admission::new(policy(reservation)));
    let block_size = BlockSize::new(32).unwrap();
    world.add_engine(
        Tier::Standard,
        EngineSpec {
            block_size,
            blocks: Blocks::new(257),
            ..EngineSpec::with_pool(Tokens::new(8192))
        },
    );
    world.learn(0);
    for _ in 0..count {
        let output = Tokens::new(output);
        world.submit(Job {
            demand: demand(prompt, output),
            output,
        });
    }
    while let Some(due) = world.next_event() {
        world.now = world.now.max(due);
        world.play_due();
    }
    assert_eq!(world.outcome.finished, u64::from(count));
    (world.preemptions(), (world.now - Time::ZERO).as_secs_f64())
}

fn policy(reservation: Reservation) -> PoolPolicy {
    PoolPolicy {
        reservation,
        queue: QueuePolicy {
            max_requests: 100,
            max_tokens: Tokens::new(1_000_000),
            max_bypass: Duration::from_secs(5),
            unserved: Unserved::Refuse,
        },
        tiers: TierPolicy {
            long_share: 1.0,
            free_reserve: 0.15,
            long_on_standard: LongOnStandard::Never,
        },
        dispatch: tidegate::core::dispatch::DispatchPolicy::default(),
        observed_for: Duration::from_secs(5),
    }
}

fn demand(prompt: u64, output: Tokens) -> Demand {
    Demand {
        tenant: TenantId(0),
        arrival: Arrival(0),
        served: ServedId(0),
        prompts: vec![Tokens::new(prompt)],
        samples: 1,
        output: OutputLimit::Asked(output),
        kind: tidegate::core::demand::Kind::default(),
        work: Work::Generate,
        progress: Progress::Streamed,
        tiers: TierSet::ALL,
        offload: OffloadRule::WhenOnly,
        length: Length::ByFootprint,
        prefix: PrefixChain::default(),
        trail: tidegate::core::prefix::PrefixTrail::default(),
        first_token_by: None,
        deadline: Time::NEVER,
    }
}

pub(crate) fn forecast() -> Reservation {
    Reservation::Forecast(ForecastPolicy {
        open_output: Tokens::new(1024),
        margin: 0.97,
        ..ForecastPolicy::default()
    })
}
