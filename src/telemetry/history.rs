//! The last hour in steps of five seconds, for whoever looks: times, tokens,
//! refusals, memory, and how the forecast fared.
//!
//! Decides what is kept and for how long. Never grows: a figure is a ring of
//! [`STEPS`] values, and models, backends and reasons are bounded. Never holds up
//! a request: the lock is held for a few additions or a copy.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

use super::record::{AccessRecord, Finish};
use crate::core::time::Time;

use model::{ModelExcerpt, ModelHistory};
use ring::{Ring, told};

pub use model::{BackendSample, PoolSample};

mod model;
mod ring;
mod spread;
#[cfg(test)]
mod tests;

/// Steps that are kept: an hour.
const STEPS: usize = 720;

/// How long a step is.
pub const STEP: Duration = Duration::from_secs(5);

/// Models with a history; those beyond have none.
const MOST_MODELS: usize = 32;

/// Backends with a history, of each model.
const MOST_BACKENDS: usize = 64;

/// The last hour.
#[derive(Debug, Default)]
pub struct History(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Steps that have ended since the start.
    next: u64,
    /// When the last of them did.
    end: Option<SystemTime>,
    models: BTreeMap<Arc<str>, ModelHistory>,
    /// By reason: a closed set.
    refusals: BTreeMap<&'static str, Refusals>,
    tenants: BTreeMap<Arc<str>, Ended>,
}

/// Some steps, copied: they are written down once the lock is free.
struct Excerpt {
    first: u64,
    next: u64,
    end: Option<SystemTime>,
    bytes: usize,
    refusals: Vec<(&'static str, Vec<f32>)>,
    models: Vec<(Arc<str>, ModelExcerpt)>,
}

/// Refusals for one reason.
#[derive(Debug)]
struct Refusals {
    total: u64,
    /// Of the step under way.
    now: u32,
    steps: Ring,
}

/// How requests ended since the start, of one tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Answered to the end.
    pub complete: u64,
    /// Refused here.
    pub refused: u64,
    /// Failed by a backend or here.
    pub failed: u64,
    /// Left by their client.
    pub cancelled: u64,
    /// Those refused or failed, by reason.
    pub reasons: BTreeMap<&'static str, u64>,
}

// === impl History ===

impl History {
    /// Notes the end of a request.
    pub fn finished(&self, record: &AccessRecord) {
        let mut inner = self.lock();
        let kept = inner.kept();
        let reason = record
            .reason
            .filter(|_| matches!(record.finish, Finish::Refused | Finish::Failed));
        if let Some(reason) = reason {
            let refusals = inner.refusals.entry(reason);
            let refusals = refusals.or_insert_with(|| Refusals::new(kept));
            refusals.total += 1;
            refusals.now = refusals.now.saturating_add(1);
        }
        if let Some(tenant) = &record.tenant {
            let ended = inner.tenants.entry(Arc::clone(tenant)).or_default();
            ended.count(record.finish, reason);
        }
        if let Some(model) = &record.model
            && let Some(history) = inner.model(model)
        {
            history.finished(record);
        }
    }

    /// Whether a step is over at `now` that nobody has looked at.
    pub fn is_due(&self, now: Time) -> bool {
        self.lock().missed(now) > 0
    }

    /// Ends the steps that are over at `now`, with what the pools are then. The
    /// first call says where the steps begin.
    pub fn look(&self, now: Time, pools: &[PoolSample]) {
        let mut inner = self.lock();
        let missed = inner.missed(now);
        let Some(empty) = missed.checked_sub(1) else {
            return;
        };
        let over = inner.next + missed;
        // Where nobody looked there is nothing to tell.
        for _ in 0..empty.min(STEPS as u64) {
            inner.end_step(&[]);
        }
        inner.end_step(pools);
        inner.next = over;
        inner.end = Some(SystemTime::now());
    }

    /// Refusals and failures by reason, since the start.
    pub fn refusals(&self) -> BTreeMap<&'static str, u64> {
        let inner = self.lock();
        let totals = inner.refusals.iter();
        totals.map(|(&reason, one)| (reason, one.total)).collect()
    }

    /// How requests of the tenants ended, since the start.
    pub fn tenants(&self) -> BTreeMap<Arc<str>, Ended> {
        self.lock().tenants.clone()
    }

    /// Steps from `after` on, as far as they are kept; see the shape in the code.
    pub fn json(&self, after: u64) -> Value {
        let excerpt = self.lock().excerpt(after);
        excerpt.json()
    }

    /// A panic under the lock leaves a figure half added, which is borne.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Inner ===

impl Inner {
    /// Steps that are over at `now` and have not ended.
    fn missed(&self, now: Time) -> u64 {
        let over = now.since(Time::ZERO).as_secs() / STEP.as_secs();
        over.saturating_sub(self.next)
    }

    /// Steps that are kept so far.
    fn kept(&self) -> usize {
        usize::try_from(self.next).map_or(STEPS, |next| next.min(STEPS))
    }

    /// The history of a model, unless there are too many.
    fn model(&mut self, name: &Arc<str>) -> Option<&mut ModelHistory> {
        if !self.models.contains_key(name) {
            if self.models.len() >= MOST_MODELS {
                return None;
            }
            let new = ModelHistory::new(self.kept());
            self.models.insert(Arc::clone(name), new);
        }
        self.models.get_mut(name)
    }

    fn end_step(&mut self, pools: &[PoolSample]) {
        for refusals in self.refusals.values_mut() {
            let now = std::mem::take(&mut refusals.now);
            refusals.steps.push(Some(now.into()));
        }
        for pool in pools {
            // Made here if need be, so that it has a step to end.
            self.model(&pool.model);
        }
        for (name, history) in &mut self.models {
            let pool = pools.iter().find(|pool| pool.model == *name);
            history.end_step(pool);
        }
        self.models.retain(|_, history| !history.is_forgotten());
        self.next += 1;
    }

    fn bytes(&self) -> usize {
        let models = self.models.values().map(ModelHistory::bytes);
        models.sum::<usize>() + self.refusals.len() * Ring::BYTES
    }

    fn excerpt(&self, after: u64) -> Excerpt {
        let first = after.clamp(self.next - self.kept() as u64, self.next);
        let count = usize::try_from(self.next - first).unwrap_or(STEPS);
        let refusals = self.refusals.iter();
        let models = self.models.iter();
        Excerpt {
            first,
            next: self.next,
            end: self.end,
            bytes: self.bytes(),
            refusals: refusals
                .map(|(&reason, one)| (reason, one.steps.last(count)))
                .collect(),
            models: models
                .map(|(name, history)| (Arc::clone(name), history.last(count)))
                .collect(),
        }
    }
}

// === impl Excerpt ===

impl Excerpt {
    fn json(&self) -> Value {
        let end = self.end.and_then(|end| {
            let since = end.duration_since(SystemTime::UNIX_EPOCH).ok()?;
            Some(since.as_secs_f64())
        });
        let refusals = self.refusals.iter();
        let refusals: Map<_, _> = refusals
            .map(|(reason, values)| ((*reason).to_owned(), told(values)))
            .collect();
        let models = self.models.iter();
        let models: Vec<_> = models.map(|(name, model)| model.json(name)).collect();
        json!({
            "step_seconds": STEP.as_secs(),
            "span_seconds": STEP.as_secs() * STEPS as u64,
            "first": self.first,
            "next": self.next,
            "end_unix_seconds": end,
            "bytes": self.bytes,
            "refusals": refusals,
            "models": models,
        })
    }
}

// === impl Refusals ===

impl Refusals {
    fn new(kept: usize) -> Self {
        Self {
            total: 0,
            now: 0,
            steps: Ring::new(kept),
        }
    }
}

// === impl Ended ===

impl Ended {
    fn count(&mut self, finish: Finish, reason: Option<&'static str>) {
        let one = match finish {
            Finish::Complete => &mut self.complete,
            Finish::Refused => &mut self.refused,
            Finish::Failed => &mut self.failed,
            Finish::Cancelled => &mut self.cancelled,
        };
        *one += 1;
        if let Some(reason) = reason {
            *self.reasons.entry(reason).or_default() += 1;
        }
    }
}
