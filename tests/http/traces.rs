//! Spans of requests at a collector: one tree for each request, joined to the
//! client's trace and to the engine's, and no request that waits for it.

use std::time::Duration;

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;

use crate::support::client::Ask;
use crate::support::collector::{OtlpFake, attribute};
use crate::support::fake::{Fake, FakeSpec};
use crate::support::setup::Setup;
use crate::support::stand::Stand;

const KEY: &str = "the-key-of-one";
const USAGE: &str = r#"{"usage":{"prompt_tokens":12,"completion_tokens":7,"total_tokens":19}}"#;

async fn gateway(endpoint: &str, share: &str) -> (Stand, Fake) {
    let fake = Fake::start(FakeSpec::default()).await;
    let setup = Setup::tiny(&[fake.backend("a")])
        .set("traces.endpoint", &format!("{endpoint:?}"))
        .set("traces.sample_share", share)
        .set("traces.service_name", "\"edge\"")
        .tenant("one", KEY, "");
    (Stand::start(&setup).await, fake)
}

fn ask() -> Ask {
    Ask::tokens(12, r#","max_tokens":9,"user":"what-a-client-wrote""#).key(KEY)
}

/// One request that is served; the engine's `traceparent` and `tracestate`.
async fn serve(stand: &Stand, fake: &Fake, ask: &Ask) -> [Option<String>; 2] {
    let mut client = stand.send(ask).await;
    let call = fake.call().await;
    let told = ["traceparent", "tracestate"].map(|name| call.head.get(name).map(str::to_owned));
    call.ok(USAGE).await;
    assert_eq!(client.reply().await.status, 200);
    told
}

/// Sends what waits, once so many requests are over to the last.
async fn flush(stand: &Stand, requests: f64) {
    stand.settle().await;
    let over = |page: &str| -> f64 {
        let ends = page
            .lines()
            .filter(|line| line.starts_with("tidegate_requests_total{route=\"completions\""));
        let counts = ends.filter_map(|line| line.rsplit_once(' '));
        counts.map(|(_, count)| count.parse::<f64>().unwrap()).sum()
    };
    while over(stand.admin("/metrics").await.text()) < requests {
        tokio::task::yield_now().await;
    }
    let telemetry = stand.running.telemetry();
    telemetry.flush(Duration::from_secs(30)).await;
}

fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let mut found = spans.iter().filter(|span| span.name == name);
    let span = found
        .next()
        .unwrap_or_else(|| panic!("no {name} in {spans:#?}"));
    assert!(found.next().is_none(), "one {name}");
    span
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn a_request_is_a_tree_of_four_spans_that_the_engine_s_own_can_join() {
    let collector = OtlpFake::start().await;
    let (stand, fake) = gateway(&collector.url, "1.0").await;
    let [parent, state] = serve(&stand, &fake, &ask()).await;
    flush(&stand, 1.0).await;
    let spans = collector.spans();
    assert_eq!(spans.len(), 4);
    assert_eq!(collector.services(), ["edge"]);
    let server = named(&spans, "POST /v1/completions");
    let upstream = named(&spans, "text_completion tiny");
    let (count, queue) = (named(&spans, "count"), named(&spans, "queue"));
    assert_eq!(server.kind, SpanKind::Server as i32);
    assert_eq!(upstream.kind, SpanKind::Client as i32);
    assert!(server.parent_span_id.is_empty(), "nobody asked for it");
    for child in [count, queue, upstream] {
        assert_eq!(child.parent_span_id, server.span_id, "{}", child.name);
        assert_eq!(child.trace_id, server.trace_id);
        assert!(child.start_time_unix_nano >= server.start_time_unix_nano);
        assert!(child.end_time_unix_nano <= server.end_time_unix_nano);
    }
    assert!(count.end_time_unix_nano <= queue.start_time_unix_nano);
    assert!(queue.end_time_unix_nano <= upstream.start_time_unix_nano);
    let joined = format!("00-{}-{}-01", hex(&server.trace_id), hex(&upstream.span_id));
    assert_eq!((parent, state), (Some(joined), None));
    for (span, key, value) in [
        (server, "http.request.method", "POST"),
        (server, "http.route", "/v1/completions"),
        (server, "http.response.status_code", "200"),
        (server, "gen_ai.usage.output_tokens", "7"),
        (server, "tidegate.tenant", "one"),
        (server, "tidegate.finish", "complete"),
        (count, "tidegate.prompt_tokens", "12"),
        (count, "tidegate.precision", "exact"),
        (upstream, "gen_ai.operation.name", "text_completion"),
        (upstream, "gen_ai.request.model", "tiny"),
        (upstream, "gen_ai.request.max_tokens", "9"),
        (upstream, "gen_ai.usage.input_tokens", "12"),
        (upstream, "tidegate.backend", "a"),
    ] {
        assert_eq!(attribute(span, key).as_deref(), Some(value), "{key}");
    }
    for (path, headers, body) in collector.batches() {
        assert_eq!(
            (path.as_str(), &headers["content-type"]),
            ("/v1/traces", &"application/x-protobuf".parse().unwrap())
        );
        let body = String::from_utf8_lossy(&body);
        assert!(!body.contains(KEY) && !body.contains("what-a-client-wrote"));
    }
    assert_eq!(stand.metric("tidegate_spans_exported_total").await, 4.0);
    fake.check();
}

#[tokio::test]
async fn a_sampled_parent_is_joined_and_its_state_is_passed_on() {
    let collector = OtlpFake::start().await;
    let (stand, fake) = gateway(&collector.url, "0.0").await;
    let asked = ask()
        .header(
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        )
        .header("tracestate", "vendor=1");
    let [parent, state] = serve(&stand, &fake, &asked).await;
    let refused = Ask::tokens(100_000, "").key(KEY);
    let refused = refused.header(
        "traceparent",
        "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    );
    assert_eq!(stand.ask(&refused).await.status, 400);
    flush(&stand, 2.0).await;
    let spans = collector.spans();
    let (served, refused): (Vec<_>, Vec<_>) = spans
        .into_iter()
        .partition(|span| hex(&span.trace_id).starts_with("0af7"));
    let server = named(&served, "POST /v1/completions");
    assert_eq!(hex(&server.parent_span_id), "b7ad6b7169203331");
    let upstream = named(&served, "text_completion tiny");
    let joined = format!(
        "00-0af7651916cd43dd8448eb211c80319c-{}-01",
        hex(&upstream.span_id)
    );
    assert_eq!(parent, Some(joined));
    assert_eq!(state.as_deref(), Some("vendor=1"));
    // A refusal has no upstream, and its reason is told; a 400 is no error of ours.
    let server = named(&refused, "POST /v1/completions");
    assert_eq!(
        attribute(server, "error.type").as_deref(),
        Some("context_too_long")
    );
    assert_eq!(server.status.as_ref().map_or(0, |status| status.code), 0);
    assert!(
        refused
            .iter()
            .all(|span| span.kind != SpanKind::Client as i32)
    );
    fake.check();
}

#[tokio::test]
async fn what_is_not_sampled_is_not_sent_and_the_engine_is_told_so() {
    let collector = OtlpFake::start().await;
    let (stand, fake) = gateway(&collector.url, "0.0").await;
    let [parent, _] = serve(&stand, &fake, &ask()).await;
    assert!(
        parent.is_some_and(|parent| parent.ends_with("-00")),
        "a root of ours"
    );
    let unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
    let asked = ask().header("traceparent", unsampled);
    let [parent, _] = serve(&stand, &fake, &asked).await;
    let parent = parent.unwrap();
    assert!(
        parent.starts_with("00-0af7651916cd43dd8448eb211c80319c-"),
        "{parent}"
    );
    assert!(parent.ends_with("-00"), "{parent}");
    flush(&stand, 2.0).await;
    assert_eq!(collector.batches().len(), 0);
    fake.check();
}

#[tokio::test]
async fn a_collector_that_is_down_costs_no_request_and_its_spans_are_counted() {
    let (stand, fake) = gateway("http://127.0.0.1:9", "1.0").await;
    for _ in 0..3 {
        serve(&stand, &fake, &ask()).await;
    }
    flush(&stand, 3.0).await;
    let lost = r#"tidegate_spans_dropped_total{reason="unreachable"}"#;
    assert_eq!(stand.metric(lost).await, 12.0);
    assert_eq!(stand.metric("tidegate_spans_exported_total").await, 0.0);
    fake.check();
}
