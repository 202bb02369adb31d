//! The world of one run: engines, clock and clients around a gateway.
//!
//! Decides what happens next and when; what to do about it is the gateway's. Every call
//! has one state, and it ends in one outcome. Events of one instant happen in this order:
//! arrivals, crashes and returns, steps of engines, scrapes, timeouts of the gateway.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use super::Run;
use super::gateway::{Gateway, Order, Reach, Scrape};
use super::place::{Origin, Place};
use super::record::{Outcome, Promise, Record, Return};
use crate::core::admission::End;
use crate::core::reject::Reject;
use crate::core::time::Time;
use crate::core::units::Tokens;
use crate::sim::engine::{RequestId, SimEvent, SimRequest};
use crate::sim::random::Random;

/// Timeouts of a gateway handled at one instant before it counts as stuck.
const STUCK: u32 = 1_000_000;

pub(super) struct World<'a> {
    run: Run<'a>,
    gateway: Box<dyn Gateway + 'a>,
    now: Time,
    /// The first call that has not arrived.
    next_call: usize,
    places: Vec<Place>,
    due: BinaryHeap<Reverse<(Time, Due)>>,
    calls: Vec<State>,
    promises: Vec<Promise>,
    /// Refusals so far, and those whose calls come back.
    refused: u32,
    returns: Vec<Return>,
    /// Of calls that have come back: which return it is.
    back: HashMap<usize, usize>,
    /// Calls that have not ended, or will come back.
    open: usize,
    foreign: Random,
    next_foreign: usize,
    orders: Vec<Order>,
    events: Vec<SimEvent>,
    /// Scrapes on their way, oldest first.
    scrapes: Vec<Option<Scrape>>,
    repeats: u32,
}

/// What is due at an instant, in the order of one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Crash { crash: usize },
    Back { crash: usize },
    Return { place: usize },
    Step { node: usize },
    Scrape { node: usize },
    Seen { scrape: usize },
}

/// Where a call is.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Not arrived, or in the gateway.
    Waiting {
        promise: Option<usize>,
    },
    Flying(Flight),
    Ended(Outcome),
}

/// A call in an engine.
#[derive(Clone, Copy, Debug)]
struct Flight {
    node: usize,
    sent: Time,
    first_token: Option<Time>,
    cached: Tokens,
    generated: Tokens,
    /// Growth is told to the gateway when it reaches this.
    next_report: Tokens,
    preempted: u32,
}

// === impl World ===

impl<'a> World<'a> {
    pub(super) fn new(run: Run<'a>, gateway: Box<dyn Gateway + 'a>) -> Self {
        let mut world = Self {
            gateway,
            now: Time::ZERO,
            next_call: 0,
            places: run.fleet.nodes.iter().map(Place::new).collect(),
            due: BinaryHeap::new(),
            calls: vec![State::Waiting { promise: None }; run.calls.len()],
            promises: Vec::new(),
            refused: 0,
            returns: Vec::new(),
            back: HashMap::new(),
            open: run.calls.len(),
            foreign: Random::new(run.seed).fork(1),
            next_foreign: 0,
            orders: Vec::new(),
            events: Vec::new(),
            scrapes: Vec::new(),
            repeats: 0,
            run,
        };
        for (index, crash) in run.conditions.crashes.iter().enumerate() {
            world.at(crash.at, Due::Crash { crash: index });
            world.at(crash.back, Due::Back { crash: index });
        }
        if let Some(every) = world.gateway.scrapes() {
            let nodes = u32::try_from(world.places.len()).unwrap_or(u32::MAX);
            for (node, turn) in (0..world.places.len()).zip(1..) {
                // Not all at one instant: no prober does that.
                world.at(Time::ZERO + every * turn / nodes, Due::Scrape { node });
            }
        }
        world
    }

    /// Plays to the end; `progress` is told the time whenever it has moved on a second.
    pub(super) fn play(mut self, progress: &mut dyn FnMut(Time)) -> Record {
        let last = self.run.calls.last().map_or(Time::ZERO, |call| call.at);
        let end = last + self.run.conditions.drain;
        let mut told = Time::ZERO;
        while self.open > 0 {
            let Some(next) = self.next_instant().filter(|&next| next <= end) else {
                break;
            };
            self.repeats = if next > self.now { 0 } else { self.repeats };
            self.now = self.now.max(next);
            self.play_one();
            if self.now - told >= Duration::from_secs(1) {
                told = self.now;
                progress(told);
            }
        }
        self.close()
    }

    fn next_instant(&self) -> Option<Time> {
        let arrival = self.run.calls.get(self.next_call).map(|call| call.at);
        let due = self.due.peek().map(|&Reverse((at, _))| at);
        let timeout = self.gateway.poll_timeout(self.now);
        [arrival, due, timeout].into_iter().flatten().min()
    }

    /// Plays one thing that is due now.
    fn play_one(&mut self) {
        let now = self.now;
        let arrival = self.run.calls.get(self.next_call);
        if arrival.is_some_and(|call| call.at <= now) {
            self.next_call += 1;
            return self.arrive(self.next_call - 1);
        }
        let due = self.due.peek().copied();
        if let Some(Reverse((_, what))) = due.filter(|&Reverse((at, _))| at <= now) {
            self.due.pop();
            return self.play_due(what);
        }
        self.repeats += 1;
        assert!(self.repeats < STUCK, "the gateway is stuck at {now:?}");
        self.tell(|gateway, orders| gateway.handle_timeout(now, orders));
    }

    fn play_due(&mut self, what: Due) {
        let now = self.now;
        match what {
            Due::Crash { crash } => self.crash(self.run.conditions.crashes[crash].node),
            Due::Back { crash } => {
                let node = self.run.conditions.crashes[crash].node;
                self.places[node].restart(now);
                self.tell(|gateway, orders| gateway.on_reach(now, node, Reach::Up, orders));
            }
            Due::Return { place } => self.come_back(place),
            Due::Step { node } => self.step(node),
            Due::Scrape { node } => self.scrape(node),
            Due::Seen { scrape } => {
                if let Some(scrape) = self.scrapes[scrape].take() {
                    self.tell(|gateway, orders| gateway.on_scrape(now, scrape, orders));
                }
            }
        }
    }

    fn arrive(&mut self, call: usize) {
        let now = self.now;
        if self.run.conditions.foreign > 0.0 && self.foreign.unit() < self.run.conditions.foreign {
            return self.arrive_past_the_gateway(call);
        }
        self.tell(|gateway, orders| gateway.on_call(now, call, orders));
    }

    fn arrive_past_the_gateway(&mut self, call: usize) {
        let prompt = self.run.calls[call].prompt;
        let count = self.places.len();
        let turns = (0..count).map(|turn| (self.next_foreign + turn) % count);
        let holding = |&node: &usize| self.places[node].holds(prompt);
        if let Some(node) = turns.into_iter().find(holding) {
            self.next_foreign = node + 1;
            self.add(call, node, Origin::Foreign);
        }
        self.end(call, Outcome::Foreign);
    }

    /// Tells the gateway a fact and does what it says.
    fn tell(&mut self, fact: impl FnOnce(&mut dyn Gateway, &mut Vec<Order>)) {
        let mut orders = std::mem::take(&mut self.orders);
        fact(&mut *self.gateway, &mut orders);
        for order in orders.drain(..) {
            self.obey(order);
        }
        self.orders = orders;
    }

    fn obey(&mut self, order: Order) {
        let now = self.now;
        match order {
            Order::Send { call, node, bound } => {
                let State::Waiting { promise } = self.calls[call] else {
                    panic!("call {call} is sent twice, or after its end");
                };
                if let Some(promise) = promise {
                    let promise = &mut self.promises[promise];
                    promise.waited = Some(now - promise.at);
                }
                self.calls[call] = State::Flying(Flight {
                    node,
                    sent: now,
                    first_token: None,
                    cached: Tokens::ZERO,
                    generated: Tokens::ZERO,
                    next_report: Tokens::new(1),
                    preempted: 0,
                });
                if self.places[node].holds(self.run.calls[call].prompt) {
                    self.add(call, node, Origin::Ours { bound });
                } else {
                    self.turn_down(call, node);
                }
            }
            Order::Refuse { call, reject } => self.refuse(call, reject),
            Order::Expect { call, q50, q80 } => {
                let promise = Promise {
                    call,
                    at: now,
                    q50,
                    q80,
                    waited: None,
                };
                self.calls[call] = State::Waiting {
                    promise: Some(self.promises.len()),
                };
                self.promises.push(promise);
            }
        }
    }

    fn refuse(&mut self, call: usize, reject: Reject) {
        let now = self.now;
        let outcome = Outcome::Refused { at: now, reject };
        self.end(call, outcome);
        let (Some(every), Some(told)) = (self.run.conditions.returning, reject.retry_after())
        else {
            return;
        };
        if self.back.contains_key(&call) {
            return;
        }
        self.refused += 1;
        if self.refused.is_multiple_of(every.get()) {
            self.open += 1;
            self.at(
                now + told,
                Due::Return {
                    place: self.returns.len(),
                },
            );
            self.returns.push(Return {
                call,
                refused: now,
                told,
                outcome,
            });
        }
    }

    /// Asks once more. Until it ends what became of it at first is kept with its return.
    fn come_back(&mut self, place: usize) {
        let (now, call) = (self.now, self.returns[place].call);
        self.back.insert(call, place);
        self.calls[call] = State::Waiting { promise: None };
        self.tell(|gateway, orders| gateway.on_return(now, call, orders));
    }

    /// The engine does not take a prompt that its context does not hold: somebody
    /// has counted too few tokens.
    fn turn_down(&mut self, call: usize, node: usize) {
        let now = self.now;
        self.end(call, Outcome::Failed { at: now, node });
        self.tell(|gateway, orders| gateway.on_end(now, call, End::Failed, orders));
    }

    fn add(&mut self, call: usize, node: usize, origin: Origin) {
        let asked = &self.run.calls[call];
        let place = &mut self.places[node];
        let request = SimRequest {
            prefix: asked.prefix(place.spec.block_size),
            max_tokens: match origin {
                Origin::Ours { bound } => bound,
                Origin::Foreign => asked.asked,
            },
            ..SimRequest::new(asked.prompt, asked.output)
        };
        place.add(self.now, (call, origin), request);
        self.reschedule(node);
    }

    fn step(&mut self, node: usize) {
        let now = self.now;
        self.places[node].scheduled = None;
        let mut events = std::mem::take(&mut self.events);
        self.places[node].step(now, &mut events);
        self.reschedule(node);
        for event in events.drain(..) {
            self.on_engine(node, event);
        }
        self.events = events;
    }

    /// Puts the engine's next step into the calendar, if it is not there.
    fn reschedule(&mut self, node: usize) {
        let place = &mut self.places[node];
        let next = place.next_step();
        if let Some(at) = next.filter(|&at| place.scheduled != Some(at)) {
            place.scheduled = Some(at);
            self.at(at, Due::Step { node });
        }
    }

    fn on_engine(&mut self, node: usize, event: SimEvent) {
        match event {
            SimEvent::FirstToken {
                request, cached, ..
            } => {
                if let Some((_, flight)) = self.flight(node, request) {
                    flight.cached = cached;
                }
            }
            SimEvent::Tokens { request, total, .. } => self.on_tokens(node, request, total),
            SimEvent::Preempted { request, .. } => {
                if let Some((_, flight)) = self.flight(node, request) {
                    flight.preempted += 1;
                }
            }
            SimEvent::Ended { request, .. } => self.on_ended(node, request),
            SimEvent::Started { .. } | SimEvent::Finished { .. } => {}
        }
    }

    fn on_tokens(&mut self, node: usize, request: RequestId, total: Tokens) {
        let now = self.now;
        let block = Tokens::new(u64::from(self.places[node].spec.block_size.get()));
        let Some((call, flight)) = self.flight(node, request) else {
            return;
        };
        flight.first_token.get_or_insert(now);
        flight.generated = total;
        if total < flight.next_report {
            return;
        }
        flight.next_report = total + block;
        self.tell(|gateway, orders| gateway.on_tokens(now, call, total, orders));
    }

    fn on_ended(&mut self, node: usize, request: RequestId) {
        let now = self.now;
        let Some((call, flight)) = self.flight(node, request) else {
            return;
        };
        let flight = *flight;
        let prompt = self.run.calls[call].prompt;
        let outcome = Outcome::Finished {
            first_token: flight.first_token.unwrap_or(now),
            end: now,
            generated: flight.generated,
            cached: flight.cached,
            node,
            queued: flight.sent - self.run.calls[call].at,
            preempted: flight.preempted,
        };
        self.end(call, outcome);
        let end = End::Finished {
            prompt,
            generated: flight.generated,
        };
        self.tell(|gateway, orders| gateway.on_end(now, call, end, orders));
    }

    fn scrape(&mut self, node: usize) {
        let every = self.gateway.scrapes().expect("only who scrapes is due to");
        self.at(self.now + every, Due::Scrape { node });
        let Some(stats) = self.places[node].stats() else {
            return;
        };
        let scrape = Scrape {
            node,
            at: self.now,
            stats,
        };
        if self.run.conditions.scrape_age.is_zero() {
            let now = self.now;
            return self.tell(|gateway, orders| gateway.on_scrape(now, scrape, orders));
        }
        self.scrapes.push(Some(scrape));
        let scrape = self.scrapes.len() - 1;
        let seen = self.now + self.run.conditions.scrape_age;
        self.at(seen, Due::Seen { scrape });
    }

    fn crash(&mut self, node: usize) {
        let now = self.now;
        let lost = self.places[node].crash(now);
        self.tell(|gateway, orders| gateway.on_reach(now, node, Reach::Down, orders));
        for call in lost {
            let State::Flying(flight) = self.calls[call] else {
                continue;
            };
            // What had no token yet is sent elsewhere, as the live gateway does.
            match flight.first_token {
                Some(_) => self.end(call, Outcome::Failed { at: now, node }),
                None => self.calls[call] = State::Waiting { promise: None },
            }
            self.tell(|gateway, orders| gateway.on_end(now, call, End::Failed, orders));
            if flight.first_token.is_none() {
                self.tell(|gateway, orders| gateway.on_call(now, call, orders));
            }
        }
    }

    fn flight(&mut self, node: usize, request: RequestId) -> Option<(usize, &mut Flight)> {
        let (call, origin) = self.places[node].owner(request);
        match (&mut self.calls[call], origin) {
            (State::Flying(flight), Origin::Ours { .. }) if flight.node == node => {
                Some((call, flight))
            }
            _ => None,
        }
    }

    fn end(&mut self, call: usize, outcome: Outcome) {
        assert!(
            !matches!(self.calls[call], State::Ended(_)),
            "call {call} ends twice"
        );
        self.calls[call] = State::Ended(outcome);
        self.open -= 1;
    }

    fn at(&mut self, at: Time, what: Due) {
        if at < Time::NEVER {
            self.due.push(Reverse((at, what)));
        }
    }

    fn close(self) -> Record {
        let (now, places) = (self.now, self.places);
        let outcomes = self.calls.into_iter().map(|state| match state {
            State::Ended(outcome) => outcome,
            State::Waiting { .. } => Outcome::Unfinished { first_token: None },
            State::Flying(flight) => Outcome::Unfinished {
                first_token: flight.first_token,
            },
        });
        let mut outcomes: Vec<Outcome> = outcomes.collect();
        let mut returns = self.returns;
        returns.retain(|returned| self.back.contains_key(&returned.call));
        for returned in &mut returns {
            std::mem::swap(&mut returned.outcome, &mut outcomes[returned.call]);
        }
        Record {
            outcomes,
            promises: self.promises,
            returns,
            nodes: places.into_iter().map(|place| place.close(now)).collect(),
            until: now,
        }
    }
}
