//! What is generated, counted and freed.

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::client::{ask, chat, get, post, read_to_end, read_until, send};
use super::{server, spec};
use crate::core::units::{Blocks, Tokens};
use crate::sim::engine::{OnOverflow, Scheduling};
use crate::sim_server::{CHAT_TEMPLATE, OutputLength, SimServer};
use crate::tokenize::{
    ChatInput, CounterSpec, Effort, ModelCounter, Precision, PromptInput, Source,
};

async fn completion(server: &SimServer, fields: Value) -> Value {
    let answered = ask(server, &post("/v1/completions", &fields)).await;
    assert_eq!(answered.status, 200, "{answered:?}");
    answered.json()
}

#[tokio::test]
async fn a_chat_has_the_tokens_it_asked_for() {
    let server = server();
    let both = chat(json!({"max_tokens": 3, "max_completion_tokens": "6"}));
    let answer = ask(&server, &post("/v1/chat/completions", &both))
        .await
        .json();
    assert_eq!(answer["usage"]["completion_tokens"], 6);
    assert_eq!(
        answer["choices"][0]["message"]["content"],
        " the of and to in is"
    );
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(server.stats().generated, Tokens::new(6));
    assert_eq!(server.stats().used, Blocks::ZERO);
}

#[tokio::test]
async fn max_tokens_defaults_and_is_cut_as_in_the_engine() {
    let server = server();
    let open = completion(&server, json!({"prompt": "Hello"})).await;
    assert_eq!(open["usage"]["completion_tokens"], 16);
    let cut = completion(
        &server,
        json!({"prompt": vec![7; 8000], "max_tokens": 8192}),
    )
    .await;
    assert_eq!(cut["usage"]["total_tokens"], 8192);
    let lax = completion(
        &server,
        json!({"prompt": [1, 2], "max_tokens": 4.0, "n": "2"}),
    )
    .await;
    assert_eq!(lax["usage"]["completion_tokens"], 8);
    let rest = ask(&server, &post("/v1/chat/completions", &chat(json!({}))))
        .await
        .json();
    assert_eq!(rest["usage"]["total_tokens"], 8192);
}

#[tokio::test]
async fn every_form_of_prompt_is_counted() {
    let server = server();
    for (prompt, tokens, choices) in [
        (json!("Hello world"), 2, 1),
        (json!(["Hello", "Hello world"]), 3, 2),
        (json!([1, 2, 3]), 3, 1),
        (json!([[1, 2, 3], [4]]), 4, 2),
    ] {
        let answer = completion(&server, json!({"prompt": prompt, "max_tokens": 2})).await;
        assert_eq!(answer["usage"]["prompt_tokens"], tokens, "{prompt}");
        assert_eq!(
            answer["choices"].as_array().unwrap().len(),
            choices,
            "{prompt}"
        );
    }
}

#[tokio::test]
async fn answers_end_early_where_the_request_or_the_server_says_so() {
    let mut spec = spec();
    spec.output = OutputLength::Tokens(5);
    let server = SimServer::start(spec).unwrap();
    let answer = completion(&server, json!({"prompt": "Hello", "max_tokens": 50})).await;
    assert_eq!(answer["usage"]["completion_tokens"], 5);
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    let hint = json!({"prompt": "Hello", "max_tokens": 50, "vllm_xargs": {"sim_output_tokens": 9}});
    assert_eq!(
        completion(&server, hint).await["usage"]["completion_tokens"],
        9
    );
}

#[tokio::test]
async fn drawn_lengths_follow_from_the_seed() {
    let mut lengths = Vec::new();
    for _ in 0..2 {
        let mut spec = spec();
        spec.output = OutputLength::Share {
            least: 0.1,
            most: 0.9,
        };
        spec.seed = 42;
        let server = SimServer::start(spec).unwrap();
        let answer = completion(&server, json!({"prompt": "Hello", "max_tokens": 1000})).await;
        lengths.push(answer["usage"]["completion_tokens"].as_u64().unwrap());
    }
    assert_eq!(lengths[0], lengths[1]);
    assert!((100..=900).contains(&lengths[0]), "{lengths:?}");
}

#[tokio::test]
async fn headers_come_at_once_and_events_with_the_engine_s_steps() {
    let server = server();
    server.hold();
    let body = chat(json!({"max_tokens": 3, "stream": true}));
    let mut stream = send(&server, &post("/v1/chat/completions", &body)).await;
    let head = read_until(&mut stream, "\r\n\r\n").await;
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\n") && !head.contains("data:"),
        "{head}"
    );
    assert_eq!(server.stats().waiting, 1);
    // One step is planned by the first call and answered by the second.
    server.run_steps(2);
    let first = read_until(&mut stream, "\" the\"").await;
    assert!(
        first.contains(r#""delta":{"role":"assistant","content":""}"#),
        "{first}"
    );
    assert!(!first.contains("\" of\""), "{first}");
    server.release();
    read_until(&mut stream, "data: [DONE]").await;
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_blocks_at_once() {
    let server = server();
    server.hold();
    for body in [
        chat(json!({"max_tokens": 3000, "stream": true})),
        chat(json!({"max_tokens": 3000, "n": 3})),
    ] {
        let stream = send(&server, &post("/v1/chat/completions", &body)).await;
        server.wait_until(|stats| stats.waiting > 0).await;
        server.run_steps(2);
        assert!(server.stats().used > Blocks::ZERO);
        drop(stream);
        let stats = server.wait_until(|stats| stats.running == 0).await;
        assert_eq!((stats.used, stats.waiting), (Blocks::ZERO, 0));
    }
    assert_eq!(server.stats().aborted, 2);
}

#[tokio::test]
async fn a_half_closed_stream_counts_as_left() {
    let server = server();
    server.hold();
    let body = chat(json!({"max_tokens": 3000, "stream": true}));
    let mut stream = send(&server, &post("/v1/chat/completions", &body)).await;
    server.wait_until(|stats| stats.waiting == 1).await;
    stream.shutdown().await.unwrap();
    server.wait_until(|stats| stats.aborted == 1).await;
}

#[tokio::test]
async fn samples_share_the_prompt_and_a_repeat_hits_the_cache() {
    let server = server();
    let prompt: Vec<u32> = (0..320).collect();
    completion(&server, json!({"prompt": prompt, "max_tokens": 2, "n": 4})).await;
    // 320 tokens are 10 blocks, of which 9 can be hit.
    assert_eq!(server.stats().prefix_hits, Tokens::new(3 * 288));
    completion(&server, json!({"prompt": prompt, "max_tokens": 2})).await;
    assert_eq!(server.stats().prefix_hits, Tokens::new(4 * 288));
}

#[tokio::test]
async fn the_metrics_follow_the_engine() {
    let server = server();
    server.hold();
    let body = json!({"prompt": vec![5; 1000], "max_tokens": 100, "stream": true});
    let running = send(&server, &post("/v1/completions", &body)).await;
    server.wait_until(|stats| stats.waiting == 1).await;
    server.run_steps(1);
    let page = ask(&server, &get("/metrics")).await.body;
    // 1000 tokens are 32 of the 256 usable blocks.
    for line in [
        "vllm:num_requests_running{engine=\"0\",model_name=\"tiny\"} 1.0",
        "vllm:num_requests_waiting{engine=\"0\",model_name=\"tiny\"} 0.0",
        "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"tiny\"} 0.125",
        "vllm:engine_sleep_state{engine=\"0\",model_name=\"tiny\",sleep_state=\"awake\"} 1.0",
    ] {
        assert!(page.lines().any(|found| found == line), "{line}");
    }
    server.release();
    assert_eq!(read_to_end(running).await.status, 200);
    let page = ask(&server, &get("/metrics")).await.body;
    for line in [
        "vllm:prompt_tokens_total{engine=\"0\",model_name=\"tiny\"} 1000.0",
        "vllm:generation_tokens_total{engine=\"0\",model_name=\"tiny\"} 100.0",
        "vllm:request_success_total{engine=\"0\",finished_reason=\"length\",model_name=\"tiny\"} 1.0",
        "vllm:iteration_tokens_total_sum{engine=\"0\",model_name=\"tiny\"} 1100.0",
        "vllm:request_params_max_tokens_bucket{engine=\"0\",le=\"100.0\",model_name=\"tiny\"} 1.0",
        "vllm:inter_token_latency_seconds_count{engine=\"0\",model_name=\"tiny\"} 99.0",
        "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"tiny\"} 0.0",
    ] {
        assert!(page.lines().any(|found| found == line), "{line}");
    }
}

#[tokio::test]
async fn the_request_id_of_the_client_is_in_the_answer() {
    let server = server();
    let request = post("/v1/chat/completions", &chat(json!({"max_tokens": 1})))
        .replace("Host: sim\r\n", "Host: sim\r\nX-Request-Id: my-req-123\r\n");
    assert_eq!(
        ask(&server, &request).await.json()["id"],
        "chatcmpl-my-req-123"
    );
    assert_eq!(server.seen()[0].headers["x-request-id"], "my-req-123");
    assert_eq!(server.seen()[0].path, "/v1/chat/completions");
}

#[tokio::test]
async fn load_a_over_http_preempts_as_the_real_server_did() {
    let mut spec = spec();
    spec.engine.scheduling = Scheduling::Sync;
    let server = SimServer::start(spec).unwrap();
    server.hold();
    let mut clients = Vec::new();
    for client in 0..16 {
        let prompt: Vec<u32> = (0..1500).map(|place| client * 1500 + place).collect();
        let body = json!({
            "prompt": prompt, "max_tokens": 1500, "stream": true, "stream_options": {"include_usage": true},
        });
        clients.push(send(&server, &post("/v1/completions", &body)).await);
    }
    server.wait_until(|stats| stats.waiting == 16).await;
    server.release();
    for client in clients {
        let answered = read_to_end(client).await;
        let events = answered.events();
        // One event per token, and the usage.
        assert_eq!(events.len(), 1501);
        assert_eq!(events[1500]["usage"]["completion_tokens"], 1500);
    }
    let stats = server.stats();
    assert!(stats.preemptions.abs_diff(14) <= 2, "{stats:?}");
    assert_eq!(stats.generated, Tokens::new(24_000));
}

#[tokio::test]
#[should_panic(expected = "the simulated engine did not panic")]
async fn waiting_on_an_engine_that_asserted_ends() {
    let mut spec = spec();
    spec.engine.on_overflow = OnOverflow::Panic;
    let server = SimServer::start(spec).unwrap();
    for client in 0..8 {
        let body = json!({"prompt": vec![client; 1000], "max_tokens": 1500, "stream": true});
        let mut stream = send(&server, &post("/v1/completions", &body)).await;
        tokio::spawn(async move { tokio::io::copy(&mut stream, &mut tokio::io::sink()).await });
    }
    server
        .wait_until(|stats| stats.generated == Tokens::new(12_000))
        .await;
}

#[tokio::test]
async fn a_gateway_with_the_same_vocabulary_and_template_counts_the_same() {
    let server = server();
    let counter = ModelCounter::load(CounterSpec {
        chat_template: Some(CHAT_TEMPLATE.to_owned()),
        ..CounterSpec::new(Source::Tiktoken("o200k_base".into()))
    })
    .unwrap();
    for messages in [
        json!([{"role": "user", "content": "Hello"}]),
        json!([
            {"role": "system", "content": "Be brief.\n"},
            {"role": "user", "content": [{"type": "text", "text": "Grüße, "}, {"type": "text", "text": "<|endoftext|> 你好"}]},
            {"role": "assistant", "content": null},
            {"role": "user", "content": "  x  "},
        ]),
    ] {
        let body = json!({"messages": messages, "max_tokens": 1});
        let answer = ask(&server, &post("/v1/chat/completions", &body))
            .await
            .json();
        let counted = counter
            .count(
                &PromptInput::Chat(ChatInput::new(&messages)),
                &Effort::default(),
            )
            .unwrap();
        assert_eq!(counted.precision, Precision::Exact);
        assert_eq!(
            answer["usage"]["prompt_tokens"], counted.prompts[0],
            "{messages}"
        );
    }
}
