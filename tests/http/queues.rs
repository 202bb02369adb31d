//! Who waits for whom, and which limit refuses: on a paused clock where time
//! matters.

use std::time::Duration;

use tidegate::core::stats::PoolState;
use tokio::time::{Instant, sleep};

use crate::support::client::Ask;
use crate::support::fake::{Fake, FakeSpec, Page};
use crate::support::h2::{Http2, post, reply};
use crate::support::memory::{Memory, seconds_since};
use crate::support::refusal::refused;
use crate::support::setup::Setup;
use crate::support::stand::Stand;

const FILLING: &str = r#","max_tokens":500"#;

/// Two tenants, one of ten times the weight of the other.
fn two_weights(setup: Setup) -> Setup {
    setup
        .tenant("gold", "secret-gold", "weight = 10")
        .tenant("tin", "secret-tin", "weight = 1")
        .set("queue.max_wait", "\"30s\"")
        .set("queue.max_requests", "100")
}

#[tokio::test(start_paused = true)]
async fn a_light_tenant_gets_its_share_of_ten_minutes_of_a_heavy_ones_overload() {
    let mut memory = Memory::new(two_weights).await;
    let gold = Ask::tokens(500, FILLING).key("secret-gold");
    let tin = Ask::tokens(499, FILLING).key("secret-tin");
    let began = Instant::now();
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(memory.send(&gold).await);
    }
    clients.push(memory.send(&tin).await);
    memory.until_waiting(5).await;
    // One is served each second, by whoever's turn it is; both have more.
    let (mut served, mut of_tin, mut since_tin) = (0, 0, 0);
    while seconds_since(began) < 600 {
        let call = memory.call().await;
        let of_gold = call.json()["prompt"].as_array().unwrap().len() == 500;
        served += 1;
        since_tin += 1;
        if !of_gold {
            of_tin += 1;
            assert!(since_tin <= 12, "{since_tin} dispatches without it");
            since_tin = 0;
        }
        clients.push(memory.send(if of_gold { &gold } else { &tin }).await);
        memory.until_waiting(6).await;
        sleep(Duration::from_secs(1)).await;
        call.ok("{}").await;
    }
    assert_eq!(served, 600);
    // A share of one in eleven.
    assert!((50..=60).contains(&of_tin), "{of_tin} of {served}");
    drop(clients);
    memory.in_time(PoolState::is_idle).await;
    while let Some(call) = memory.fake(0).try_call() {
        call.close();
    }
    memory.settle().await;
}

#[tokio::test]
async fn idle_http2_connections_hold_nothing() {
    let fake = Fake::start(FakeSpec::default()).await;
    let stand = Stand::start(&Setup::tiny(&[fake.backend("a")])).await;
    let filling = Ask::tokens(500, FILLING);
    let mut idle = Vec::new();
    for _ in 0..20 {
        let mut client = Http2::connect(stand.addr()).await;
        let asked = client.send(post("/v1/completions", filling.body().to_vec()));
        let (answer, ()) = tokio::join!(asked, async { fake.call().await.ok("{}").await });
        assert_eq!(reply(answer.unwrap()).await.status, 200);
        idle.push(client);
    }
    let backend = &stand.settle().await["finished"];
    assert_eq!(backend, 20);
    let mut client = Http2::connect(stand.addr()).await;
    let asked = client.send(post("/v1/completions", filling.body().to_vec()));
    let (answer, ()) = tokio::join!(asked, async { fake.call().await.ok("{}").await });
    let answer = reply(answer.unwrap()).await;
    assert_eq!(answer.header("x-tidegate-queue-ms"), Some("0"));
    assert_eq!(stand.settle().await["finished"], 21);
}

/// Bytes that wait are bounded too, by the budget for bodies.
#[tokio::test]
async fn each_limit_of_the_queue_refuses_by_its_own_unit_and_name() {
    let cases = [
        (
            "queue.max_requests",
            "2",
            "queue_requests_full",
            429,
            "requests wait",
        ),
        (
            "queue.max_tokens",
            "2500",
            "queue_tokens_full",
            429,
            "tokens as its queue",
        ),
        // A tenant's bodies take at most three quarters of the budget.
        (
            "server.body_budget_bytes",
            "4800",
            "server_busy",
            503,
            "bodies",
        ),
    ];
    for (key, value, reason, status, says) in cases {
        let fake = Fake::start(FakeSpec::default()).await;
        let setup = Setup::tiny(&[fake.backend("a")])
            .set("server.max_body_bytes", "1200")
            .set(key, value);
        let stand = Stand::start(&setup).await;
        let filling = Ask::tokens(500, FILLING);
        let mut clients = vec![stand.send(&filling).await];
        let running = fake.call().await;
        for waiting in 1..=2 {
            clients.push(stand.send(&filling).await);
            stand.until_waiting(waiting).await;
        }
        let reply = stand.ask(&filling).await;
        let code = ["overloaded", "server_busy"][usize::from(status == 503)];
        let error = refused(&reply, status, code, reason);
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(says), "{message}");
        let series = format!(
            "tidegate_requests_total{{route=\"completions\",status=\"{status}\",reason=\"{reason}\"}}"
        );
        assert!(
            (stand.metric(&series).await - 1.0).abs() < f64::EPSILON,
            "{series}"
        );
        running.ok("{}").await;
        for _ in 0..2 {
            fake.call().await.ok("{}").await;
        }
        for client in &mut clients {
            assert_eq!(client.reply().await.status, 200);
        }
        stand.settle().await;
    }
}

#[tokio::test]
async fn who_came_before_the_only_engine_is_served_once_it_is_up_or_told_at_once() {
    let mut fake = Fake::start(FakeSpec::default()).await;
    fake.die().await;
    let setup = Setup::tiny(&[fake.backend("a")]);
    let ask = Ask::tokens(4, r#","max_tokens":1"#);
    let hasty = Stand::unready(&setup).await;
    let reply = hasty.ask(&ask).await;
    refused(&reply, 503, "no_backend", "no_backend");
    assert!(reply.header("retry-after").is_some());
    hasty.settle().await;
    drop(hasty);
    let setup = setup
        .set("log.access_log", "\"off\"")
        .set("queue.when_no_backend", "\"wait\"");
    let stand = Stand::unready(&setup).await;
    let mut client = stand.send(&ask).await;
    stand.until_waiting(1).await;
    // Nothing comes by but the probe.
    fake.come_back().await;
    fake.call().await.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    assert_eq!(stand.settle().await["finished"], 1);
    fake.check();
}

#[tokio::test]
async fn a_long_prompt_keeps_its_turn_while_it_is_counted() {
    let fake = Fake::start(FakeSpec::default()).await;
    // By arrival alone: what is small does not go first.
    let setup = Setup::tiny(&[fake.backend("a")]).set("admission.order_weight", "1.0");
    let stand = Stand::start(&setup).await;
    let mut client = Http2::connect(stand.addr()).await;
    let mut ask = |body: Vec<u8>| client.send(post("/v1/completions", body));
    let short = |at: usize| {
        let bound = 500 - at;
        Ask::tokens(500, &format!(r#","max_tokens":{bound}"#))
    };
    let mut answers = vec![ask(short(0).body().to_vec())];
    let mut running = fake.call().await;
    // The engine counts it, and takes its time.
    fake.page("/tokenize", Page::Silent);
    let text = "word ".repeat(100_000);
    let long = format!(r#"{{"model":"tiny","prompt":"{text}","max_tokens":1000}}"#);
    answers.push(ask(long.into_bytes()));
    fake.until(|fake| fake.asked("/tokenize") == 1).await;
    for at in 1..=20 {
        answers.push(ask(short(at).body().to_vec()));
        stand.until_waiting(u64::try_from(at).unwrap()).await;
    }
    fake.own_page("/tokenize");
    stand.until_waiting(21).await;
    let mut order = Vec::new();
    for _ in 0..21 {
        running.ok("{}").await;
        running = fake.call().await;
        order.push(running.json()["max_tokens"].as_u64().unwrap());
    }
    running.ok("{}").await;
    let shorts = (1..=20).map(|at| 500 - at);
    let expected: Vec<u64> = std::iter::once(1000).chain(shorts).collect();
    assert_eq!(order, expected);
    for answer in answers {
        assert_eq!(reply(answer.await.unwrap()).await.status, 200);
    }
    assert_eq!(stand.settle().await["finished"], 22);
    fake.check();
}
