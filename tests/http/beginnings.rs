//! Where prompts go that begin alike, before engines with a prefix cache.

use crate::support::client::{Ask, Client, Reply};
use crate::support::engine::Engine;
use crate::support::setup::Setup;
use crate::support::stand::Stand;

/// A prompt of many words, all but the last of them `word`.
fn asked(word: &str, last: &str, max_tokens: u32) -> Ask {
    let words = vec![word; 2000].join(" ");
    let body = serde_json::json!({
        "model": "tiny",
        "prompt": format!("{words} {last}"),
        "max_tokens": max_tokens,
    });
    Ask::post("/v1/completions", body.to_string())
}

fn backend(reply: &Reply) -> Option<&str> {
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.header("x-tidegate-backend")
}

#[tokio::test]
async fn a_prompt_goes_to_the_idle_engine_that_has_its_beginning() {
    let engines = [Engine::start(4096, 60_000), Engine::start(4096, 60_000)];
    let backends = [engines[0].named("a"), engines[1].named("b")];
    let stand = Stand::start(&Setup::tiny(&backends)).await;
    // While the first engine is busy, the second gets a beginning of its own.
    let busy = stand.send(&asked("the", "one", 20_000)).await;
    stand.until(|pool| pool["backends"][0]["leases"] == 1).await;
    let other = stand.ask(&asked("that", "other", 3)).await;
    assert_eq!(backend(&other), Some("b"));
    drop(busy);
    stand.settle().await;
    // Both idle, the first would be taken.
    let new = stand.ask(&asked("with", "new", 3)).await;
    assert_eq!(backend(&new), Some("a"));
    let hits = || engines[1].server().stats().prefix_hits.get();
    assert_eq!(hits(), 0);
    let again = asked("that", "more", 3);
    let mut admin = Client::connect(stand.running.admin_addr()).await;
    let told = admin.ask(&again.about("anonymous")).await.json();
    let cached = [0, 1].map(|place| told["backends"][place]["cached_tokens"].clone());
    assert_eq!(cached, [0, 1536], "{told:#}");
    let again = stand.ask(&again).await;
    assert_eq!(backend(&again), Some("b"));
    assert!(hits() >= 1984, "{}", hits());
    stand.settle().await;
    for engine in &engines {
        engine.check().await;
    }
}
