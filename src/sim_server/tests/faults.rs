//! Faults, as a client sees them.

use std::io::ErrorKind;
use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::client::{ask, chat, get, post, read_to_end, read_until, send};
use super::{server, spec};
use crate::core::units::Tokens;
use crate::sim::engine::EngineSpec;
use crate::sim_server::{Kill, Shedding, SimServer};

async fn refused(server: &SimServer) -> bool {
    match TcpStream::connect(server.addr()).await {
        Err(error) => error.kind() == ErrorKind::ConnectionRefused,
        Ok(_) => false,
    }
}

/// A held server with a stream that has had its first token.
async fn streaming(server: &SimServer) -> TcpStream {
    server.hold();
    let body = chat(json!({"max_tokens": 3000, "stream": true}));
    let mut stream = send(server, &post("/v1/chat/completions", &body)).await;
    server.wait_until(|stats| stats.waiting == 1).await;
    server.run_steps(2);
    read_until(&mut stream, "\" the\"").await;
    stream
}

#[tokio::test]
async fn an_engine_killed_mid_stream_ends_it_in_band_and_refuses() {
    let server = server();
    let mut stream = streaming(&server).await;
    let once = send(
        &server,
        &post("/v1/chat/completions", &chat(json!({"max_tokens": 9}))),
    )
    .await;
    server.wait_until(|stats| stats.waiting == 1).await;
    server.kill(Kill::InBand);
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    let event = r#"data: {"error": {"message": "EngineCore encountered an issue. See stack trace (above) for the root cause.", "type": "InternalServerError", "param": null, "code": 500}}"#;
    assert!(
        rest.contains(event) && rest.contains("data: [DONE]\n\n\r\n0\r\n\r\n"),
        "{rest}"
    );
    let once = read_to_end(once).await;
    assert_eq!(once.status, 500);
    assert_eq!(
        once.body,
        r#"{"error":{"message":"EngineCore encountered an issue. See stack trace (above) for the root cause.","type":"InternalServerError","param":null,"code":500}}"#
    );
    assert!(refused(&server).await);
}

#[tokio::test]
async fn a_dead_engine_behind_a_live_server_shows_in_its_health() {
    let server = server();
    server.kill(Kill::EngineOnly);
    assert_eq!(ask(&server, &get("/health")).await.status, 503);
    assert_eq!(ask(&server, &get("/v1/models")).await.status, 200);
    let answered = ask(&server, &post("/v1/completions", &json!({"prompt": "a"}))).await;
    assert_eq!(answered.status, 500);
}

#[tokio::test]
async fn a_reset_cuts_the_stream_without_an_end() {
    let server = server();
    let mut stream = streaming(&server).await;
    server.kill(Kill::Reset);
    let error = stream.read_to_string(&mut String::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert!(refused(&server).await);
}

#[tokio::test]
async fn a_restart_serves_on_the_same_port_with_other_capacity() {
    let server = server();
    let body = json!({"prompt": "Hello", "max_tokens": 4});
    ask(&server, &post("/v1/completions", &body)).await;
    server.kill(Kill::Reset);
    assert!(refused(&server).await);
    server
        .restart(EngineSpec::with_pool(Tokens::new(1024)))
        .unwrap();
    assert_eq!(server.stats().generated, Tokens::ZERO);
    let models = ask(&server, &get("/v1/models")).await.json();
    assert_eq!(models["data"][0]["max_model_len"], 1024);
    let page = ask(&server, &get("/metrics")).await.body;
    assert!(page.contains("num_gpu_blocks=\"65\""));
    assert_eq!(
        ask(&server, &post("/v1/completions", &body)).await.status,
        200
    );
}

#[tokio::test]
async fn a_server_that_refuses_goes_on_with_what_it_has() {
    let server = server();
    let stream = streaming(&server).await;
    server.refuse();
    assert!(refused(&server).await);
    server.release();
    let mut rest = stream;
    read_until(&mut rest, "data: [DONE]").await;
}

#[tokio::test]
async fn a_sleeping_engine_aborts_what_ran_and_lets_new_requests_hang() {
    let server = server();
    let mut stream = streaming(&server).await;
    server.release();
    server.sleep();
    let rest = read_until(&mut stream, "data: [DONE]").await;
    assert!(rest.contains(r#""finish_reason":"abort""#), "{rest}");
    assert_eq!(ask(&server, &get("/health")).await.status, 200);
    let page = ask(&server, &get("/metrics")).await.body;
    assert!(page.contains("sleep_state=\"awake\"} 0.0"));
    let hanging = send(&server, &post("/v1/completions", &json!({"prompt": "a"}))).await;
    server.wait_until(|stats| stats.waiting == 1).await;
    server.wake();
    assert_eq!(read_to_end(hanging).await.status, 200);
}

#[tokio::test]
async fn a_full_queue_is_503_and_counted() {
    let mut spec = spec();
    spec.max_num_queued_reqs = Some(2);
    let server = SimServer::start(spec).unwrap();
    let _stream = streaming(&server).await;
    let two = post("/v1/completions", &json!({"prompt": "a", "n": 2}));
    let answered = ask(&server, &two).await;
    assert_eq!(answered.status, 503);
    assert!(
        answered.body.contains("\"type\":\"Service Unavailable\""),
        "{answered:?}"
    );
    let page = ask(&server, &get("/metrics")).await.body;
    assert!(page.contains("reason=\"max_num_queued_reqs\"} 1.0"));
}

#[tokio::test]
async fn a_shedding_server_sheds_until_told_otherwise() {
    let server = server();
    let request = post("/v1/completions", &json!({"prompt": "a"}));
    server.shed(Shedding::All);
    assert_eq!(ask(&server, &request).await.status, 503);
    server.shed(Shedding::AsConfigured);
    assert_eq!(ask(&server, &request).await.status, 200);
}

#[tokio::test]
async fn an_api_key_guards_v1_and_nothing_else() {
    let mut spec = spec();
    spec.api_key = Some("sesame".into());
    let server = SimServer::start(spec).unwrap();
    let without = ask(&server, &get("/v1/models")).await;
    assert_eq!(
        (without.status, without.body.as_str()),
        (401, r#"{"error":"Unauthorized"}"#)
    );
    let with = get("/v1/models").replace("Host: sim", "Host: sim\r\nAuthorization: Bearer sesame");
    assert_eq!(ask(&server, &with).await.status, 200);
    assert_eq!(ask(&server, &get("/metrics")).await.status, 200);
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_an_unused_one_is_not() {
    let mut spec = spec();
    spec.keep_alive = Duration::from_millis(1);
    let server = SimServer::start(spec).unwrap();
    let mut unused = TcpStream::connect(server.addr()).await.unwrap();
    let request = get("/health").replace("Connection: close\r\n", "");
    let mut used = send(&server, &request).await;
    let mut text = String::new();
    used.read_to_string(&mut text).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    let nothing = unused.try_read(&mut [0; 1]).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
    unused.read_exact(&mut []).await.unwrap();
}
