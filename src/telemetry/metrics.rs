//! The registry: counts what the layers report, renders text when asked.
//!
//! Handles are looked up once per label set and kept; a request's end costs a
//! few map reads and atomic adds. Nothing here listens or sleeps.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use metrics::{Counter, Histogram, Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use metrics_util::MetricKindMask;

use super::labels::Labels;
use super::metric::{Kind, Metric};
use super::outcome::{Check, Load, Loss, Reload, SpanLoss, UpstreamFailure};
use super::pool::Preemptions;
use super::record::{AccessRecord, Finish};
use crate::config::Config;
use crate::core::units::Tokens as TokenCount;

/// A gauge that nobody has set for this long is that of a backend that is gone.
const GAUGE_LIFE: Duration = Duration::from_secs(60);

const METADATA: Metadata<'static> = Metadata::new("tidegate", Level::INFO, None);

/// All metrics of one gateway.
pub struct Metrics {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    labels: Labels,
    started: DashMap<&'static str, Counter>,
    ended: DashMap<(&'static str, Option<u16>, Option<&'static str>), Counter>,
    tokens: DashMap<(Arc<str>, Arc<str>), Tokens>,
    times: DashMap<(Arc<str>, &'static str), Times>,
    differences: DashMap<Arc<str>, Histogram>,
    preemptions: DashMap<(Arc<str>, u32), Preemptions>,
}

/// Token counters of one model and tenant, and the model's counters of how they were counted.
#[derive(Clone)]
pub(super) struct Tokens {
    prompt: Counter,
    admitted: Counter,
    generated: Counter,
    estimated: Counter,
}

/// Histograms of one model and tier.
#[derive(Clone)]
pub(super) struct Times {
    queue_wait: Histogram,
    first_token: Histogram,
    pace: Histogram,
    duration: Histogram,
    prompt: Histogram,
    output: Histogram,
    context: Histogram,
}

// === impl Metrics ===

impl Metrics {
    /// An empty registry in which at most `max_tenants` tenants have their own label.
    pub fn new(max_tenants: usize) -> Self {
        let mut builder =
            PrometheusBuilder::new().idle_timeout(MetricKindMask::GAUGE, Some(GAUGE_LIFE));
        for spec in Metric::ALL.map(Metric::spec) {
            if spec.kind == Kind::Histogram {
                let name = Matcher::Full(spec.name.to_owned());
                builder = builder
                    .set_buckets_for_metric(name, spec.buckets)
                    .expect("the bucket list is not empty");
            }
        }
        let recorder = builder.build_recorder();
        for spec in Metric::ALL.map(Metric::spec) {
            match spec.kind {
                Kind::Counter => {
                    recorder.describe_counter(spec.name.into(), None, spec.help.into())
                }
                Kind::Gauge => recorder.describe_gauge(spec.name.into(), None, spec.help.into()),
                Kind::Histogram => {
                    recorder.describe_histogram(spec.name.into(), None, spec.help.into())
                }
            }
        }
        Self {
            handle: recorder.handle(),
            recorder,
            labels: Labels::new(max_tenants),
            started: DashMap::new(),
            ended: DashMap::new(),
            tokens: DashMap::new(),
            times: DashMap::new(),
            differences: DashMap::new(),
            preemptions: DashMap::new(),
        }
    }

    /// Learns which model and tenant names may be labels, and begins their counters
    /// at 0. Call at the start and at each reload.
    pub fn know(&self, config: &Config) {
        self.labels.know(config);
        self.begin(config);
    }

    /// Counts a request whose headers arrived. `route` is a name of the route table or `other`.
    pub fn started(&self, route: &'static str) {
        let register = || self.counter(Metric::RequestsStarted, &[route]);
        self.started
            .entry(route)
            .or_insert_with(register)
            .increment(1);
    }

    /// Counts the end of a request.
    pub fn finished(&self, record: &AccessRecord) {
        self.count_end(record);
        let model = self.labels.model(record.model.as_deref());
        if record.prompt_tokens.is_some() {
            self.count_tokens(record, &model);
        }
        if let Some(would) = record.would {
            let [what, reason] = would.labels();
            self.counter(Metric::Shadow, &[&*model, what, reason])
                .increment(1);
        }
        if let Some(tier) = record.tier {
            let times = self.times(&model, tier.name());
            record_time(&times.queue_wait, record.queue_ms);
            record_time(&times.first_token, record.ttft_ms);
            record_time(&times.pace, pace(record));
            record_time(&times.duration, record.duration_ms);
            record_lengths(&times, record);
        }
    }

    fn count_end(&self, record: &AccessRecord) {
        let &AccessRecord {
            route,
            status,
            reason,
            ..
        } = record;
        self.ended(route, status, reason).increment(1);
    }

    /// The counter of an end of requests of `route`.
    pub(super) fn ended(
        &self,
        route: &'static str,
        status: Option<u16>,
        reason: Option<&'static str>,
    ) -> Counter {
        let register = || {
            let status = status.map_or_else(|| "none".to_owned(), |status| status.to_string());
            self.counter(
                Metric::Requests,
                &[route, &status, reason.unwrap_or("none")],
            )
        };
        let ended = self.ended.entry((route, status, reason));
        ended.or_insert_with(register).clone()
    }

    fn count_tokens(&self, record: &AccessRecord, model: &Arc<str>) {
        let prompt = record.prompt_tokens.unwrap_or(0);
        let tokens = self.tokens(model, &self.labels.tenant(record.tenant.as_deref()));
        tokens.prompt.increment(prompt);
        if record.backend.is_some() {
            tokens.admitted.increment(prompt);
            tokens
                .generated
                .increment(record.used_output_tokens.unwrap_or(0));
        }
        if record.precision == Some("estimated") {
            tokens.estimated.increment(1);
        }
    }

    /// Counts an exact count of ours that `check` was compared with: `(ours,
    /// theirs)`. `model` must be a configured name.
    pub fn compared(&self, model: &Arc<str>, check: Check, (ours, theirs): (u64, u64)) {
        if ours != theirs {
            let labels = [&**model, check.label()];
            self.counter(Metric::CountMismatches, &labels).increment(1);
        }
        if check == Check::Usage {
            let histogram = self.differences(model);
            histogram.record(TokenCount::new(theirs).as_f64() - TokenCount::new(ours).as_f64());
        }
    }

    /// The histogram of a model's counts against its engine's.
    pub(super) fn differences(&self, model: &Arc<str>) -> Histogram {
        let register = || self.histogram(Metric::CountDifference, &[&**model]);
        let differences = self.differences.entry(Arc::clone(model));
        differences.or_insert_with(register).clone()
    }

    /// Counts a count that was cut at its time limit.
    pub fn count_overran(&self, model: &str) {
        self.counter(Metric::CountOverruns, &[model]).increment(1);
    }

    /// Counts events of a stream that were not looked into.
    pub fn events_skipped(&self, model: &str, events: u32) {
        self.counter(Metric::EventsSkipped, &[model])
            .increment(events.into());
    }

    /// Counts a reload of the configuration.
    pub fn config_reloaded(&self, reload: Reload) {
        self.counter(Metric::ConfigReloads, &[reload.label()])
            .increment(1);
    }

    /// Sets how the last reload of the configuration went and how long the one in
    /// force has been.
    pub fn show_config(&self, last: Reload, age: Duration) {
        let success = f64::from(u8::from(last != Reload::Refused));
        self.set(Metric::ConfigReloadSuccess, &[], success);
        self.set(Metric::ConfigAge, &[], age.as_secs_f64());
    }

    /// Counts a load of a tokenizer. `model` must be a configured name.
    pub fn tokenizer_load(&self, model: &str, load: Load) {
        self.counter(Metric::TokenizerLoads, &[model, load.label()])
            .increment(1);
    }

    /// Counts a request that a backend failed. `backend` must be a configured name.
    pub fn upstream_failed(&self, model: &str, backend: &str, failure: UpstreamFailure) {
        let labels = [model, backend, failure.label()];
        self.counter(Metric::UpstreamFailures, &labels).increment(1);
    }

    /// Counts access log records that were not written.
    pub fn records_lost(&self, loss: Loss, records: u64) {
        self.counter(Metric::AccessRecordsLost, &[loss.label()])
            .increment(records);
    }

    /// Counts spans that the collector took.
    pub(super) fn spans_exported(&self, spans: u64) {
        self.counter(Metric::SpansExported, &[]).increment(spans);
    }

    /// Counts spans that the collector did not get.
    pub(super) fn spans_dropped(&self, loss: SpanLoss, spans: u64) {
        self.counter(Metric::SpansDropped, &[loss.label()])
            .increment(spans);
    }

    /// Folds samples into their buckets. Without it, and without anybody who
    /// reads `/metrics`, samples would pile up: call it every few seconds.
    pub fn upkeep(&self) {
        self.handle.run_upkeep();
    }

    /// Everything in the Prometheus text format.
    pub fn render(&self) -> String {
        self.set(Metric::BuildInfo, &[env!("CARGO_PKG_VERSION")], 1.0);
        self.handle.render()
    }

    /// Sets a gauge. `labels` are the values of [`Spec::labels`](super::Spec), in order.
    pub(super) fn set(&self, metric: Metric, labels: &[&str], value: f64) {
        self.recorder
            .register_gauge(&key(metric, labels), &METADATA)
            .set(value);
    }

    /// A counter. `labels` are the values of [`Spec::labels`](super::Spec), in order.
    pub(super) fn counter(&self, metric: Metric, labels: &[&str]) -> Counter {
        self.recorder
            .register_counter(&key(metric, labels), &METADATA)
    }

    pub(super) const fn labels(&self) -> &Labels {
        &self.labels
    }

    /// Preemption counters by model and slot.
    pub(super) const fn preemptions(&self) -> &DashMap<(Arc<str>, u32), Preemptions> {
        &self.preemptions
    }

    fn histogram(&self, metric: Metric, labels: &[&str]) -> Histogram {
        self.recorder
            .register_histogram(&key(metric, labels), &METADATA)
    }

    /// The counters of a model and tenant.
    pub(super) fn tokens(&self, model: &Arc<str>, tenant: &Arc<str>) -> Tokens {
        let register = || {
            let labels = [&**model, &**tenant];
            Tokens {
                prompt: self.counter(Metric::PromptTokens, &labels),
                admitted: self.counter(Metric::AdmittedTokens, &labels),
                generated: self.counter(Metric::GeneratedTokens, &labels),
                estimated: self.counter(Metric::EstimatedCounts, &labels[..1]),
            }
        };
        let pair = (Arc::clone(model), Arc::clone(tenant));
        self.tokens.entry(pair).or_insert_with(register).clone()
    }

    /// The histograms of a model and tier.
    pub(super) fn times(&self, model: &Arc<str>, tier: &'static str) -> Times {
        let register = || {
            let labels = [&**model, tier];
            Times {
                queue_wait: self.histogram(Metric::QueueWait, &labels),
                first_token: self.histogram(Metric::FirstToken, &labels),
                pace: self.histogram(Metric::OutputPace, &labels),
                duration: self.histogram(Metric::Duration, &labels),
                prompt: self.histogram(Metric::RequestPrompt, &labels),
                output: self.histogram(Metric::RequestOutput, &labels),
                context: self.histogram(Metric::RequestContext, &labels),
            }
        };
        self.times
            .entry((Arc::clone(model), tier))
            .or_insert_with(register)
            .clone()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

fn key(metric: Metric, values: &[&str]) -> Key {
    let spec = metric.spec();
    debug_assert_eq!(
        spec.labels.len(),
        values.len(),
        "{} takes {:?}",
        spec.name,
        spec.labels
    );
    let labels = spec.labels.iter().zip(values);
    let labels: Vec<_> = labels
        .map(|(name, value)| Label::new(*name, (*value).to_owned()))
        .collect();
    Key::from_parts(spec.name, labels)
}

/// Time between two output tokens of a stream of one sequence, on average.
fn pace(record: &AccessRecord) -> Option<Duration> {
    let gaps = record.used_output_tokens?.checked_sub(1)?;
    let gaps = u32::try_from(gaps).ok().filter(|gaps| *gaps > 0)?;
    let streaming = record.duration_ms?.checked_sub(record.ttft_ms?)?;
    (record.stream && record.samples == 1).then(|| streaming / gaps)
}

/// Lengths of a whole answer: a part of one says nothing of them.
fn record_lengths(times: &Times, record: &AccessRecord) {
    let prompt = record.used_prompt_tokens.or(record.prompt_tokens);
    let (Some(prompt), Some(output)) = (prompt, record.used_output_tokens) else {
        return;
    };
    if record.finish != Finish::Complete {
        return;
    }
    let each = output.div_ceil(record.samples.max(1).into());
    let lengths = [
        (&times.prompt, prompt),
        (&times.output, each),
        (&times.context, prompt.saturating_add(each)),
    ];
    for (histogram, tokens) in lengths {
        histogram.record(TokenCount::new(tokens).as_f64());
    }
}

fn record_time(histogram: &Histogram, time: Option<Duration>) {
    if let Some(time) = time {
        histogram.record(time.as_secs_f64());
    }
}
