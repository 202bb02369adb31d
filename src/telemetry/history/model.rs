//! The last hour of one model.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::ring::{Ring, told};
use super::spread::Spread;
use super::{AccessRecord, MOST_BACKENDS, STEP, STEPS};
use crate::core::stats::Totals;
use crate::core::units::Tokens;

/// What a pool is when a step ends.
#[derive(Clone, Debug)]
pub struct PoolSample {
    /// The base model's name.
    pub model: Arc<str>,
    /// What its pool has counted.
    pub totals: Totals,
    /// Requests in flight.
    pub running: u32,
    /// Requests that wait.
    pub waiting: u32,
    /// Its backends; the ranks of one are named each.
    pub backends: Vec<BackendSample>,
}

/// A backend's memory when a step ends, as shares of its capacity.
#[derive(Clone, Debug)]
pub struct BackendSample {
    /// Its name.
    pub name: Arc<str>,
    /// What our leases hold.
    pub held: f64,
    /// What others use.
    pub foreign: f64,
}

/// The figures of one model.
#[derive(Debug)]
pub(super) struct ModelHistory {
    first_token: Spread,
    queue_wait: Spread,
    /// The totals when the last step ended; `None` before the first look.
    before: Option<Totals>,
    rings: [Ring; FIGURES.len()],
    backends: BTreeMap<Arc<str>, BackendHistory>,
    /// Steps since its pool was last there.
    unseen: usize,
}

/// Some steps of a model, copied.
pub(super) struct ModelExcerpt {
    figures: [Vec<f32>; FIGURES.len()],
    backends: Vec<(Arc<str>, [Vec<f32>; 2])>,
}

#[derive(Debug)]
struct BackendHistory {
    held: Ring,
    foreign: Ring,
    unseen: usize,
}

/// The figures, in the order of [`ModelHistory::figures`].
const FIGURES: [&str; 12] = [
    "ttft_p50_seconds",
    "ttft_p99_seconds",
    "queue_p50_seconds",
    "queue_p99_seconds",
    "output_tokens_per_second",
    "prompt_tokens_per_second",
    "running",
    "waiting",
    "output_foreseen_tokens",
    "output_real_tokens",
    "wait_foreseen_seconds",
    "wait_real_seconds",
];

// === impl ModelHistory ===

impl ModelHistory {
    /// One that begins after `kept` steps of others.
    pub(super) fn new(kept: usize) -> Self {
        Self {
            first_token: Spread::default(),
            queue_wait: Spread::default(),
            before: None,
            rings: std::array::from_fn(|_| Ring::new(kept)),
            backends: BTreeMap::new(),
            unseen: 0,
        }
    }

    pub(super) fn finished(&mut self, record: &AccessRecord) {
        if let Some(time) = record.ttft_ms {
            self.first_token.see(time);
        }
        // Only where it was let in: a refusal is no wait for memory.
        if let (Some(time), Some(_)) = (record.queue_ms, record.tier) {
            self.queue_wait.see(time);
        }
    }

    /// A step is over; `pool` is what is there of it now, if it is.
    pub(super) fn end_step(&mut self, pool: Option<&PoolSample>) {
        let figures = self.figures(pool);
        for (ring, figure) in self.rings.iter_mut().zip(figures) {
            ring.push(figure);
        }
        self.first_token.clear();
        self.queue_wait.clear();
        self.before = pool.map(|pool| pool.totals).or(self.before);
        self.unseen = if pool.is_some() { 0 } else { self.unseen + 1 };
        let seen = pool.map_or(&[][..], |pool| &pool.backends);
        self.make_room(seen);
        for (name, history) in &mut self.backends {
            history.end_step(seen.iter().find(|seen| seen.name == *name));
        }
        self.backends.retain(|_, history| history.unseen < STEPS);
    }

    /// Backends seen for the first time, as many as there is room for.
    fn make_room(&mut self, seen: &[BackendSample]) {
        let kept = self.rings[0].len().saturating_sub(1);
        for sample in seen {
            if self.backends.contains_key(&sample.name) || self.backends.len() >= MOST_BACKENDS {
                continue;
            }
            let new = BackendHistory {
                held: Ring::new(kept),
                foreign: Ring::new(kept),
                unseen: 0,
            };
            self.backends.insert(Arc::clone(&sample.name), new);
        }
    }

    fn figures(&self, pool: Option<&PoolSample>) -> [Option<f64>; FIGURES.len()] {
        let [ttft, queue] = [&self.first_token, &self.queue_wait];
        let since = pool.and_then(|pool| Some(Since(self.before?, pool.totals)));
        let rate = |of: fn(&Totals) -> Tokens| Some(since?.tokens(of) / STEP.as_secs_f64());
        let answer = |of: fn(&Totals) -> Tokens| {
            let since = since?;
            mean(since.tokens(of), since.count(|totals| totals.measured))
        };
        let wait = |of: fn(&Totals) -> Duration| {
            let since = since?;
            mean(since.seconds(of), since.count(|totals| totals.promised))
        };
        [
            ttft.quantile(0.5),
            ttft.quantile(0.99),
            queue.quantile(0.5),
            queue.quantile(0.99),
            rate(|totals| totals.generated),
            rate(|totals| totals.prompt),
            pool.map(|pool| pool.running.into()),
            pool.map(|pool| pool.waiting.into()),
            answer(|totals| totals.foreseen_output),
            answer(|totals| totals.measured_output),
            wait(|totals| totals.foreseen_wait),
            wait(|totals| totals.waited),
        ]
    }

    /// Whether nothing of it is left to tell.
    pub(super) fn is_forgotten(&self) -> bool {
        self.unseen >= STEPS
    }

    pub(super) fn bytes(&self) -> usize {
        let rings = self.rings.len() + 2 * self.backends.len();
        size_of::<Self>() + rings * Ring::BYTES
    }

    /// The last `count` steps.
    pub(super) fn last(&self, count: usize) -> ModelExcerpt {
        let backends = self.backends.iter().map(|(name, history)| {
            let shares = [&history.held, &history.foreign].map(|ring| ring.last(count));
            (Arc::clone(name), shares)
        });
        ModelExcerpt {
            figures: self.rings.each_ref().map(|ring| ring.last(count)),
            backends: backends.collect(),
        }
    }
}

// === impl ModelExcerpt ===

impl ModelExcerpt {
    pub(super) fn json(&self, name: &str) -> Value {
        let backends = self.backends.iter().map(|(name, [held, foreign])| {
            json!({
                "name": &**name,
                "held_share": told(held),
                "foreign_share": told(foreign),
            })
        });
        let backends: Vec<_> = backends.collect();
        let mut all = json!({"model": name});
        for (figure, values) in FIGURES.iter().zip(&self.figures) {
            all[*figure] = told(values);
        }
        all["backends"] = json!(backends);
        all
    }
}

fn mean(sum: f64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum / Tokens::new(count).as_f64())
}

// === impl BackendHistory ===

impl BackendHistory {
    fn end_step(&mut self, seen: Option<&BackendSample>) {
        self.held.push(seen.map(|seen| seen.held));
        self.foreign.push(seen.map(|seen| seen.foreign));
        self.unseen = if seen.is_some() { 0 } else { self.unseen + 1 };
    }
}

/// What was counted from the one to the other. A pool that was made anew counts
/// from 0: then there is nothing to tell.
#[derive(Clone, Copy)]
struct Since(Totals, Totals);

// === impl Since ===

impl Since {
    fn count(self, of: fn(&Totals) -> u64) -> u64 {
        of(&self.1).saturating_sub(of(&self.0))
    }

    fn tokens(self, of: fn(&Totals) -> Tokens) -> f64 {
        of(&self.1).saturating_sub(of(&self.0)).as_f64()
    }

    fn seconds(self, of: fn(&Totals) -> Duration) -> f64 {
        of(&self.1).saturating_sub(of(&self.0)).as_secs_f64()
    }
}
