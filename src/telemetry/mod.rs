//! What operators see: metrics, the access log, diagnostics.
//!
//! Decides names, labels and schemas. Never holds up a request: counters are
//! atomics, log lines are written by a thread of their own and dropped, counted,
//! when it cannot keep up. Never sees prompt text or secrets. Invariant: every
//! label takes values from a bounded set that no client can extend.

mod access;
mod diagnostics;
mod history;
mod labels;
mod line;
mod metric;
mod metrics;
mod outcome;
mod pool;
mod rates;
mod record;
mod tls;
mod traces;
mod zero;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::config::Config;

pub use access::AccessWriter;
pub use diagnostics::{DiagnosticsError, start_diagnostics};
pub use history::{BackendSample, Ended, History, PoolSample, STEP};
pub use metric::{Kind, Metric, Spec};
pub use metrics::Metrics;
pub use outcome::{Check, Load, Loss, Reload, SpanLoss, UpstreamFailure};
pub use pool::{BackendView, Crowd, PoolView};
pub use rates::RateView;
pub use record::{AccessRecord, Class, Finish, OutputPrecision, Would};
pub use tls::HandshakeFailure;
pub use traces::{Collector, Journey, Leg, Outbox, PostFuture, Posted, Stage, Target, Tracer};

/// Metrics and access log of one gateway.
#[derive(Debug)]
pub struct Telemetry {
    metrics: Arc<Metrics>,
    access: Option<AccessWriter>,
    tracer: Option<Tracer>,
    history: History,
}

// === impl Telemetry ===

impl Telemetry {
    /// Registers the metrics and opens the access log.
    ///
    /// # Errors
    ///
    /// The access log's file cannot be opened or its thread not started.
    pub fn start(config: &Config) -> io::Result<Self> {
        let metrics = Arc::new(Metrics::new(config.log.metric_tenants));
        metrics.know(config);
        let access = AccessWriter::start(&config.log, Arc::clone(&metrics))?;
        Ok(Self {
            tracer: Tracer::new(&config.traces, &metrics),
            metrics,
            access,
            history: History::default(),
        })
    }

    /// The metrics, for what is counted outside of a request's end.
    pub const fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The last hour.
    pub const fn history(&self) -> &History {
        &self.history
    }

    /// What begins traces, where they are sent.
    pub const fn tracer(&self) -> Option<&Tracer> {
        self.tracer.as_ref()
    }

    /// Takes the trace of a request that is over. Never blocks.
    pub fn traced(&self, journey: &Journey, record: &AccessRecord) {
        if let Some(tracer) = &self.tracer {
            tracer.finish(journey, record);
        }
    }

    /// Sends the spans that wait, within `limit`; those that come later are dropped.
    pub async fn flush(&self, limit: Duration) {
        let Some(tracer) = &self.tracer else { return };
        if tokio::time::timeout(limit, tracer.flush()).await.is_err() {
            tracing::warn!(after = ?limit, "the last spans of requests were not sent");
        }
    }

    /// Books the end of a request: every metric its record feeds, and its line
    /// in the access log. Never blocks.
    pub fn finished(&self, record: AccessRecord) {
        self.metrics.finished(&record);
        self.history.finished(&record);
        if let Some(access) = &self.access {
            access.write(record);
        }
    }
}

#[cfg(test)]
mod tests;
