//! Captured requests, against what a real engine answered.

use std::path::Path;

use http::Method;
use serde_json::Value;

use super::Offline;
use crate::core::units::Tokens;
use crate::protocol::{parse, route};
use crate::tokenize::{CounterSpec, ModelCounter, Precision, Source};

fn golden(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

fn exchanges(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(golden("vllm-0.32").join(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn counter() -> ModelCounter {
    let mut spec = CounterSpec::new(Source::Directory(golden("tiny-model")));
    let template = std::fs::read_to_string(golden("templates/chatml.jinja"));
    spec.chat_template = Some(template.unwrap());
    ModelCounter::load(spec).unwrap()
}

/// The body with its long texts written out.
fn written_out(value: &Value) -> Value {
    match value {
        Value::Object(object) if object.contains_key("repeat") => {
            let times = usize::try_from(object["times"].as_u64().unwrap()).unwrap();
            object["repeat"].as_str().unwrap().repeat(times).into()
        }
        Value::Object(object) => {
            let members = object.iter();
            members
                .map(|(key, value)| (key.clone(), written_out(value)))
                .collect()
        }
        other => other.clone(),
    }
}

/// What the engine counted, where its answer says so.
fn counted_by_engine(exchange: &Value) -> Option<u64> {
    let answer: Value = serde_json::from_str(exchange["answer"].as_str()?).ok()?;
    let counts = [&answer["usage"]["prompt_tokens"], &answer["count"]];
    counts.into_iter().find_map(Value::as_u64)
}

/// Our count of a captured request and whether it is exact; `None` for a route
/// that is not under test or a body that is refused for its form.
fn counted_here(counter: &ModelCounter, exchange: &Value) -> Option<(u64, bool)> {
    let path = exchange["path"].as_str().unwrap();
    let route = route(&Method::POST, path).unwrap().route;
    let body = written_out(&exchange["body"]).to_string();
    let request = parse(route, body.as_bytes()).ok()?;
    let offline = Offline {
        counter,
        request: &request,
        body_bytes: body.len(),
        stored_history: Tokens::new(4096),
    };
    let count = offline.count().unwrap();
    Some((count.total(), count.precision == Precision::Exact))
}

#[test]
fn what_an_engine_answered_is_never_refused_and_its_ids_are_counted_alike() {
    let counter = counter();
    let (mut read, mut ids) = (0, 0);
    for file in ["embed.json", "classify.json", "generate.json"] {
        for exchange in exchanges(file) {
            let path = exchange["path"].as_str().unwrap();
            let elsewhere = ["/v1/responses", "/v1/messages"];
            if exchange["status"] != 200 || elsewhere.iter().any(|begin| path.starts_with(begin)) {
                continue;
            }
            let name = format!("{file} {}", exchange["name"]);
            let ours = counted_here(&counter, &exchange);
            let (ours, is_exact) = ours.unwrap_or_else(|| panic!("{name} is refused"));
            read += 1;
            let is_pair = path.contains("score") || path.contains("rerank");
            assert_eq!(is_exact, !is_pair, "{name}");
            // The engine's texts have another vocabulary than the model here.
            let is_ids =
                exchange["body"]["input"][0].is_number() || exchange["body"]["input"][0].is_array();
            if let (true, Some(theirs)) = (is_ids, counted_by_engine(&exchange)) {
                assert_eq!(ours, theirs, "{name}");
                ids += 1;
            }
        }
    }
    assert!(read >= 50 && ids >= 6, "{read} {ids}");
}
