//! What is reserved, from when until when: reported overloads and leaks, mostly
//! on a paused clock, with engines that count their own memory.

use std::time::Duration;

use tidegate::core::stats::PoolState;
use tokio::time::{Instant, sleep};

use crate::support::client::Ask;
use crate::support::fake::{FakeSpec, Page};
use crate::support::memory::{Memory, seconds_since};
use crate::support::refusal::refused;
use crate::support::setup::Setup;
use crate::support::wire::Ending;

const FILLING: &str = r#","max_tokens":500"#;
const STREAM: &str = r#","max_tokens":500,"stream":true"#;
const EVENT: &[u8] = b"data: {\"choices\":[{\"index\":0,\"text\":\"x\"}]}\n\n";
const DONE: &[u8] = b"data: [DONE]\n\n";

/// An engine of this many tokens of KV with this window.
fn engine(tokens: u64, max_model_len: u64) -> FakeSpec {
    FakeSpec {
        blocks: tokens / 16,
        max_model_len,
        ..FakeSpec::default()
    }
}

fn held(pool: &PoolState) -> u64 {
    pool.backends.iter().map(|at| at.held.get()).sum()
}

#[tokio::test(start_paused = true)]
async fn what_is_tried_elsewhere_is_charged_at_one_place_at_a_time() {
    let mut memory = Memory::of([engine(16_000, 1024), engine(16_000, 1024)], |s| s).await;
    memory.fake(0).refuse();
    let ask = Ask::tokens(4, r#","max_tokens":12"#);
    let mut clients = Vec::new();
    for _ in 0..100 {
        clients.push(memory.send(&ask).await);
    }
    let mut calls = Vec::new();
    for _ in 0..100 {
        calls.push(memory.fake(1).call().await);
        let pool = memory.pool();
        let leases: u64 = pool.backends.iter().map(|at| u64::from(at.leases)).sum();
        assert!(leases <= 100, "{leases} leases of 100 requests");
        assert!(leases >= calls.len() as u64);
    }
    let pool = memory.pool();
    let leases: Vec<_> = pool.backends.iter().map(|at| at.leases).collect();
    assert_eq!(leases, [0, 100]);
    assert_eq!(held(&pool), 100);
    for call in calls {
        call.ok("{}").await;
    }
    for mut client in clients {
        assert_eq!(client.reply().await.status, 200);
    }
    let totals = memory.settle().await.totals;
    assert_eq!(totals.finished, 100);
    assert!(totals.failed >= 1, "{totals:?}");
    assert_eq!(totals.admitted, 100 + totals.failed);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_sheds_is_charged_once_and_given_back_once() {
    let mut memory = Memory::of([engine(16_000, 1024)], |s| s).await;
    let ask = Ask::tokens(4, r#","max_tokens":12"#);
    for _ in 0..10 {
        let mut clients = Vec::new();
        for _ in 0..10 {
            clients.push(memory.send(&ask).await);
        }
        for left in (0..10).rev() {
            let call = memory.call().await;
            let json = "application/json";
            call.answer(503, json, br#"{"error":{"message":"full"}}"#)
                .await;
            memory
                .until(|pool| pool.backends[0].leases <= 10 && held(pool) >= left)
                .await;
        }
        for mut client in clients {
            assert_eq!(client.reply().await.status, 503);
        }
        memory.until(|pool| held(pool) == 0).await;
    }
    assert_eq!(memory.settle().await.totals.admitted, 100);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_forty_minutes_holds_its_memory_to_the_last_byte() {
    let mut memory = Memory::new(|s| s.set("queue.max_wait", "\"2h\"")).await;
    let mut first = memory.send(&Ask::tokens(500, STREAM)).await;
    let mut call = memory.call().await;
    call.stream().await;
    first.stream().await;
    let mut second = memory.send(&Ask::tokens(500, FILLING)).await;
    memory.until_waiting(1).await;
    let began = Instant::now();
    while seconds_since(began) < 40 * 60 {
        call.chunk(EVENT).await;
        assert_eq!(first.payload(EVENT.len()).await, EVENT);
        let pool = memory.pool();
        assert_eq!((held(&pool), pool.queue.requests), (63, 1));
        assert_eq!(memory.fake(0).unseen(), 0);
        sleep(Duration::from_secs(10)).await;
    }
    call.chunk(DONE).await;
    call.end().await;
    assert_eq!(first.payload(DONE.len()).await, DONE);
    memory.call().await.ok("{}").await;
    let reply = second.reply().await;
    assert_eq!(reply.header("x-tidegate-queue-ms"), Some("2400000"));
    assert_eq!(memory.settle().await.totals.finished, 2);
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_fits_the_window_and_not_the_memory_never_reaches_an_engine() {
    let (small, large) = (engine(60_000, 131_072), engine(200_000, 131_072));
    let mut memory = Memory::of([small.clone(), large], |s| s).await;
    let long = Ask::tokens(80_000, r#","max_tokens":10"#);
    for _ in 0..3 {
        let mut client = memory.send(&long).await;
        memory.fake(1).call().await.ok("{}").await;
        assert_eq!(client.reply().await.header("x-tidegate-backend"), Some("b"));
    }
    memory.fake(1).refuse();
    memory
        .in_time(|pool| !pool.backends[1].health.admits())
        .await;
    let reply = memory.send(&long).await.reply().await;
    refused(&reply, 503, "no_backend", "no_backend");
    let mut short = memory.send(&Ask::tokens(100, r#","max_tokens":10"#)).await;
    memory.call().await.ok("{}").await;
    assert_eq!(short.reply().await.status, 200);
    memory.settle().await;
    // Where no other is configured it is told so at once.
    let mut memory = Memory::of([small], |s| s).await;
    let reply = memory.send(&long).await.reply().await;
    let error = refused(&reply, 400, "context_length_exceeded", "context_too_long");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("maximum context length is 60000 tokens"),
        "{message}"
    );
    assert_eq!(memory.settle().await.totals.refused, 1);
}

#[tokio::test(start_paused = true)]
async fn memory_that_nobody_can_work_out_is_assumed_and_said_to_be() {
    let spec = FakeSpec::default();
    let told = |labels: &str| {
        Page::text(&format!(
            "vllm:num_requests_running{{engine=\"0\"}} 0\nvllm:num_requests_waiting{{engine=\"0\"}} 0\n\
             vllm:cache_config_info{{{labels},engine=\"0\"}} 1\n"
        ))
    };
    let memory = Memory::of([spec], |s| s).await;
    let tokens = |pool: &PoolState| pool.backends[0].capacity.unwrap().pool().get();
    memory.fake(0).page(
        "/metrics",
        told(r#"block_size="4",num_gpu_blocks="100000",kv_cache_size_tokens="1450000""#),
    );
    memory.in_time(|pool| tokens(pool) != 1024).await;
    // One block less, the null block.
    assert_eq!(tokens(&memory.pool()), 1_450_000 - 4);
    // Without the figure the pool of a model of several groups is not known.
    memory.fake(0).page(
        "/metrics",
        told(r#"block_size="4",num_gpu_blocks="100000",mamba_block_size="64""#),
    );
    memory.in_time(|pool| tokens(pool) != 1_450_000 - 4).await;
    assert!(tokens(&memory.pool()) <= 8192, "{}", tokens(&memory.pool()));
    assert_eq!(
        memory.pool().backends[0].capacity.unwrap().source.name(),
        "assumed"
    );
    memory.settle().await;
}

#[tokio::test(start_paused = true)]
async fn eight_samples_wait_for_room_for_all_and_leave_together() {
    for rest in ["", r#","stream":true"#] {
        let mut memory = Memory::of([engine(10_000, 8192)], |s| s).await;
        let mut other = memory
            .send(&Ask::tokens(2000, r#","max_tokens":500"#))
            .await;
        let running = memory.call().await;
        let eight = Ask::tokens(100, &format!(r#","max_tokens":1000,"n":8{rest}"#));
        let mut client = memory.send(&eight).await;
        memory.until_waiting(1).await;
        running.ok("{}").await;
        assert_eq!(other.reply().await.status, 200);
        let mut call = memory.call().await;
        let blocks = held(&memory.pool());
        assert!((8100..=8 * 1104).contains(&(blocks * 16)), "{blocks}");
        assert_eq!(memory.pool().backends[0].sequences, 8);
        if rest.is_empty() {
            call.ok("{}").await;
            assert_eq!(client.reply().await.status, 200);
        } else {
            call.stream().await;
            client.stream().await;
            call.chunk(DONE).await;
            call.end().await;
            assert_eq!(client.payload(DONE.len()).await, DONE);
        }
        memory.settle().await;
        assert_eq!(memory.fake(0).peak_sequences(), 8);
    }
}

#[tokio::test(start_paused = true)]
async fn sequences_that_fit_nowhere_together_are_told_the_memory_there_is() {
    let mut memory = Memory::of([engine(8000, 8000)], |s| s).await;
    let many = Ask::tokens(100, r#","max_tokens":1,"n":600"#);
    let reply = memory.send(&many).await.reply().await;
    let message =
        if reply.status == 400 && reply.header("x-tidegate-reason") == Some("context_too_long") {
            reply.json()["error"]["message"]
                .as_str()
                .unwrap()
                .to_owned()
        } else {
            panic!("{reply:?}")
        };
    assert!(message.contains("600 sequences"), "{message}");
    assert!(
        message.contains("no backend holds more than 8000"),
        "{message}"
    );
    memory.settle().await;
}

#[tokio::test(start_paused = true)]
async fn lists_samples_and_beams_are_the_sequences_an_engine_runs() {
    let mut memory = Memory::of([engine(32_000, 4096)], |s| s).await;
    let cases = [
        (r#""prompt":["a","b","c"],"n":2,"max_tokens":500"#, 6),
        (r#""prompt":[7,7],"best_of":4,"n":1,"max_tokens":500"#, 4),
        (
            r#""prompt":[7,7],"use_beam_search":true,"n":4,"max_tokens":500"#,
            4,
        ),
    ];
    for (members, sequences) in cases {
        let body = format!(r#"{{"model":"tiny",{members}}}"#);
        let mut client = memory.send(&Ask::post("/v1/completions", body)).await;
        let call = memory.call().await;
        let pool = memory.pool();
        assert_eq!(pool.backends[0].sequences, sequences, "{members}");
        assert!(held(&pool) * 16 >= sequences * 500, "{members}");
        call.ok("{}").await;
        assert_eq!(client.reply().await.status, 200);
    }
    memory.settle().await;
}

/// Reserves as it grows, with 1,024 tokens expected where nobody bounds them.
fn forecast(setup: Setup) -> Setup {
    setup
        .set("admission.reservation", "\"forecast\"")
        .set("admission.open_output_tokens", "1024")
}

#[tokio::test(start_paused = true)]
async fn what_is_left_open_runs_side_by_side() {
    let spec = FakeSpec {
        counts: Some(50),
        ..engine(40_000, 32_000)
    };
    let mut memory = Memory::of([spec], forecast).await;
    for (open, ask) in [
        ("absent", Ask::chat(r#","stream":true"#)),
        ("null", Ask::chat(r#","stream":true,"max_tokens":null"#)),
    ] {
        let mut running = Vec::new();
        for _ in 0..10 {
            let client = memory.send(&ask).await;
            running.push((client, memory.call().await));
        }
        let pool = memory.pool();
        assert_eq!(pool.tenants[0].in_flight.get(), 10 * 1074, "{open}");
        for (mut client, mut call) in running {
            call.stream().await;
            client.stream().await;
            call.chunk(DONE).await;
            call.end().await;
            assert_eq!(client.payload(DONE.len()).await, DONE);
        }
    }
    let mut running = Vec::new();
    for _ in 0..10 {
        let client = memory.send(&Ask::tokens(50, "")).await;
        running.push((client, memory.call().await));
    }
    assert_eq!(memory.pool().tenants[0].in_flight.get(), 10 * 66);
    for (mut client, call) in running {
        call.ok("{}").await;
        assert_eq!(client.reply().await.status, 200);
    }
    memory.settle().await;
}

#[tokio::test(start_paused = true)]
async fn a_long_generation_nobody_foresaw_keeps_newcomers_out() {
    let mut memory = Memory::of([engine(4096, 4096)], forecast).await;
    let mut long = memory.send(&Ask::chat(r#","stream":true"#)).await;
    let mut call = memory.call().await;
    call.stream().await;
    long.stream().await;
    let event = b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n";
    for tokens in 1..=3000_u64 {
        call.chunk(event).await;
        assert_eq!(long.payload(event.len()).await, event);
        if tokens.is_multiple_of(500) {
            let held = held(&memory.pool()) * 16;
            assert!(held + 16 >= 10 + tokens, "{held} after {tokens}");
        }
    }
    let mut next = memory
        .send(&Ask::tokens(1000, r#","max_tokens":200"#))
        .await;
    memory.until_waiting(1).await;
    call.chunk(DONE).await;
    call.end().await;
    assert_eq!(long.payload(DONE.len()).await, DONE);
    memory.call().await.ok("{}").await;
    assert_eq!(next.reply().await.status, 200);
    memory.settle().await;
}

#[tokio::test(start_paused = true)]
async fn an_early_end_frees_everything_at_once_whatever_it_looks_like() {
    let mut memory = Memory::of([engine(32_512, 32_768)], |s| s).await;
    let stream = Ask::tokens(500, r#","max_tokens":32000,"stream":true"#);
    for how in ["done", "eof", "length"] {
        let ask = match how {
            "length" => Ask::tokens(500, r#","max_tokens":32000"#),
            _ => stream.clone(),
        };
        let mut client = memory.send(&ask).await;
        let mut call = memory.call().await;
        let next = Ask::tokens(500, r#","max_tokens":32000"#);
        let mut next = memory.send(&next).await;
        memory.until_waiting(1).await;
        let began = Instant::now();
        let head = if how == "length" {
            call.ok(r#"{"usage":{"prompt_tokens":500,"completion_tokens":10}}"#)
                .await;
            None
        } else {
            call.stream().await;
            let head = client.stream().await;
            for _ in 0..10 {
                call.chunk(EVENT).await;
            }
            if how == "done" {
                call.chunk(DONE).await;
            }
            call.end().await;
            Some(head)
        };
        // Whoever waits is at the engine before the clock has moved.
        let call = memory.call().await;
        assert_eq!(began.elapsed(), Duration::ZERO, "{how}");
        call.ok("{}").await;
        assert_eq!(next.reply().await.status, 200);
        match head {
            None => assert_eq!(client.reply().await.status, 200),
            Some(head) => {
                let (_, ending) = client.0.body(&head).await;
                assert_eq!(ending == Ending::Whole, how == "done", "{how}");
            }
        }
    }
    let totals = memory.settle().await.totals;
    assert_eq!((totals.finished, totals.failed), (5, 1));
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_held_while_the_body_streams_and_not_only_until_its_headers() {
    let mut memory = Memory::new(|s| s).await;
    let mut first = memory.send(&Ask::tokens(500, STREAM)).await;
    let mut call = memory.call().await;
    call.stream().await;
    let head = first.stream().await;
    let mut second = memory.send(&Ask::tokens(500, FILLING)).await;
    memory.until_waiting(1).await;
    for _ in 0..100 {
        call.chunk(EVENT).await;
        sleep(Duration::from_millis(100)).await;
        let pool = memory.pool();
        assert_eq!((held(&pool), pool.queue.requests), (63, 1));
    }
    call.chunk(DONE).await;
    call.end().await;
    let (body, ending) = first.0.body(&head).await;
    assert_eq!(
        (body.len(), ending),
        (100 * EVENT.len() + DONE.len(), Ending::Whole)
    );
    memory.call().await.ok("{}").await;
    let reply = second.reply().await;
    assert_eq!(reply.header("x-tidegate-queue-ms"), Some("10000"));
    memory.settle().await;
}
