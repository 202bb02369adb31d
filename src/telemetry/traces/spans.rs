//! Spans as OpenTelemetry has them, made of what is known of a request.
//!
//! Names and attributes are those of its conventions for HTTP servers and for
//! generative AI where there are any; what only a gateway knows begins with
//! `tidegate.`. Invariant: values come from the configuration, from closed sets or
//! are numbers, except for the request's id.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use super::journey::{Journey, Lap, Stage};
use crate::telemetry::record::{AccessRecord, Finish};

/// Attributes of OpenTelemetry's conventions, HTTP (stable) and generative AI (in
/// development: <https://github.com/open-telemetry/semantic-conventions-genai>).
mod name {
    pub(super) const HTTP_REQUEST_METHOD: &str = "http.request.method";
    pub(super) const HTTP_ROUTE: &str = "http.route";
    pub(super) const HTTP_RESPONSE_STATUS_CODE: &str = "http.response.status_code";
    pub(super) const ERROR_TYPE: &str = "error.type";
    pub(super) const OPERATION: &str = "gen_ai.operation.name";
    pub(super) const MODEL: &str = "gen_ai.request.model";
    pub(super) const MAX_TOKENS: &str = "gen_ai.request.max_tokens";
    pub(super) const STREAM: &str = "gen_ai.request.stream";
    pub(super) const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
    pub(super) const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
    pub(super) const CACHED_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
    pub(super) const FIRST_CHUNK: &str = "gen_ai.response.time_to_first_chunk";
}

/// The spans of a request, its own first.
pub(super) fn of(journey: &Journey, record: &AccessRecord) -> Vec<SpanData> {
    let took = record.duration_ms.unwrap_or_default();
    let mut spans = vec![server(journey, record, took)];
    let laps = journey.laps.iter();
    spans.extend(laps.map(|lap| stage(journey, record, (lap, took))));
    spans
}

fn server(journey: &Journey, record: &AccessRecord, took: Duration) -> SpanData {
    let target = journey.target;
    let failed =
        record.status.is_some_and(|status| status >= 500) || record.finish == Finish::Failed;
    let mut attributes = vec![
        KeyValue::new(name::HTTP_REQUEST_METHOD, target.method),
        KeyValue::new("tidegate.request_id", Arc::clone(&record.request_id)),
        KeyValue::new("tidegate.finish", word(record.finish)),
    ];
    let mut put = |key: &'static str, value: Option<Value>| {
        attributes.extend(value.map(|value| KeyValue::new(key, value)));
    };
    put(name::HTTP_ROUTE, target.path.map(Value::from));
    let status = record.status.map(|status| Value::from(i64::from(status)));
    put(name::HTTP_RESPONSE_STATUS_CODE, status);
    let failure = record.reason.or(failed.then_some("backend"));
    put(name::ERROR_TYPE, failure.map(Value::from));
    put("tidegate.tenant", record.tenant.clone().map(Value::from));
    put("tidegate.held_by", record.held_by.map(Value::from));
    put(
        "tidegate.tier",
        record.tier.map(|tier| Value::from(tier.name())),
    );
    put("tidegate.retry_after", record.retry_after_s.map(number));
    put("tidegate.charged_tokens", record.charged_tokens.map(number));
    attributes.extend(generative(record));
    let title = match target.path {
        Some(path) => Cow::from(format!("{} {path}", target.method)),
        None => Cow::from(target.method),
    };
    SpanData {
        parent_span_id: journey.parent.span_id(),
        parent_span_is_remote: journey.parent.is_valid(),
        span_kind: SpanKind::Server,
        name: title,
        attributes,
        status: if failed {
            Status::error("")
        } else {
            Status::Unset
        },
        ..blank(record, journey.own.clone(), (Duration::ZERO, took))
    }
}

fn stage(journey: &Journey, record: &AccessRecord, (lap, took): (&Lap, Duration)) -> SpanData {
    let own = &journey.own;
    let (flags, state) = (own.trace_flags(), own.trace_state().clone());
    let context = SpanContext::new(own.trace_id(), lap.id, flags, false, state);
    let (title, kind, mut attributes) = match &lap.stage {
        Stage::Count => (Cow::from("count"), SpanKind::Internal, counting(record)),
        Stage::Queue => (Cow::from("queue"), SpanKind::Internal, queueing(record)),
        Stage::Upstream(backend) => {
            let mut attributes = generative(record);
            attributes.push(KeyValue::new("tidegate.backend", Arc::clone(backend)));
            (upstream_title(record), SpanKind::Client, attributes)
        }
    };
    if let Some(failure) = lap.failure {
        attributes.push(KeyValue::new(name::ERROR_TYPE, failure));
    }
    let status = lap.failure.map_or(Status::Unset, Status::error);
    SpanData {
        parent_span_id: own.span_id(),
        span_kind: kind,
        name: title,
        attributes,
        status,
        ..blank(record, context, (lap.began, lap.ended.unwrap_or(took)))
    }
}

/// A span from one time after the arrival to another.
fn blank(
    record: &AccessRecord,
    context: SpanContext,
    (from, to): (Duration, Duration),
) -> SpanData {
    let scope = InstrumentationScope::builder("tidegate");
    SpanData {
        span_context: context,
        parent_span_id: SpanId::INVALID,
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name: Cow::from(""),
        start_time: record.arrival + from,
        end_time: record.arrival + to.max(from),
        attributes: Vec::new(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: Status::Unset,
        instrumentation_scope: scope.with_version(env!("CARGO_PKG_VERSION")).build(),
    }
}

fn counting(record: &AccessRecord) -> Vec<KeyValue> {
    let tokens = record.prompt_tokens.map(number);
    let tokens = tokens.map(|tokens| KeyValue::new("tidegate.prompt_tokens", tokens));
    let precision = record.precision;
    let precision = precision.map(|word| KeyValue::new("tidegate.precision", word));
    tokens.into_iter().chain(precision).collect()
}

fn queueing(record: &AccessRecord) -> Vec<KeyValue> {
    let foreseen = [
        ("tidegate.predicted_wait_seconds", record.predicted_wait_ms),
        (
            "tidegate.predicted_wait_q80_seconds",
            record.predicted_wait_q80_ms,
        ),
    ];
    let times = foreseen
        .into_iter()
        .filter_map(|(key, wait)| Some((key, wait?)));
    let mut attributes: Vec<_> = times
        .map(|(key, wait)| KeyValue::new(key, wait.as_secs_f64()))
        .collect();
    let held_by = record.held_by;
    attributes.extend(held_by.map(|word| KeyValue::new("tidegate.held_by", word)));
    attributes
}

/// What the conventions for generative AI know of a request.
fn generative(record: &AccessRecord) -> Vec<KeyValue> {
    let streams = record.stream.then_some(Value::from(true));
    let first = record.ttft_ms.filter(|_| record.stream);
    let pairs = [
        (name::OPERATION, operation(record.route).map(Value::from)),
        (name::MODEL, record.model.clone().map(Value::from)),
        (name::MAX_TOKENS, record.max_tokens.map(number)),
        (name::STREAM, streams),
        (
            name::INPUT_TOKENS,
            record
                .used_prompt_tokens
                .or(record.prompt_tokens)
                .map(number),
        ),
        (name::OUTPUT_TOKENS, record.used_output_tokens.map(number)),
        (name::CACHED_TOKENS, record.used_cached_tokens.map(number)),
        (
            name::FIRST_CHUNK,
            first.map(|time| Value::from(time.as_secs_f64())),
        ),
    ];
    let known = pairs
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)));
    known
        .map(|(key, value)| KeyValue::new(key, value))
        .collect()
}

/// `{operation} {model}`, as the conventions say.
fn upstream_title(record: &AccessRecord) -> Cow<'static, str> {
    let operation = operation(record.route).unwrap_or(record.route);
    match &record.model {
        Some(model) => format!("{operation} {model}").into(),
        None => operation.into(),
    }
}

/// The word of the conventions for a route, where they have one.
fn operation(route: &str) -> Option<&'static str> {
    match route {
        "chat_completions" | "responses" | "messages" => Some("chat"),
        "completions" => Some("text_completion"),
        "embeddings" => Some("embeddings"),
        _ => None,
    }
}

const fn word(finish: Finish) -> &'static str {
    match finish {
        Finish::Complete => "complete",
        Finish::Refused => "refused",
        Finish::Cancelled => "cancelled",
        Finish::Failed => "failed",
    }
}

/// Clipped at what the wire holds, which no count of tokens comes near.
fn number(number: u64) -> Value {
    Value::from(i64::try_from(number).unwrap_or(i64::MAX))
}
