//! Reloads between arrivals, growth, ends and cancels, by seed: backends come,
//! go, come back and change size, tier and engine, tenants and rules change; the
//! books are looked at after every event and are empty at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate::core::admission::{Admission, Effect, End, Grant, PoolPolicy, TenantPolicy, Verdict};
use tidegate::core::backend::{
    BackendFacts, BackendId, Capacity, CapacitySource, Health, PrefixCaching, ServedId, Tier,
    TierSet,
};
use tidegate::core::demand::{
    Arrival, Demand, Length, OffloadRule, OutputLimit, Progress, TenantId, Work,
};
use tidegate::core::ledger::LeaseId;
use tidegate::core::placement::{ForecastPolicy, LongOnStandard, Reservation, TierPolicy};
use tidegate::core::prefix::PrefixChain;
use tidegate::core::queue::{QueuePolicy, TicketId, Unserved};
use tidegate::core::time::Time;
use tidegate::core::units::{BlockSize, Blocks, Tokens};

use crate::random::Random;

/// Events of one history.
const EVENTS: u32 = 200;

/// What is asked of the pool and what it said, beside its own books.
struct Reloads {
    random: Random,
    now: Time,
    pool: Admission,
    /// Every slot that was ever given, with the backend there.
    places: Vec<Place>,
    tenants: BTreeSet<TenantId>,
    waiting: BTreeSet<TicketId>,
    flights: BTreeMap<LeaseId, Flight>,
    /// Requests so far.
    arrived: u64,
    outcome: (u64, u64),
}

#[derive(Clone, Copy)]
struct Place {
    id: BackendId,
    tier: Tier,
    blocks: u64,
    is_listed: bool,
}

struct Flight {
    grant: Grant,
    generated: u64,
}

/// Plays the history of `seed`; says how many requests were admitted, and how
/// many waiters a reload or a deadline refused.
pub(crate) fn run(seed: u64) -> (u64, u64) {
    let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9) ^ 0x7e10);
    let pool = Admission::new(policy(&mut random));
    let mut history = Reloads {
        random,
        now: Time::ZERO,
        pool,
        places: Vec::new(),
        tenants: BTreeSet::new(),
        waiting: BTreeSet::new(),
        flights: BTreeMap::new(),
        arrived: 0,
        outcome: (0, 0),
    };
    for event in 0..EVENTS {
        history.now = history.now + Duration::from_millis(history.random.between(0, 400));
        let name = history.something_happens();
        history.check(&format!("seed {seed}, event {event}: {name}"));
    }
    history.finish(seed);
    history.outcome
}

fn policy(random: &mut Random) -> PoolPolicy {
    let forecast = ForecastPolicy {
        open_output: Tokens::new(50),
        margin: 0.97,
        ..ForecastPolicy::default()
    };
    PoolPolicy {
        reservation: if random.one_in(3) {
            Reservation::Forecast(forecast)
        } else {
            Reservation::Strict
        },
        queue: QueuePolicy {
            max_requests: u32::try_from(random.between(0, 40)).unwrap(),
            max_tokens: Tokens::new(random.between(100, 20_000)),
            max_bypass: Duration::from_millis(random.between(0, 8000)),
            unserved: if random.one_in(2) {
                Unserved::Wait
            } else {
                Unserved::Refuse
            },
        },
        tiers: TierPolicy {
            long_share: 0.25,
            free_reserve: 0.15,
            long_on_standard: LongOnStandard::WhenNothingLarger,
        },
        dispatch: tidegate::core::dispatch::DispatchPolicy::default(),
        observed_for: Duration::from_secs(5),
    }
}

fn capacity(blocks: u64) -> Capacity {
    Capacity {
        blocks: Blocks::new(blocks),
        block_size: BlockSize::new(16).unwrap(),
        max_model_len: Tokens::new(4096),
        max_num_seqs: None,
        lookahead: Tokens::ZERO,
        prefix_caching: PrefixCaching::PerSequence,
        source: CapacitySource::Configured,
    }
}

fn tenant_policy(random: &mut Random) -> TenantPolicy {
    let share = random.one_in(2).then(|| random.between(100, 3000));
    let places = random.one_in(3).then(|| random.between(0, 8));
    TenantPolicy {
        weight: u32::try_from(random.between(1, 4)).unwrap(),
        max_in_flight: share.map(Tokens::new),
        max_waiting: places.map(|places| u32::try_from(places).unwrap()),
        priority: i32::try_from(random.between(0, 2)).unwrap(),
        in_flight_share: f64::from(u32::try_from(random.between(0, 3)).unwrap()) / 4.0,
    }
}

impl Reloads {
    fn something_happens(&mut self) -> &'static str {
        match self.random.next() % 16 {
            0..=4 => self.submit(),
            5 | 6 => self.end(),
            7 => self.cancel(),
            8 => self.grow(),
            9 => self.add(),
            10 => self.remove(),
            11 => self.come_back(),
            12 => self.change(),
            13 => self.restart(),
            14 => self.retune(),
            _ => self.tenants(),
        }
    }

    fn submit(&mut self) -> &'static str {
        let demand = self.demand();
        let decision = self.pool.decide(self.now, &demand);
        match self.pool.commit(self.now, demand, decision) {
            Verdict::Admit(grant) => self.granted(grant),
            Verdict::Wait(ticket) => assert!(self.waiting.insert(ticket)),
            Verdict::Reject(_) => {}
        }
        "submit"
    }

    fn demand(&mut self) -> Demand {
        let random = &mut self.random;
        let prompt = random.between(1, 700);
        let bound = Tokens::new(random.between(1, 300));
        self.arrived += 1;
        Demand {
            tenant: TenantId(u32::try_from(random.next() % 4).unwrap()),
            arrival: Arrival(self.arrived ^ 5),
            served: ServedId(u32::try_from(random.next() % 2).unwrap()),
            prompts: vec![Tokens::new(prompt)],
            samples: u32::try_from(random.between(1, 2)).unwrap(),
            output: if random.one_in(4) {
                OutputLimit::Open {
                    at_most: Some(bound),
                }
            } else {
                OutputLimit::Asked(bound)
            },
            kind: tidegate::core::demand::Kind::default(),
            work: Work::Generate,
            progress: Progress::Streamed,
            tiers: TierSet::ALL,
            offload: OffloadRule::WhenOnly,
            length: Length::ByFootprint,
            prefix: PrefixChain::default(),
            trail: tidegate::core::prefix::PrefixTrail::default(),
            first_token_by: None,
            deadline: self.now + Duration::from_millis(random.between(1, 20_000)),
        }
    }

    fn granted(&mut self, grant: Grant) {
        let place = self.places.iter().find(|place| place.id == grant.backend);
        assert!(place.is_some_and(|place| place.is_listed), "{grant:?}");
        let state = self.pool.state(self.now);
        let mut backends = state.backends.iter();
        let backend = backends.find(|b| b.id == grant.backend).unwrap();
        let blocks = backend.capacity.unwrap().blocks;
        // Growth since a forecast was made may pass it; a grant never does.
        assert!(grant.blocks <= blocks, "{grant:?} on {blocks}");
        let flight = Flight {
            grant,
            generated: 0,
        };
        self.flights.insert(grant.lease, flight);
        self.outcome.0 += 1;
    }

    fn end(&mut self) -> &'static str {
        let Some(lease) = self.a_lease() else {
            return "nothing to end";
        };
        let flight = self.flights.remove(&lease).unwrap();
        let end = match self.random.next() % 3 {
            0 => End::Cancelled,
            1 => End::Failed,
            _ => End::Finished {
                prompt: Tokens::new(1),
                generated: Tokens::new(flight.generated),
            },
        };
        self.told(|pool, now, out| pool.release(now, lease, end, out));
        "end"
    }

    fn a_lease(&mut self) -> Option<LeaseId> {
        let count = u64::try_from(self.flights.len()).unwrap();
        let at = self.random.next() % count.max(1);
        self.flights
            .keys()
            .nth(usize::try_from(at).unwrap())
            .copied()
    }

    fn cancel(&mut self) -> &'static str {
        if let Some(ticket) = self.waiting.pop_first() {
            self.told(|pool, now, out| pool.cancel(now, ticket, out));
        }
        "cancel"
    }

    fn grow(&mut self) -> &'static str {
        if let Some(lease) = self.a_lease() {
            let more = self.random.between(1, 64);
            let flight = self.flights.get_mut(&lease).unwrap();
            flight.generated += more;
            let generated = Tokens::new(flight.generated);
            self.told(|pool, now, out| pool.on_growth(now, lease, generated, out));
        }
        "grow"
    }

    fn add(&mut self) -> &'static str {
        if self.places.len() < 6 {
            let slot = u32::try_from(self.places.len()).unwrap();
            let tier = self.tier();
            let blocks = self.random.between(20, 150);
            let facts = facts(slot, tier, blocks);
            let id = self.told(|pool, now, out| pool.add_backend(now, facts, out));
            self.places.push(Place {
                id,
                tier,
                blocks,
                is_listed: true,
            });
            self.up(self.places.len() - 1);
        }
        "add"
    }

    fn tier(&mut self) -> Tier {
        Tier::ALL[usize::try_from(self.random.next() % 2).unwrap()]
    }

    /// A backend that joined is found up.
    fn up(&mut self, at: usize) {
        let id = self.places[at].id;
        self.told(|pool, now, out| pool.set_health(now, id, Health::Up, out));
    }

    fn a_place(&mut self, is_listed: bool) -> Option<usize> {
        let matching = |(at, place): (usize, &Place)| (place.is_listed == is_listed).then_some(at);
        let found: Vec<_> = self
            .places
            .iter()
            .enumerate()
            .filter_map(matching)
            .collect();
        let at = self.random.next() % u64::try_from(found.len()).unwrap().max(1);
        found.get(usize::try_from(at).unwrap()).copied()
    }

    fn remove(&mut self) -> &'static str {
        if let Some(at) = self.a_place(true) {
            self.places[at].is_listed = false;
            let id = self.places[at].id;
            self.told(|pool, now, out| pool.remove_backend(now, id, out));
        }
        "remove"
    }

    fn come_back(&mut self) -> &'static str {
        let Some(at) = self.a_place(false) else {
            return "nobody to come back";
        };
        let Place {
            id, tier, blocks, ..
        } = self.places[at];
        let held = self.held(id);
        let facts = facts(id.slot, tier, blocks);
        let again = self.told(|pool, now, out| pool.add_backend(now, facts, out));
        if again == id {
            assert_eq!(self.held(id), held, "a backend came back without its books");
        } else {
            assert_eq!(self.held(again), Blocks::ZERO, "a new life has old books");
        }
        self.places[at].id = again;
        self.places[at].is_listed = true;
        self.up(at);
        "come back"
    }

    fn held(&self, id: BackendId) -> Blocks {
        let state = self.pool.state(self.now);
        let mut backends = state.backends.iter();
        backends
            .find(|backend| backend.id == id)
            .map_or(Blocks::ZERO, |backend| backend.held)
    }

    /// Another size, tier or set of ids.
    fn change(&mut self) -> &'static str {
        if let Some(at) = self.a_place(true) {
            let (tier, blocks) = (self.tier(), self.random.between(10, 150));
            let place = &mut self.places[at];
            (place.tier, place.blocks) = (tier, blocks);
            let id = place.id;
            let serves = (0..2).map(ServedId).collect();
            self.told(|pool, now, out| {
                pool.set_capacity(now, id, capacity(blocks), out);
                pool.set_role(now, id, (tier, serves), out);
            });
        }
        "change"
    }

    fn restart(&mut self) -> &'static str {
        let is_listed = self.random.one_in(2);
        if let Some(at) = self.a_place(is_listed) {
            let id = self.places[at].id;
            let new = self.told(|pool, now, out| pool.on_restart(now, id, out));
            if is_listed {
                self.places[at].id = new;
                self.up(at);
            } else {
                assert_eq!(new, id, "what was removed was taken in again");
            }
        }
        "restart"
    }

    fn retune(&mut self) -> &'static str {
        let policy = policy(&mut self.random);
        self.told(|pool, now, out| pool.set_policy(now, policy, out));
        "retune"
    }

    fn tenants(&mut self) -> &'static str {
        let tenant = TenantId(u32::try_from(self.random.next() % 4).unwrap());
        if self.tenants.contains(&tenant) && self.random.one_in(2) {
            self.tenants.remove(&tenant);
            self.pool.remove_tenant(tenant);
        } else {
            self.tenants.insert(tenant);
            let limits = tenant_policy(&mut self.random);
            self.pool.set_tenant(tenant, limits);
        }
        self.retune();
        "tenants"
    }

    /// Tells the pool something and takes what follows from it, and from the
    /// time that has come.
    fn told<R>(&mut self, fact: impl FnOnce(&mut Admission, Time, &mut Vec<Effect>) -> R) -> R {
        let mut out = Vec::new();
        let result = fact(&mut self.pool, self.now, &mut out);
        let mut again = self.took(out);
        while again {
            let mut out = Vec::new();
            self.pool.handle_timeout(self.now, &mut out);
            again = self.took(out);
        }
        result
    }

    fn took(&mut self, out: Vec<Effect>) -> bool {
        let mut again = false;
        for effect in out {
            match effect {
                Effect::Grant { ticket, grant } => {
                    assert!(self.waiting.remove(&ticket));
                    self.granted(grant);
                }
                Effect::Refuse { ticket, .. } => {
                    assert!(self.waiting.remove(&ticket));
                    self.outcome.1 += 1;
                }
                Effect::Again => again = true,
            }
        }
        again
    }

    fn check(&mut self, when: &str) {
        if self
            .pool
            .poll_timeout(self.now)
            .is_some_and(|due| due <= self.now)
        {
            self.told(Admission::handle_timeout);
        }
        assert!(self.pool.books_are_right(), "{when}");
        let state = self.pool.state(self.now);
        let waiting = usize::try_from(state.queue.requests).unwrap();
        assert_eq!(waiting, self.waiting.len(), "{when}");
        let leases: u32 = state.backends.iter().map(|backend| backend.leases).sum();
        assert_eq!(
            usize::try_from(leases).unwrap(),
            self.flights.len(),
            "{when}"
        );
        for backend in &state.backends {
            let here = self
                .flights
                .values()
                .filter(|f| f.grant.backend == backend.id);
            let granted: Blocks = here.map(|flight| flight.grant.blocks).sum();
            assert!(backend.held >= granted, "{when}: {backend:?}");
        }
        let totals = state.totals;
        let ended = totals.finished + totals.failed + totals.cancelled;
        assert_eq!(totals.admitted, ended + u64::from(leases), "{when}");
        let left = totals.refused + totals.expired + totals.left;
        let received = totals.admitted + left + u64::from(state.queue.requests);
        assert_eq!(totals.received, received, "{when}");
    }

    /// Everybody leaves; nothing is left but what the last configuration names.
    fn finish(&mut self, seed: u64) {
        while !self.waiting.is_empty() {
            self.cancel();
        }
        while !self.flights.is_empty() {
            self.end();
        }
        self.check(&format!("seed {seed}, at the end"));
        let state = self.pool.state(self.now);
        assert!(state.is_idle(), "seed {seed}: {state:?}");
        let listed = self.places.iter().filter(|place| place.is_listed).count();
        assert_eq!(state.backends.len(), listed, "seed {seed}");
    }
}

fn facts(slot: u32, tier: Tier, blocks: u64) -> BackendFacts {
    BackendFacts {
        slot,
        tier,
        serves: (0..2).map(ServedId).collect(),
        capacity: Some(capacity(blocks)),
        health: Health::Starting,
    }
}
