//! A pool of eight backends, full, with some hundred requests that wait.

use std::time::Duration;

use tidegate::core::admission::{Admission, Effect, End, PoolPolicy, Verdict};
use tidegate::core::backend::{
    BackendFacts, Capacity, CapacitySource, Health, PrefixCaching, ServedId, Tier, TierSet,
};
use tidegate::core::demand::{
    Arrival, Demand, Kind, Length, OffloadRule, OutputLimit, Progress, TenantId, Work,
};
use tidegate::core::dispatch::DispatchPolicy;
use tidegate::core::ledger::LeaseId;
use tidegate::core::placement::{ForecastPolicy, LongOnStandard, Reservation, TierPolicy};
use tidegate::core::prefix::{PrefixChain, PrefixTrail};
use tidegate::core::queue::{QueuePolicy, Unserved};
use tidegate::core::time::Time;
use tidegate::core::units::{BlockSize, Blocks, Tokens};

const BACKENDS: u32 = 8;
const WAITING: usize = 100;

/// How memory is reserved.
#[derive(Clone, Copy)]
pub(crate) enum Kept {
    Strict,
    Forecast,
}

/// The pool, and what it holds.
pub(crate) struct Books {
    pool: Admission,
    seed: u64,
    now: Time,
    leases: Vec<LeaseId>,
    effects: Vec<Effect>,
}

// === impl Books ===

impl Books {
    pub(crate) fn new(kept: Kept) -> Self {
        let mut books = Self {
            pool: Admission::new(policy(kept)),
            seed: 1,
            now: Time::ZERO,
            leases: Vec::with_capacity(4096),
            effects: Vec::with_capacity(64),
        };
        for slot in 0..BACKENDS {
            let effects = &mut books.effects;
            books.pool.add_backend(Time::ZERO, facts(slot), effects);
        }
        let mut waiting = 0;
        while waiting < WAITING {
            waiting += usize::from(books.submit());
        }
        books
    }

    /// Ends a request, grants what fits, and submits another, `turns` times.
    pub(crate) fn turns(&mut self, turns: usize) {
        for _ in 0..turns {
            self.now = self.now + Duration::from_millis(5);
            self.release();
            self.submit();
        }
    }

    /// Submits one request; whether it waits.
    fn submit(&mut self) -> bool {
        let demand = self.demand();
        let decision = self.pool.decide(self.now, &demand);
        match self.pool.commit(self.now, demand, decision) {
            Verdict::Admit(grant) => {
                self.now = self.now + Duration::from_millis(20);
                self.begin(grant.lease);
                false
            }
            Verdict::Wait(_) => true,
            Verdict::Reject(reject) => panic!("{reject}"),
        }
    }

    fn release(&mut self) {
        let chosen = self.random(self.leases.len());
        let lease = self.leases.swap_remove(chosen);
        let end = End::Finished {
            prompt: Tokens::new(600),
            generated: Tokens::new(200),
        };
        self.effects.clear();
        self.pool.release(self.now, lease, end, &mut self.effects);
        self.settle();
    }

    /// Hears the first token of `lease`.
    fn begin(&mut self, lease: LeaseId) {
        self.leases.push(lease);
        self.effects.clear();
        let first = Tokens::new(1);
        self.pool
            .on_growth(self.now, lease, first, &mut self.effects);
        self.settle();
    }

    /// Goes on with a drain until it is done, and begins what it granted.
    fn settle(&mut self) {
        let mut granted = Vec::new();
        loop {
            let again = matches!(self.effects.last(), Some(Effect::Again));
            let leases = self.effects.iter().filter_map(|effect| match effect {
                Effect::Grant { grant, .. } => Some(grant.lease),
                _ => None,
            });
            granted.extend(leases);
            if !again {
                break;
            }
            self.effects.clear();
            self.pool.handle_timeout(self.now, &mut self.effects);
        }
        granted.into_iter().for_each(|lease| self.begin(lease));
    }

    fn random(&mut self, below: usize) -> usize {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.seed >> 33).unwrap() % below
    }

    fn demand(&mut self) -> Demand {
        let mut draw = |below: usize| u64::try_from(self.random(below)).unwrap();
        Demand {
            tenant: TenantId(u32::try_from(draw(16)).unwrap()),
            arrival: Arrival(0),
            served: ServedId(0),
            prompts: vec![Tokens::new(100 + draw(1500))],
            samples: 1,
            output: OutputLimit::Asked(Tokens::new(50 + draw(700))),
            kind: Kind::default(),
            work: Work::Generate,
            progress: Progress::Streamed,
            tiers: TierSet::ALL,
            offload: OffloadRule::WhenOnly,
            length: Length::ByFootprint,
            prefix: PrefixChain::default(),
            trail: PrefixTrail::default(),
            first_token_by: None,
            deadline: Time::NEVER,
        }
    }
}

fn policy(kept: Kept) -> PoolPolicy {
    PoolPolicy {
        reservation: match kept {
            Kept::Strict => Reservation::Strict,
            Kept::Forecast => Reservation::Forecast(ForecastPolicy {
                open_output: Tokens::new(512),
                margin: 0.97,
                ..ForecastPolicy::default()
            }),
        },
        queue: QueuePolicy {
            max_requests: 10_000,
            max_tokens: Tokens::new(u64::MAX / 4),
            max_bypass: Duration::from_secs(5),
            unserved: Unserved::Refuse,
        },
        tiers: TierPolicy {
            long_share: 0.25,
            free_reserve: 0.15,
            long_on_standard: LongOnStandard::Never,
        },
        dispatch: DispatchPolicy::default(),
        observed_for: Duration::from_secs(5),
    }
}

fn facts(slot: u32) -> BackendFacts {
    BackendFacts {
        slot,
        tier: Tier::Standard,
        serves: vec![ServedId(0)],
        capacity: Some(Capacity {
            blocks: Blocks::new(1200),
            block_size: BlockSize::new(16).unwrap(),
            max_model_len: Tokens::new(32_768),
            max_num_seqs: Some(256),
            lookahead: Tokens::new(1),
            prefix_caching: PrefixCaching::Shared,
            source: CapacitySource::Configured,
        }),
        health: Health::Up,
    }
}
