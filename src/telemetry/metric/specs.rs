//! What each metric is: name, help, kind, labels, buckets.

use super::{Kind, Metric, Spec};

/// From a prefill of one step to a document that waited minutes.
const SECONDS: [f64; 16] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0,
];

/// From a small model on a fast card to an offloaded one.
const PACES: [f64; 16] = [
    0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0,
    2.5,
];

/// From a prompt counted far too high to one counted far too low; right is 0.
const DIFFERENCES: [f64; 13] = [
    -1024.0, -256.0, -64.0, -16.0, -4.0, -1.0, 0.0, 1.0, 4.0, 16.0, 64.0, 256.0, 1024.0,
];

/// From a short answer to the longest context there is: each is a third or a half
/// above the one before, so a quantile read from them is off by less than that.
const LENGTHS: [f64; 31] = [
    16.0,
    32.0,
    64.0,
    96.0,
    128.0,
    192.0,
    256.0,
    384.0,
    512.0,
    768.0,
    1024.0,
    1536.0,
    2048.0,
    3072.0,
    4096.0,
    6144.0,
    8192.0,
    12288.0,
    16384.0,
    24576.0,
    32768.0,
    49152.0,
    65536.0,
    98304.0,
    131_072.0,
    196_608.0,
    262_144.0,
    393_216.0,
    524_288.0,
    786_432.0,
    1_048_576.0,
];

const POOL: &[&str] = &["model"];
const BACKEND: &[&str] = &["model", "backend", "tier"];
const TRAFFIC: &[&str] = &["model", "tenant"];
const TIERED: &[&str] = &["model", "tier"];

// === impl Metric ===

impl Metric {
    /// Its description.
    pub const fn spec(self) -> Spec {
        match self {
            Self::RequestsStarted => counter(
                "tidegate_requests_started_total",
                "Requests whose headers arrived; less tidegate_requests_total, those under way.",
                &["route"],
            ),
            Self::Requests => counter(
                "tidegate_requests_total",
                "Requests that ended, by status sent and reason of refusal or failure.",
                &["route", "status", "reason"],
            ),
            Self::PromptTokens => counter(
                "tidegate_prompt_tokens_total",
                "Prompt tokens counted, of admitted and refused requests.",
                TRAFFIC,
            ),
            Self::AdmittedTokens => counter(
                "tidegate_admitted_prompt_tokens_total",
                "Prompt tokens of requests sent to a backend.",
                TRAFFIC,
            ),
            Self::GeneratedTokens => counter(
                "tidegate_generated_tokens_total",
                "Output tokens that backends generated, by their usage or the stream's events.",
                TRAFFIC,
            ),
            Self::EstimatedCounts => counter(
                "tidegate_estimated_counts_total",
                "Requests whose prompt was estimated, not counted exactly.",
                POOL,
            ),
            Self::Admissions => counter(
                "tidegate_admissions_total",
                "Requests by what the queue did with them (admitted, refused, expired, left) and how admitted ones ended (finished, failed, cancelled).",
                &["model", "outcome"],
            ),
            _ => self.forecast_spec(),
        }
    }

    const fn forecast_spec(self) -> Spec {
        match self {
            Self::Shadow => counter(
                "tidegate_shadow_total",
                "Requests that shadow mode sent on, by what would have been done: admit, move (to another tier), wait, or refuse and why.",
                &["model", "would", "reason"],
            ),
            Self::AnswersMeasured => counter(
                "tidegate_measured_answers_total",
                "Answers seen to their end, whose lengths judge the forecast.",
                POOL,
            ),
            Self::MeasuredOutput => counter(
                "tidegate_measured_output_tokens_total",
                "Output tokens of one sequence of each of those.",
                POOL,
            ),
            Self::ForecastError => counter(
                "tidegate_output_forecast_error_tokens_total",
                "Tokens by which the output expected at admission was off, over or under, for each of those.",
                POOL,
            ),
            Self::Waits => counter(
                "tidegate_waits_total",
                "Waits that ended in a place on a backend: kept, no longer than was foreseen for four in five, or longer.",
                &["model", "outcome"],
            ),
            Self::PlanConfidence => gauge(
                "tidegate_plan_confidence",
                "Standard deviations of the future peak that the forecast leaves free; more after preemptions.",
                BACKEND,
            ),
            Self::PlanShare => gauge(
                "tidegate_plan_share",
                "Share of a backend's pool that the forecast plans; less after preemptions.",
                BACKEND,
            ),
            Self::OutputPace => Spec {
                buckets: &PACES,
                ..histogram(
                    "tidegate_time_per_output_token_seconds",
                    "Mean time between two output tokens of a stream, of admitted requests of one sequence.",
                )
            },
            Self::PrefillAhead => gauge(
                "tidegate_prefill_ahead_seconds",
                "Predicted prefill on its way to a backend, without a first token yet.",
                BACKEND,
            ),
            _ => self.count_spec(),
        }
    }

    const fn count_spec(self) -> Spec {
        match self {
            Self::CountMismatches => counter(
                "tidegate_count_mismatch_total",
                "Exact counts that differ from another's: the engine's usage, its tokenize route at the start, or the reference tokenizer.",
                &["model", "source"],
            ),
            Self::CountDifference => Spec {
                buckets: &DIFFERENCES,
                labels: POOL,
                ..histogram(
                    "tidegate_count_difference_tokens",
                    "Prompt tokens by the engine's usage less those counted exactly before.",
                )
            },
            Self::CountOverruns => counter(
                "tidegate_count_overruns_total",
                "Counts that were cut at counting.time_limit and charged by a bound.",
                POOL,
            ),
            Self::EventsSkipped => counter(
                "tidegate_events_skipped_total",
                "Events of streams that were too large to be looked into; they were relayed all the same.",
                POOL,
            ),
            Self::TokenizerLoads => counter(
                "tidegate_tokenizer_loads_total",
                "Loads of a model's tokenizer and template, by how they ended: loaded, template_failed (chats are estimated) or failed (what was in use stays).",
                &["model", "outcome"],
            ),
            Self::CountDemoted => gauge(
                "tidegate_count_demoted",
                "1 while counts of a route are no longer called exact, because the engine's differ; else 0.",
                &["model", "route"],
            ),
            Self::ConfigReloads => counter(
                "tidegate_config_reloads_total",
                "Reloads of the configuration, by how they ended: applied, unchanged or refused (nothing changed).",
                &["outcome"],
            ),
            Self::ConfigReloadSuccess => gauge(
                "tidegate_config_reload_success",
                "0 while the configuration last read is refused and an older one in force; else 1.",
                &[],
            ),
            Self::ConfigAge => gauge(
                "tidegate_config_age_seconds",
                "Time since the configuration in force was put in force.",
                &[],
            ),
            _ => self.fault_spec(),
        }
    }

    const fn fault_spec(self) -> Spec {
        match self {
            Self::UpstreamFailures => counter(
                "tidegate_upstream_failures_total",
                "Requests that a backend failed, by kind.",
                &["model", "backend", "kind"],
            ),
            Self::EnginePreemptions => counter(
                "tidegate_engine_preemptions_total",
                "Preemptions a backend's engine has reported while the gateway watched.",
                BACKEND,
            ),
            Self::ScrapesFailed => counter(
                "tidegate_scrapes_failed_total",
                "Reads of a backend's metrics that failed.",
                BACKEND,
            ),
            Self::AccessRecordsLost => counter(
                "tidegate_access_records_lost_total",
                "Access log records that were not written.",
                &["reason"],
            ),
            Self::Connections => gauge(
                "tidegate_connections",
                "Connections of clients: asking, or silent (idle, or their request not yet complete).",
                &["state"],
            ),
            Self::ConnectionsCut => counter(
                "tidegate_connections_cut_total",
                "Connections closed for want of places: crowded_out (silent, made room) or turned_away (nobody was silent).",
                &["reason"],
            ),
            Self::SpansExported => counter(
                "tidegate_spans_exported_total",
                "Spans of requests that the collector took.",
                &[],
            ),
            Self::SpansDropped => counter(
                "tidegate_spans_dropped_total",
                "Spans that the collector did not get: queue_full, unreachable, rejected or shutdown.",
                &["reason"],
            ),
            _ => self.level_spec(),
        }
    }

    const fn level_spec(self) -> Spec {
        match self {
            Self::QueueWait => histogram(
                "tidegate_queue_wait_seconds",
                "Time from the complete body to a place on a backend, of admitted requests.",
            ),
            Self::FirstToken => histogram(
                "tidegate_time_to_first_token_seconds",
                "Time from arrival to the first output of a stream.",
            ),
            Self::Duration => histogram(
                "tidegate_request_duration_seconds",
                "Time from arrival to the end of the answer, of admitted requests.",
            ),
            Self::WaitingRequests => {
                gauge("tidegate_waiting_requests", "Requests in the queue.", POOL)
            }
            Self::WaitingTokens => gauge(
                "tidegate_waiting_tokens",
                "Prompt and expected output tokens in the queue.",
                POOL,
            ),
            Self::OldestWait => gauge(
                "tidegate_oldest_wait_seconds",
                "Age of the longest wait in the queue.",
                POOL,
            ),
            Self::InFlightRequests => gauge(
                "tidegate_in_flight_requests",
                "Requests that hold KV on a backend.",
                BACKEND,
            ),
            Self::BodyBytes => gauge(
                "tidegate_body_bytes",
                "Request bodies held in memory, in bytes.",
                &[],
            ),
            Self::HandshakesFailed => counter(
                "tidegate_tls_handshakes_failed_total",
                "TLS handshakes of clients that failed: timeout, not_tls, nothing_in_common, no_certificate, bad_certificate or refused_by_client.",
                &["listener", "reason"],
            ),
            Self::CertificateExpires => gauge(
                "tidegate_certificate_expires_timestamp_seconds",
                "When a certificate that the gateway shows expires, in seconds since 1970.",
                &["setting"],
            ),
            Self::BuildInfo => gauge(
                "tidegate_build_info",
                "Always 1; the version is its label.",
                &["version"],
            ),
            _ => self.length_spec(),
        }
    }

    const fn length_spec(self) -> Spec {
        match self {
            Self::RequestPrompt => Spec {
                buckets: &LENGTHS,
                ..histogram(
                    "tidegate_request_prompt_tokens",
                    "Prompt tokens of a request that was answered to its end.",
                )
            },
            Self::RequestOutput => Spec {
                buckets: &LENGTHS,
                ..histogram(
                    "tidegate_request_output_tokens",
                    "Output tokens of one sequence of such a request.",
                )
            },
            Self::RequestContext => Spec {
                buckets: &LENGTHS,
                ..histogram(
                    "tidegate_request_context_tokens",
                    "Both together: what the engine's max_model_len bounds.",
                )
            },
            _ => self.books_spec(),
        }
    }

    const fn books_spec(self) -> Spec {
        match self {
            Self::KvCapacity => gauge(
                "tidegate_kv_capacity_tokens",
                "KV tokens a backend can hold; absent while unknown.",
                BACKEND,
            ),
            Self::KvCapacitySource => gauge(
                "tidegate_kv_capacity_source",
                "1 at the source of the capacity figure: configured, advertised_tokens, advertised_blocks or assumed.",
                &["model", "backend", "tier", "source"],
            ),
            Self::KvHeld => gauge(
                "tidegate_kv_held_tokens",
                "KV tokens held on a backend by the gateway's books.",
                BACKEND,
            ),
            Self::KvForeign => gauge(
                "tidegate_kv_foreign_tokens",
                "KV tokens in use on a backend that the gateway did not send.",
                BACKEND,
            ),
            Self::KvDrift => gauge(
                "tidegate_kv_ledger_drift_tokens",
                "KV tokens the engine reports less those in the books; far below 0 for long: the books hold too much.",
                BACKEND,
            ),
            Self::TenantInFlight => gauge(
                "tidegate_tenant_in_flight_tokens",
                "KV tokens charged to a tenant's in-flight share.",
                TRAFFIC,
            ),
            Self::TenantRateRemaining => gauge(
                "tidegate_tenant_rate_remaining",
                "Requests or tokens that a tenant's rate would let in now; of tenants that share a label the least.",
                &["tenant", "unit"],
            ),
            Self::TenantBooked => gauge(
                "tidegate_tenant_booked_tokens",
                "Tokens charged to a tenant's rate for requests that are not over.",
                &["tenant"],
            ),
            Self::MetricsAge => gauge(
                "tidegate_backend_metrics_age_seconds",
                "Age of the last good scrape; absent before the first.",
                BACKEND,
            ),
            _ => gauge(
                "tidegate_backend_state",
                "1 at the backend's state: starting, up, degraded, draining, sleeping or down.",
                &["model", "backend", "tier", "state"],
            ),
        }
    }
}

const fn counter(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Spec {
    Spec {
        name,
        help,
        kind: Kind::Counter,
        labels,
        buckets: &[],
    }
}

const fn gauge(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Spec {
    Spec {
        name,
        help,
        kind: Kind::Gauge,
        labels,
        buckets: &[],
    }
}

const fn histogram(name: &'static str, help: &'static str) -> Spec {
    Spec {
        name,
        help,
        kind: Kind::Histogram,
        labels: TIERED,
        buckets: &SECONDS,
    }
}
