use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::Uri;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use prost::Message as _;

use super::*;

/// A collector that answers as it is told, and after that never.
#[derive(Clone, Default)]
struct Told {
    answers: Arc<Mutex<VecDeque<Result<Posted, String>>>>,
    batches: Arc<Mutex<Vec<usize>>>,
}

fn lock<T>(what: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

fn spans_in(batch: &Bytes) -> usize {
    let request = ExportTraceServiceRequest::decode(batch.clone()).expect("it is protobuf");
    let scopes = request
        .resource_spans
        .iter()
        .flat_map(|one| &one.scope_spans);
    scopes.map(|scope| scope.spans.len()).sum()
}

impl Told {
    fn new(answers: impl IntoIterator<Item = Result<Posted, String>>) -> Self {
        let told = Self::default();
        lock(&told.answers).extend(answers);
        told
    }

    fn batches(&self) -> Vec<usize> {
        lock(&self.batches).clone()
    }
}

impl Collector for Told {
    fn post(&self, batch: Bytes) -> PostFuture<'_> {
        lock(&self.batches).push(spans_in(&batch));
        let answer = lock(&self.answers).pop_front();
        Box::pin(async move {
            match answer {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        })
    }
}

fn answered(status: u16, body: impl Into<Bytes>) -> Result<Posted, String> {
    let body = body.into();
    Ok(Posted { status, body })
}

fn tracer(queue_requests: usize) -> (Arc<Tracer>, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::new(1));
    let traces = Traces {
        endpoint: Some(Uri::from_static("http://127.0.0.1:4318")),
        sample_share: 1.0,
        queue_requests,
        ..Traces::default()
    };
    let tracer = Tracer::new(&traces, &metrics).expect("it is on");
    (Arc::new(tracer), metrics)
}

/// A request of this many stages is over.
fn finish(tracer: &Tracer, stages: usize) {
    let target = Target::new(&http::Method::POST, Some("/v1/completions"));
    let mut journey = tracer.begin(&HeaderMap::new(), target);
    for _ in 0..stages {
        let leg = journey.enter(Stage::Queue, Duration::ZERO);
        journey.leave(&leg, Duration::from_millis(5));
    }
    let record = AccessRecord::new(SystemTime::now(), "r".into(), "completions");
    tracer.finish(&journey, &record);
}

fn counted(metrics: &Metrics, series: &str) -> u64 {
    let text = metrics.render();
    let line = text.lines().find_map(|line| line.strip_prefix(series));
    line.map_or(0, |value| value.trim().parse().expect("a count"))
}

fn dropped(metrics: &Metrics, reason: &str) -> u64 {
    let series = format!("tidegate_spans_dropped_total{{reason=\"{reason}\"}}");
    counted(metrics, &series)
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_hangs_costs_spans_which_are_counted_and_nobody_waits() {
    let (tracer, metrics) = tracer(2);
    let outbox = tracer.outbox().expect("it is there");
    assert!(tracer.outbox().is_none(), "there is one");
    let told = Told::default();
    let sending = tokio::spawn(outbox.run(told.clone()));
    // A full batch goes at once and is never answered.
    finish(&tracer, 511);
    while told.batches() != [512] {
        tokio::task::yield_now().await;
    }
    for _ in 0..7 {
        finish(&tracer, 2);
    }
    assert_eq!(dropped(&metrics, "queue_full"), 5 * 3);
    sending.abort();
    assert!(sending.await.is_err_and(|error| error.is_cancelled()));
    finish(&tracer, 2);
    assert_eq!(dropped(&metrics, "shutdown"), 3);
    assert_eq!(counted(&metrics, "tidegate_spans_exported_total"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_tried_again_where_the_collector_asks_for_later() {
    let (tracer, metrics) = tracer(8);
    let partial = ExportTraceServiceResponse {
        partial_success: Some(ExportTracePartialSuccess {
            rejected_spans: 1,
            error_message: String::new(),
        }),
    };
    let told = Told::new([
        answered(503, ""),
        Err("connection refused".to_owned()),
        answered(200, partial.encode_to_vec()),
        answered(400, ""),
        answered(200, ""),
    ]);
    let outbox = tracer.outbox().expect("it is there");
    let sending = tokio::spawn(outbox.run(told.clone()));
    finish(&tracer, 3);
    while counted(&metrics, "tidegate_spans_exported_total") != 3 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(told.batches(), [4, 4, 4]);
    assert_eq!(dropped(&metrics, "rejected"), 1);
    // What is refused for good is not tried again.
    finish(&tracer, 1);
    while dropped(&metrics, "rejected") != 3 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(told.batches(), [4, 4, 4, 2]);
    // The end sends what waits, at once.
    finish(&tracer, 0);
    let before = tokio::time::Instant::now();
    tracer.flush().await;
    assert_eq!(before.elapsed(), Duration::ZERO);
    assert_eq!(told.batches(), [4, 4, 4, 2, 1]);
    assert!(sending.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_end_gives_up_on_a_collector_that_is_down_without_waiting() {
    let (tracer, metrics) = tracer(8);
    let told = Told::new([Err("connection refused".to_owned())]);
    let outbox = tracer.outbox().expect("it is there");
    let sending = tokio::spawn(outbox.run(told.clone()));
    finish(&tracer, 2);
    tracer.flush().await;
    assert!(sending.await.is_ok());
    assert_eq!(
        (told.batches(), dropped(&metrics, "unreachable")),
        (vec![3], 3)
    );
}

#[test]
fn a_parent_decides_whether_its_trace_is_sent_and_the_share_where_there_is_none() {
    let target = Target::new(&http::Method::GET, None);
    let sampled = |share, parent: Option<&str>| {
        let metrics = Arc::new(Metrics::new(1));
        let traces = Traces {
            endpoint: Some(Uri::from_static("http://127.0.0.1:4318")),
            sample_share: share,
            ..Traces::default()
        };
        let tracer = Tracer::new(&traces, &metrics).expect("it is on");
        let mut headers = HeaderMap::new();
        if let Some(parent) = parent {
            headers.insert("traceparent", parent.parse().expect("it is a value"));
        }
        tracer.begin(&headers, target).is_sampled()
    };
    let parent = |flags| format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags}");
    assert!(sampled(0.0, Some(&parent("01"))));
    assert!(!sampled(1.0, Some(&parent("00"))));
    assert!(sampled(1.0, None) && !sampled(0.0, None));
    // What is no traceparent is none.
    for odd in [
        "00-0-0-01",
        "",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ] {
        assert!(!sampled(0.0, Some(odd)), "{odd}");
    }
}
