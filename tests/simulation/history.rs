//! Random histories: arrivals, growth, cancels, deaths, restarts with another
//! capacity, capacity unknown for a while, scrapes.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use tidegate::core::admission::{Admission, End, PoolPolicy, TenantPolicy};
use tidegate::core::backend::{ServedId, Tier, TierSet};
use tidegate::core::demand::{
    Arrival, Demand, Length, OffloadRule, OutputLimit, Progress, TenantId, Work,
};
use tidegate::core::placement::{ForecastPolicy, LongOnStandard, Reservation, TierPolicy};
use tidegate::core::prefix::PrefixChain;
use tidegate::core::queue::{QueuePolicy, Unserved};
use tidegate::core::time::Time;
use tidegate::core::units::{BlockSize, Tokens};
use tidegate::sim::engine::{EngineSpec, OnOverflow};

use crate::invariants;
use crate::random::Random;
use crate::world::{Job, Outcome, World};

/// What a history is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Prompt and output reserved: the engine must never preempt.
    Strict,
    /// Forecast, with outputs that are open or end early.
    Forecast,
    /// Forecast, every output asked and used in full, engines steady.
    KnownLengths,
}

/// Runs the history of `seed` and panics, with its last events, if a promise breaks.
pub(crate) fn run(seed: u64, kind: Kind) -> Outcome {
    let mut history = History::new(seed, kind);
    let result = catch_unwind(AssertUnwindSafe(|| history.play()));
    match result {
        Ok(()) => history.world.outcome,
        Err(panic) => {
            let events = history.world.log.join("\n");
            eprintln!("{kind:?} history of seed {seed} broke a promise after:\n{events}");
            resume_unwind(panic)
        }
    }
}

struct History {
    kind: Kind,
    random: Random,
    world: World,
    policy: PoolPolicy,
    /// Requests so far.
    arrived: u64,
}

impl History {
    fn new(seed: u64, kind: Kind) -> Self {
        let mut random = Random::new(seed.wrapping_mul(0x5851_f42d_4c95_7f2d) ^ kind as u64);
        let policy = policy(kind, &mut random);
        let mut pool = Admission::new(policy.clone());
        for tenant in 0..3 {
            let share = random
                .one_in(4)
                .then(|| Tokens::new(random.between(1000, 4000)));
            let max_waiting = random
                .one_in(4)
                .then(|| u32::try_from(random.between(1, 20)).unwrap());
            let weight = u32::try_from(random.between(1, 4)).unwrap();
            pool.set_tenant(
                TenantId(tenant),
                TenantPolicy {
                    weight,
                    max_in_flight: share,
                    max_waiting,
                    priority: i32::try_from(random.between(0, 2)).unwrap(),
                    in_flight_share: f64::from(u32::try_from(random.between(0, 3)).unwrap()) / 4.0,
                },
            );
        }
        Self {
            kind,
            random,
            world: World::new(pool),
            policy,
            arrived: 0,
        }
    }

    fn play(&mut self) {
        for (tier, chance) in [
            (Tier::Standard, 1),
            (Tier::Standard, 2),
            (Tier::Large, 2),
            (Tier::Offload, 4),
        ] {
            if self.random.one_in(chance) {
                let spec = self.spec(tier);
                self.world.add_engine(tier, spec);
                // Some engines are known only later.
                if !self.random.one_in(4) || self.kind == Kind::KnownLengths {
                    self.world.learn(self.world.places.len() - 1);
                }
            }
        }
        for _ in 0..self.random.between(20, 120) {
            let span = Duration::from_millis(self.random.next() % 300);
            self.run_for(span);
            self.something_happens();
            self.check();
        }
        self.finish();
    }

    /// Plays engines and timeouts for `span` of virtual time.
    fn run_for(&mut self, span: Duration) {
        let end = self.world.now + span;
        while let Some(due) = self.world.next_event().filter(|&due| due <= end) {
            self.world.now = self.world.now.max(due);
            self.world.play_due();
            self.check();
        }
        self.world.now = end;
    }

    fn something_happens(&mut self) {
        let steady = self.kind == Kind::KnownLengths;
        match self.random.between(0, 39) {
            0..=25 => self.arrive(),
            26..=28 => self.leave(),
            29..=31 if !steady => self.disconnect(),
            32 if !steady => self.kill_or_restart(),
            33..=34 => self.learn(),
            35 => self
                .world
                .advance(Duration::from_millis(self.random.next() % 3000)),
            _ => {
                for place in 0..self.world.places.len() {
                    self.world.scrape(place);
                }
            }
        }
    }

    fn arrive(&mut self) {
        let burst = if self.random.one_in(5) {
            self.random.between(2, 12)
        } else {
            1
        };
        for _ in 0..burst {
            let mut job = self.job();
            // Counting takes its time: few come to the line in their order.
            self.arrived += 1;
            job.demand.arrival = Arrival(self.arrived ^ 5);
            self.world.submit(job);
        }
    }

    fn job(&mut self) -> Job {
        let plain = self.kind == Kind::KnownLengths;
        let random = &mut self.random;
        let bound = if random.one_in(6) {
            random.between(100, 900)
        } else {
            random.between(1, 150)
        };
        let wait = random.between(1, 20_000);
        let patient = random.one_in(2);
        let output = if plain {
            bound
        } else {
            random.between(1, bound)
        };
        let open = !plain && random.one_in(5);
        let demand = Demand {
            tenant: TenantId(u32::try_from(random.next() % 3).unwrap()),
            arrival: Arrival(0),
            served: ServedId(0),
            prompts: prompts(random, self.kind),
            samples: samples(random, self.kind),
            output: if open {
                open_output(random)
            } else {
                OutputLimit::Asked(Tokens::new(bound))
            },
            kind: tidegate::core::demand::Kind::default(),
            work: Work::Generate,
            progress: if !plain && random.one_in(3) {
                Progress::Unseen
            } else {
                Progress::Streamed
            },
            tiers: if random.one_in(9) {
                TierSet::ALL.without(Tier::Large)
            } else {
                TierSet::ALL
            },
            offload: offload(random),
            length: if random.one_in(9) {
                Length::Long
            } else {
                Length::ByFootprint
            },
            prefix: PrefixChain::default(),
            trail: tidegate::core::prefix::PrefixTrail::default(),
            first_token_by: None,
            deadline: if patient {
                Time::NEVER
            } else {
                self.world.now + Duration::from_millis(wait)
            },
        };
        Job {
            demand,
            output: Tokens::new(output),
        }
    }

    fn leave(&mut self) {
        let tickets: Vec<_> = self.world.waiting.keys().copied().collect();
        if !tickets.is_empty() {
            let chosen = self.random.next() % tickets.len() as u64;
            self.world.leave(tickets[usize::try_from(chosen).unwrap()]);
        }
    }

    fn disconnect(&mut self) {
        let leases: Vec<_> = self.world.flights.keys().copied().collect();
        if !leases.is_empty() {
            let chosen = self.random.next() % leases.len() as u64;
            self.world
                .release(leases[usize::try_from(chosen).unwrap()], End::Cancelled);
        }
    }

    fn kill_or_restart(&mut self) {
        let place = usize::try_from(self.random.next() % self.world.places.len() as u64).unwrap();
        if self.world.places[place].engine.is_some() {
            return self.world.kill(place);
        }
        let spec = self.spec(self.world.places[place].tier);
        self.world.restart(place, spec);
    }

    /// An engine whose capacity was unknown is read for the first time.
    fn learn(&mut self) {
        let state = self.world.pool.state(self.world.now);
        let unknown = |id| {
            state
                .backends
                .iter()
                .any(|backend| backend.id == id && backend.capacity.is_none())
        };
        let place = self
            .world
            .places
            .iter()
            .position(|place| unknown(place.id) && place.engine.is_some());
        if let Some(place) = place {
            self.world.learn(place);
        }
    }

    fn spec(&mut self, tier: Tier) -> EngineSpec {
        let random = &mut self.random;
        let size = [16, 32, 64][usize::try_from(random.next() % 3).unwrap()];
        let tokens = match tier {
            Tier::Standard => random.between(512, 3000),
            Tier::Large => random.between(3000, 9000),
            Tier::Offload => random.between(3000, 6000),
        };
        let block_size = BlockSize::new(size).unwrap();
        let usable = Tokens::new(tokens).blocks_up(block_size).tokens(block_size);
        EngineSpec {
            block_size,
            blocks: usable.blocks_up(block_size) + tidegate::core::units::Blocks::new(1),
            max_num_seqs: u32::try_from(random.between(4, 64)).unwrap(),
            max_num_batched_tokens: Tokens::new(random.between(128, 1024)),
            on_overflow: if self.kind == Kind::Strict {
                OnOverflow::Panic
            } else {
                OnOverflow::Preempt
            },
            ..EngineSpec::with_pool(usable)
        }
    }

    fn check(&mut self) {
        invariants::check(&mut self.world, &self.policy, self.kind);
    }

    /// No more arrivals: everything must end by itself, and the books be empty.
    fn finish(&mut self) {
        for place in 0..self.world.places.len() {
            if self.world.places[place].engine.is_none() {
                let spec = self.world.places[place].spec.clone();
                self.world.restart(place, spec);
            } else {
                self.learn();
            }
            self.world.scrape(place);
        }
        let mut events = 0_u64;
        while !(self.world.waiting.is_empty() && self.world.flights.is_empty()) {
            let due = self
                .world
                .next_event()
                .expect("what waits or runs has something to wait for");
            self.world.now = self.world.now.max(due);
            self.world.play_due();
            self.check();
            events += 1;
            assert!(
                events < 2_000_000,
                "the history does not end: somebody starves"
            );
        }
        invariants::all_zero_when_idle(&self.world);
        self.world.outcome.preemptions = self.world.preemptions();
    }
}

fn samples(random: &mut Random, kind: Kind) -> u32 {
    if kind != Kind::KnownLengths && random.one_in(8) {
        u32::try_from(random.between(2, 4)).unwrap()
    } else {
        1
    }
}

fn prompts(random: &mut Random, kind: Kind) -> Vec<Tokens> {
    let prompt = if random.one_in(6) {
        random.between(200, 3500)
    } else {
        random.between(1, 300)
    };
    let listed = kind != Kind::KnownLengths && random.one_in(8);
    let prompts = if listed { random.between(1, 4) } else { 1 };
    (0..prompts)
        .map(|extra| Tokens::new(prompt + extra))
        .collect()
}

fn offload(random: &mut Random) -> OffloadRule {
    match random.next() % 3 {
        0 => OffloadRule::Never,
        1 => OffloadRule::WhenOnly,
        _ => OffloadRule::WhenFaster,
    }
}

fn open_output(random: &mut Random) -> OutputLimit {
    let at_most = random
        .one_in(2)
        .then(|| Tokens::new(random.between(1, 400)));
    OutputLimit::Open { at_most }
}

fn policy(kind: Kind, random: &mut Random) -> PoolPolicy {
    let forecast = ForecastPolicy {
        open_output: if kind == Kind::KnownLengths {
            // Nothing that is asked is too much to be believed.
            Tokens::new(1000)
        } else {
            Tokens::new(random.between(8, 200))
        },
        margin: 0.97,
        ..ForecastPolicy::default()
    };
    PoolPolicy {
        reservation: if kind == Kind::Strict {
            Reservation::Strict
        } else {
            Reservation::Forecast(forecast)
        },
        queue: QueuePolicy {
            max_requests: u32::try_from(random.between(5, 60)).unwrap(),
            max_tokens: Tokens::new(random.between(5_000, 60_000)),
            max_bypass: Duration::from_millis(random.between(0, 4000)),
            unserved: Unserved::Refuse,
        },
        tiers: TierPolicy {
            long_share: 0.25,
            free_reserve: 0.15,
            long_on_standard: if random.one_in(2) {
                LongOnStandard::Never
            } else {
                LongOnStandard::WhenNothingLarger
            },
        },
        dispatch: tidegate::core::dispatch::DispatchPolicy::default(),
        observed_for: Duration::from_secs(5),
    }
}
