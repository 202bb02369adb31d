//! The scripted engine does what tests rely on, and a stand sees what it must.

use std::time::Duration;

use tokio::time::Instant;

use crate::support::client::{Ask, Client};
use crate::support::fake::{Fake, FakeSpec, LinkEnd, Page};
use crate::support::memory::Memory;
use crate::support::secrets;
use crate::support::setup::Setup;
use crate::support::stand::Stand;
use crate::support::wire::Ending;

async fn gateway() -> (Stand, Fake) {
    let fake = Fake::start(FakeSpec::default()).await;
    let stand = Stand::start(&Setup::tiny(&[fake.backend("a")])).await;
    (stand, fake)
}

/// A connection straight to an engine.
async fn direct(fake: &Fake, path: &str) -> Client {
    let addr = fake.url().strip_prefix("http://").unwrap().parse().unwrap();
    Client::with(addr, &Ask::get(path)).await
}

#[tokio::test]
async fn an_engine_keeps_what_came_byte_for_byte_and_how_it_ended() {
    let (stand, fake) = gateway().await;
    let ask = Ask::tokens(4, r#","max_tokens":1,"stream":true"#);
    let mut client = stand.send(&ask).await;
    let call = fake.call().await;
    let raw = String::from_utf8(call.raw.clone()).unwrap();
    assert!(
        raw.starts_with("POST /v1/completions HTTP/1.1\r\n"),
        "{raw}"
    );
    let (head, body) = raw.split_once("\r\n\r\n").unwrap();
    let length = format!("\r\ncontent-length: {}", body.len());
    assert!(head.to_ascii_lowercase().contains(&length), "{raw}");
    assert_eq!(body.as_bytes(), call.body);
    let began = Instant::now();
    call.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    let mut used = fake.links().into_iter().filter(|link| link.ended.is_none());
    let used = used.next_back().unwrap();
    assert!(used.opened <= began && used.requests >= 1, "{used:?}");
    assert!(fake.open_links() >= 1);
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn an_engine_tells_a_close_from_a_reset() {
    let fake = Fake::start(FakeSpec::default()).await;
    let mut client = direct(&fake, "/health").await;
    assert_eq!(client.reply().await.status, 200);
    drop(client);
    fake.until(|fake| fake.open_links() == 0).await;
    let mut client = direct(&fake, "/health").await;
    assert_eq!(client.reply().await.status, 200);
    client.0.reset();
    fake.until(|fake| fake.open_links() == 0).await;
    let ends = fake.links().into_iter().map(|link| link.ended.unwrap().1);
    let ends: Vec<_> = ends.collect();
    assert_eq!(ends, [LinkEnd::Closed, LinkEnd::Reset]);
}

#[tokio::test]
async fn each_page_of_an_engine_can_be_another() {
    let fake = Fake::start(FakeSpec::default()).await;
    fake.page("/health", Page::json(503, "{}"));
    assert_eq!(direct(&fake, "/health").await.reply().await.status, 503);
    fake.own_page("/health");
    assert_eq!(direct(&fake, "/health").await.reply().await.status, 200);
    fake.page("/metrics", Page::text("nothing 1\n"));
    let page = direct(&fake, "/metrics").await.reply().await;
    assert_eq!(page.text(), "nothing 1\n");
    fake.page("/metrics", Page::Raw(b"no http".to_vec()));
    let mut client = direct(&fake, "/metrics").await;
    assert_eq!(client.0.rest().await, (b"no http".to_vec(), Ending::Closed));
    fake.page("/metrics", Page::Closed);
    let mut client = direct(&fake, "/metrics").await;
    assert_eq!(client.0.rest().await, (Vec::new(), Ending::Closed));
    fake.page("/metrics", Page::Reset);
    let mut client = direct(&fake, "/metrics").await;
    assert_eq!(client.0.rest().await, (Vec::new(), Ending::Reset));
    // One that is silent answers once its page is another.
    fake.page("/v1/models", Page::Silent);
    let mut client = direct(&fake, "/v1/models").await;
    fake.until(|fake| fake.asked("/v1/models") == 1).await;
    fake.change(|spec| spec.model = "other".into());
    fake.own_page("/v1/models");
    let models = client.reply().await.json();
    assert_eq!(models["data"][0]["id"], "other");
    fake.change(|spec| (spec.usage, spec.running, spec.waiting) = (Some(0.5), 3, 2));
    let metrics = fake.spec().metrics();
    for line in [
        "vllm:kv_cache_usage_perc{engine=\"0\"} 0.5\n",
        "vllm:num_requests_running{engine=\"0\"} 3\n",
        "vllm:num_requests_waiting{engine=\"0\"} 2\n",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_may_be_late_on_a_paused_clock() {
    let memory = Memory::new(|setup| setup).await;
    let fake = memory.fake(0);
    fake.page(
        "/metrics",
        Page::text("late 1\n").late(Duration::from_secs(7)),
    );
    let began = Instant::now();
    fake.until_asked("/metrics", 1).await;
    let asked = began.elapsed();
    fake.until_asked("/metrics", 1).await;
    assert!(began.elapsed() >= asked + Duration::from_secs(7));
    memory.settle().await;
}

#[tokio::test(start_paused = true)]
async fn an_engine_in_memory_may_refuse_and_come_back() {
    let mut memory = Memory::of([FakeSpec::default(), FakeSpec::default()], |s| s).await;
    assert_eq!(memory.pool().backends.len(), 2);
    memory.fake(0).refuse();
    memory
        .in_time(|pool| !pool.backends[0].health.admits())
        .await;
    let mut client = memory.send(&Ask::tokens(4, "")).await;
    memory.fake(1).call().await.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    memory.fake(0).accept();
    memory
        .in_time(|pool| pool.backends[0].health.admits())
        .await;
    memory.settle().await;
}

#[tokio::test]
async fn samples_and_lists_hold_what_an_engine_needs_at_least() {
    let (stand, fake) = gateway().await;
    let body = r#"{"model":"tiny","prompt":[[7,7],[7,7,7]],"n":2,"max_tokens":20}"#;
    let mut client = stand.send(&Ask::post("/v1/completions", body)).await;
    fake.call().await.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    assert_eq!((fake.peak(), fake.peak_sequences()), (8, 4));
    stand.settle().await;
}

#[tokio::test]
async fn a_test_that_forgets_to_settle_fails() {
    let (stand, fake) = gateway().await;
    let mut client = stand.send(&Ask::tokens(4, "")).await;
    fake.call().await.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    stand.settle().await;
    let mut client = stand.send(&Ask::tokens(4, "")).await;
    fake.call().await.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    let forgotten = stand.forgotten();
    stand.settle().await;
    assert!(forgotten);
}

#[test]
fn a_key_or_a_prompt_on_a_page_of_operators_fails() {
    secrets::forget();
    secrets::key("Bearer tg-0123456789");
    secrets::body(br#"{"messages":[{"role":"user","content":"my own secret diary"}]}"#);
    secrets::are_not_in("tidegate_requests_total 1");
    for page in ["key tg-0123456789", "of my own secret diary, page 3"] {
        assert!(secrets::found_in(page).is_some(), "{page}");
    }
}
