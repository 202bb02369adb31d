//! Long time limits, on a paused clock.

use std::time::Duration;

use serde_json::Value;
use tokio::io::DuplexStream;
use tokio::time::{Instant, sleep};

use crate::support::client::{Ask, Client};
use crate::support::memory::{Memory, seconds_since};
use crate::support::refusal::refused;
use crate::support::setup::Setup;
use crate::support::wire::Ending;

const FILLING: &str = r#","max_tokens":500"#;
const STREAM: &str = r#","max_tokens":500,"stream":true"#;
const EVENT: &[u8] = b"data: {\"choices\":[{\"index\":0,\"text\":\"x\"}]}\n\n";
const DONE: &[u8] = b"data: [DONE]\n\n";

/// The rest of a stream must be an error event of this code, and a cut.
async fn told_and_cut(client: &mut Client<DuplexStream>, code: &str) {
    let event = client.0.chunk().await.unwrap().unwrap();
    let event = String::from_utf8(event).unwrap();
    let json = event.strip_prefix("data: ").unwrap();
    let json: Value = serde_json::from_str(json).unwrap();
    assert_eq!(json["error"]["code"], code);
    assert_eq!(client.0.rest().await, (Vec::new(), Ending::Closed));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_refused_at_its_deadline_and_the_next_one_still_waits() {
    let mut memory = Memory::new(|s| s.set("queue.max_wait", "\"30s\"")).await;
    let mut running = memory.send(&Ask::tokens(500, FILLING)).await;
    let call = memory.call().await;
    let began = Instant::now();
    let mut first = memory.send(&Ask::tokens(500, FILLING)).await;
    memory.until_waiting(1).await;
    sleep(Duration::from_secs(10)).await;
    let mut second = memory.send(&Ask::tokens(500, FILLING)).await;
    let reply = first.reply().await;
    refused(&reply, 429, "queue_timeout", "queue_timeout");
    assert_eq!(seconds_since(began), 30);
    assert_eq!(memory.pool().queue.requests, 1);
    call.ok("{}").await;
    memory.call().await.ok("{}").await;
    assert_eq!(running.reply().await.status, 200);
    let reply = second.reply().await;
    assert_eq!(reply.header("x-tidegate-queue-ms"), Some("20000"));
    let totals = memory.settle().await.totals;
    assert_eq!((totals.expired, totals.finished), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_tenant_may_have_less_patience_than_the_queue() {
    let hasty = |s: Setup| {
        s.set("queue.max_wait", "\"60s\"")
            .anonymous("max_queue_wait = \"5s\"")
    };
    let mut memory = Memory::new(hasty).await;
    let mut running = memory.send(&Ask::tokens(500, FILLING)).await;
    let call = memory.call().await;
    let began = Instant::now();
    let reply = memory.send(&Ask::tokens(500, FILLING)).await.reply().await;
    refused(&reply, 429, "queue_timeout", "queue_timeout");
    assert_eq!(seconds_since(began), 5);
    call.ok("{}").await;
    assert_eq!(running.reply().await.status, 200);
    assert_eq!(memory.settle().await.totals.expired, 1);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_sure_to_be_too_long_is_refused_at_once() {
    const FULL: &str = r#"{"usage":{"prompt_tokens":500,"completion_tokens":500}}"#;
    let mut memory = Memory::new(|s| s.set("queue.max_wait", "\"20s\"")).await;
    // Ten seconds a place, seen often enough to refuse somebody by it.
    let mut asked = memory.send(&Ask::tokens(500, FILLING)).await;
    let mut call = memory.call().await;
    let mut running = memory.send(&Ask::tokens(500, FILLING)).await;
    for _ in 0..60 {
        memory.until_waiting(1).await;
        sleep(Duration::from_secs(10)).await;
        call.ok(FULL).await;
        assert_eq!(asked.reply().await.status, 200);
        call = memory.call().await;
        asked = running;
        running = memory.send(&Ask::tokens(500, FILLING)).await;
    }
    memory.until_waiting(1).await;
    let mut refusals = 0;
    let mut waiting = Vec::new();
    for _ in 0..20 {
        let mut client = memory.send(&Ask::tokens(500, FILLING)).await;
        let before = memory.pool();
        while memory.pool().totals.received == before.totals.received {
            tokio::task::yield_now().await;
        }
        if memory.pool().queue.requests == before.queue.requests {
            let reply = client.reply().await;
            refused(&reply, 429, "overloaded", "predicted_wait_too_long");
            refusals += 1;
        } else {
            waiting.push(client);
        }
    }
    assert!(refusals > 0, "{:?}", memory.pool());
    drop(waiting);
    call.ok("{}").await;
    assert_eq!(asked.reply().await.status, 200);
    memory.call().await.ok("{}").await;
    assert_eq!(running.reply().await.status, 200);
    assert_eq!(memory.settle().await.totals.refused, refusals);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_never_answers_is_504_and_is_left() {
    for (key, rest) in [
        ("upstream.first_byte_timeout", FILLING),
        ("upstream.first_byte_timeout", STREAM),
        ("upstream.request_timeout", FILLING),
        ("upstream.request_timeout", STREAM),
    ] {
        let mut memory = Memory::new(|s| s.set(key, "\"90s\"")).await;
        let began = Instant::now();
        let mut client = memory.send(&Ask::tokens(500, rest)).await;
        let call = memory.call().await;
        let reply = client.reply().await;
        refused(&reply, 504, "upstream_timeout", "upstream_timeout");
        assert_eq!(seconds_since(began), 90, "{key} {rest}");
        call.gone().await;
        assert_eq!(memory.settle().await.totals.failed, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_byte_limit_counts_to_the_first_data_event() {
    let limit = |s: Setup| s.set("upstream.first_byte_timeout", "\"90s\"");
    let mut memory = Memory::new(limit).await;
    let began = Instant::now();
    let mut client = memory.send(&Ask::tokens(500, STREAM)).await;
    let mut call = memory.call().await;
    call.stream().await;
    client.stream().await;
    // A comment is no data.
    sleep(Duration::from_secs(60)).await;
    call.chunk(b": still here\n\n").await;
    assert_eq!(client.payload(14).await, b": still here\n\n");
    told_and_cut(&mut client, "upstream_timeout").await;
    assert_eq!(seconds_since(began), 90);
    call.gone().await;
    assert_eq!(memory.settle().await.totals.failed, 1);
}

#[tokio::test(start_paused = true)]
async fn a_long_prefill_is_no_silence() {
    let mut memory = Memory::new(|s| s.set("upstream.stream_silence_timeout", "\"120s\"")).await;
    let mut client = memory.send(&Ask::tokens(500, STREAM)).await;
    let mut call = memory.call().await;
    call.stream().await;
    let head = client.stream().await;
    sleep(Duration::from_secs(3600)).await;
    // From the first event on, each pause stays just below the limit.
    for _ in 0..5 {
        call.chunk(EVENT).await;
        sleep(Duration::from_secs(119)).await;
    }
    call.chunk(DONE).await;
    call.end().await;
    let (body, ending) = client.0.body(&head).await;
    assert_eq!(body, [&EVENT.repeat(5)[..], DONE].concat());
    assert_eq!(ending, Ending::Whole);
    assert_eq!(memory.settle().await.totals.finished, 1);
}

#[tokio::test(start_paused = true)]
async fn silence_after_the_first_event_ends_the_stream() {
    let mut memory = Memory::new(|s| s.set("upstream.stream_silence_timeout", "\"120s\"")).await;
    let mut client = memory.send(&Ask::tokens(500, STREAM)).await;
    let mut call = memory.call().await;
    call.stream().await;
    client.stream().await;
    call.chunk(EVENT).await;
    client.payload(EVENT.len()).await;
    let began = Instant::now();
    told_and_cut(&mut client, "upstream_timeout").await;
    assert_eq!(seconds_since(began), 120);
    call.gone().await;
    assert_eq!(memory.settle().await.totals.failed, 1);
}

#[tokio::test(start_paused = true)]
async fn the_whole_request_limit_ends_a_stream_that_still_flows() {
    let mut memory = Memory::new(|s| s.set("upstream.request_timeout", "\"300s\"")).await;
    let began = Instant::now();
    let mut client = memory.send(&Ask::tokens(500, STREAM)).await;
    let mut call = memory.call().await;
    call.stream().await;
    client.stream().await;
    for _ in 0..4 {
        call.chunk(EVENT).await;
        assert_eq!(client.payload(EVENT.len()).await, EVENT);
        sleep(Duration::from_secs(70)).await;
    }
    told_and_cut(&mut client, "upstream_timeout").await;
    assert_eq!(seconds_since(began), 300);
    call.gone().await;
    assert_eq!(memory.settle().await.totals.failed, 1);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_400_and_the_end_of_the_connection() {
    let change = |setup: Setup| {
        setup
            .set("server.body_timeout", "\"60s\"")
            .set("server.min_body_bytes_per_second", "0")
    };
    let mut memory = Memory::new(change).await;
    let began = Instant::now();
    let bytes = Ask::tokens(500, FILLING).bytes();
    let mut client = memory.connect();
    client.0.send(&bytes[..bytes.len() - 1]).await.unwrap();
    let reply = client.reply().await;
    refused(&reply, 400, "request_timeout", "request_timeout");
    assert_eq!(reply.header("connection"), Some("close"));
    assert_eq!(seconds_since(began), 60);
    assert_eq!(client.0.rest().await, (Vec::new(), Ending::Closed));
    assert_eq!(memory.settle().await.totals.received, 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stops_coming_holds_no_memory_for_long() {
    let mut memory = Memory::new(|setup| setup).await;
    let began = Instant::now();
    let bytes = Ask::tokens(500, FILLING).bytes();
    let mut client = memory.connect();
    client.0.send(&bytes[..bytes.len() - 1]).await.unwrap();
    let reply = client.reply().await;
    let error = refused(&reply, 400, "request_timeout", "request_timeout");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("512 bytes a second"), "{message}");
    assert_eq!(seconds_since(began), 5);
    assert_eq!(client.0.rest().await, (Vec::new(), Ending::Closed));
    assert_eq!(memory.settle().await.totals.received, 0);
}

#[tokio::test(start_paused = true)]
async fn headers_that_do_not_come_are_400_and_silence_is_closed() {
    let mut memory = Memory::new(|s| s.set("server.header_timeout", "\"10s\"")).await;
    let began = Instant::now();
    let mut client = memory.connect();
    client
        .0
        .send(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n")
        .await
        .unwrap();
    let reply = client.reply().await;
    assert_eq!(reply.status, 400);
    assert_eq!(reply.header("x-tidegate-reason"), Some("request_timeout"));
    assert_eq!(reply.json()["error"]["code"], "request_timeout");
    assert_eq!(seconds_since(began), 10);
    assert_eq!(client.0.rest().await, (Vec::new(), Ending::Closed));
    // One that says nothing, and one that has nothing more to say.
    let mut silent = memory.connect();
    assert_eq!(silent.0.rest().await, (Vec::new(), Ending::Closed));
    assert_eq!(seconds_since(began), 20);
    let mut served = memory.send(&Ask::get("/v1/models")).await;
    assert_eq!(served.reply().await.status, 200);
    assert_eq!(served.0.rest().await, (Vec::new(), Ending::Closed));
    assert_eq!(seconds_since(began), 30);
    memory.settle().await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_lets_those_it_held_up_in_at_once() {
    let mut memory = Memory::new(|s| s.set("queue.max_bypass", "\"10s\"")).await;
    let mut running = memory.send(&Ask::tokens(300, r#","max_tokens":100"#)).await;
    let call = memory.call().await;
    let head = memory.send(&Ask::tokens(500, FILLING)).await;
    memory.until_waiting(1).await;
    // From here on blocks are kept for the head, and what would fit waits.
    sleep(Duration::from_secs(11)).await;
    let mut follower = memory.send(&Ask::tokens(100, r#","max_tokens":100"#)).await;
    memory.until_waiting(2).await;
    let began = Instant::now();
    drop(head);
    memory.call().await.ok("{}").await;
    assert_eq!(follower.reply().await.status, 200);
    assert_eq!(began.elapsed(), Duration::ZERO);
    call.ok("{}").await;
    assert_eq!(running.reply().await.status, 200);
    assert_eq!(memory.settle().await.totals.left, 1);
}

#[tokio::test(start_paused = true)]
async fn waiting_and_prefill_have_budgets_of_their_own() {
    let limits = |s: Setup| {
        s.set("queue.max_wait", "\"30s\"")
            .set("upstream.first_byte_timeout", "\"60s\"")
            .set("upstream.request_timeout", "\"70s\"")
    };
    let mut memory = Memory::new(limits).await;
    let mut first = memory.send(&Ask::tokens(500, FILLING)).await;
    let call = memory.call().await;
    let mut second = memory.send(&Ask::tokens(500, FILLING)).await;
    memory.until_waiting(1).await;
    sleep(Duration::from_secs(25)).await;
    call.ok("{}").await;
    assert_eq!(first.reply().await.status, 200);
    let call = memory.call().await;
    sleep(Duration::from_secs(50)).await;
    call.ok("{}").await;
    let reply = second.reply().await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("x-tidegate-queue-ms"), Some("25000"));
    memory.settle().await;
}

#[tokio::test(start_paused = true)]
async fn a_long_request_that_was_passed_long_enough_gets_its_blocks() {
    let mut memory = Memory::new(|s| s.set("queue.max_bypass", "\"10s\"")).await;
    let small = Ask::tokens(200, r#","max_tokens":100"#);
    let began = Instant::now();
    let mut running = Vec::new();
    for _ in 0..3 {
        let client = memory.send(&small).await;
        running.push((client, memory.call().await));
    }
    let mut long = memory.send(&Ask::tokens(500, FILLING)).await;
    memory.until_waiting(1).await;
    // Small ones keep coming, one for each that ends: they pass the long one
    // until it has waited its bound, and wait behind it from then on.
    let mut passed = 0;
    loop {
        let mut client = memory.send(&small).await;
        memory.until_waiting(2).await;
        sleep(Duration::from_secs(3)).await;
        let (mut oldest, call) = running.remove(0);
        call.ok("{}").await;
        assert_eq!(oldest.reply().await.status, 200);
        while memory.pool().backends[0].leases == 2 && memory.pool().queue.requests == 2 {
            if seconds_since(began) >= 10 {
                break;
            }
            tokio::task::yield_now().await;
        }
        if memory.pool().queue.requests == 2 {
            // The long one is served before this one.
            for (mut client, call) in running.drain(..) {
                call.ok("{}").await;
                assert_eq!(client.reply().await.status, 200);
            }
            let call = memory.call().await;
            assert_eq!(call.json()["prompt"].as_array().unwrap().len(), 500);
            call.ok("{}").await;
            assert_eq!(long.reply().await.status, 200);
            memory.call().await.ok("{}").await;
            assert_eq!(client.reply().await.status, 200);
            break;
        }
        passed += 1;
        running.push((client, memory.call().await));
    }
    assert_eq!(passed, 3, "one each 3 seconds within 10");
    memory.settle().await;
}
