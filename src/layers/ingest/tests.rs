use http::Method;

use super::*;
use crate::layers::fixture::Fixture;
use crate::protocol::RouteError;
use std::time::Duration;

const LIMITS: BodyLimits = BodyLimits {
    max_header_bytes: 200,
    max_body_bytes: 1 << 20,
    min_body_rate: 0,
    body_timeout: Duration::from_secs(5),
};

fn head(method: Method, path: &str, header: Option<(&'static str, &str)>) -> Parts {
    let mut request = http::Request::builder().method(method).uri(path);
    if let Some((name, value)) = header {
        request = request.header(name, value);
    }
    request.body(()).unwrap().into_parts().0
}

#[test]
fn what_the_head_rules_out_is_refused() {
    let chat = "/v1/chat/completions";
    let check = |method, path, header| {
        let matched = check_head(&head(method, path, header), &LIMITS)?;
        Ok(matched.route)
    };
    assert_eq!(check(Method::POST, chat, None), Ok(Route::ChatCompletions));
    assert_eq!(
        check(Method::POST, "/sleep", None),
        Err(IngestError::Route(RouteError::NotFound))
    );
    let allow = RouteError::MethodNotAllowed { allow: "POST" };
    assert_eq!(
        check(Method::GET, chat, None),
        Err(IngestError::Route(allow))
    );
    let expect = check(Method::POST, chat, Some(("expect", "the moon")));
    assert_eq!(expect, Err(IngestError::Expectation));
    let expect = check(Method::POST, chat, Some(("expect", "100-Continue")));
    assert_eq!(expect, Ok(Route::ChatCompletions));
    let mut twice = head(Method::POST, chat, Some(("expect", "100-continue")));
    twice
        .headers
        .append(EXPECT, HeaderValue::from_static("more"));
    assert_eq!(check_head(&twice, &LIMITS), Err(IngestError::Expectation));
    let long = "x".repeat(200);
    let large = check(Method::POST, chat, Some(("x-long", &long)));
    assert_eq!(large, Err(IngestError::HeadersTooLarge { limit: 200 }));
}

#[test]
fn only_json_as_it_is_can_be_read() {
    let check = |name: &'static str, value: &'static str| {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(name, HeaderValue::from_static(value));
        check_body_headers(&headers, "application/json")
    };
    let json = "Application/JSON; charset=utf-8";
    assert_eq!(check("content-type", json), Ok(Coding::Identity));
    let odd = Err(IngestError::MediaType {
        expected: "application/json",
    });
    assert_eq!(check("content-type", "text/plain"), odd);
    assert_eq!(check("content-type", "application/jsonl"), odd);
    assert_eq!(
        check_body_headers(&HeaderMap::new(), "application/json"),
        odd
    );
    for (written, read) in [
        ("identity", Coding::Identity),
        ("gzip", Coding::Gzip),
        ("GZIP", Coding::Gzip),
        ("x-gzip", Coding::Gzip),
        ("deflate", Coding::Deflate),
        ("identity, zstd", Coding::Zstd),
    ] {
        assert_eq!(check("content-encoding", written), Ok(read), "{written}");
    }
    for written in [
        "br",
        "gzip, gzip",
        "zstd,deflate",
        "",
        "gzip;q=1",
        "unknown",
    ] {
        let refused = check("content-encoding", written);
        assert_eq!(refused, Err(IngestError::Encoding), "{written}");
    }
}

#[tokio::test]
async fn a_request_without_a_model_means_the_tenants_only_one() {
    let fixture = Fixture::new();
    let pools = Pools::new(vec![Arc::clone(&fixture.pool)]);
    let find = |model| find(&pools, &fixture.tenant, model);
    let found = find(None).unwrap();
    assert_eq!((&**found.0.name(), found.1), ("model", ServedId(0)));
    assert!(find(Some("")).is_ok());
    let unknown = find(Some("other")).err();
    let model = "other".to_owned();
    assert_eq!(unknown, Some(IngestError::UnknownModel { model }));

    let two = Pools::new(vec![Arc::clone(&fixture.pool), Fixture::new().pool]);
    let unsaid = super::find(&two, &fixture.tenant, None).err();
    assert_eq!(unsaid, Some(IngestError::NoModel));
}

#[tokio::test]
async fn a_model_of_others_is_as_unknown_as_one_that_is_not_there() {
    let mut fixture = Fixture::new();
    let mut tenant = (*fixture.tenant.tenant).clone();
    tenant.models = crate::config::ModelAccess::Only(vec!["mine".into()]);
    fixture.tenant.tenant = Arc::new(tenant);
    let pools = Pools::new(vec![Arc::clone(&fixture.pool)]);
    let refused = find(&pools, &fixture.tenant, Some("model")).err();
    let model = "model".to_owned();
    assert_eq!(refused, Some(IngestError::UnknownModel { model }));
    assert_eq!(
        find(&pools, &fixture.tenant, None).err(),
        Some(IngestError::NoModel)
    );
}
