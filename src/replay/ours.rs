//! Ours: the shipped core behind the replay's door, as the gate keeps it live.
//!
//! Translates calls into demands and effects into orders, and decides nothing. It tells
//! the core what the live gateway tells it: growth once a KV block, scrapes, ends.

use std::collections::HashMap;
use std::time::Duration;

use super::Run;
use super::gateway::{Gateway, Order, Reach, Scrape};
use super::policy::{Beginnings, Lengths, Ours};
use super::setup::Call;
use crate::core::admission::{Admission, Decision, Effect, End, Grant, MaxTokens, Verdict};
use crate::core::backend::{
    BackendFacts, BackendId, Capacity, CapacitySource, Health, Observed, ServedId, TierSet,
};
use crate::core::demand::{Arrival, Demand, Length, OffloadRule, OutputLimit, Progress, Work};
use crate::core::ledger::LeaseId;
use crate::core::prefix::{PrefixChain, PrefixHash, PrefixTrail};
use crate::core::queue::TicketId;
use crate::core::time::Time;
use crate::core::units::{Blocks, Tokens};
use crate::sim::engine::{EngineSpec, Scheduling};

pub(super) struct OurGateway<'a> {
    run: Run<'a>,
    ours: &'a Ours,
    pool: Admission,
    backends: Vec<BackendId>,
    /// The longest context of the fleet.
    window: Tokens,
    waiting: HashMap<TicketId, usize>,
    /// When calls came back, and behind which in the order of arrival.
    back: HashMap<usize, (Time, Arrival)>,
    latest: Arrival,
    leases: HashMap<usize, LeaseId>,
}

// === impl OurGateway ===

impl<'a> OurGateway<'a> {
    pub(super) fn new(run: Run<'a>, ours: &'a Ours) -> Self {
        let mut policy = ours.pool.clone();
        // What the operator of this fleet has promised.
        let promised = run.fleet.slo.token_pace;
        policy.dispatch.token_pace.get_or_insert(promised);
        let mut pool = Admission::new(policy);
        for (&tenant, &policy) in &ours.tenants {
            pool.set_tenant(tenant, policy);
        }
        let mut effects = Vec::new();
        let nodes = run.fleet.nodes.iter().zip(0..);
        let backends = nodes.map(|(node, slot)| {
            let facts = BackendFacts {
                slot,
                tier: node.tier,
                serves: vec![ServedId(0)],
                capacity: Some(believed(&node.spec, run.conditions.capacity_error)),
                health: Health::Up,
            };
            pool.add_backend(Time::ZERO, facts, &mut effects)
        });
        let backends = backends.collect();
        let windows = run.fleet.nodes.iter().map(|node| node.spec.max_model_len);
        Self {
            window: windows.max().unwrap_or(Tokens::ZERO),
            run,
            ours,
            pool,
            backends,
            waiting: HashMap::new(),
            back: HashMap::new(),
            latest: Arrival(0),
            leases: HashMap::new(),
        }
    }

    fn demand(&self, call: usize) -> Demand {
        let asked = &self.run.calls[call];
        let within = self.run.fleet.slo.first_token_within(asked.prompt);
        let back = self.back.get(&call).copied();
        let (came, arrival) = back.unwrap_or((asked.at, arrival(call)));
        Demand {
            tenant: asked.tenant,
            arrival,
            served: ServedId(0),
            prompts: vec![counted(asked.prompt, self.run.conditions.token_error)],
            samples: 1,
            output: match self.ours.lengths {
                Lengths::True => OutputLimit::Asked(asked.generates(self.window)),
                Lengths::Learned => asked
                    .asked
                    .map_or(OutputLimit::Open { at_most: None }, OutputLimit::Asked),
            },
            kind: asked.kind,
            work: Work::Generate,
            progress: Progress::Streamed,
            tiers: TierSet::ALL,
            offload: OffloadRule::WhenOnly,
            length: Length::ByFootprint,
            prefix: PrefixChain::default(),
            trail: match self.ours.beginnings {
                Beginnings::Told => trail(asked),
                Beginnings::Untold => PrefixTrail::default(),
            },
            first_token_by: Some(came + within),
            deadline: came + within.max(self.ours.max_wait),
        }
    }

    fn send(&mut self, call: usize, grant: &Grant) -> Order {
        self.leases.insert(call, grant.lease);
        let place = |&backend: &BackendId| backend == grant.backend;
        let node = self.backends.iter().position(place);
        Order::Send {
            call,
            node: node.expect("granted on a backend of this pool"),
            bound: match grant.max_tokens {
                MaxTokens::Set(bound) => Some(bound),
                MaxTokens::AsSent => match self.ours.lengths {
                    Lengths::Learned => self.run.calls[call].asked,
                    Lengths::True => Some(self.run.calls[call].generates(self.window)),
                },
            },
        }
    }

    /// Turns what the core said must follow into orders, the drain's next steps included.
    fn apply(&mut self, now: Time, mut effects: Vec<Effect>, out: &mut Vec<Order>) {
        let mut again = true;
        while again {
            again = false;
            for effect in std::mem::take(&mut effects) {
                match effect {
                    Effect::Grant { ticket, grant } => {
                        let call = self.leave(ticket);
                        let order = self.send(call, &grant);
                        out.push(order);
                    }
                    Effect::Refuse { ticket, reject } => {
                        let call = self.leave(ticket);
                        out.push(Order::Refuse { call, reject });
                    }
                    Effect::Again => again = true,
                }
            }
            if again {
                self.pool.handle_timeout(now, &mut effects);
            }
        }
    }

    fn leave(&mut self, ticket: TicketId) -> usize {
        self.waiting
            .remove(&ticket)
            .expect("a ticket waits until it is answered")
    }
}

impl Gateway for OurGateway<'_> {
    fn scrapes(&self) -> Option<Duration> {
        Some(self.run.conditions.scrape)
    }

    fn on_call(&mut self, now: Time, call: usize, out: &mut Vec<Order>) {
        self.latest = self.latest.max(arrival(call));
        let demand = self.demand(call);
        let decision = self.pool.decide(now, &demand);
        match self.pool.commit(now, demand, decision) {
            Verdict::Admit(grant) => {
                let order = self.send(call, &grant);
                out.push(order);
            }
            Verdict::Wait(ticket) => {
                self.waiting.insert(ticket, call);
                let predicted = match decision {
                    Decision::Wait { predicted, .. } => Some(predicted),
                    Decision::Admit(_) | Decision::Reject(_) => None,
                };
                out.push(Order::Expect {
                    call,
                    q50: predicted.map(|predicted| predicted.q50),
                    q80: predicted.map(|predicted| predicted.q80),
                });
            }
            Verdict::Reject(reject) => out.push(Order::Refuse { call, reject }),
        }
    }

    fn on_return(&mut self, now: Time, call: usize, out: &mut Vec<Order>) {
        self.back.insert(call, (now, self.latest));
        self.on_call(now, call, out);
    }

    fn on_tokens(&mut self, now: Time, call: usize, generated: Tokens, out: &mut Vec<Order>) {
        let lease = self.leases[&call];
        let mut effects = Vec::new();
        self.pool.on_growth(now, lease, generated, &mut effects);
        self.apply(now, effects, out);
    }

    fn on_end(&mut self, now: Time, call: usize, end: End, out: &mut Vec<Order>) {
        let lease = self
            .leases
            .remove(&call)
            .expect("a call that was sent holds a lease");
        let mut effects = Vec::new();
        self.pool.release(now, lease, end, &mut effects);
        self.apply(now, effects, out);
    }

    fn on_scrape(&mut self, now: Time, scrape: Scrape, out: &mut Vec<Order>) {
        let seen = Observed {
            at: scrape.at,
            used: scrape.stats.used,
            running: scrape.stats.running,
            waiting: scrape.stats.waiting,
            preemptions: scrape.stats.preemptions_told,
        };
        let mut effects = Vec::new();
        self.pool
            .on_observed(now, self.backends[scrape.node], seen, &mut effects);
        self.apply(now, effects, out);
    }

    fn on_reach(&mut self, now: Time, node: usize, reach: Reach, out: &mut Vec<Order>) {
        let mut effects = Vec::new();
        let id = self.backends[node];
        match reach {
            Reach::Down => self.pool.set_health(now, id, Health::Down, &mut effects),
            Reach::Up => {
                let id = self.pool.on_restart(now, id, &mut effects);
                self.backends[node] = id;
                self.pool.set_health(now, id, Health::Up, &mut effects);
            }
        }
        self.apply(now, effects, out);
    }

    fn poll_timeout(&self, now: Time) -> Option<Time> {
        self.pool.poll_timeout(now)
    }

    fn handle_timeout(&mut self, now: Time, out: &mut Vec<Order>) {
        let mut effects = Vec::new();
        self.pool.handle_timeout(now, &mut effects);
        self.apply(now, effects, out);
    }
}

fn arrival(call: usize) -> Arrival {
    Arrival(u64::try_from(call).unwrap_or(u64::MAX))
}

/// What the gateway takes an engine's capacity to be, `error` too large.
fn believed(spec: &EngineSpec, error: f64) -> Capacity {
    Capacity {
        blocks: Blocks::new(counted(Tokens::new(spec.usable().get()), error).get()),
        block_size: spec.block_size,
        max_model_len: spec.max_model_len,
        max_num_seqs: Some(spec.max_num_seqs),
        lookahead: spec.lookahead
            + match spec.scheduling {
                Scheduling::Sync => Tokens::ZERO,
                Scheduling::Async => Tokens::new(1),
            },
        prefix_caching: spec.prefix_caching,
        source: CapacitySource::AdvertisedTokens,
    }
}

/// `true_count` with a relative `error`, at least 1.
fn counted(true_count: Tokens, error: f64) -> Tokens {
    let more = true_count.share(error.abs());
    if error < 0.0 {
        true_count.saturating_sub(more).max(Tokens::new(1))
    } else {
        true_count + more
    }
}

/// The prompt's beginnings of whole chunks.
fn trail(call: &Call) -> PrefixTrail {
    let whole = call.prompt.get() / Call::CHUNK.get();
    let whole = usize::try_from(whole).unwrap_or(usize::MAX);
    let hashes = call.chunks.iter().take(whole).map(|&id| PrefixHash(id));
    PrefixTrail::new(hashes.collect::<Vec<_>>())
}
