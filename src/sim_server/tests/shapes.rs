//! Bodies and metrics, compared with the captures.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::client::{ask, chat, get, post};
use super::server;
use crate::config::KvOverrides;
use crate::core::backend::{CapacitySource, PrefixCaching};
use crate::core::units::{BlockSize, Blocks, Tokens};
use crate::upstream::capacity::{Evidence, Operator, capacity};
use crate::upstream::scrape;

macro_rules! golden {
    ($file:literal) => {
        include_str!(concat!("../../../tests/golden/vllm-0.32/", $file))
    };
}

/// Keys in order, with everything below them; the values of `open` keys are left out.
fn shape(value: &Value) -> Value {
    const OPEN: [&str; 11] = [
        "id",
        "created",
        "content",
        "text",
        "root",
        "system_fingerprint",
        "prompt_tokens",
        "total_tokens",
        "completion_tokens",
        "tokens",
        "count",
    ];
    match value {
        Value::Object(object) => object
            .iter()
            .map(|(key, value)| {
                let value = if OPEN.contains(&key.as_str()) {
                    Value::Null
                } else {
                    shape(value)
                };
                (key.clone(), value)
            })
            .collect(),
        Value::Array(list) => list.iter().map(shape).collect(),
        other => other.clone(),
    }
}

/// The same text: objects compare without their order, texts with it.
fn same_shape(ours: &Value, real: &Value) {
    assert_eq!(shape(ours).to_string(), shape(real).to_string());
}

fn events(stream: &str) -> Vec<Value> {
    stream
        .split("\n\n")
        .filter_map(|event| event.trim().strip_prefix("data: "))
        .filter(|data| *data != "[DONE]")
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

async fn stream_is_shaped_as(path: &str, body: &Value, real: &str) {
    let answered = ask(&server(), &post(path, body)).await;
    assert_eq!(answered.status, 200, "{answered:?}");
    assert!(
        answered
            .head
            .contains("content-type: text/event-stream; charset=utf-8")
    );
    assert!(answered.body.ends_with("data: [DONE]\n\n"));
    let (ours, real) = (answered.events(), events(real));
    assert_eq!(ours.len(), real.len());
    for (ours, real) in ours.iter().zip(&real) {
        same_shape(ours, real);
    }
}

#[tokio::test]
async fn every_captured_refusal_is_given_word_for_word() {
    let server = server();
    let refusals: Vec<Value> = serde_json::from_str(golden!("refusals.json")).unwrap();
    assert_eq!(refusals.len(), 23);
    for refusal in refusals {
        let text = |key: &str| refusal[key].as_str().unwrap_or_default();
        let media = refusal["content_type"]
            .as_str()
            .map(|media| format!("Content-Type: {media}\r\n"))
            .unwrap_or_default();
        let request = format!(
            "{} {} HTTP/1.1\r\nHost: sim\r\nConnection: close\r\n{media}Content-Length: {}\r\n\r\n{}",
            text("method"),
            text("path"),
            text("body").len(),
            text("body"),
        );
        let answered = ask(&server, &request).await;
        assert_eq!(
            u64::from(answered.status),
            refusal["status"],
            "{}",
            text("name")
        );
        assert_eq!(answered.body, text("answer"), "{}", text("name"));
    }
}

#[tokio::test]
async fn a_prompt_past_the_context_is_refused_in_the_words_clients_match() {
    let server = server();
    let long = json!({"prompt": "the ".repeat(9000), "max_tokens": 4});
    let answered = ask(&server, &post("/v1/completions", &long)).await;
    assert_eq!(answered.status, 400);
    assert_eq!(
        answered.body,
        r#"{"error":{"message":"This model's maximum context length is 8192 tokens. However, your prompt contains at least 8193 input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=8193)","type":"BadRequestError","param":"input_tokens","code":400}}"#
    );
    let full = json!({"prompt": vec![7; 8192], "max_tokens": 4});
    let answered = ask(&server, &post("/v1/completions", &full)).await;
    assert_eq!(
        answered.body,
        r#"{"error":{"message":"max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)","type":"BadRequestError","param":"max_tokens","code":400}}"#
    );
}

#[tokio::test]
async fn answers_are_shaped_as_captured() {
    let server = server();
    let n2 = chat(json!({"max_tokens": 4, "n": 2}));
    let answered = ask(&server, &post("/v1/chat/completions", &n2)).await;
    same_shape(
        &answered.json(),
        &serde_json::from_str(golden!("chat-n2.json")).unwrap(),
    );
    let list = json!({"model": "tiny", "prompt": ["Hello", "World of code"], "max_tokens": 4});
    let answered = ask(&server, &post("/v1/completions", &list)).await;
    same_shape(
        &answered.json(),
        &serde_json::from_str(golden!("completions-list.json")).unwrap(),
    );
}

#[tokio::test]
async fn streams_are_shaped_as_captured() {
    let plain = chat(json!({"max_tokens": 5, "stream": true}));
    stream_is_shaped_as("/v1/chat/completions", &plain, golden!("chat-stream.sse")).await;
    let usage =
        chat(json!({"max_tokens": 5, "stream": true, "stream_options": {"include_usage": true}}));
    stream_is_shaped_as(
        "/v1/chat/completions",
        &usage,
        golden!("chat-stream-usage.sse"),
    )
    .await;
    let continuous = chat(json!({
        "max_tokens": 5, "stream": true,
        "stream_options": {"include_usage": true, "continuous_usage_stats": true},
    }));
    stream_is_shaped_as(
        "/v1/chat/completions",
        &continuous,
        golden!("chat-stream-continuous.sse"),
    )
    .await;
    let text = json!({
        "prompt": "import os", "max_tokens": 4, "stream": true, "stream_options": {"include_usage": true},
    });
    stream_is_shaped_as("/v1/completions", &text, golden!("completions-stream.sse")).await;
}

#[tokio::test]
async fn models_version_and_tokenize_are_shaped_as_captured() {
    let server = server();
    let models = ask(&server, &get("/v1/models")).await.json();
    same_shape(
        &models,
        &serde_json::from_str(golden!("models.json")).unwrap(),
    );
    assert_eq!(
        ask(&server, &get("/version")).await.body,
        golden!("version.json").trim()
    );
    assert_eq!(
        ask(&server, &get("/load")).await.body,
        r#"{"server_load":0}"#
    );
    let chat = json!({"model": "tiny", "messages": [{"role": "user", "content": "Hello"}]});
    let counted = ask(&server, &post("/tokenize", &chat)).await.json();
    same_shape(
        &counted,
        &serde_json::from_str(golden!("tokenize-chat.json")).unwrap(),
    );
    let text = json!({"prompt": "Hello world, this is a test.", "return_token_strs": true});
    let counted = ask(&server, &post("/tokenize", &text)).await.json();
    assert_eq!(counted["count"], 8);
    assert_eq!(counted["token_strs"][1], " world");
}

/// A line's name and labels, without its value.
fn series(line: &str) -> &str {
    line.rsplit_once(' ').map_or(line, |(series, _)| series)
}

#[tokio::test]
async fn the_metrics_page_has_the_captured_series_in_the_captured_order() {
    let page = ask(&server(), &get("/metrics")).await.body;
    let engine =
        |line: &&str| line.starts_with("vllm:") && !line.starts_with("vllm:cache_config_info");
    let ours: Vec<&str> = page.lines().filter(engine).map(series).collect();
    let real: Vec<&str> = golden!("metric-series.txt")
        .lines()
        .filter(engine)
        .collect();
    assert_eq!(ours, real);
    assert!(page.contains("\nprocess_start_time_seconds 1."));
}

#[tokio::test]
async fn the_cache_config_has_the_captured_labels() {
    let page = ask(&server(), &get("/metrics")).await.body;
    let labels = |text: &str| -> BTreeSet<String> {
        let line = text
            .lines()
            .find(|line| line.starts_with("vllm:cache_config_info{"))
            .unwrap();
        let inner = &line[line.find('{').unwrap() + 1..line.find('}').unwrap()];
        inner
            .split("\",")
            .map(|label| label.trim_end_matches('"').to_owned())
            .collect()
    };
    let (ours, real) = (labels(&page), labels(golden!("metric-series.txt")));
    let different: Vec<&String> = ours.symmetric_difference(&real).collect();
    assert_eq!(
        different,
        [
            "kv_cache_memory_bytes=\"1073741824",
            "kv_cache_memory_bytes=\"None"
        ]
    );
}

#[tokio::test]
async fn a_gateway_reads_the_capacity_that_the_engine_has() {
    let server = server();
    let page = ask(&server, &get("/metrics")).await.body;
    let evidence = Evidence {
        scrape: scrape::read(page.as_bytes()),
        max_model_len: Some(Tokens::new(8192)),
        version: None,
    };
    let operator = Operator {
        overrides: KvOverrides::default(),
        layout: None,
        assumed: Tokens::new(1),
    };
    let read = capacity(0, &evidence, &operator);
    assert_eq!(read.blocks, Blocks::new(256));
    assert_eq!(read.blocks, server.stats().usable);
    assert_eq!(read.block_size, BlockSize::new(32).unwrap());
    assert_eq!(read.prefix_caching, PrefixCaching::Shared);
    assert_eq!(read.source, CapacitySource::AdvertisedTokens);
}
