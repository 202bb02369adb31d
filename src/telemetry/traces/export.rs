//! The queue of spans and what sends them, by OTLP over HTTP.
//!
//! Decides how many spans go together, what is tried again and what is given up.
//! Whatever the collector does costs spans, counted by reason, and never a request:
//! the queue is bounded and nobody waits for it. Invariant: every span that was put
//! is counted once, as exported or as dropped, unless the process is cut before.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use opentelemetry::KeyValue;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanData;
use prost::Message as _;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use crate::config::Traces;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::outcome::SpanLoss;

/// Spans sent at one time.
const BATCH: usize = 512;
/// How long spans wait for others to go with.
const LINGER: Duration = Duration::from_secs(1);
/// Times a batch is tried, where its collector may take it later.
const TRIES: u32 = 4;
/// Time before the second try; twice that before each further one.
const PAUSE: Duration = Duration::from_millis(500);

/// What a collector answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    /// Its status.
    pub status: u16,
    /// Its body.
    pub body: Bytes,
}

/// An answer to come, or why there was none.
pub type PostFuture<'a> = Pin<Box<dyn Future<Output = Result<Posted, String>> + Send + 'a>>;

/// The way to a collector. Must end within a bounded time.
pub trait Collector: Send + Sync + 'static {
    /// Sends a batch in protobuf.
    fn post(&self, batch: Bytes) -> PostFuture<'_>;
}

/// Where spans are put.
#[derive(Debug)]
pub(super) struct Inbox {
    queue: mpsc::Sender<Vec<SpanData>>,
    closing: watch::Sender<bool>,
    done: watch::Receiver<bool>,
    metrics: Arc<Metrics>,
}

/// Where spans are sent from.
pub struct Outbox {
    queue: mpsc::Receiver<Vec<SpanData>>,
    closing: watch::Receiver<bool>,
    done: watch::Sender<bool>,
    resource: ResourceAttributesWithSchema,
    metrics: Arc<Metrics>,
    /// Told once, until a batch gets through.
    failing: bool,
}

/// What becomes of a batch that was tried once.
enum Tried {
    /// Taken, but for so many spans.
    Taken(u64),
    /// Not taken; perhaps later.
    Later(String),
    /// Not taken, and never.
    Never(String),
}

/// A queue and both its ends.
pub(super) fn queue(traces: &Traces, metrics: &Arc<Metrics>) -> (Inbox, Outbox) {
    let (put, queue) = mpsc::channel(traces.queue_requests);
    let (closing, asked) = watch::channel(false);
    let (done, told) = watch::channel(false);
    let resource = Resource::builder_empty()
        .with_service_name(traces.service_name.clone())
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build();
    let inbox = Inbox {
        queue: put,
        closing,
        done: told,
        metrics: Arc::clone(metrics),
    };
    let outbox = Outbox {
        queue,
        closing: asked,
        done,
        resource: ResourceAttributesWithSchema::from(&resource),
        metrics: Arc::clone(metrics),
        failing: false,
    };
    (inbox, outbox)
}

fn count(spans: &[SpanData]) -> u64 {
    u64::try_from(spans.len()).unwrap_or(u64::MAX)
}

// === impl Inbox ===

impl Inbox {
    /// Queues the spans of a request, or counts them as dropped. Never blocks.
    pub(super) fn put(&self, spans: Vec<SpanData>) {
        if let Err(error) = self.queue.try_send(spans) {
            let loss = match error {
                mpsc::error::TrySendError::Full(_) => SpanLoss::QueueFull,
                mpsc::error::TrySendError::Closed(_) => SpanLoss::Shutdown,
            };
            self.metrics.spans_dropped(loss, count(&error.into_inner()));
        }
    }

    /// Asks for the end and returns once it is there.
    pub(super) async fn close(&self) {
        self.closing.send_replace(true);
        let mut done = self.done.clone();
        if done.wait_for(|done| *done).await.is_err() {
            tracing::debug!("nobody sends spans");
        }
    }
}

// === impl Outbox ===

impl Outbox {
    /// Sends until it is asked for the end, and then once what still waits.
    pub async fn run<C: Collector>(mut self, collector: C) {
        let mut ends = false;
        while !ends {
            let mut batch = Vec::new();
            ends = self.gather(&mut batch).await;
            while !batch.is_empty() {
                let rest = batch.split_off(batch.len().min(BATCH));
                self.deliver(batch, &collector).await;
                batch = rest;
            }
        }
        self.done.send_replace(true);
    }

    /// Fills a batch; says whether it is the last.
    async fn gather(&mut self, batch: &mut Vec<SpanData>) -> bool {
        let mut until = None;
        while batch.len() < BATCH {
            let linger = async {
                match until {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = self.closing.wait_for(|closing| *closing) => {
                    self.queue.close();
                    while let Ok(spans) = self.queue.try_recv() {
                        batch.extend(spans);
                    }
                    return true;
                }
                () = linger => break,
                spans = self.queue.recv() => match spans {
                    Some(spans) => {
                        batch.extend(spans);
                        until.get_or_insert_with(|| Instant::now() + LINGER);
                    }
                    None => return true,
                },
            }
        }
        false
    }

    /// Sends a batch, again where that may help, and counts what became of it.
    async fn deliver<C: Collector>(&mut self, spans: Vec<SpanData>, collector: &C) {
        let all = count(&spans);
        let request = ExportTraceServiceRequest {
            resource_spans: group_spans_by_resource_and_scope(spans, &self.resource),
        };
        let body = Bytes::from(request.encode_to_vec());
        let mut tried = 1;
        let (loss, problem) = loop {
            match attempt(collector, body.clone()).await {
                Tried::Taken(rejected) => {
                    let rejected = rejected.min(all);
                    self.metrics.spans_exported(all - rejected);
                    self.metrics.spans_dropped(SpanLoss::Rejected, rejected);
                    self.failing = false;
                    return;
                }
                Tried::Never(problem) => break (SpanLoss::Rejected, problem),
                Tried::Later(problem) if tried == TRIES || self.is_closing(tried).await => {
                    break (SpanLoss::Unreachable, problem);
                }
                Tried::Later(_) => tried += 1,
            }
        };
        self.metrics.spans_dropped(loss, all);
        if !self.failing {
            tracing::warn!(problem, "spans cannot be sent; they are being dropped");
        }
        self.failing = true;
    }

    /// Waits for the time of the next try; says whether the end came first.
    async fn is_closing(&mut self, tried: u32) -> bool {
        tokio::select! {
            biased;
            _ = self.closing.wait_for(|closing| *closing) => true,
            () = sleep(PAUSE * 2u32.pow(tried - 1)) => false,
        }
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").finish_non_exhaustive()
    }
}

/// Tries once. What may be tried again is what OTLP/HTTP says.
async fn attempt<C: Collector>(collector: &C, body: Bytes) -> Tried {
    let posted = match collector.post(body).await {
        Ok(posted) => posted,
        Err(problem) => return Tried::Later(problem),
    };
    match posted.status {
        200..=299 => {
            let answer = ExportTraceServiceResponse::decode(posted.body).unwrap_or_default();
            let partial = answer.partial_success.unwrap_or_default();
            Tried::Taken(u64::try_from(partial.rejected_spans).unwrap_or(0))
        }
        status @ (429 | 502 | 503 | 504) => {
            Tried::Later(format!("the collector answered {status}"))
        }
        status => Tried::Never(format!("the collector answered {status}")),
    }
}
