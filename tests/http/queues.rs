//! Who waits for whom, and which limit refuses: on a paused clock where time
//! matters.

use std::time::Duration;

use tidegate::core::stats::PoolState;
use tokio::time::{Instant, sleep};

use crate::support::client::Ask;
use crate::support::fake::{Fake, FakeSpec};
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
        let code = if status == 429 {
            "overloaded"
        } else {
            "server_busy"
        };
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
