use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;

use super::*;
use crate::core::reject::{QueueBound, Reject};
use crate::core::units::Tokens;
use crate::layers::error::{ForwardError, MeasureError, TenantError};
use crate::layers::fixture::Fixture;
use crate::protocol::{Route, parse};
use crate::tenants::{AuthError, LimitError, RateError, TokenError};

const SOON: Duration = Duration::from_secs(3);
const SOME: Tokens = Tokens::new(7);

/// One refusal of every kind there is.
fn refusals() -> Vec<Refusal> {
    let mut all = vec![Refusal::Panicked];
    all.extend(
        [
            ForwardError::Failed,
            ForwardError::TimedOut,
            ForwardError::Unreadable { status: 302 },
            ForwardError::Busy,
        ]
        .into_iter()
        .map(Refusal::Forward),
    );
    all.extend(tenant_errors().into_iter().map(Refusal::Tenant));
    all.extend(ingest_errors().into_iter().map(Refusal::Ingest));
    all.extend(measure_errors().into_iter().map(Refusal::Measure));
    all.extend(rejects().into_iter().map(Refusal::Admit));
    all
}

fn tenant_errors() -> Vec<TenantError> {
    vec![
        TenantError::Key(AuthError::Missing),
        TenantError::Key(AuthError::Malformed),
        TenantError::Key(AuthError::Unknown),
        TenantError::Key(AuthError::Token(TokenError::Expired)),
        TenantError::Key(AuthError::TooManyFailures { retry_after: SOON }),
        TenantError::TwoKeys("authorization"),
        TenantError::Rate(RateError::Requests {
            per_minute: 5,
            retry_after: SOON,
        }),
        TenantError::Rate(RateError::Tokens {
            asked: SOME,
            remaining: SOME,
            per_minute: SOME,
            retry_after: SOON,
        }),
        TenantError::Rate(RateError::AboveBurst {
            asked: SOME,
            burst: SOME,
        }),
        TenantError::Full(Reject::TenantQueueFull {
            waiting: 2,
            limit: 2,
            retry_after: SOON,
        }),
        TenantError::Full(Reject::Overloaded {
            bound: QueueBound::Requests,
            retry_after: SOON,
        }),
        TenantError::BodyBudgetSpent,
        TenantError::Draining,
    ]
}

fn ingest_errors() -> Vec<IngestError> {
    let unread = |body: &'static [u8]| {
        IngestError::Request(parse(Route::ChatCompletions, body).unwrap_err())
    };
    vec![
        IngestError::Route(RouteError::NotFound),
        IngestError::Route(RouteError::MethodNotAllowed { allow: "POST" }),
        IngestError::MediaType {
            expected: "application/json",
        },
        IngestError::Encoding,
        IngestError::Undecodable,
        IngestError::Expectation,
        IngestError::HeadersTooLarge { limit: 9 },
        IngestError::BodyTooLarge { limit: 9 },
        IngestError::BodyTooSlow { limit: SOON },
        IngestError::BodyTrickles { least: 512 },
        IngestError::BodyBroken,
        IngestError::BodyBudgetSpent,
        unread(b"{"),
        unread(b"{}"),
        IngestError::KvTransfer,
        IngestError::NoModel,
        IngestError::UnknownModel { model: "x".into() },
    ]
}

fn measure_errors() -> Vec<MeasureError> {
    let (prompt, output, limit) = (SOME, SOME, SOME);
    vec![
        MeasureError::Unrenderable {
            message: "no".into(),
        },
        MeasureError::TokenizerUnavailable,
        MeasureError::Limit(LimitError::Prompt { prompt, limit }),
        MeasureError::Limit(LimitError::Output {
            asked: output,
            limit,
        }),
        MeasureError::Limit(LimitError::Context {
            prompt,
            output,
            limit,
        }),
    ]
}

fn rejects() -> Vec<Reject> {
    let overloaded = |bound| Reject::Overloaded {
        bound,
        retry_after: SOON,
    };
    vec![
        Reject::ContextTooLong {
            prompt: SOME,
            output: SOME,
            limit: SOME,
        },
        Reject::TooManySequences {
            sequences: 2,
            tokens: SOME,
            limit: SOME,
            pool: SOME,
        },
        Reject::AboveTenantShare {
            asked: SOME,
            limit: SOME,
        },
        Reject::TenantQueueFull {
            waiting: 1,
            limit: 1,
            retry_after: SOON,
        },
        overloaded(QueueBound::Requests),
        overloaded(QueueBound::Tokens),
        overloaded(QueueBound::PredictedWait),
        Reject::QueueTimeout {
            waited: SOON,
            retry_after: SOON,
        },
        Reject::NoBackend { retry_after: SOON },
    ]
}

#[test]
fn every_reason_is_reached_and_has_one_label_of_its_own() {
    let reached: BTreeSet<_> = refusals().iter().map(|r| r.reason().label()).collect();
    let labels: BTreeSet<_> = Reason::ALL.into_iter().map(Reason::label).collect();
    assert_eq!(labels.len(), Reason::ALL.len());
    assert_eq!(reached, labels);
}

#[test]
fn a_code_has_one_status_and_every_code_is_used() {
    let mut status_of = BTreeMap::new();
    for reason in Reason::ALL {
        let (status, code) = status_and_code(reason);
        let known = status_of.insert(code.as_str(), status).unwrap_or(status);
        assert_eq!(known, status, "{}", code.as_str());
    }
    assert_eq!(status_of.len(), Code::ALL.len());
    assert!(
        !status_of
            .values()
            .any(|s| *s == StatusCode::REQUEST_TIMEOUT)
    );
}

#[test]
fn the_table_of_statuses_holds() {
    let expected = [
        (400, "context_length_exceeded"),
        (429, "tenant_limit_exceeded"),
        (429, "overloaded"),
        (429, "queue_timeout"),
        (503, "no_backend"),
        (404, "model_not_found"),
        (404, "not_found"),
        (401, "invalid_api_key"),
        (413, "request_too_large"),
        (400, "invalid_json"),
        (400, "invalid_request"),
        (405, "method_not_allowed"),
        (415, "unsupported_media_type"),
        (415, "unsupported_encoding"),
        (417, "expectation_failed"),
        (431, "headers_too_large"),
        (400, "request_timeout"),
        (429, "too_many_auth_failures"),
        (503, "tokenizer_unavailable"),
        (503, "server_shutdown"),
        (503, "server_busy"),
        (500, "internal_error"),
        (502, "upstream_failed"),
        (504, "upstream_timeout"),
    ];
    let expected: BTreeSet<_> = expected.into_iter().collect();
    let found: BTreeSet<_> = Reason::ALL
        .into_iter()
        .map(|reason| {
            let (status, code) = status_and_code(reason);
            (status.as_u16(), code.as_str())
        })
        .collect();
    assert_eq!(found, expected);
}

async fn refused(refusal: Refusal) -> (Response<()>, serde_json::Value) {
    let trail = Trail::begin("t", Some(Route::Completions), Fixture::new().telemetry);
    let answer: Response<AnswerBody<http_body_util::Empty<bytes::Bytes>>> =
        refuse(&refusal, &trail, (Version::HTTP_11, Dialect::OpenAi));
    let (head, body) = answer.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (
        Response::from_parts(head, ()),
        serde_json::from_slice(&body).unwrap(),
    )
}

#[tokio::test]
async fn every_refusal_is_answered_in_the_openai_shape() {
    for refusal in refusals() {
        let label = refusal.reason().label();
        let waits = retry_after(&refusal).is_some();
        let (head, body) = refused(refusal).await;
        let error = &body["error"];
        assert!(!error["message"].as_str().unwrap().is_empty(), "{label}");
        let (status, code) = (head.status().as_u16(), error["code"].as_str().unwrap());
        assert_eq!(head.headers().contains_key(RETRY_AFTER), waits, "{label}");
        let later = matches!(status, 429 | 503);
        assert_eq!(waits, later, "{label}: {status} {code}");
    }
}

#[tokio::test]
async fn a_wrong_method_names_the_right_one_and_a_slow_body_closes() {
    let error = IngestError::Route(RouteError::MethodNotAllowed { allow: "POST" });
    let (head, _) = refused(Refusal::Ingest(error)).await;
    assert_eq!(head.headers()[ALLOW], "POST");
    let slow = IngestError::BodyTooSlow { limit: SOON };
    let (head, _) = refused(Refusal::Ingest(slow)).await;
    assert_eq!(head.headers()[CONNECTION], "close");
    let (head, _) = refused(Refusal::Tenant(TenantError::Key(AuthError::Missing))).await;
    assert_eq!(head.headers()[WWW_AUTHENTICATE], "Bearer");
}

#[tokio::test]
async fn a_panic_below_is_answered_as_a_bug_of_ours() {
    let fixture = Fixture::new();
    let panics = tower::service_fn(|_: Traced<()>| async {
        assert!(std::hint::black_box(false), "a bug");
        let empty = AnswerBody::<http_body_util::Empty<bytes::Bytes>>::whole(bytes::Bytes::new());
        Ok::<_, Refusal>(Response::new(empty))
    });
    let traced = Traced {
        head: Box::new(Request::new(()).into_parts().0),
        body: (),
        trail: Trail::begin("t", None, Arc::clone(&fixture.telemetry)),
    };
    let answer = RescueLayer.layer(panics).call(traced).await.unwrap();
    assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let line = r#"tidegate_requests_total{route="other",status="none",reason="internal_error"} 1"#;
    assert!(fixture.counted(line));
}

#[tokio::test]
async fn a_wrong_method_on_anthropics_path_is_answered_in_its_shape() {
    let fixture = Fixture::new();
    let refuses = tower::service_fn(|_: Traced<()>| async {
        let error = IngestError::Route(RouteError::MethodNotAllowed { allow: "POST" });
        Err::<Response<AnswerBody<http_body_util::Empty<bytes::Bytes>>>, _>(Refusal::Ingest(error))
    });
    let head = Request::get("/v1/messages")
        .body(())
        .unwrap()
        .into_parts()
        .0;
    let traced = Traced {
        head: Box::new(head),
        body: (),
        trail: Trail::begin("t", None, Arc::clone(&fixture.telemetry)),
    };
    let answer = RescueLayer.layer(refuses).call(traced).await.unwrap();
    assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["type"], "error");
    assert!(body["error"]["type"].is_string());
}

#[test]
fn the_answer_to_slow_headers_is_a_whole_message() {
    let text = String::from_utf8(slow_headers_answer()).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{head}");
    assert!(head.contains(&format!("content-length: {}", body.len())));
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["error"]["code"], "request_timeout");
}
