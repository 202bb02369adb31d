//! How often memory runs short where it is always wanted and nobody knows how
//! long answers get: an engine without preemption, so that what is held too much
//! stays visible.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use tidegate::core::admission::{Admission, Effect, End, Grant, PoolPolicy, Verdict};
use tidegate::core::backend::{
    BackendFacts, Capacity, CapacitySource, Health, PrefixCaching, ServedId, Tier, TierSet,
};
use tidegate::core::demand::{
    Arrival, Demand, Kind, Length, OffloadRule, OutputLimit, Progress, TenantId, Work,
};
use tidegate::core::dispatch::DispatchPolicy;
use tidegate::core::ledger::LeaseId;
use tidegate::core::placement::{ForecastPolicy, Reservation};
use tidegate::core::prefix::{PrefixChain, PrefixTrail};
use tidegate::core::queue::TicketId;
use tidegate::core::time::Time;
use tidegate::core::units::{BlockSize, Blocks, Tokens};

use crate::random::Random;

/// Tokens each sequence emits between two looks.
const STEP: u64 = 16;

/// Requests that wait at any time.
const WAITING: u32 = 12;

/// Steps until the lengths of its answers are known, and those looked at.
const LEARNING: u32 = 600;
const LOOKS: u32 = 500;

struct Pool {
    admission: Admission,
    random: Random,
    now: Time,
    /// What waits and runs will emit; for what runs, what it has.
    waiting: BTreeMap<TicketId, u64>,
    running: BTreeMap<LeaseId, (u64, u64)>,
    blocks: u64,
    effects: Vec<Effect>,
}

/// The share of moments at which more was held than there is, with the standard
/// deviation of that, and the share of the pool used on average, over pools of
/// these seeds whose gate is `confidence` sure.
pub(crate) fn over(seeds: Range<u64>, confidence: f64) -> (f64, f64, f64) {
    let seen: Vec<_> = seeds.map(|seed| run(seed, confidence)).collect();
    let pools = seen.len() as f64;
    let over = seen.iter().map(|&(over, _)| over).sum::<f64>() / pools;
    let used = seen.iter().map(|&(_, used)| used).sum::<f64>() / pools;
    let spread = seen.iter().map(|&(one, _)| (one - over).powi(2));
    let sigma = (spread.sum::<f64>() / (pools * (pools - 1.0))).sqrt();
    (over, sigma, used)
}

/// The share of moments of one pool at which too much was held, and of it used.
fn run(seed: u64, confidence: f64) -> (f64, f64) {
    let mut pool = Pool::new(seed, confidence);
    (0..LEARNING).for_each(|_| pool.step());
    let (mut over, mut used) = (0, 0);
    for _ in 0..LOOKS {
        pool.step();
        let held = pool.admission.state(pool.now).backends[0].held.get();
        over += u32::from(held > pool.blocks);
        used += held;
    }
    let looks = f64::from(LOOKS);
    (
        f64::from(over) / looks,
        used as f64 / pool.blocks as f64 / looks,
    )
}

// === impl Pool ===

impl Pool {
    fn new(seed: u64, confidence: f64) -> Self {
        let mut random = Random::new(seed);
        let blocks = random.between(1000, 6000);
        let forecast = ForecastPolicy {
            confidence,
            margin: 1.0,
            ..ForecastPolicy::default()
        };
        let mut admission = Admission::new(PoolPolicy {
            reservation: Reservation::Forecast(forecast),
            dispatch: DispatchPolicy::EAGER,
            ..PoolPolicy::default()
        });
        let mut effects = Vec::new();
        let facts = BackendFacts {
            slot: 0,
            tier: Tier::Standard,
            serves: vec![ServedId(0)],
            capacity: Some(Capacity {
                blocks: Blocks::new(blocks),
                block_size: BlockSize::new(16).unwrap(),
                max_model_len: Tokens::new(16_000),
                max_num_seqs: None,
                lookahead: Tokens::ZERO,
                prefix_caching: PrefixCaching::Shared,
                source: CapacitySource::Configured,
            }),
            health: Health::Up,
        };
        admission.add_backend(Time::ZERO, facts, &mut effects);
        Self {
            admission,
            random,
            now: Time::ZERO,
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            blocks,
            effects,
        }
    }

    /// Every sequence emits [`STEP`] tokens or ends, and the line fills up. All
    /// growth is told before anybody is let in for it.
    fn step(&mut self) {
        let mut ended = Vec::new();
        for (&lease, (length, generated)) in &mut self.running {
            *generated += STEP;
            if *generated >= *length {
                ended.push((lease, *length));
                continue;
            }
            let grown = Tokens::new(*generated);
            self.admission
                .on_growth(self.now, lease, grown, &mut self.effects);
        }
        self.now = self.now + Duration::from_millis(400);
        for (lease, length) in ended {
            self.running.remove(&lease);
            let end = End::Finished {
                prompt: Tokens::ZERO,
                generated: Tokens::new(length),
            };
            self.admission
                .release(self.now, lease, end, &mut self.effects);
            self.take_effects();
        }
        self.admission.handle_timeout(self.now, &mut self.effects);
        self.take_effects();
        while self.waiting.len() < usize::try_from(WAITING).unwrap() {
            let (demand, length) = self.request();
            let decision = self.admission.decide(self.now, &demand);
            match self.admission.commit(self.now, demand, decision) {
                Verdict::Admit(grant) => self.start(grant, length),
                Verdict::Wait(ticket) => drop(self.waiting.insert(ticket, length)),
                Verdict::Reject(reject) => panic!("refused: {reject:?}"),
            }
        }
    }

    fn take_effects(&mut self) {
        while let Some(effect) = self.effects.pop() {
            match effect {
                Effect::Grant { ticket, grant } => {
                    let length = self.waiting.remove(&ticket).unwrap();
                    self.start(grant, length);
                }
                Effect::Again => self.admission.handle_timeout(self.now, &mut self.effects),
                Effect::Refuse { reject, .. } => panic!("refused: {reject:?}"),
            }
        }
    }

    fn start(&mut self, grant: Grant, length: u64) {
        self.running.insert(grant.lease, (length, 0));
    }

    /// A request of one of three tenants, and what it will emit: around 150 tokens
    /// with a tail, around 600, or either 60 or 2,500.
    fn request(&mut self) -> (Demand, u64) {
        let tenant = self.random.between(0, 2);
        let length = match tenant {
            0 => 150.0 * (0.9 * self.normal()).exp(),
            1 => 600.0 * (0.6 * self.normal()).exp(),
            _ if self.random.one_in(3) => 2500.0 * (0.2 * self.normal()).exp(),
            _ => 60.0 * (0.3 * self.normal()).exp(),
        };
        let prompt = self.random.between(20, 1500);
        let length = Tokens::new(8192).share(length / 8192.0).get().max(1);
        let demand = Demand {
            tenant: TenantId(u32::try_from(tenant).unwrap()),
            arrival: Arrival(0),
            served: ServedId(0),
            prompts: vec![Tokens::new(prompt)],
            samples: 1,
            output: OutputLimit::Asked(Tokens::new(8192)),
            kind: Kind::default(),
            work: Work::Generate,
            progress: Progress::Streamed,
            tiers: TierSet::ALL,
            offload: OffloadRule::Never,
            length: Length::ByFootprint,
            prefix: PrefixChain::default(),
            trail: PrefixTrail::default(),
            first_token_by: None,
            deadline: Time::NEVER,
        };
        (demand, length)
    }

    /// Standard normal, nearly: twelve uniform ones.
    fn normal(&mut self) -> f64 {
        let mut share = || self.random.between(0, 999_999) as f64 / 1e6;
        (0..12).map(|_| share()).sum::<f64>() - 6.0
    }
}
