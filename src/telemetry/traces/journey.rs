//! What the steps of a request note for its spans.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method};
use opentelemetry::trace::{SpanContext, SpanId};
use opentelemetry_sdk::trace::{IdGenerator as _, RandomIdGenerator};

/// The trace of one request. Times are since its arrival.
#[derive(Debug)]
pub struct Journey {
    /// Who asked, where that was told; else invalid.
    pub(super) parent: SpanContext,
    /// The request's own span.
    pub(super) own: SpanContext,
    pub(super) target: Target,
    pub(super) laps: Vec<Lap>,
}

/// What was asked, in words from a closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The method; `_OTHER` for one that nobody knows.
    pub method: &'static str,
    /// The path, where it is one of ours.
    pub path: Option<&'static str>,
}

/// A part of a request's way that has a span of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Counting its prompt.
    Count,
    /// Waiting for KV.
    Queue,
    /// At the backend of this name.
    Upstream(Arc<str>),
}

/// One stage, passed or under way.
#[derive(Debug)]
pub(super) struct Lap {
    pub(super) stage: Stage,
    pub(super) id: SpanId,
    pub(super) began: Duration,
    pub(super) ended: Option<Duration>,
    /// How it failed, in a word.
    pub(super) failure: Option<&'static str>,
}

/// A stage that was begun.
#[derive(Clone, Debug)]
pub struct Leg {
    context: SpanContext,
    place: Option<usize>,
}

// === impl Target ===

impl Target {
    /// The target of a request; `path` is one of ours.
    pub fn new(method: &Method, path: Option<&'static str>) -> Self {
        let known = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"];
        let method = known.into_iter().find(|known| *known == method.as_str());
        Self {
            method: method.unwrap_or("_OTHER"),
            path,
        }
    }
}

// === impl Journey ===

impl Journey {
    pub(super) const fn begin(parent: SpanContext, own: SpanContext, target: Target) -> Self {
        Self {
            parent,
            own,
            target,
            laps: Vec::new(),
        }
    }

    /// Whether its spans are sent.
    pub fn is_sampled(&self) -> bool {
        self.own.is_sampled()
    }

    /// The trace's id as 32 hexadecimal digits.
    pub fn trace_id(&self) -> String {
        self.own.trace_id().to_string()
    }

    /// A stage begins at `now`.
    pub fn enter(&mut self, stage: Stage, now: Duration) -> Leg {
        let id = RandomIdGenerator::default().new_span_id();
        let own = &self.own;
        let (flags, state) = (own.trace_flags(), own.trace_state().clone());
        let context = SpanContext::new(own.trace_id(), id, flags, false, state);
        let place = self.is_sampled().then_some(self.laps.len());
        if place.is_some() {
            self.laps.push(Lap {
                stage,
                id,
                began: now,
                ended: None,
                failure: None,
            });
        }
        Leg { context, place }
    }

    /// The stage ends at `now`. Again has no effect.
    pub fn leave(&mut self, leg: &Leg, now: Duration) {
        let lap = leg.place.and_then(|place| self.laps.get_mut(place));
        if let Some(lap) = lap {
            lap.ended.get_or_insert(now);
        }
    }

    /// The stage entered last has failed, in a word from a closed set.
    pub fn failed(&mut self, failure: &'static str) {
        if let Some(lap) = self.laps.last_mut() {
            lap.failure = Some(failure);
        }
    }
}

// === impl Leg ===

impl Leg {
    /// Makes this stage the parent of what a request with these headers begins.
    pub fn inject(&self, headers: &mut HeaderMap) {
        super::inject(&self.context, headers);
    }
}
