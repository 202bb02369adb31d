//! What does not fit: never, not now, or not any more.

use crate::support::client::{Ask, Client};
use crate::support::fake::{Call, Fake, FakeSpec};
use crate::support::memory::Memory;
use crate::support::refusal::refused;
use crate::support::setup::{Setup, backend};
use crate::support::stand::Stand;

/// Fills all but one block of the pool.
const FILLING: &str = r#","max_tokens":500"#;

async fn gateway(change: impl FnOnce(Setup) -> Setup) -> (Stand, Fake) {
    let fake = Fake::start(FakeSpec::default()).await;
    let setup = change(Setup::tiny(&[fake.backend("a")]));
    (Stand::start(&setup).await, fake)
}

#[tokio::test]
async fn what_can_never_fit_is_told_how_much_would() {
    let fake = Fake::start(FakeSpec {
        counts: Some(2000),
        ..FakeSpec::default()
    })
    .await;
    let stand = Stand::start(&Setup::tiny(&[fake.backend("a")])).await;
    let cases = [
        (Ask::tokens(1024, r#","max_tokens":1"#), "prompt", "1024"),
        (Ask::tokens(4000, ""), "prompt", "4000"),
        (Ask::tokens(10, r#","max_tokens":1025"#), "prompt", "1025"),
        (Ask::chat(""), "messages", "2000"),
        (
            Ask::chat(r#","max_completion_tokens":9"#),
            "messages",
            "2000",
        ),
    ];
    for (ask, param, number) in cases {
        let reply = stand.ask(&ask).await;
        let error = refused(&reply, 400, "context_length_exceeded", "context_too_long");
        let message = error["message"].as_str().unwrap();
        let begins = "This model's maximum context length is 1024 tokens";
        assert!(message.starts_with(begins), "{message}");
        assert!(message.contains(number), "{message}");
        assert_eq!(error["param"], param);
    }
    assert_eq!(stand.settle().await["refused"], 5);
    fake.check();
}

#[tokio::test]
async fn a_queue_full_of_requests_is_overload() {
    let (stand, fake) = gateway(|setup| setup.set("queue.max_requests", "1")).await;
    let mut first = stand.send(&Ask::tokens(500, FILLING)).await;
    let running = fake.call().await;
    let mut second = stand.send(&Ask::tokens(500, FILLING)).await;
    stand.until_waiting(1).await;
    let reply = stand.ask(&Ask::tokens(500, FILLING)).await;
    let error = refused(&reply, 429, "overloaded", "queue_requests_full");
    assert_eq!(error["type"], "overloaded_error");
    running.ok("{}").await;
    fake.call().await.ok("{}").await;
    assert_eq!(first.reply().await.status, 200);
    assert_eq!(second.reply().await.status, 200);
    assert_eq!(stand.settle().await["finished"], 2);
    fake.check();
}

#[tokio::test]
async fn a_queue_full_of_tokens_is_overload() {
    let (stand, fake) = gateway(|setup| setup.set("queue.max_tokens", "1500")).await;
    let mut first = stand.send(&Ask::tokens(500, FILLING)).await;
    let running = fake.call().await;
    let mut second = stand.send(&Ask::tokens(500, FILLING)).await;
    let pool = stand.until_waiting(1).await;
    assert_eq!(pool["queue"]["tokens"], 1000);
    let reply = stand.ask(&Ask::tokens(500, FILLING)).await;
    refused(&reply, 429, "overloaded", "queue_tokens_full");
    running.ok("{}").await;
    fake.call().await.ok("{}").await;
    assert_eq!(first.reply().await.status, 200);
    assert_eq!(second.reply().await.status, 200);
    let totals = stand.settle().await;
    assert_eq!(
        (&totals["finished"], &totals["refused"]),
        (&2.into(), &1.into())
    );
    fake.check();
}

#[tokio::test]
async fn no_waiting_at_all_means_now_or_overload() {
    let (stand, fake) = gateway(|setup| setup.set("queue.max_requests", "0")).await;
    let mut first = stand.send(&Ask::tokens(500, FILLING)).await;
    let running = fake.call().await;
    let reply = stand.ask(&Ask::tokens(500, FILLING)).await;
    refused(&reply, 429, "overloaded", "queue_requests_full");
    running.ok("{}").await;
    assert_eq!(first.reply().await.status, 200);
    // An empty pool takes what fits, though nothing may wait.
    let mut next = stand.send(&Ask::tokens(500, FILLING)).await;
    fake.call().await.ok("{}").await;
    assert_eq!(next.reply().await.status, 200);
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn a_model_whose_backends_never_came_up_has_no_backend() {
    // A port that was free a moment ago and is not listened on.
    let gone = Fake::start(FakeSpec::default()).await;
    let url = gone.url();
    drop(gone);
    let lines = "kv_tokens = 1024\nmax_model_len = 1024\nblock_size = 16";
    let setup = Setup::tiny(&[backend("a", &url, lines)]);
    let stand = Stand::unready(&setup).await;
    let reply = stand.ask(&Ask::tokens(4, r#","max_tokens":1"#)).await;
    let error = refused(&reply, 503, "no_backend", "no_backend");
    assert_eq!(error["type"], "server_error");
    assert_eq!(stand.admin("/readyz").await.status, 503);
    assert_eq!(stand.admin("/livez").await.status, 200);
    assert_eq!(stand.settle().await["refused"], 1);
}

#[tokio::test]
async fn an_engine_that_went_down_and_came_back_serves_again() {
    let (stand, mut fake) = gateway(|setup| setup).await;
    fake.die().await;
    stand
        .until(|pool| pool["backends"][0]["state"] == "down")
        .await;
    let reply = stand.ask(&Ask::tokens(4, r#","max_tokens":1"#)).await;
    refused(&reply, 503, "no_backend", "no_backend");
    // What only a node that is down could hold is not told that it never fits;
    // what none could ever hold is.
    let reply = stand.ask(&Ask::tokens(500, FILLING)).await;
    refused(&reply, 503, "no_backend", "no_backend");
    let reply = stand.ask(&Ask::tokens(2000, "")).await;
    refused(&reply, 400, "context_length_exceeded", "context_too_long");
    fake.come_back().await;
    stand
        .until(|pool| pool["backends"][0]["state"] == "up")
        .await;
    let mut client = stand.send(&Ask::tokens(4, r#","max_tokens":1"#)).await;
    fake.call().await.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn a_waiter_that_may_outlasts_the_death_of_the_only_engine_and_what_ran_on_it_does_not() {
    let wait = |setup: Setup| setup.set("queue.when_no_backend", "\"wait\"");
    let (stand, mut fake) = gateway(wait).await;
    let mut first = stand.send(&Ask::tokens(500, FILLING)).await;
    let running = fake.call().await;
    let mut second = stand.send(&Ask::tokens(500, FILLING)).await;
    stand.until_waiting(1).await;
    fake.die().await;
    let reply = first.reply().await;
    refused(&reply, 502, "upstream_failed", "upstream_failed");
    running.gone().await;
    let pool = stand
        .until(|pool| pool["backends"][0]["state"] == "down")
        .await;
    assert_eq!(pool["queue"]["requests"], 1);
    assert_eq!(pool["backends"][0]["held_blocks"], 0);
    fake.come_back().await;
    fake.call().await.ok("{}").await;
    assert_eq!(second.reply().await.status, 200);
    let totals = stand.settle().await;
    let ends = (&totals["failed"], &totals["finished"]);
    assert_eq!(ends, (&1.into(), &1.into()));
    fake.check();
}

#[tokio::test]
async fn what_cannot_be_counted_is_refused_where_estimates_are_forbidden() {
    let fake = Fake::start(FakeSpec {
        counts: None,
        ..FakeSpec::default()
    })
    .await;
    let model = "name = \"tiny\"\non_uncountable = \"refuse\"";
    let setup = Setup::new().model(model, &[fake.backend("a")]);
    let stand = Stand::start(&setup).await;
    let reply = stand.ask(&Ask::chat("")).await;
    let (code, reason) = ("tokenizer_unavailable", "tokenizer_unavailable");
    refused(&reply, 503, code, reason);
    // Token ids need no tokenizer.
    let mut client = stand.send(&Ask::tokens(4, "")).await;
    fake.call().await.ok("{}").await;
    let reply = client.reply().await;
    assert_eq!(reply.header("x-tidegate-prompt-tokens"), Some("4;exact"));
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn bodies_that_wait_spend_the_budget_and_give_it_back() {
    let small = |setup: Setup| {
        setup
            .set("server.max_body_bytes", "1200")
            .set("server.body_budget_bytes", "3000")
    };
    let (stand, fake) = gateway(small).await;
    let ask = Ask::tokens(500, FILLING);
    let size = ask.body().len();
    assert!((1001..=1200).contains(&size), "{size}");
    let mut first = stand.send(&ask).await;
    let running = fake.call().await;
    // Held until the engine answers, and while it waits.
    let mut second = stand.send(&ask).await;
    stand.until_waiting(1).await;
    assert_eq!(stand.state().await["body_bytes"], 2 * size);
    let reply = stand.ask(&ask).await;
    refused(&reply, 503, "server_busy", "server_busy");
    // Without a length it is found out while reading.
    let mut third = Client::connect(stand.addr()).await;
    third.0.send(&ask.chunked(64)).await.unwrap();
    refused(&third.reply().await, 503, "server_busy", "server_busy");
    running.ok("{}").await;
    fake.call().await.ok("{}").await;
    assert_eq!(first.reply().await.status, 200);
    assert_eq!(second.reply().await.status, 200);
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn each_data_parallel_rank_has_books_of_its_own_and_is_pinned() {
    let fake = Fake::start(FakeSpec {
        ranks: 2,
        ..FakeSpec::default()
    })
    .await;
    let setup = Setup::tiny(&[backend("a", &fake.url(), "data_parallel_ranks = 2")]);
    let stand = Stand::start(&setup).await;
    let ask = Ask::tokens(500, FILLING);
    let (mut first, mut second) = (stand.send(&ask).await, stand.send(&ask).await);
    let (one, two) = (fake.call().await, fake.call().await);
    let rank = |call: &Call| call.head.get("x-data-parallel-rank").unwrap().to_owned();
    let mut ranks = [rank(&one), rank(&two)];
    ranks.sort();
    assert_eq!(ranks, ["0", "1"]);
    let mut third = stand.send(&ask).await;
    let pool = stand.until_waiting(1).await;
    for rank in 0..2 {
        assert_eq!(pool["backends"][rank]["held_blocks"], 63);
        assert_eq!(pool["backends"][rank]["capacity"]["blocks"], 64);
    }
    let freed = rank(&two);
    two.ok("{}").await;
    let next = fake.call().await;
    assert_eq!(rank(&next), freed);
    one.ok("{}").await;
    next.ok("{}").await;
    for client in [&mut first, &mut second, &mut third] {
        assert_eq!(client.reply().await.status, 200);
    }
    assert_eq!(fake.peak(), 126);
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn a_drained_backend_gets_nothing_new_and_finishes_what_it_has() {
    let (a, b) = (
        Fake::start(FakeSpec::default()).await,
        Fake::start(FakeSpec::default()).await,
    );
    let setup = Setup::tiny(&[a.tier("standard"), b.tier("large")]);
    let stand = Stand::start(&setup).await;
    let small = Ask::tokens(4, r#","max_tokens":1"#);
    let mut running = stand.send(&small).await;
    let call = a.call().await;
    let endpoint = stand.running.pools().all()[0].endpoints()[0].clone();
    endpoint.drain();
    for _ in 0..3 {
        let mut client = stand.send(&small).await;
        b.call().await.ok("{}").await;
        let reply = client.reply().await;
        assert_eq!(reply.header("x-tidegate-tier"), Some("large"));
    }
    call.ok("{}").await;
    assert_eq!(running.reply().await.status, 200);
    endpoint.undrain();
    let mut client = stand.send(&small).await;
    a.call().await.ok("{}").await;
    let reply = client.reply().await;
    assert_eq!(reply.header("x-tidegate-tier"), Some("standard"));
    stand.settle().await;
    a.check();
    b.check();
}

#[tokio::test]
async fn a_context_refusal_reads_as_clients_expect_it() {
    let spec = FakeSpec {
        blocks: 4096,
        max_model_len: 32_768,
        ..FakeSpec::default()
    };
    let fake = Fake::start(spec).await;
    let stand = Stand::start(&Setup::tiny(&[fake.backend("a")])).await;
    let ask = Ask::tokens(40_000, r#","max_tokens":16"#);
    let reply = stand.ask(&ask).await;
    let error = refused(&reply, 400, "context_length_exceeded", "context_too_long");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("maximum context length is 32768 tokens"));
    assert!(message.contains("40000"), "{message}");
    assert_eq!(error["param"], "prompt");
    stand.settle().await;
    fake.check();
}

#[tokio::test(start_paused = true)]
async fn refusing_at_the_door_takes_no_body() {
    let mut memory = Memory::new(|s| s.set("queue.max_requests", "1")).await;
    let mut running = memory.send(&Ask::tokens(500, FILLING)).await;
    let held = memory.call().await;
    let mut waiting = memory.send(&Ask::tokens(500, FILLING)).await;
    memory.until_waiting(1).await;
    let full = std::env::var_os("TIDEGATE_FULL").is_some();
    let body = 10 << 20;
    for _ in 0..if full { 500 } else { 50 } {
        let big = Ask::post("/v1/completions", "x").header("content-length", &body.to_string());
        let mut client = memory.connect();
        let bytes = big.bytes();
        let text = String::from_utf8(bytes).unwrap();
        let text = text.replace("content-length: 1\r\n", "");
        client.0.send(text.as_bytes()).await.unwrap();
        refused(
            &client.reply().await,
            429,
            "overloaded",
            "queue_requests_full",
        );
        // What is sent on is thrown away, for so long that the answer is not lost
        // to a reset, and then nothing more is taken.
        let mut taken = 0;
        while client.0.send(&[b' '; 16 << 10]).await.is_ok() {
            taken += 16 << 10;
            assert!(taken < 5 << 20, "{taken} bytes were taken");
        }
    }
    held.ok("{}").await;
    assert_eq!(running.reply().await.status, 200);
    memory.call().await.ok("{}").await;
    assert_eq!(waiting.reply().await.status, 200);
    memory.settle().await;
}

/// So that another's have room: see `layers::budget`.
#[tokio::test]
async fn a_body_beyond_its_tenants_part_of_the_budget_is_refused_and_does_not_wait() {
    let small = |setup: Setup| {
        setup
            .set("server.max_body_bytes", "1200")
            .set("server.body_budget_bytes", "3500")
    };
    let (stand, fake) = gateway(small).await;
    let ask = Ask::tokens(500, FILLING);
    let mut first = stand.send(&ask).await;
    let running = fake.call().await;
    let mut second = stand.send(&ask).await;
    stand.until_waiting(1).await;
    // There is room for three, but three times the rest is less than that.
    let reply = stand.ask(&ask).await;
    refused(&reply, 503, "server_busy", "server_busy");
    running.ok("{}").await;
    fake.call().await.ok("{}").await;
    assert_eq!(first.reply().await.status, 200);
    assert_eq!(second.reply().await.status, 200);
    assert_eq!(stand.settle().await["finished"], 2);
    fake.check();
}

#[tokio::test]
async fn a_chat_beyond_the_context_is_refused_in_the_words_that_clients_know() {
    let fake = Fake::start(FakeSpec {
        blocks: 4096,
        max_model_len: 32_768,
        counts: Some(40_000),
        ..FakeSpec::default()
    })
    .await;
    let stand = Stand::start(&Setup::tiny(&[fake.backend("a")])).await;
    let text = "word ".repeat(40_000);
    let chat = format!(r#"{{"model":"tiny","messages":[{{"role":"user","content":"{text}"}}]}}"#);
    let reply = stand.ask(&Ask::post("/v1/chat/completions", chat)).await;
    let error = refused(&reply, 400, "context_length_exceeded", "context_too_long");
    let message = error["message"].as_str().unwrap();
    let begins = "This model's maximum context length is 32768 tokens";
    assert!(message.starts_with(begins), "{message}");
    assert!(message.contains("40000"), "{message}");
    assert_eq!(error["param"], "messages");
    assert_eq!(stand.settle().await["refused"], 1);
    fake.check();
}

/// A system prompt of its own, descriptions of tools: an estimate of the body
/// knows nothing of them.
#[tokio::test]
async fn what_a_template_adds_to_a_short_message_is_counted() {
    let fake = Fake::start(FakeSpec {
        blocks: 1024,
        max_model_len: 16_384,
        counts: Some(12_000),
        ..FakeSpec::default()
    })
    .await;
    let stand = Stand::start(&Setup::tiny(&[fake.backend("a")])).await;
    let mut client = stand.send(&Ask::chat(r#","max_tokens":9"#)).await;
    fake.call().await.ok("{}").await;
    let reply = client.reply().await;
    assert_eq!(
        reply.header("x-tidegate-prompt-tokens"),
        Some("12000;exact")
    );
    stand.settle().await;
    fake.check();
}
