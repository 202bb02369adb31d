//! The measuring side of `benches/peers`, without any proxy: the mock engine and the
//! load generator against each other, and what a wrong answer comes to.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../benches/peers/answer.rs"]
mod answer;
#[path = "../benches/peers/ask.rs"]
mod ask;
#[path = "../benches/peers/engine.rs"]
mod engine;
#[path = "../benches/peers/goals.rs"]
mod goals;
#[path = "../benches/peers/link.rs"]
mod link;
#[path = "../benches/peers/load.rs"]
mod load;
#[path = "../benches/peers/plot.rs"]
mod plot;
#[path = "../benches/peers/proc.rs"]
mod proc;
#[path = "../benches/peers/report.rs"]
mod report;
#[path = "../benches/peers/script.rs"]
mod script;
#[path = "../benches/peers/tally.rs"]
mod tally;
#[path = "../benches/peers/wire.rs"]
mod wire;

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use answer::Flaw;
use ask::{Shape, Wanted};
use link::Link;
use load::{Drive, Load};
use proc::Used;
use report::{Column, Results};
use script::{Asked, Events, Orders, Pace};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use wire::{Body, Framing};

const PATIENCE: Duration = Duration::from_secs(60);

async fn mock() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    drop(tokio::spawn(engine::serve(listener)));
    addr
}

fn wanted(to: SocketAddr, shape: Shape) -> Wanted {
    Wanted {
        to,
        headers: vec!["x-more: of it".into()],
        shape,
        prompt_bytes: 64,
        prompt_tokens: 23,
        prompts: Vec::new(),
    }
}

fn stream(pieces: u32, pace: Pace) -> Shape {
    Shape::Stream { pieces, pace }
}

async fn run(wanted: Wanted, drive: Drive) -> Value {
    let load = Load {
        wanted,
        drive,
        run_up: Duration::ZERO,
        window: Duration::from_millis(200),
        watched: Some(std::process::id()),
    };
    load.run().await.unwrap()
}

// === engine and load ===

#[tokio::test]
async fn every_answer_of_the_mock_is_right_whole_and_streamed_at_any_drive() {
    let to = mock().await;
    let shapes = [
        Shape::Plain,
        stream(1, Pace::Fast),
        stream(300, Pace::Fast),
        stream(3, Pace::Every(Duration::from_millis(1))),
    ];
    for shape in shapes {
        for drive in [Drive::Closed(8), Drive::Open(400.0)] {
            let told = run(wanted(to, shape), drive).await;
            assert_eq!(told["errors"], 0, "{shape:?} {drive:?}: {told}");
            assert!(told["requests"].as_u64().unwrap() > 0, "{shape:?}: {told}");
            assert!(told["whole_us"]["p99"].is_number(), "{shape:?}: {told}");
            assert!(told["cpu_us"].is_number(), "{told}");
        }
    }
}

#[test]
fn processor_time_of_a_process_is_seen() {
    let mut busy = Command::new("sh")
        .args(["-c", "while :; do :; done"])
        .spawn()
        .unwrap();
    let (start, before) = (Instant::now(), Used::of(busy.id()));
    let mut spent = Duration::ZERO;
    while spent < Duration::from_millis(50) && start.elapsed() < PATIENCE {
        spent = Used::of(busy.id()).since(&before);
    }
    busy.kill().unwrap();
    busy.wait().unwrap();
    assert!(spent >= Duration::from_millis(50), "{spent:?}");
    // It has one thread, so it took no more than the time there was.
    assert!(spent <= start.elapsed(), "{spent:?}");
}

#[tokio::test]
async fn streams_that_stay_idle_are_counted() {
    let to = mock().await;
    let own = std::process::id();
    let told = load::idle(&wanted(to, stream(4, Pace::Hold)), 20, PATIENCE, own).await;
    assert_eq!((&told["streams"], &told["errors"]), (&json!(20), &json!(0)));
    assert!(told["after_bytes"].as_u64().unwrap() > 1 << 20, "{told}");
}

#[tokio::test]
async fn where_nobody_listens_every_request_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    drop(listener);
    let told = run(wanted(to, Shape::Plain), Drive::Closed(1)).await;
    assert_eq!(told["requests"], 0);
    assert!(told["errors"].as_u64().unwrap() > 0, "{told}");
    let first = told["first_error"].as_str().unwrap();
    assert!(first.starts_with("not reached"), "{first}");
}

#[test]
fn the_mock_reads_what_a_prompt_tells_it_whatever_order_the_keys_have() {
    let to = SocketAddr::from(([127, 0, 0, 1], 1));
    let paced = stream(100, Pace::Every(Duration::from_millis(10)));
    let asked = Asked {
        orders: Orders {
            pace: Pace::Every(Duration::from_millis(10)),
            prompt_tokens: 23,
        },
        chunks: 100,
        streamed: true,
        usage: false,
    };
    let body = wanted(to, paced).first_body();
    assert_eq!(Asked::read(body.as_bytes()), asked);
    let content: Value = serde_json::from_str(&body).unwrap();
    let content = content["messages"][0]["content"].as_str().unwrap();
    assert_eq!(content.len(), 64);
    let turned = format!(
        r#"{{"stream_options": {{"include_usage" : true}}, "stream" : true, "max_completion_tokens": 100, "messages": "{content}"}}"#
    );
    let usage = true;
    assert_eq!(Asked::read(turned.as_bytes()), Asked { usage, ..asked });
}

// === answers that are wrong ===

/// Answers the first request with these bytes and closes.
async fn canned(bytes: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    drop(tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
        stream.write_all(&bytes).await.unwrap();
    }));
    addr
}

/// What a client that asked for four pieces makes of these bytes.
async fn judged(shape: Shape, bytes: Vec<u8>) -> Result<u32, Flaw> {
    let to = canned(bytes).await;
    let seen = std::cell::Cell::new(0);
    let mut link = Link::open(to, PATIENCE).await?;
    let ask = wanted(to, shape).first_ask(0);
    let told = link
        .exchange(&ask, |pieces| seen.set(seen.get() + pieces))
        .await;
    told.map(|_| seen.get()).map_err(|failed| failed.flaw)
}

/// A stream of so many pieces.
fn streamed(pieces: usize) -> Vec<u8> {
    let events = Events::new();
    let mut bytes = events.opening;
    for number in 1..pieces {
        bytes.extend(&events.pieces[number % 2]);
    }
    bytes.extend(events.last);
    bytes
}

fn end() -> Vec<u8> {
    script::closing(&Asked::read(br#"{"include_usage":true}"#))
}

#[tokio::test]
async fn an_answer_that_is_not_what_was_asked_for_is_a_flaw() {
    let four = stream(4, Pace::Fast);
    let whole = |pieces| [streamed(pieces), end()].concat();
    assert_eq!(judged(four, whole(4)).await, Ok(4));
    let pieces = |seen| Err(Flaw::Pieces { seen, asked: 4 });
    assert_eq!(judged(four, whole(3)).await, pieces(3));
    assert_eq!(judged(four, whole(5)).await, pieces(5));
    assert_eq!(judged(four, streamed(4)).await, Err(Flaw::Cut));
    let endless = [streamed(4), b"0\r\n\r\n".to_vec()].concat();
    assert_eq!(judged(four, endless).await, Err(Flaw::NoEnd));
    let more = [whole(4), b"x".to_vec()].concat();
    assert_eq!(judged(four, more).await, Err(Flaw::Malformed));
    let busy = b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n".to_vec();
    assert_eq!(judged(four, busy).await, Err(Flaw::Status(503)));
    let empty = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec();
    let none = Flaw::Pieces { seen: 0, asked: 1 };
    assert_eq!(judged(Shape::Plain, empty).await, Err(none));
    assert_eq!(
        judged(Shape::Plain, b"nonsense\r\n\r\n".to_vec()).await,
        Err(Flaw::Malformed)
    );
}

#[test]
fn pieces_are_counted_wherever_a_read_cuts_the_stream() {
    let bytes = [streamed(3), end()].concat();
    let head = wire::head(&bytes).unwrap().unwrap();
    assert_eq!(head.framing, Some(Framing::Chunked));
    for size in 1..bytes.len() {
        let mut reader = answer::Reader::new();
        let mut body = Body::new(Framing::Chunked);
        for mut part in bytes[head.bytes..].chunks(size) {
            while let Some(piece) = body.next(&mut part).unwrap() {
                reader.read(piece);
            }
        }
        assert!(body.is_done(), "reads of {size}");
        let expected = answer::Expected {
            pieces: 3,
            streamed: true,
        };
        assert_eq!(reader.judge(expected), Ok(()), "reads of {size}");
    }
}

// === figures ===

fn results() -> Results {
    serde_json::from_value(measured()).unwrap()
}

fn measured() -> Value {
    let plain = |round: u32, peer: &str, errors: u32, cpu_us: f64| {
        json!({"round": round, "peer": peer, "cell": "plain", "seconds": 2.0, "errors": errors,
               "first_error": "status 503", "requests": 1000.0, "cpu_us": cpu_us})
    };
    let half = |peer: &str, cell: &str, p50: f64| {
        json!({"round": 0, "peer": peer, "cell": cell, "seconds": 2.0, "errors": 0, "rate": 250.0,
               "whole_us": {"p50": p50, "p99": 10.0 * p50}})
    };
    let idle = json!({"round": 0, "peer": "nginx", "cell": "idle", "seconds": 2.0, "errors": 0,
        "streams": 10.0, "before_bytes": 1024.0, "after_bytes": 103_424.0});
    json!({
        "date": "today", "command": "run", "rounds": 4, "seconds": 2.0, "cpu": "some", "kernel": "6",
        "long_prompt_tokens": 100_123,
        "peers": [{"name": "nginx", "version": "1"}, {"name": "gone", "not_run": "no node"},
                  {"name": "tidegate", "version": "2"}],
        "cells": [
            plain(0, "nginx", 0, 30_000.0), plain(1, "nginx", 0, 10_000.0), plain(2, "nginx", 0, 20_000.0),
            plain(3, "nginx", 7, 1.0), plain(0, "tidegate", 1, 5.0), idle,
            half("nginx", "half", 150.0), half("direct", "half of nginx", 50.0),
        ],
    })
}

#[test]
fn a_figure_is_the_median_of_the_rounds_without_a_wrong_answer() {
    let results = results();
    let median = |peer, column| results.figure(peer, column).map(|figure| figure.median);
    assert_eq!(median("nginx", Column::PerRequest), Some(20.0));
    assert_eq!(median("nginx", Column::Saturation), Some(500.0));
    assert_eq!(median("tidegate", Column::PerRequest), None);
    assert_eq!(median("nginx", Column::HalfP50), Some(100.0));
    assert_eq!(median("nginx", Column::HalfP99), Some(1000.0));
    assert_eq!(median("nginx", Column::Idle), Some(10.0));
}

#[test]
fn a_goal_is_met_only_by_a_figure_and_tells_what_it_is_held_to() {
    let mut told = measured();
    let cells = told["cells"].as_array_mut().unwrap();
    let ours = |cell: &str, cpu_us: f64| {
        json!({"round": 0, "peer": "tidegate", "cell": cell, "seconds": 2.0, "errors": 0,
               "requests": 1000.0, "cpu_us": cpu_us})
    };
    cells.extend([ours("plain", 31_000.0), ours("long", 9_000_000.0)]);
    let goals = goals::table(&serde_json::from_value(told).unwrap());
    let missed = "| CPU µs a request, 1.5 times nginx's | 30.0 | 31.0 | missed |";
    assert!(goals.contains(missed), "{goals}");
    let met = "| CPU ms a prompt of 100,000 tokens, in all | 10.0 | 9.00 | met |";
    assert!(goals.contains(met), "{goals}");
    let unknown = "| KiB an idle stream, in all | 40.0 | – | not measured |";
    assert!(goals.contains(unknown), "{goals}");
    let routers = "the lower of vllm-router's and sglang-router's | – | 31.0 | not measured |";
    assert!(goals.contains(routers), "{goals}");
}

#[test]
fn table_and_drawing_name_every_proxy_and_say_why_one_has_no_figures() {
    let results = results();
    let table = results.table();
    assert!(table.contains("| | tidegate | nginx | gone |"), "{table}");
    assert!(
        table.contains("| CPU µs a request |  | 20.0 (10.0–30.0) |  |"),
        "{table}"
    );
    assert!(
        table.contains("- gone: not installed; not run: no node"),
        "{table}"
    );
    let wrong = "plain in round 1: 1 wrong answers, such as: status 503";
    assert!(table.contains(wrong), "{table}");
    let drawing = plot::svg(&results).unwrap();
    for name in results.names() {
        assert!(drawing.contains(name), "{name}");
    }
    assert_eq!(report::rounded(1_234_567.8), "1,234,568");
    assert_eq!(report::rounded(-123.4), "-123");
}
