//! Every counter is there at 0 before anything has happened, with each value that
//! its labels can have.

use std::collections::BTreeSet;

use tidegate::layers::reason::Reason;
use tidegate::protocol::Route;
use tidegate::telemetry::{Kind, Metric, UpstreamFailure};

use crate::support::client::{Ask, tokens_body};
use crate::support::fake::{Fake, FakeSpec};
use crate::support::setup::Setup;
use crate::support::stand::Stand;

/// Series of counters, and of the sums and counts of histograms, with their values.
fn counted(page: &str) -> Vec<(&str, f64)> {
    let samples = page.lines().filter_map(|line| line.rsplit_once(' '));
    let only_grows = |series: &str| {
        let name = series.split('{').next().unwrap_or_default();
        ["_total", "_count", "_sum"]
            .iter()
            .any(|end| name.ends_with(end))
    };
    samples
        .filter(|(series, _)| !series.starts_with('#') && only_grows(series))
        .map(|(series, value)| (series, value.parse().unwrap()))
        .collect()
}

#[tokio::test]
async fn every_counter_is_there_at_0_before_the_first_request() {
    let fake = Fake::start(FakeSpec::default()).await;
    let stand = Stand::start(&Setup::tiny(&[fake.backend("a")])).await;
    let page = stand.admin("/metrics").await;
    let counted = counted(page.text());
    for spec in Metric::ALL.map(Metric::spec) {
        let name = match spec.kind {
            Kind::Counter => spec.name.to_owned(),
            Kind::Histogram => format!("{}_count", spec.name),
            Kind::Gauge => continue,
        };
        let series = counted.iter().filter(|(series, _)| {
            series
                .strip_prefix(&*name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('{'))
        });
        assert!(series.count() > 0, "{name} is not there");
    }
    let begun = ["tidegate_tokenizer_loads_total", "tidegate_count_mismatch"];
    let nonzero: Vec<_> = counted
        .iter()
        .filter(|(series, value)| {
            *value != 0.0 && !begun.iter().any(|name| series.starts_with(name))
        })
        .collect();
    assert!(nonzero.is_empty(), "{nonzero:?}");
    let routes: BTreeSet<_> = Route::served().map(|(_, route)| route.label()).collect();
    let refusals = counted.iter().filter(|(series, _)| {
        series.starts_with("tidegate_requests_total{") && !series.contains(r#"reason="none""#)
    });
    // Each reason with its status, and three that may break off a good answer.
    let reasons = Reason::ALL.len() + 3;
    assert_eq!(refusals.count(), (routes.len() + 1) * reasons);
    let failures = counted
        .iter()
        .filter(|(series, _)| series.starts_with("tidegate_upstream_failures_total{"));
    assert_eq!(failures.count(), UpstreamFailure::ALL.len());
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn requests_and_refusals_add_no_series_to_those_of_the_start() {
    let fake = Fake::start(FakeSpec::default()).await;
    let stand = Stand::start(&Setup::tiny(&[fake.backend("a")])).await;
    let before = stand.admin("/metrics").await;
    let mut client = stand.send(&Ask::tokens(4, r#","max_tokens":4"#)).await;
    let usage = r#"{"usage":{"prompt_tokens":4,"completion_tokens":4,"total_tokens":8}}"#;
    fake.call().await.ok(usage).await;
    assert_eq!(client.reply().await.status, 200);
    for body in [
        tokens_body("tiny", 100_000, ""),
        tokens_body("nobody", 4, ""),
        "{".to_owned(),
    ] {
        let refused = stand.ask(&Ask::post("/v1/completions", body)).await;
        assert!([400, 404].contains(&refused.status));
    }
    stand.ask(&Ask::get("/v1/models")).await;
    stand.ask(&Ask::get("/nothing")).await;
    stand.settle().await;
    let after = stand.admin("/metrics").await;
    let names = |page: &str| -> BTreeSet<String> {
        let series = counted(page).into_iter();
        series.map(|(series, _)| series.to_owned()).collect()
    };
    let (before, after) = (names(before.text()), names(after.text()));
    let new: Vec<_> = after.difference(&before).collect();
    assert!(new.is_empty(), "{new:?}");
    fake.check();
}
