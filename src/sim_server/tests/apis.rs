//! Responses and Messages, compared with the captures.

use serde_json::{Value, json};

use super::client::{ask, post};
use super::server;
use crate::protocol::{EndState, ScanMode, Scanner, Tail};

/// The captured answer of this name.
fn captured(name: &str) -> String {
    let all = include_str!("../../../tests/golden/vllm-0.32/generate.json");
    let all: Vec<Value> = serde_json::from_str(all).unwrap();
    let found = all.iter().find(|call| call["name"] == name).unwrap();
    found["answer"].as_str().unwrap().to_owned()
}

/// Keys and the kinds of their values.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(object) => object
            .iter()
            .map(|(key, value)| (key.clone(), shape(value)))
            .collect(),
        Value::Array(list) => list.iter().map(shape).collect(),
        Value::String(_) => json!("text"),
        Value::Number(number) if number.is_f64() => json!("float"),
        Value::Number(_) => json!("number"),
        other => other.clone(),
    }
}

/// Names and data of a stream's events, those of the same name in a row as one.
fn events(stream: &str) -> Vec<(String, String)> {
    let mut events: Vec<(String, String)> = stream
        .split_terminator("\n\n")
        .map(|event| {
            let (name, data) = event.split_once("\ndata: ").unwrap();
            let data: Value = serde_json::from_str(data).unwrap();
            (name.to_owned(), shape(&data).to_string())
        })
        .collect();
    events.dedup();
    events
}

#[tokio::test]
async fn whole_answers_have_the_shape_of_a_real_servers() {
    let server = server();
    for (path, names, prompt, bound) in [
        (
            "/v1/responses",
            ["responses-string", "responses-stream"],
            json!({"input": "Name a town."}),
            "max_output_tokens",
        ),
        (
            "/v1/messages",
            ["messages", "messages-stream"],
            json!({"messages": [{"role": "user", "content": "Name a town."}]}),
            "max_tokens",
        ),
    ] {
        let mut body = prompt;
        body[bound] = json!(4);
        let answered = ask(&server, &post(path, &body)).await;
        assert_eq!(answered.status, 200, "{}", answered.body);
        let real: Value = serde_json::from_str(&captured(names[0])).unwrap();
        assert_eq!(
            shape(&answered.json()).to_string(),
            shape(&real).to_string()
        );
        assert_eq!(answered.json()["usage"]["output_tokens"], 4);
        body["stream"] = json!(true);
        let answered = ask(&server, &post(path, &body)).await;
        let real = captured(names[1]);
        assert_eq!(events(&answered.body), events(&real), "{path}");
    }
}

#[tokio::test]
async fn a_stream_is_read_to_its_end_by_the_gateways_own_scanner() {
    let server = server();
    let body = json!({"input": "Name a town.", "max_output_tokens": 9, "stream": true});
    let answered = ask(&server, &post("/v1/responses", &body)).await;
    let mut scanner = Scanner::new(ScanMode::Responses);
    scanner.push(answered.body.into());
    let EndState { seen, tail } = scanner.finish().1;
    assert_eq!((seen.done, tail), (true, Tail::Boundary));
    assert_eq!(seen.usage.unwrap().completion_tokens, 9);
}

#[tokio::test]
async fn a_count_is_that_of_the_message_and_refusals_have_the_apis_shape() {
    let server = server();
    let mut body = json!({"messages": [{"role": "user", "content": "Name a town."}]});
    let path = "/v1/messages/count_tokens";
    let counted = ask(&server, &post(path, &body)).await.json();
    let missing = ask(&server, &post("/v1/messages", &body)).await;
    assert_eq!(
        (missing.status, &missing.json()["error"]["type"]),
        (400, &json!("Bad Request"))
    );
    body["max_tokens"] = json!(2);
    let answer = ask(&server, &post("/v1/messages", &body)).await.json();
    assert_eq!(answer["usage"]["input_tokens"], counted["input_tokens"]);
    body["model"] = json!("nobody");
    let unknown = ask(&server, &post("/v1/messages", &body)).await;
    let refused = unknown.json();
    assert_eq!((unknown.status, &refused["type"]), (404, &json!("error")));
    assert_eq!(refused["error"]["type"], "NotFoundError");
}
