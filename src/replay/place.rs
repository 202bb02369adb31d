//! One engine of a run, its requests, and what it has done over all its lives.

use super::record::NodeRecord;
use super::setup::Node;
use crate::core::time::Time;
use crate::core::units::{Blocks, Tokens};
use crate::sim::engine::{Engine, EngineSpec, EngineStats, RequestId, SimEvent, SimRequest};

pub(super) struct Place {
    pub(super) spec: EngineSpec,
    /// When its next step is in the calendar.
    pub(super) scheduled: Option<Time>,
    engine: Option<Engine>,
    /// The call of each request of this life, by request number.
    owners: Vec<(usize, Origin)>,
    /// Counters of lives that ended.
    past: EngineStats,
    kv_token_seconds: f64,
    used: Blocks,
    since: Time,
    up: std::time::Duration,
    sent: u64,
}

/// How a request came to an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// From the gateway, with the `max_tokens` it wrote.
    Ours { bound: Option<Tokens> },
    /// Past it.
    Foreign,
}

// === impl Place ===

impl Place {
    pub(super) fn new(node: &Node) -> Self {
        Self {
            engine: Some(Engine::new(node.spec.clone())),
            spec: node.spec.clone(),
            scheduled: None,
            owners: Vec::new(),
            past: EngineStats::default(),
            kv_token_seconds: 0.0,
            used: Blocks::ZERO,
            since: Time::ZERO,
            up: std::time::Duration::ZERO,
            sent: 0,
        }
    }

    /// Whether it is up and a prompt leaves room for a token.
    pub(super) fn holds(&self, prompt: Tokens) -> bool {
        self.engine.is_some() && prompt < self.spec.max_model_len
    }

    pub(super) fn add(&mut self, now: Time, owner: (usize, Origin), request: SimRequest) {
        let engine = self
            .engine
            .as_mut()
            .expect("nothing is sent to an engine that is down");
        let id = engine.add(now, request);
        debug_assert_eq!(Ok(self.owners.len()), usize::try_from(id.0));
        self.owners.push(owner);
        self.sent += u64::from(owner.1 != Origin::Foreign);
    }

    pub(super) fn owner(&self, request: RequestId) -> (usize, Origin) {
        let place = usize::try_from(request.0).expect("requests fit in memory");
        self.owners[place]
    }

    pub(super) fn next_step(&self) -> Option<Time> {
        self.engine.as_ref()?.next_step()
    }

    pub(super) fn step(&mut self, now: Time, out: &mut Vec<SimEvent>) {
        let Some(engine) = self.engine.as_mut() else {
            return;
        };
        engine.step(now, out);
        let used = engine.used();
        self.account(now);
        self.used = used;
    }

    pub(super) fn stats(&self) -> Option<EngineStats> {
        self.engine.as_ref().map(Engine::stats)
    }

    /// Dies; the calls it had, in order of arrival, ended ones among them.
    pub(super) fn crash(&mut self, now: Time) -> Vec<usize> {
        self.account(now);
        self.used = Blocks::ZERO;
        self.scheduled = None;
        if let Some(engine) = self.engine.take() {
            self.past = sum(&self.past, &engine.stats());
        }
        let owners = std::mem::take(&mut self.owners).into_iter();
        owners
            .filter(|&(_, origin)| origin != Origin::Foreign)
            .map(|(call, _)| call)
            .collect()
    }

    pub(super) fn restart(&mut self, now: Time) {
        self.account(now);
        self.engine = Some(Engine::new(self.spec.clone()));
    }

    pub(super) fn close(mut self, now: Time) -> NodeRecord {
        self.account(now);
        let last = self.engine.as_ref().map(Engine::stats).unwrap_or_default();
        NodeRecord {
            stats: sum(&self.past, &last),
            kv_token_seconds: self.kv_token_seconds,
            pool: self.spec.usable().tokens(self.spec.block_size),
            up: self.up,
            sent: self.sent,
        }
    }

    /// Adds up what was held until `now`.
    fn account(&mut self, now: Time) {
        let passed = now - self.since;
        self.since = now;
        self.kv_token_seconds +=
            self.used.tokens(self.spec.block_size).as_f64() * passed.as_secs_f64();
        if self.engine.is_some() {
            self.up += passed;
        }
    }
}

/// Counters of one life added to those of another; levels are the later life's.
fn sum(one: &EngineStats, other: &EngineStats) -> EngineStats {
    EngineStats {
        peak_used: one.peak_used.max(other.peak_used),
        declared_overflows: one.declared_overflows + other.declared_overflows,
        steps: one.steps + other.steps,
        preemptions: one.preemptions + other.preemptions,
        preemptions_told: one.preemptions_told + other.preemptions_told,
        recomputed: one.recomputed + other.recomputed,
        discarded: one.discarded + other.discarded,
        prefilled: one.prefilled + other.prefilled,
        prompt: one.prompt + other.prompt,
        generated: one.generated + other.generated,
        prefix_queries: one.prefix_queries + other.prefix_queries,
        prefix_hits: one.prefix_hits + other.prefix_hits,
        stopped: one.stopped + other.stopped,
        length_limited: one.length_limited + other.length_limited,
        aborted: one.aborted + other.aborted,
        ..*other
    }
}
