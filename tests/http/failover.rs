//! Engines that fail beside others that do not: what goes where, how often, and
//! what is left when all are gone. Long timers run on a paused clock.

use std::time::Duration;

use tidegate::core::backend::Health;
use tokio::time::{Instant, sleep};

use crate::support::client::{Ask, Client};
use crate::support::fake::{Fake, FakeSpec, Page};
use crate::support::memory::{Memory, seconds_since};
use crate::support::refusal::refused;
use crate::support::setup::Setup;
use crate::support::stand::Stand;

const STREAM: &str = r#","max_tokens":100,"stream":true"#;
/// With 500 prompt tokens, nearly all of an engine.
const FILLING: &str = r#","max_tokens":500"#;

async fn two(change: impl FnOnce(Setup) -> Setup) -> Memory {
    Memory::of([FakeSpec::default(), FakeSpec::default()], change).await
}

async fn served_by(memory: &mut Memory, at: usize) {
    let mut client = memory.send(&Ask::tokens(4, "")).await;
    memory.fake(at).call().await.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
}

#[tokio::test]
async fn engines_that_all_die_under_load_are_told_of_and_used_when_they_come_back() {
    let mut fakes = Vec::new();
    for _ in 0..3 {
        fakes.push(Fake::start(FakeSpec::default()).await);
    }
    let named: Vec<_> = ["a", "b", "c"]
        .iter()
        .zip(&fakes)
        .map(|(name, fake)| fake.backend(name))
        .collect();
    let stand = Stand::start(&Setup::tiny(&named)).await;
    for _ in 0..2 {
        let mut streams = Vec::new();
        for _ in 0..6 {
            let mut client = stand.send(&Ask::tokens(4, STREAM)).await;
            let mut call = loop {
                if let Some(call) = fakes.iter().find_map(Fake::try_call) {
                    break call;
                }
                tokio::task::yield_now().await;
            };
            call.stream().await;
            client.stream().await;
            streams.push((client, call));
        }
        for fake in &mut fakes {
            fake.die().await;
        }
        for (mut client, call) in streams {
            call.close();
            let told = client.0.chunk().await.unwrap().unwrap();
            assert!(String::from_utf8(told).unwrap().contains("upstream_failed"));
        }
        let all = |pool: &serde_json::Value, state: &str| {
            let backends = pool["backends"].as_array().unwrap();
            backends.iter().filter(|b| b["state"] == state).count()
        };
        stand.until(|pool| all(pool, "down") == 3).await;
        assert_eq!(stand.admin("/readyz").await.status, 503);
        assert_eq!(stand.admin("/livez").await.status, 200);
        for _ in 0..20 {
            let reply = stand.ask(&Ask::tokens(4, "")).await;
            refused(&reply, 503, "no_backend", "no_backend");
            assert!(reply.header("retry-after").is_some());
        }
        for fake in &mut fakes {
            fake.come_back().await;
        }
        stand.until(|pool| all(pool, "up") == 3).await;
        assert_eq!(stand.admin("/readyz").await.status, 200);
        let mut client = stand.send(&Ask::tokens(4, "")).await;
        fakes[0].call().await.ok("{}").await;
        assert_eq!(client.reply().await.status, 200);
    }
    let totals = stand.settle().await;
    assert_eq!(
        (&totals["failed"], &totals["finished"]),
        (&12.into(), &2.into())
    );
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_told_when_the_last_engine_is_gone() {
    let mut memory = Memory::new(|s| s).await;
    let mut running = memory.send(&Ask::tokens(500, FILLING)).await;
    let call = memory.call().await;
    let mut waiting = memory.send(&Ask::tokens(500, FILLING)).await;
    memory.until_waiting(1).await;
    memory.fake(0).refuse();
    memory
        .in_time(|pool| pool.backends[0].health == Health::Down)
        .await;
    let reply = waiting.reply().await;
    refused(&reply, 503, "no_backend", "no_backend");
    assert!(reply.header("retry-after").is_some());
    refused(
        &running.reply().await,
        502,
        "upstream_failed",
        "upstream_failed",
    );
    call.gone().await;
    let totals = memory.settle().await.totals;
    assert_eq!((totals.refused, totals.failed, totals.expired), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn who_may_wait_for_an_engine_is_served_when_one_comes_back() {
    let mut memory = Memory::new(|s| s.set("queue.when_no_backend", "\"wait\"")).await;
    memory.fake(0).refuse();
    memory
        .in_time(|pool| pool.backends[0].health == Health::Down)
        .await;
    let mut patient = memory.send(&Ask::tokens(4, "")).await;
    memory.until_waiting(1).await;
    memory.fake(0).accept();
    memory.call().await.ok("{}").await;
    let reply = patient.reply().await;
    assert_eq!(reply.status, 200);
    // And no longer than it may wait at all: a minute by default.
    memory.fake(0).refuse();
    memory
        .in_time(|pool| pool.backends[0].health == Health::Down)
        .await;
    let began = Instant::now();
    let reply = memory.send(&Ask::tokens(4, "")).await.reply().await;
    refused(&reply, 503, "no_backend", "no_backend");
    assert_eq!(seconds_since(began), 60);
    memory.settle().await;
}

#[tokio::test(start_paused = true)]
async fn an_engine_whose_metrics_stand_still_is_left_alone_though_it_says_it_is_healthy() {
    let mut memory = two(|s| s).await;
    served_by(&mut memory, 0).await;
    memory.fake(0).change(|spec| spec.waiting = 3);
    memory
        .in_time(|pool| pool.backends[0].health == Health::Degraded)
        .await;
    for _ in 0..5 {
        served_by(&mut memory, 1).await;
    }
    // Where it is the only one left, it is used.
    memory.fake(1).refuse();
    memory
        .in_time(|pool| pool.backends[1].health == Health::Down)
        .await;
    served_by(&mut memory, 0).await;
    memory.settle().await;
}

#[tokio::test(start_paused = true)]
async fn five_first_bytes_in_a_row_that_do_not_come_send_the_next_request_elsewhere() {
    let mut memory = two(|s| s.set("upstream.first_byte_timeout", "\"5s\"")).await;
    for _ in 0..5 {
        let mut client = memory.send(&Ask::tokens(4, "")).await;
        let call = memory.call().await;
        let reply = client.reply().await;
        refused(&reply, 504, "upstream_timeout", "upstream_timeout");
        // It was delivered: nobody else gets it, and the engine is told.
        assert_eq!(memory.fake(1).unseen(), 0);
        call.gone().await;
    }
    for _ in 0..5 {
        served_by(&mut memory, 1).await;
    }
    assert_eq!(memory.pool().backends[0].health, Health::Degraded);
    let totals = memory.settle().await.totals;
    assert_eq!((totals.failed, totals.finished), (5, 5));
}

#[tokio::test(start_paused = true)]
async fn at_the_end_of_an_ejection_one_request_is_tried_and_no_more() {
    let mut memory = two(|s| s).await;
    let fail = async |memory: &mut Memory| {
        let mut client = memory.send(&Ask::tokens(4, "")).await;
        memory
            .call()
            .await
            .answer(500, "application/json", b"{}")
            .await;
        assert_eq!(client.reply().await.status, 500);
    };
    for _ in 0..5 {
        fail(&mut memory).await;
    }
    served_by(&mut memory, 1).await;
    // The next probe finds that the ten seconds are over.
    sleep(Duration::from_secs(21)).await;
    let mut tried = memory.send(&Ask::tokens(4, "")).await;
    let trial = memory.call().await;
    for _ in 0..5 {
        served_by(&mut memory, 1).await;
    }
    trial.answer(500, "application/json", b"{}").await;
    assert_eq!(tried.reply().await.status, 500);
    // Ejected again, for twice as long; then a success ends it.
    sleep(Duration::from_secs(11)).await;
    served_by(&mut memory, 1).await;
    sleep(Duration::from_secs(20)).await;
    served_by(&mut memory, 0).await;
    assert_eq!(memory.pool().backends[0].health, Health::Up);
    memory.settle().await;
}

#[tokio::test]
async fn a_request_that_takes_an_engine_down_takes_no_second_one_with_it() {
    let mut fakes = Vec::new();
    for _ in 0..3 {
        fakes.push(Fake::start(FakeSpec::default()).await);
    }
    let named: Vec<_> = ["a", "b", "c"]
        .iter()
        .zip(&fakes)
        .map(|(name, fake)| fake.backend(name))
        .collect();
    let stand = Stand::start(&Setup::tiny(&named)).await;
    let mut other = stand.send(&Ask::tokens(4, STREAM)).await;
    let mut kept = fakes[0].call().await;
    kept.stream().await;
    other.stream().await;
    let mut poisoner = stand.send(&Ask::tokens(9, "")).await;
    let poison = fakes[1].call().await;
    poison.reset();
    fakes[1].die().await;
    let reply = poisoner.reply().await;
    refused(&reply, 502, "upstream_failed", "upstream_failed");
    for fake in [&fakes[0], &fakes[2]] {
        assert_eq!(fake.unseen(), 0);
    }
    for _ in 0..10 {
        let mut client = stand.send(&Ask::tokens(4, "")).await;
        fakes[2].call().await.ok("{}").await;
        assert_eq!(client.reply().await.status, 200);
    }
    kept.chunk(b"data: [DONE]\n\n").await;
    kept.end().await;
    assert_eq!(other.payload(14).await, b"data: [DONE]\n\n");
    stand.settle().await;
}

#[tokio::test(start_paused = true)]
async fn what_one_engine_refuses_goes_to_another_within_what_that_can_hold() {
    let mut memory = two(|s| s).await;
    memory.fake(0).refuse();
    let mut first = memory.send(&Ask::tokens(500, FILLING)).await;
    let call = memory.fake(1).call().await;
    let mut second = memory.send(&Ask::tokens(500, FILLING)).await;
    memory.until_waiting(1).await;
    assert_eq!(memory.fake(1).unseen(), 0);
    // One failure, of the one try: the second did not try the lost engine.
    assert_eq!(memory.pool().totals.failed, 1);
    call.ok("{}").await;
    assert_eq!(first.reply().await.status, 200);
    memory.fake(1).call().await.ok("{}").await;
    assert_eq!(second.reply().await.status, 200);
    let totals = memory.settle().await.totals;
    assert_eq!((totals.failed, totals.finished), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn an_address_that_swallows_connections_costs_one_connect_timeout_and_is_avoided() {
    let mut memory = two(|s| s).await;
    memory.fake(0).vanish();
    let began = Instant::now();
    let mut client = memory.send(&Ask::tokens(4, "")).await;
    memory.fake(1).call().await.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    assert_eq!(seconds_since(began), 5);
    for _ in 0..5 {
        served_by(&mut memory, 1).await;
    }
    assert_eq!(seconds_since(began), 5);
    assert_ne!(memory.pool().backends[0].health, Health::Up);
    let totals = memory.settle().await.totals;
    assert_eq!((totals.failed, totals.finished), (1, 6));
}

#[tokio::test(start_paused = true)]
async fn a_long_prefill_is_waited_for_by_default_and_a_short_one_too() {
    let mut memory = Memory::of(
        [FakeSpec {
            blocks: 20_000,
            max_model_len: 200_000,
            ..FakeSpec::default()
        }],
        |s| s,
    )
    .await;
    for prompt in [150_000, 4] {
        let mut client = memory
            .send(&Ask::tokens(prompt, r#","max_tokens":9"#))
            .await;
        let call = memory.call().await;
        sleep(Duration::from_secs(170)).await;
        call.ok("{}").await;
        assert_eq!(client.reply().await.status, 200);
    }
    memory.settle().await;
}

#[tokio::test(start_paused = true)]
async fn an_engine_is_spoken_to_by_its_own_name_in_http_1_1() {
    let mut memory = Memory::new(|s| s).await;
    let mut client = memory.send(&Ask::tokens(4, "")).await;
    let call = memory.call().await;
    assert!(call.raw.starts_with(b"POST /v1/completions HTTP/1.1\r\n"));
    assert_eq!(call.head.get("host"), Some("a:1"));
    call.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    memory.settle().await;
}

#[tokio::test(start_paused = true)]
async fn probes_and_scrapes_leave_the_books_of_running_requests_alone() {
    let mut memory = Memory::new(|s| s).await;
    let mut streams: Vec<(Client<_>, _)> = Vec::new();
    for _ in 0..5 {
        let mut client = memory.send(&Ask::tokens(4, STREAM)).await;
        let mut call = memory.call().await;
        call.stream().await;
        client.stream().await;
        streams.push((client, call));
    }
    let held = |memory: &Memory| {
        let backend = &memory.pool().backends[0];
        (backend.id, backend.leases, backend.held)
    };
    let before = held(&memory);
    assert_eq!(before.1, 5);
    for cycle in 0..30 {
        match cycle {
            10 => memory
                .fake(0)
                .page("/health", Page::json(503, "{\"busy\":1}")),
            20 => memory.fake(0).own_page("/health"),
            _ => {}
        }
        sleep(Duration::from_secs(10)).await;
        assert_eq!(held(&memory), before, "cycle {cycle}");
    }
    for (mut client, mut call) in streams {
        call.chunk(b"data: [DONE]\n\n").await;
        call.end().await;
        assert_eq!(client.payload(14).await, b"data: [DONE]\n\n");
    }
    assert_eq!(memory.settle().await.totals.finished, 5);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_denies_the_model_is_passed_by_before_a_byte_is_relayed() {
    let mut memory = two(|s| s).await;
    let denial = r#"{"error":{"message":"The model `tiny` does not exist.","type":"NotFoundError","param":"model","code":404}}"#;
    memory.fake(0).change(|spec| spec.model = "other".into());
    let mut client = memory.send(&Ask::tokens(4, STREAM)).await;
    let call = memory.call().await;
    call.answer(404, "application/json", denial.as_bytes())
        .await;
    memory.fake(1).call().await.ok("{}").await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.text()), (200, "{}"));
    // Its next look finds another model there.
    memory
        .in_time(|pool| pool.backends[0].health == Health::Down)
        .await;
    for _ in 0..3 {
        served_by(&mut memory, 1).await;
    }
    // The last engine denies it too: the model is configured, and not usable now.
    let mut client = memory.send(&Ask::tokens(4, "")).await;
    let call = memory.fake(1).call().await;
    call.answer(404, "application/json", denial.as_bytes())
        .await;
    refused(&client.reply().await, 503, "no_backend", "no_backend");
    memory.settle().await;
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_refuses_our_key_is_passed_by_and_the_client_never_told_its_own_is_wrong() {
    let mut memory = two(|s| s).await;
    let wrong = br#"{"error":"Unauthorized"}"#;
    let mut client = memory.send(&Ask::tokens(4, STREAM)).await;
    let call = memory.call().await;
    call.answer(401, "application/json", wrong).await;
    memory.fake(1).call().await.ok("{}").await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.text()), (200, "{}"));
    // Where no other is left it is the gateway's failure.
    memory.fake(0).refuse();
    memory
        .in_time(|pool| pool.backends[0].health == Health::Down)
        .await;
    let mut client = memory.send(&Ask::tokens(4, "")).await;
    for _ in 0..3 {
        let call = memory.fake(1).call().await;
        call.answer(401, "application/json", wrong).await;
    }
    refused(
        &client.reply().await,
        502,
        "upstream_failed",
        "upstream_failed",
    );
    memory.settle().await;
}
