use http::header::HeaderValue;

use std::time::Duration;

use super::*;
use crate::config::Limits;
use crate::core::reject::Reject;
use crate::core::units::Tokens;
use crate::layers::fixture::Fixture;
use crate::layers::threads::Errand;
use crate::protocol::Route;
use crate::tenants::LimitError;

const CHAT: &str =
    r#"{"model":"model","messages":[{"role":"user","content":"one two three"}],"max_tokens":5}"#;

fn text_body(rest: &str) -> String {
    let words = "word ".repeat(400);
    format!(r#"{{"model":"model","prompt":"{words}"{rest}}}"#)
}

async fn measured(fixture: &Fixture, body: &str) -> Result<Measured, Refusal> {
    let parsed = fixture.parsed(Route::Completions, body);
    fixture.layer().measure(parsed).await
}

#[tokio::test]
async fn every_prompt_of_a_list_is_one_entry_and_ids_are_exact() {
    let fixture = Fixture::new();
    let body = r#"{"model":"model","prompt":[[1,2,3],[4,5]],"max_tokens":7,"n":2}"#;
    let measured = measured(&fixture, body).await.ok().unwrap();
    let demand = &measured.demand;
    assert_eq!(demand.prompts, [Tokens::new(3), Tokens::new(2)]);
    assert_eq!((demand.samples, demand.sequences()), (2, 4));
    assert_eq!(demand.output, OutputLimit::Asked(Tokens::new(7)));
    assert_eq!(demand.progress, Progress::Unseen);
    let precision = measured.letter.trail.read(|facts| facts.record.precision);
    assert_eq!(precision, Some("exact"));
}

#[tokio::test]
async fn prompts_beside_embeddings_are_charged_as_what_they_are() {
    let fixture = Fixture::new();
    let ids = vec!["7"; 300].join(",");
    let body = format!(r#"{{"prompt_embeds":"AAAA","prompt":[{ids}],"max_tokens":1}}"#);
    let charged = measured(&fixture, &body).await.ok().unwrap();
    let of_body = u64::try_from(body.len() / 128 + 1).unwrap();
    let expected = [Tokens::new(of_body), Tokens::new(300)];
    assert_eq!(charged.demand.prompts, expected);
    let precision = charged.letter.trail.read(|facts| facts.record.precision);
    assert_eq!(precision, Some("estimated"));
    let text = r#"{"prompt_embeds":"AAAA","prompt":"a text","max_tokens":1}"#;
    let charged = measured(&fixture, text).await.ok().unwrap();
    assert_eq!(charged.demand.prompts, [Tokens::new(1), Tokens::new(10)]);
}

#[tokio::test]
async fn a_prompt_the_engine_shortens_is_charged_as_shortened() {
    let fixture = Fixture::new();
    let short = text_body(r#","truncate_prompt_tokens":10,"max_tokens":1"#);
    let short = measured(&fixture, &short).await.ok().unwrap();
    assert_eq!(short.demand.prompts, [Tokens::new(10)]);
    let long = "x ".repeat(3000);
    let body = format!(r#"{{"prompt":"{long}","truncate_prompt_tokens":-1,"max_tokens":1}}"#);
    let shortened = measured(&fixture, &body).await.ok().unwrap();
    // The longest context is 1024, and one token is left for the answer.
    assert_eq!(shortened.demand.prompts, [Tokens::new(1023)]);
}

#[tokio::test]
async fn a_tenants_limits_are_checked_before_anything_queues() {
    let mut fixture = Fixture::new();
    let limit = Tokens::new(20);
    fixture.limit(Limits {
        max_prompt: Some(limit),
        ..Limits::default()
    });
    let refused = measured(&fixture, &text_body(r#","max_tokens":1"#)).await;
    let Some(Refusal::Measure(MeasureError::Limit(LimitError::Prompt { prompt, .. }))) =
        refused.err()
    else {
        panic!("the prompt is above the limit");
    };
    assert!(prompt > limit, "{prompt}");
    assert_eq!(fixture.state().totals.received, 0);
}

#[tokio::test]
async fn headers_narrow_the_offload_rule_and_declare_long_documents() {
    let fixture = Fixture::new();
    let layer = fixture.layer();
    let mut parsed = fixture.parsed(Route::ChatCompletions, CHAT);
    let headers = &mut parsed.letter.head.headers;
    headers.insert(ALLOW_OFFLOAD, HeaderValue::from_static("0"));
    headers.insert(CLASS, HeaderValue::from_static("long"));
    let demand = layer.measure(parsed).await.ok().unwrap().demand;
    assert_eq!(
        (demand.offload, demand.length),
        (OffloadRule::Never, Length::Long)
    );
    let mut parsed = fixture.parsed(Route::ChatCompletions, CHAT);
    let headers = &mut parsed.letter.head.headers;
    headers.insert(ALLOW_OFFLOAD, HeaderValue::from_static("1"));
    let demand = layer.measure(parsed).await.ok().unwrap().demand;
    assert_eq!(demand.offload, fixture.tenant.tenant.offload);
    assert_eq!(demand.length, Length::ByFootprint);
}

#[tokio::test]
async fn a_request_waits_as_long_as_its_tenant_and_the_queue_allow() {
    let mut fixture = Fixture::new();
    let wait = std::time::Duration::from_secs(7);
    fixture.limit(Limits {
        max_queue_wait: Some(wait),
        ..Limits::default()
    });
    let now = fixture.pool.gate().clock().now();
    let body = r#"{"prompt":"a","max_tokens":1,"stream":true}"#;
    let demand = measured(&fixture, body).await.ok().unwrap().demand;
    let bounded = demand.deadline - now;
    assert!((wait..wait * 2).contains(&bounded), "{bounded:?}");
    assert_eq!(demand.progress, Progress::Streamed);
}

#[tokio::test]
async fn an_estimate_is_refused_where_the_model_must_be_counted() {
    let fixture = Fixture::exact_only();
    let refused = measured(&fixture, &text_body(r#","max_tokens":1"#)).await;
    let reason = refused.err().map(|refusal| refusal.reason());
    assert_eq!(
        reason,
        Some(crate::layers::reason::Reason::TokenizerUnavailable)
    );
    let ids = r#"{"prompt":[1,2],"max_tokens":1}"#;
    assert!(measured(&fixture, ids).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_prompt_waits_no_longer_for_a_thread_than_its_tenant_may_wait() {
    let mut fixture = Fixture::new();
    fixture.limit(Limits {
        max_queue_wait: Some(Duration::from_secs(7)),
        ..Limits::default()
    });
    let layer = fixture.layer();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let threads = layer.threads.clone();
    let errand = Errand::of(&fixture.tenant, 1);
    let mut busy = tokio_test::task::spawn(threads.run(errand, move |_| wait.recv().is_ok()));
    tokio_test::assert_pending!(busy.poll());
    let long = format!(r#"{{"prompt":"{}","max_tokens":1}}"#, "word ".repeat(3000));
    let refused = layer
        .measure(fixture.parsed(Route::Completions, &long))
        .await;
    let Some(Refusal::Admit(Reject::QueueTimeout { waited, .. })) = refused.err() else {
        panic!("the thread is busy");
    };
    assert_eq!(waited, Duration::from_secs(7));
    // A short one is counted on the spot.
    let short = r#"{"prompt":"a","max_tokens":1}"#;
    let parsed = fixture.parsed(Route::Completions, short);
    assert!(layer.measure(parsed).await.is_ok());
    go.send(()).unwrap();
    assert_eq!(busy.await, Ok(true));
}

#[tokio::test(start_paused = true)]
async fn the_objective_of_a_stream_counts_from_its_arrival_and_other_answers_have_none() {
    let fixture = Fixture::new();
    let snapshot = fixture.snapshot(|config| {
        config.admission.first_token = Some(Duration::from_secs(2));
        config.admission.first_token_per_1000 = Duration::from_secs(100);
    });
    fixture.current.store(snapshot);
    tokio::time::advance(Duration::from_secs(5)).await;
    let ids = vec!["7"; 100].join(",");
    let by = async |rest: &str| {
        let body = format!(r#"{{"prompt":[{ids}],"max_tokens":4{rest}}}"#);
        let parsed = fixture.parsed(Route::Completions, &body);
        tokio::time::advance(Duration::from_secs(1)).await;
        let measured = fixture.layer().measure(parsed).await.ok().unwrap();
        measured.demand.first_token_by
    };
    let expected = Time::from_start(Duration::from_secs(5 + 2 + 10));
    assert_eq!(by(r#","stream":true"#).await, Some(expected));
    assert_eq!(by("").await, None);
}
