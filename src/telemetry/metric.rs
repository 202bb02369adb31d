//! Every metric there is: name, help, kind, labels, in one place.
//!
//! Units end the name: `_seconds`, `_tokens`, `_bytes`; counters end in `_total`.

mod specs;

/// A metric of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each variant's help text is its documentation")]
pub enum Metric {
    RequestsStarted,
    Requests,
    PromptTokens,
    AdmittedTokens,
    GeneratedTokens,
    EstimatedCounts,
    CountMismatches,
    CountDifference,
    CountOverruns,
    EventsSkipped,
    CountDemoted,
    TokenizerLoads,
    QueueWait,
    FirstToken,
    OutputPace,
    Duration,
    RequestPrompt,
    RequestOutput,
    RequestContext,
    Admissions,
    Shadow,
    AnswersMeasured,
    MeasuredOutput,
    ForecastError,
    Waits,
    UpstreamFailures,
    EnginePreemptions,
    ScrapesFailed,
    AccessRecordsLost,
    SpansExported,
    SpansDropped,
    WaitingRequests,
    WaitingTokens,
    OldestWait,
    InFlightRequests,
    KvCapacity,
    KvCapacitySource,
    KvHeld,
    KvForeign,
    KvDrift,
    PlanConfidence,
    PlanShare,
    PrefillAhead,
    TenantInFlight,
    TenantRateRemaining,
    TenantBooked,
    MetricsAge,
    BackendState,
    BodyBytes,
    Connections,
    ConnectionsCut,
    HandshakesFailed,
    CertificateExpires,
    ConfigReloads,
    ConfigReloadSuccess,
    ConfigAge,
    BuildInfo,
}

/// How a metric behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Set when `/metrics` is read.
    Gauge,
    /// Samples in the buckets of [`Spec::buckets`].
    Histogram,
}

/// What Prometheus and people are told about a metric.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Name, beginning with `tidegate_`.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// Its label names.
    pub labels: &'static [&'static str],
    /// Upper bounds of the buckets of a histogram, in the unit of its name.
    pub buckets: &'static [f64],
}

// === impl Metric ===

impl Metric {
    /// All metrics, in the order of the documentation.
    pub const ALL: [Self; 57] = [
        Self::RequestsStarted,
        Self::Requests,
        Self::PromptTokens,
        Self::AdmittedTokens,
        Self::GeneratedTokens,
        Self::EstimatedCounts,
        Self::CountMismatches,
        Self::CountDifference,
        Self::CountOverruns,
        Self::EventsSkipped,
        Self::CountDemoted,
        Self::TokenizerLoads,
        Self::QueueWait,
        Self::FirstToken,
        Self::OutputPace,
        Self::Duration,
        Self::RequestPrompt,
        Self::RequestOutput,
        Self::RequestContext,
        Self::Admissions,
        Self::Shadow,
        Self::AnswersMeasured,
        Self::MeasuredOutput,
        Self::ForecastError,
        Self::Waits,
        Self::UpstreamFailures,
        Self::EnginePreemptions,
        Self::ScrapesFailed,
        Self::AccessRecordsLost,
        Self::SpansExported,
        Self::SpansDropped,
        Self::WaitingRequests,
        Self::WaitingTokens,
        Self::OldestWait,
        Self::InFlightRequests,
        Self::KvCapacity,
        Self::KvCapacitySource,
        Self::KvHeld,
        Self::KvForeign,
        Self::KvDrift,
        Self::PlanConfidence,
        Self::PlanShare,
        Self::PrefillAhead,
        Self::TenantInFlight,
        Self::TenantRateRemaining,
        Self::TenantBooked,
        Self::MetricsAge,
        Self::BackendState,
        Self::BodyBytes,
        Self::Connections,
        Self::ConnectionsCut,
        Self::HandshakesFailed,
        Self::CertificateExpires,
        Self::ConfigReloads,
        Self::ConfigReloadSuccess,
        Self::ConfigAge,
        Self::BuildInfo,
    ];
}

// === impl Spec ===

impl Spec {
    /// The unit that its name ends in; `None` where it counts things by the piece.
    pub fn unit(&self) -> Option<&'static str> {
        let name = self.name.trim_end_matches("_total");
        let (_, last) = name.rsplit_once('_')?;
        ["seconds", "tokens", "bytes"]
            .into_iter()
            .find(|unit| *unit == last)
    }
}

// === impl Kind ===

impl Kind {
    /// The word in the text format and in the table of metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}
