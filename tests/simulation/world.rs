//! One pool and its engines in virtual time: the part a gateway would play.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate::core::admission::{Admission, Effect, End, Grant, Verdict};
use tidegate::core::backend::{
    BackendFacts, BackendId, Capacity, CapacitySource, Health, Observed, PrefixCaching, ServedId,
    Tier,
};
use tidegate::core::demand::Demand;
use tidegate::core::ledger::LeaseId;
use tidegate::core::queue::TicketId;
use tidegate::core::time::Time;
use tidegate::core::units::{Blocks, Tokens};
use tidegate::sim::engine::{Engine, EngineSpec, OnOverflow, RequestId, SimEvent, SimRequest};

/// A request of the history: what it asks and how much it will really generate.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) demand: Demand,
    /// Tokens each sequence generates before it stops by itself.
    pub(crate) output: Tokens,
}

/// A lease in flight.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) job: Job,
    pub(crate) grant: Grant,
    place: usize,
    /// The engine's requests, and how many tokens each of their samples has.
    requests: BTreeMap<RequestId, BTreeMap<u32, Tokens>>,
    live: usize,
}

/// A place for an engine.
pub(crate) struct Place {
    pub(crate) id: BackendId,
    pub(crate) tier: Tier,
    pub(crate) engine: Option<Engine>,
    pub(crate) spec: EngineSpec,
}

/// What a history came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) received: u64,
    pub(crate) admitted: u64,
    pub(crate) refused: u64,
    pub(crate) expired: u64,
    pub(crate) left: u64,
    pub(crate) finished: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
    pub(crate) preemptions: u64,
}

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) pool: Admission,
    pub(crate) places: Vec<Place>,
    pub(crate) waiting: BTreeMap<TicketId, Job>,
    pub(crate) flights: BTreeMap<LeaseId, Flight>,
    pub(crate) outcome: Outcome,
    /// The last events, for the report of a failure.
    pub(crate) log: Vec<String>,
}

impl World {
    pub(crate) fn new(pool: Admission) -> Self {
        Self {
            now: Time::ZERO,
            pool,
            places: Vec::new(),
            waiting: BTreeMap::new(),
            flights: BTreeMap::new(),
            outcome: Outcome::default(),
            log: Vec::new(),
        }
    }

    pub(crate) fn note(&mut self, event: impl FnOnce() -> String) {
        let line = format!(
            "{:>12.6} {}",
            (self.now - Time::ZERO).as_secs_f64(),
            event()
        );
        self.log.push(line);
        if self.log.len() > 40 {
            self.log.remove(0);
        }
    }

    pub(crate) fn capacity(spec: &EngineSpec) -> Capacity {
        Capacity {
            blocks: spec.usable(),
            block_size: spec.block_size,
            max_model_len: spec.max_model_len,
            max_num_seqs: Some(spec.max_num_seqs),
            // Asynchronous scheduling plans one token ahead.
            lookahead: Tokens::new(1) + spec.lookahead,
            prefix_caching: PrefixCaching::PerSequence,
            source: CapacitySource::AdvertisedTokens,
        }
    }

    /// Adds an engine; the pool learns its capacity only with [`Self::learn`].
    pub(crate) fn add_engine(&mut self, tier: Tier, spec: EngineSpec) {
        let facts = BackendFacts {
            slot: u32::try_from(self.places.len()).unwrap(),
            tier,
            serves: vec![ServedId(0)],
            capacity: None,
            health: Health::Starting,
        };
        let mut out = Vec::new();
        let id = self.pool.add_backend(self.now, facts, &mut out);
        self.places.push(Place {
            id,
            tier,
            engine: Some(Engine::new(spec.clone())),
            spec,
        });
        self.apply(out);
    }

    pub(crate) fn learn(&mut self, place: usize) {
        let (id, capacity) = (
            self.places[place].id,
            Self::capacity(&self.places[place].spec),
        );
        let mut out = Vec::new();
        self.pool.set_capacity(self.now, id, capacity, &mut out);
        self.pool.set_health(self.now, id, Health::Up, &mut out);
        self.note(|| format!("engine {place} is up with {} blocks", capacity.blocks));
        self.apply(out);
    }

    pub(crate) fn submit(&mut self, job: Job) {
        self.outcome.received += 1;
        let decision = self.pool.decide(self.now, &job.demand);
        let verdict = self.pool.commit(self.now, job.demand.clone(), decision);
        self.note(|| {
            format!(
                "submit {:?} x{} -> {verdict:?}",
                job.demand.prompts, job.demand.samples
            )
        });
        match verdict {
            Verdict::Admit(grant) => self.fly(job, grant),
            Verdict::Wait(ticket) => {
                self.waiting.insert(ticket, job);
            }
            Verdict::Reject(_) => self.outcome.refused += 1,
        }
    }

    fn fly(&mut self, job: Job, grant: Grant) {
        self.outcome.admitted += 1;
        let place = self
            .places
            .iter()
            .position(|place| place.id == grant.backend);
        let place = place.expect("granted on a backend that is there");
        let engine = self.places[place]
            .engine
            .as_mut()
            .expect("granted on an engine that is up");
        let each = grant.blocks.get() / job.demand.prompts.len() as u64;
        let max_tokens = match grant.max_tokens {
            tidegate::core::admission::MaxTokens::Set(bound) => Some(bound),
            tidegate::core::admission::MaxTokens::AsSent => asked(&job.demand),
        };
        let mut declared = grant.blocks;
        let mut requests = BTreeMap::new();
        for (&prompt, index) in job.demand.prompts.iter().zip(1..) {
            let last = index == job.demand.prompts.len();
            let share = if last { declared } else { Blocks::new(each) };
            declared -= share;
            let declares = engine.spec().on_overflow == OnOverflow::Panic;
            let request = SimRequest {
                samples: job.demand.samples,
                max_tokens,
                output: job.output,
                declared: if declares { share } else { Blocks::ZERO },
                ..SimRequest::new(prompt, job.output)
            };
            requests.insert(engine.add(self.now, request), BTreeMap::new());
        }
        let live = requests.len();
        self.flights.insert(
            grant.lease,
            Flight {
                job,
                grant,
                place,
                requests,
                live,
            },
        );
    }

    /// Plays out what the pool said must follow.
    pub(crate) fn apply(&mut self, mut effects: Vec<Effect>) {
        while !effects.is_empty() {
            let mut more = Vec::new();
            for effect in effects {
                match effect {
                    Effect::Grant { ticket, grant } => {
                        let job = self
                            .waiting
                            .remove(&ticket)
                            .expect("granted to one who waits");
                        self.note(|| format!("grant {ticket:?} {grant:?}"));
                        self.fly(job, grant);
                    }
                    Effect::Refuse { ticket, reject } => {
                        self.waiting
                            .remove(&ticket)
                            .expect("refused to one who waits");
                        match reject.label() {
                            "queue_timeout" => self.outcome.expired += 1,
                            _ => self.outcome.refused += 1,
                        }
                    }
                    Effect::Again => self.pool.handle_timeout(self.now, &mut more),
                }
            }
            effects = more;
        }
    }

    pub(crate) fn release(&mut self, lease: LeaseId, end: End) {
        let flight = self.flights.remove(&lease).expect("a flight ends once");
        if let Some(engine) = self.places[flight.place].engine.as_mut() {
            for &request in flight.requests.keys() {
                engine.abort(self.now, request);
            }
        }
        match end {
            End::Finished { .. } => self.outcome.finished += 1,
            End::Cancelled => self.outcome.cancelled += 1,
            End::Failed => self.outcome.failed += 1,
        }
        self.note(|| format!("release {lease:?} {end:?}"));
        let mut out = Vec::new();
        self.pool.release(self.now, lease, end, &mut out);
        self.apply(out);
    }

    pub(crate) fn leave(&mut self, ticket: TicketId) {
        self.waiting.remove(&ticket).expect("leaves while waiting");
        self.outcome.left += 1;
        self.note(|| format!("leave {ticket:?}"));
        let mut out = Vec::new();
        self.pool.cancel(self.now, ticket, &mut out);
        self.apply(out);
    }

    /// The engine at `place` dies: its streams fail, the probe sees it down.
    pub(crate) fn kill(&mut self, place: usize) {
        self.note(|| format!("engine {place} dies"));
        if let Some(engine) = self.places[place].engine.take() {
            self.outcome.preemptions += engine.stats().preemptions;
        }
        let mut out = Vec::new();
        self.pool
            .set_health(self.now, self.places[place].id, Health::Down, &mut out);
        self.apply(out);
        let lost = self
            .flights
            .iter()
            .filter(|(_, flight)| flight.place == place)
            .map(|(&lease, _)| lease);
        for lease in lost.collect::<Vec<_>>() {
            self.release(lease, End::Failed);
        }
    }

    /// It comes back, with another pool if `spec` says so.
    pub(crate) fn restart(&mut self, place: usize, spec: EngineSpec) {
        self.note(|| format!("engine {place} restarts"));
        let mut out = Vec::new();
        self.places[place].id = self
            .pool
            .on_restart(self.now, self.places[place].id, &mut out);
        self.apply(out);
        self.places[place].engine = Some(Engine::new(spec.clone()));
        self.places[place].spec = spec;
        self.learn(place);
    }

    pub(crate) fn scrape(&mut self, place: usize) {
        let Some(engine) = &self.places[place].engine else {
            return;
        };
        let stats = engine.stats();
        let seen = Observed {
            at: self.now,
            used: stats.used,
            running: stats.running,
            waiting: stats.waiting,
            preemptions: stats.preemptions,
        };
        let mut out = Vec::new();
        self.pool
            .on_observed(self.now, self.places[place].id, seen, &mut out);
        self.apply(out);
    }

    /// When something happens next by itself.
    pub(crate) fn next_event(&self) -> Option<Time> {
        let engines = self
            .places
            .iter()
            .filter_map(|place| place.engine.as_ref()?.next_step());
        engines.chain(self.pool.poll_timeout(self.now)).min()
    }

    /// Plays what is due at `self.now`: one engine's step or one timeout.
    pub(crate) fn play_due(&mut self) {
        let now = self.now;
        if self.pool.poll_timeout(now).is_some_and(|due| due <= now) {
            let mut out = Vec::new();
            self.pool.handle_timeout(now, &mut out);
            return self.apply(out);
        }
        let is_due = |place: &Place| {
            place
                .engine
                .as_ref()
                .and_then(Engine::next_step)
                .is_some_and(|due| due <= now)
        };
        if let Some(place) = self.places.iter().position(is_due) {
            let mut events = Vec::new();
            self.places[place]
                .engine
                .as_mut()
                .unwrap()
                .step(now, &mut events);
            for event in events {
                self.on_engine(place, event);
            }
        }
    }

    fn on_engine(&mut self, place: usize, event: SimEvent) {
        let owner = |request: &RequestId| {
            let mut flights = self.flights.iter();
            let found = flights
                .find(|(_, flight)| flight.place == place && flight.requests.contains_key(request));
            found.map(|(&lease, _)| lease)
        };
        match event {
            SimEvent::Tokens {
                request,
                sample,
                total,
                ..
            } => {
                let Some(lease) = owner(&request) else { return };
                let flight = self.flights.get_mut(&lease).unwrap();
                flight
                    .requests
                    .get_mut(&request)
                    .unwrap()
                    .insert(sample, total);
                let all = flight
                    .requests
                    .values()
                    .flat_map(BTreeMap::values)
                    .copied()
                    .sum();
                let mut out = Vec::new();
                self.pool.on_growth(self.now, lease, all, &mut out);
                self.apply(out);
            }
            SimEvent::Ended { request, .. } => {
                let Some(lease) = owner(&request) else { return };
                let flight = self.flights.get_mut(&lease).unwrap();
                flight.live -= 1;
                if flight.live == 0 {
                    let generated = flight
                        .requests
                        .values()
                        .flat_map(BTreeMap::values)
                        .copied()
                        .sum();
                    let prompt = flight.job.demand.prompt_total();
                    self.release(lease, End::Finished { prompt, generated });
                }
            }
            _ => {}
        }
    }

    /// Preemptions of all engines, dead ones included.
    pub(crate) fn preemptions(&self) -> u64 {
        let live = self.places.iter().filter_map(|place| place.engine.as_ref());
        self.outcome.preemptions + live.map(|engine| engine.stats().preemptions).sum::<u64>()
    }

    pub(crate) fn advance(&mut self, wait: Duration) {
        self.now = self.now + wait;
    }
}

/// The output bound a client sent.
fn asked(demand: &Demand) -> Option<Tokens> {
    match demand.output {
        tidegate::core::demand::OutputLimit::Asked(bound) => Some(bound),
        tidegate::core::demand::OutputLimit::Open { .. } => None,
    }
}
