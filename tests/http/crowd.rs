//! Many at once on little memory: simulated engines that panic rather than
//! preempt, on every way an answer can take.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::Value;
use tidegate::sim_server::Kill;
use tokio::task::JoinSet;

use crate::support::client::{Ask, Client};
use crate::support::engine::{Engine, spec};
use crate::support::setup::Setup;
use crate::support::stand::Stand;
use crate::support::wire::Ending;

/// What a member of the crowd saw.
struct Seen {
    tier: String,
    queued_ms: u64,
}

/// A queue that waits for the slowest machine: what is too long a wait is not
/// the question here.
fn patient(backends: &[String]) -> Setup {
    Setup::tiny(backends).set("queue.max_wait", "\"1h\"")
}

/// Request number `at`: prompts of 1 to 300 tokens, outputs of 1 to 120.
fn request(at: usize) -> (Ask, usize, usize) {
    let (prompt, output) = (1 + at * 37 % 300, 1 + at * 53 % 120);
    let stream = ["", r#","stream":true"#][at % 2];
    let rest = format!(r#","max_tokens":{output},"ignore_eos":true{stream}"#);
    (Ask::new_tokens(at + 10, prompt, &rest), prompt, output)
}

async fn ask(addr: SocketAddr, at: usize) -> Seen {
    let (ask, prompt, output) = request(at);
    let reply = Client::with(addr, &ask).await.reply().await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let counted = format!("{prompt};exact");
    assert_eq!(
        reply.header("x-tidegate-prompt-tokens"),
        Some(counted.as_str())
    );
    let text = reply.text();
    if at % 2 == 1 {
        assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
        assert!(!text.contains("\"usage\":{"), "{text}");
    } else {
        let usage = &reply.json()["usage"];
        let used = (
            usage["prompt_tokens"].as_u64(),
            usage["completion_tokens"].as_u64(),
        );
        let expected = (prompt.try_into().ok(), output.try_into().ok());
        assert_eq!(used, expected);
    }
    Seen {
        tier: reply.header("x-tidegate-tier").unwrap().to_owned(),
        queued_ms: reply
            .header("x-tidegate-queue-ms")
            .unwrap()
            .parse()
            .unwrap(),
    }
}

/// All of them at once; each is answered.
async fn crowd(addr: SocketAddr, size: usize) -> Vec<Seen> {
    let mut asking: JoinSet<_> = (0..size).map(|at| ask(addr, at)).collect();
    let mut seen = Vec::new();
    while let Some(one) = asking.join_next().await {
        seen.push(one.unwrap());
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_at_once_never_pass_a_small_pool_and_are_all_answered() {
    let engine = Engine::start(64, 1024);
    let stand = Stand::start(&patient(&[engine.tier("standard")])).await;
    let seen = crowd(stand.addr(), 500).await;
    assert_eq!(seen.len(), 500);
    assert!(seen.iter().any(|one| one.queued_ms > 0));
    let totals = stand.settle().await;
    let expected = [("received", 500), ("admitted", 500), ("finished", 500)];
    for (total, count) in expected {
        assert_eq!(totals[total], count, "{totals}");
    }
    let used: usize = (0..500).map(|at| request(at).1 + request(at).2).sum();
    assert_eq!(stand.pool().await["tenants"][0]["served_tokens"], used);
    assert_eq!(engine.bodies().len(), 500);
    engine.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_peak_together_fill_the_pool_to_its_last_block() {
    let engine = Engine::start(64, 1024);
    let stand = Stand::start(&patient(&[engine.tier("standard")])).await;
    // Eight blocks each at the last token, and all reach it in the same step:
    // a ninth, or one block less than there seems to be, would overflow.
    engine.server().hold();
    let mut clients = Vec::new();
    for at in 0..40 {
        let ask = Ask::new_tokens(at + 10, 100, r#","max_tokens":28,"ignore_eos":true"#);
        clients.push(stand.send(&ask).await);
    }
    let all = |pool: &Value| pool["totals"]["received"] == 40;
    let pool = stand.until(all).await;
    assert_eq!(pool["backends"][0]["leases"], 8);
    assert_eq!(pool["backends"][0]["held_blocks"], 64);
    assert_eq!(pool["queue"]["requests"], 32);
    engine
        .server()
        .wait_until(|now| now.running + now.waiting == 8)
        .await;
    engine.server().release();
    for client in &mut clients {
        assert_eq!(client.reply().await.status, 200);
    }
    assert_eq!(stand.settle().await["finished"], 40);
    assert_eq!(engine.server().stats().peak_used.get(), 64);
    engine.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_before_two_tiers_overflows_neither() {
    let (small, large) = (Engine::start(48, 768), Engine::start(160, 2560));
    let setup = patient(&[small.tier("standard"), large.tier("large")]);
    let stand = Stand::start(&setup).await;
    let seen = crowd(stand.addr(), 300).await;
    let mut tiers = BTreeMap::new();
    for one in seen {
        *tiers.entry(one.tier).or_insert(0) += 1;
    }
    assert_eq!(tiers.values().sum::<usize>(), 300);
    assert!(tiers.values().all(|count| *count >= 50), "{tiers:?}");
    assert_eq!(small.bodies().len(), tiers["standard"]);
    assert_eq!(large.bodies().len(), tiers["large"]);
    assert_eq!(stand.settle().await["finished"], 300);
    small.check().await;
    large.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_that_half_leaves_ends_at_zero() {
    let engine = Engine::start(64, 1024);
    let stand = Stand::start(&patient(&[engine.tier("standard")])).await;
    // Nothing ends while they come, so that those who leave do so from the
    // queue, from the engine's own line and from its batch.
    engine.server().hold();
    let mut staying = Vec::new();
    let mut leaving = Vec::new();
    for at in 0..200 {
        let client = stand.send(&request(at).0).await;
        [&mut staying, &mut leaving][usize::from(at % 4 < 2)].push(client);
    }
    stand.until(|pool| pool["totals"]["received"] == 200).await;
    drop(leaving);
    stand
        .until(|pool| {
            let total = |key: &str| pool["totals"][key].as_u64().unwrap();
            total("left") + total("cancelled") == 100
        })
        .await;
    engine.server().release();
    for client in &mut staying {
        assert_eq!(client.reply().await.status, 200);
    }
    assert_eq!(stand.settle().await["finished"], 100);
    engine.check().await;
}

/// One of a crowd whose engines die: whatever it gets, it gets an answer.
async fn survive(addr: SocketAddr, at: usize) -> u16 {
    let mut client = Client::with(addr, &request(at).0).await;
    let head = client.0.head().await.unwrap();
    let (body, ending) = client.0.body(&head).await;
    let body = String::from_utf8(body).unwrap();
    let status = head.second_word().parse().unwrap();
    if ending != Ending::Whole {
        // Cut: a stream says why, a plain answer is visibly short.
        assert!(
            at.is_multiple_of(2) || body.contains("upstream_failed"),
            "{body}"
        );
        assert!(!body.contains("[DONE]"), "{body}");
        return 0;
    }
    assert!([200, 500, 502, 503].contains(&status), "{head:?} {body}");
    status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engines_that_die_and_return_under_a_crowd_leave_the_books_right() {
    let (a, b) = (Engine::start(64, 1024), Engine::start(96, 1024));
    let setup = patient(&[a.named("a"), b.named("b")]);
    let stand = Stand::start(&setup).await;
    let addr = stand.addr();
    let mut ends = BTreeMap::new();
    for (round, how) in [Kill::Reset, Kill::InBand, Kill::EngineOnly]
        .into_iter()
        .enumerate()
    {
        let asks = round * 60..(round + 1) * 60;
        // It stands still, so that it surely dies with work in hand.
        a.server().hold();
        let mut asking: JoinSet<_> = asks.map(|at| survive(addr, at)).collect();
        a.server()
            .wait_until(|now| now.running + now.waiting >= 2)
            .await;
        a.server().kill(how);
        while let Some(end) = asking.join_next().await {
            *ends.entry(end.unwrap()).or_insert(0) += 1;
        }
        // Fewer blocks than before: it must be read anew.
        a.server()
            .restart(spec(48 - u64::try_from(round).unwrap(), 1024))
            .unwrap();
        let blocks = 48 - round;
        stand
            .until(|pool| {
                let mut backends = pool["backends"].as_array().unwrap().iter();
                let a = backends.find(|backend| backend["name"] == "a").unwrap();
                a["state"] == "up" && a["capacity"]["blocks"] == blocks
            })
            .await;
    }
    assert!(ends[&200] >= 60, "{ends:?}");
    assert!(ends.len() > 1, "nobody was hit: {ends:?}");
    stand.settle().await;
    assert_eq!(crowd(addr, 60).await.len(), 60);
    stand.settle().await;
    a.check().await;
    b.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaving_at_the_very_end_is_booked_once() {
    let engine = Engine::start(64, 1024);
    let stand = Stand::start(&patient(&[engine.tier("standard")])).await;
    let full = std::env::var_os("TIDEGATE_FULL").is_some();
    let rounds = if full { 5000 } else { 300 };
    for at in 0..rounds {
        let ask = Ask::tokens(10, r#","max_tokens":3,"stream":true,"ignore_eos":true"#);
        let mut client = stand.send(&ask).await;
        client.stream().await;
        for _ in 0..at % 4 {
            if client.0.chunk().await == Ok(None) {
                break;
            }
        }
        drop(client);
    }
    let totals = stand.settle().await;
    let ends = ["finished", "cancelled"].map(|end| totals[end].as_u64().unwrap());
    assert_eq!(ends[0] + ends[1], rounds, "{totals}");
    engine.check().await;
}
