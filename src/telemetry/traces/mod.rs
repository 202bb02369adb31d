//! Spans of requests, for OpenTelemetry.
//!
//! Decides whose child a request is (W3C `traceparent`, in and out), which traces
//! are sent, and what their spans say. Identities, sampling, propagation and the
//! wire format are OpenTelemetry's own; the queue is ours, since the library's does
//! not tell what it drops. Spans are made when a request is over, from what its
//! steps have noted, so that a request that is not sampled costs three ids.
//! Never holds a request up, and never sees a prompt, an answer or a key.

mod export;
mod journey;
mod spans;

use std::sync::{Mutex, PoisonError};

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator as _};
use opentelemetry::trace::{SpanContext, SpanKind, TraceContextExt as _, TraceFlags};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{
    IdGenerator as _, RandomIdGenerator, Sampler, SamplingDecision, ShouldSample as _,
};

use super::metrics::Metrics;
use super::record::AccessRecord;
use crate::config::Traces;

pub use export::{Collector, Outbox, PostFuture, Posted};
pub use journey::{Journey, Leg, Stage, Target};

/// Begins the traces of requests and takes them when they are over.
#[derive(Debug)]
pub struct Tracer {
    sampler: Sampler,
    inbox: export::Inbox,
    /// Taken by whoever sends.
    outbox: Mutex<Option<Outbox>>,
}

/// Headers as a propagator reads them.
struct Received<'a>(&'a HeaderMap);

/// Headers as a propagator writes them.
struct Sent<'a>(&'a mut HeaderMap);

// === impl Tracer ===

impl Tracer {
    /// A tracer of these settings; `None` where nothing is to be sent.
    pub(super) fn new(traces: &Traces, metrics: &std::sync::Arc<Metrics>) -> Option<Self> {
        traces.endpoint.as_ref()?;
        let (inbox, outbox) = export::queue(traces, metrics);
        let ratio = Sampler::TraceIdRatioBased(traces.sample_share);
        Some(Self {
            sampler: Sampler::ParentBased(Box::new(ratio)),
            inbox,
            outbox: Mutex::new(Some(outbox)),
        })
    }

    /// What sends the spans. Once; afterwards `None`.
    pub fn outbox(&self) -> Option<Outbox> {
        let mut outbox = self.outbox.lock().unwrap_or_else(PoisonError::into_inner);
        outbox.take()
    }

    /// Begins the trace of a request, or takes up the one its headers name: sampled
    /// as the parent is, and by share where there is none.
    pub fn begin(&self, headers: &HeaderMap, target: Target) -> Journey {
        let context =
            TraceContextPropagator::new().extract_with_context(&Context::new(), &Received(headers));
        let parent = context.span().span_context().clone();
        let ids = RandomIdGenerator::default();
        let trace_id = if parent.is_valid() {
            parent.trace_id()
        } else {
            ids.new_trace_id()
        };
        let known = parent.is_valid().then_some(&context);
        let sampled = self
            .sampler
            .should_sample(known, trace_id, "", &SpanKind::Server, &[], &[]);
        let flags = match sampled.decision {
            SamplingDecision::RecordAndSample => TraceFlags::SAMPLED,
            _ => TraceFlags::default(),
        };
        let state = parent.trace_state().clone();
        let own = SpanContext::new(trace_id, ids.new_span_id(), flags, false, state);
        Journey::begin(parent, own, target)
    }

    /// Takes the spans of a request that is over. Never blocks.
    pub(super) fn finish(&self, journey: &Journey, record: &AccessRecord) {
        if journey.is_sampled() {
            self.inbox.put(spans::of(journey, record));
        }
    }

    /// Has what waits sent, and returns when that is done or given up. Nothing is
    /// sent afterwards. Cancelling gives it up.
    pub async fn flush(&self) {
        self.inbox.close().await;
    }
}

/// Writes `context` into the headers of a request, in place of what is there.
pub(super) fn inject(context: &SpanContext, headers: &mut HeaderMap) {
    for name in ["traceparent", "tracestate"] {
        headers.remove(name);
    }
    let context = Context::new().with_remote_span_context(context.clone());
    TraceContextPropagator::new().inject_context(&context, &mut Sent(headers));
    if headers.get("tracestate").is_some_and(HeaderValue::is_empty) {
        headers.remove("tracestate");
    }
}

// === impl Received ===

impl Extractor for Received<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

// === impl Sent ===

impl Injector for Sent<'_> {
    fn set(&mut self, key: &str, value: String) {
        let name = key.parse::<HeaderName>();
        if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value)) {
            self.0.insert(name, value);
        }
    }
}

#[cfg(test)]
mod tests;
