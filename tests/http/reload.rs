//! Another configuration under requests that run and wait.

use serde_json::Value;
use tidegate::telemetry::Reload;

use crate::support::client::{Ask, Client};
use crate::support::fake::{Call, Fake, FakeSpec};
use crate::support::full;
use crate::support::refusal::refused;
use crate::support::setup::{Setup, backend};
use crate::support::stand::Stand;
use crate::support::wire::{Ending, Head};

const EVENT: &[u8] = b"data: {\"choices\":[{\"index\":0,\"text\":\"x\"}]}\n\n";
const DONE: &[u8] = b"data: [DONE]\n\n";

/// A stream whose head has come, at both of its ends.
struct Running {
    client: Client,
    head: Head,
    call: Call,
}

impl Running {
    async fn begin(stand: &Stand, fake: &Fake, ask: &Ask) -> Self {
        let mut client = stand.send(ask).await;
        let mut call = fake.call().await;
        call.stream().await;
        let head = client.stream().await;
        Self { client, head, call }
    }

    /// Ends as it should, with every byte.
    async fn finish(mut self) {
        self.call.chunk(EVENT).await;
        self.call.chunk(DONE).await;
        self.call.end().await;
        let (body, ending) = self.client.0.body(&self.head).await;
        assert_eq!((body, ending), ([EVENT, DONE].concat(), Ending::Whole));
    }
}

/// A stream of `tokens` prompt tokens and as many generated.
fn stream(tokens: usize) -> Ask {
    Ask::tokens(tokens, &format!(r#","max_tokens":{tokens},"stream":true"#))
}

fn reload(stand: &Stand, setup: &Setup) {
    let reload = stand.running.gateway().reload(setup.config());
    assert_eq!(reload, Reload::Applied);
}

async fn fake(blocks: u64) -> Fake {
    Fake::start(FakeSpec {
        blocks,
        max_model_len: blocks * 16,
        ..FakeSpec::default()
    })
    .await
}

fn backend_of<'a>(pool: &'a Value, name: &str) -> &'a Value {
    let mut backends = pool["backends"].as_array().unwrap().iter();
    backends.find(|backend| backend["name"] == name).unwrap()
}

#[tokio::test]
async fn streams_queue_and_books_outlive_a_reload() {
    let fake = fake(100).await;
    let setup = Setup::tiny(&[fake.backend("a")]);
    let stand = Stand::start(&setup).await;
    let mut running = Vec::new();
    for _ in 0..10 {
        running.push(Running::begin(&stand, &fake, &stream(80)).await);
    }
    let mut waiting = Vec::new();
    for place in 0..20 {
        let rest = format!(r#","max_tokens":80,"seed":{place}"#);
        waiting.push(stand.send(&Ask::tokens(80, &rest)).await);
        stand.until_waiting(place + 1).await;
    }
    let before = stand.pool().await;
    reload(
        &stand,
        &setup
            .clone()
            .set("upstream.stream_silence_timeout", "\"77s\""),
    );
    let after = stand.pool().await;
    for key in ["tenants", "totals"] {
        assert_eq!(after[key], before[key]);
    }
    assert_eq!(after["queue"]["requests"], 20);
    let backend = &after["backends"][0];
    assert_eq!(
        (&backend["held_blocks"], &backend["leases"]),
        (&100.into(), &10.into())
    );
    assert_eq!(backend["generation"], before["backends"][0]["generation"]);
    for stream in running {
        stream.finish().await;
    }
    for (place, mut client) in waiting.into_iter().enumerate() {
        let call = fake.call().await;
        assert_eq!(call.json()["seed"], place);
        call.ok("{}").await;
        assert_eq!(client.reply().await.status, 200);
    }
    assert_eq!(stand.settle().await["finished"], 30);
    fake.check();
}

#[tokio::test]
async fn a_removed_backend_finishes_what_it_has_and_comes_back_with_it() {
    let (first, second) = (fake(64).await, fake(64).await);
    let both = Setup::tiny(&[first.backend("a"), second.backend("b")]);
    let stand = Stand::start(&both).await;
    let on_first = Running::begin(&stand, &first, &stream(200)).await;
    let one = both
        .emptied()
        .model("name = \"tiny\"", &[second.backend("b")]);
    reload(&stand, &one);
    let leaving = stand.pool().await;
    let gone = backend_of(&leaving, "a");
    assert_eq!(
        (&gone["state"], &gone["held_blocks"]),
        (&"draining".into(), &25.into())
    );
    // Everything new goes to the other, and what does not fit waits for it.
    let on_second = Running::begin(&stand, &second, &stream(400)).await;
    let mut waits = stand.send(&stream(400)).await;
    stand.until_waiting(1).await;
    assert!(first.try_call().is_none());
    reload(&stand, &both);
    let back = stand.until(|pool| pool["queue"]["requests"] == 1).await;
    assert_eq!(backend_of(&back, "a")["held_blocks"], 25);
    assert_eq!(backend_of(&back, "a")["slot"], 0);
    // 25 of its 64 blocks are held: what needs 50 waits for those, not 10.
    let small = Running::begin(&stand, &first, &stream(80)).await;
    on_first.finish().await;
    let mut call = first.call().await;
    call.stream().await;
    let head = waits.stream().await;
    Running {
        client: waits,
        head,
        call,
    }
    .finish()
    .await;
    small.finish().await;
    on_second.finish().await;
    reload(&stand, &one);
    stand
        .until(|pool| pool["backends"].as_array().unwrap().len() == 1)
        .await;
    stand.settle().await;
    first.check();
    second.check();
}

#[tokio::test]
async fn a_backend_at_another_url_is_another_backend() {
    let (first, second) = (fake(64).await, fake(64).await);
    let setup = Setup::tiny(&[first.backend("a")]).set("queue.when_no_backend", "\"wait\"");
    let stand = Stand::start(&setup).await;
    let old = Running::begin(&stand, &first, &stream(400)).await;
    let mut waits = stand.send(&stream(400)).await;
    stand.until_waiting(1).await;
    let moved = setup
        .emptied()
        .model("name = \"tiny\"", &[second.backend("a")]);
    reload(&stand, &moved);
    // Whoever waited goes there as soon as it is up, whatever the old one holds.
    let mut call = second.call().await;
    call.stream().await;
    let head = waits.stream().await;
    Running {
        client: waits,
        head,
        call,
    }
    .finish()
    .await;
    old.finish().await;
    stand.settle().await;
    first.check();
    second.check();
}

#[tokio::test]
async fn a_capacity_below_what_is_held_admits_nobody_until_it_is_below() {
    let fake = fake(1000).await;
    let sized = |tokens: u32| backend("a", &fake.url(), &format!("kv_tokens = {tokens}"));
    let setup = Setup::new().model("name = \"tiny\"", &[sized(9600)]);
    let stand = Stand::start(&setup).await;
    let first = Running::begin(&stand, &fake, &stream(1600)).await;
    let second = Running::begin(&stand, &fake, &stream(1600)).await;
    let smaller = setup.emptied().model("name = \"tiny\"", &[sized(3200)]);
    reload(&stand, &smaller);
    let pool = stand.pool().await;
    assert_eq!(pool["backends"][0]["held_blocks"], 400);
    assert_eq!(pool["backends"][0]["capacity"]["blocks"], 200);
    let mut waits = stand.send(&stream(160)).await;
    stand.until_waiting(1).await;
    first.finish().await;
    // 200 of 200 are still held.
    stand
        .until(|pool| pool["backends"][0]["held_blocks"] == 200)
        .await;
    assert_eq!(stand.pool().await["queue"]["requests"], 1);
    reload(&stand, &setup);
    let mut call = fake.call().await;
    call.stream().await;
    let head = waits.stream().await;
    Running {
        client: waits,
        head,
        call,
    }
    .finish()
    .await;
    second.finish().await;
    assert_eq!(stand.settle().await["finished"], 3);
    fake.check();
}

#[tokio::test]
async fn a_tenants_share_below_what_it_holds_makes_it_wait_and_wakes_it_when_raised() {
    let fake = fake(100).await;
    let share = |tokens: u32| {
        Setup::new()
            .model("name = \"tiny\"", &[fake.backend("a")])
            .anonymous(&format!("max_in_flight_tokens = {tokens}"))
    };
    let setup = share(1600);
    let stand = Stand::start(&setup).await;
    let mut running = Vec::new();
    for _ in 0..5 {
        running.push(Running::begin(&stand, &fake, &stream(80)).await);
    }
    let with = |tokens: u32| {
        setup
            .emptied()
            .model("name = \"tiny\"", &[fake.backend("a")])
            .anonymous(&format!("max_in_flight_tokens = {tokens}"))
    };
    reload(&stand, &with(320));
    let mut waits = stand.send(&stream(80)).await;
    stand.until_waiting(1).await;
    running.pop().unwrap().finish().await;
    assert_eq!(stand.pool().await["queue"]["requests"], 1);
    reload(&stand, &with(1600));
    let mut call = fake.call().await;
    call.stream().await;
    let head = waits.stream().await;
    Running {
        client: waits,
        head,
        call,
    }
    .finish()
    .await;
    for stream in running {
        stream.finish().await;
    }
    assert_eq!(stand.settle().await["finished"], 6);
    fake.check();
}

#[tokio::test]
async fn models_come_and_go_and_who_waits_for_one_that_goes_is_told() {
    let fake = fake(64).await;
    let other = Fake::start(FakeSpec {
        model: "other".into(),
        ..FakeSpec::default()
    })
    .await;
    let setup = Setup::tiny(&[fake.backend("a")]);
    let stand = Stand::start(&setup).await;
    let ask = Ask::post(
        "/v1/completions",
        r#"{"model":"other","prompt":[1],"max_tokens":4}"#,
    );
    assert_eq!(stand.ask(&ask).await.status, 404);
    let two = setup
        .clone()
        .model("name = \"other\"", &[other.backend("b")]);
    reload(&stand, &two);
    stand.running.ready().await;
    let mut asked = stand.send(&ask).await;
    other.call().await.ok("{}").await;
    assert_eq!(asked.reply().await.status, 200);
    let running = Running::begin(&stand, &fake, &stream(400)).await;
    let mut waiting = stand.send(&stream(400)).await;
    stand.until_waiting(1).await;
    let only_other = setup
        .emptied()
        .model("name = \"other\"", &[other.backend("b")]);
    reload(&stand, &only_other);
    refused(&waiting.reply().await, 503, "no_backend", "no_backend");
    assert_eq!(stand.ask(&stream(4)).await.status, 404);
    running.finish().await;
    // Back again: the same pool, or a new one where the old had ended.
    reload(&stand, &two);
    stand.running.ready().await;
    let stream = Running::begin(&stand, &fake, &stream(4)).await;
    stream.finish().await;
    fake.check();
    other.check();
    stand.settle().await;
}

#[tokio::test]
async fn aliases_come_and_go_and_share_one_pool_and_one_limit() {
    let fake = fake(64).await;
    let model = |aliases: &str| format!("name = \"tiny\"\naliases = [{aliases}]");
    let setup = Setup::new().model(&model(r#""tiny-latest", "lora_1""#), &[fake.backend("a")]);
    let stand = Stand::start(&setup).await;
    let by = |id: &str| {
        let body = format!(r#"{{"model":"{id}","prompt":[1],"max_tokens":95}}"#);
        Ask::post("/v1/completions", body)
    };
    // Ten of 96 tokens, each with one ahead, fill what the engine has, whatever it is called.
    let mut clients = Vec::new();
    for id in ["tiny", "tiny-latest", "lora_1"].repeat(10) {
        clients.push(stand.send(&by(id)).await);
    }
    stand.until(|pool| pool["queue"]["requests"] == 20).await;
    assert_eq!(stand.pool().await["backends"][0]["leases"], 10);
    assert_eq!(stand.ask(&by("TINY")).await.status, 404);
    let next = setup
        .emptied()
        .model(&model(r#""tiny-next""#), &[fake.backend("a")]);
    reload(&stand, &next);
    assert_eq!(stand.ask(&by("lora_1")).await.status, 404);
    clients.push(stand.send(&by("tiny-next")).await);
    let listed = stand.ask(&Ask::get("/v1/models")).await.json();
    let ids: Vec<_> = listed["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| &m["id"])
        .collect();
    assert_eq!(ids, ["tiny", "tiny-next"]);
    for _ in 0..clients.len() {
        fake.call().await.ok("{}").await;
    }
    for mut client in clients {
        assert_eq!(client.reply().await.status, 200);
    }
    assert_eq!(stand.settle().await["finished"], 31);
    fake.check();
}

#[tokio::test]
async fn a_configuration_that_cannot_be_made_changes_nothing() {
    let fake = fake(64).await;
    let setup = Setup::tiny(&[fake.backend("a")]);
    let stand = Stand::start(&setup).await;
    let mut wrong = setup.clone().set("server.max_body_bytes", "1024").config();
    wrong.models[0].backends[0].api_key = Some(tidegate::config::Secret::new("two\nlines"));
    let before = stand.running.gateway().snapshot();
    assert_eq!(stand.running.gateway().reload(wrong), Reload::Refused);
    let after = stand.running.gateway().snapshot();
    assert!(std::sync::Arc::ptr_eq(&before, &after));
    let state = stand.state().await;
    let problem = state["config"]["problems"][0].as_str().unwrap();
    assert!(problem.starts_with("backend a: key of"), "{problem}");
    assert_eq!(stand.metric("tidegate_config_reload_success").await, 0.0);
    let same = stand.running.gateway().reload(setup.config());
    assert_eq!(same, Reload::Unchanged);
    assert_eq!(stand.metric("tidegate_config_reload_success").await, 1.0);
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn a_key_that_needs_a_restart_is_named_and_the_rest_applied() {
    let fake = fake(64).await;
    let setup = Setup::tiny(&[fake.backend("a")]);
    let stand = Stand::start(&setup).await;
    let next = setup
        .set("server.listen", "\"127.0.0.1:1\"")
        .set("server.max_body_bytes", "1024");
    reload(&stand, &next);
    let state = stand.state().await;
    assert_eq!(
        state["config"]["needs_restart"],
        serde_json::json!(["server.listen"])
    );
    let large = stand.ask(&Ask::tokens(2000, "")).await;
    refused(&large, 413, "request_too_large", "request_too_large");
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn five_hundred_streams_lose_nothing_to_reloads() {
    let count = full(100, 500);
    let (first, second) = (fake(1000).await, fake(1000).await);
    let both = Setup::tiny(&[first.backend("a"), second.backend("b")]);
    let stand = Stand::start(&both).await;
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(stand.send(&stream(16)).await);
    }
    let mut calls = Vec::new();
    for _ in 0..count {
        let mut call = loop {
            if let Some(call) = first.try_call().or_else(|| second.try_call()) {
                break call;
            }
            tokio::task::yield_now().await;
        };
        call.stream().await;
        call.chunk(EVENT).await;
        calls.push(call);
    }
    let one = both
        .emptied()
        .model("name = \"tiny\"", &[second.backend("b")]);
    for setup in [&one, &both, &one] {
        reload(&stand, setup);
        for call in &mut calls {
            call.chunk(EVENT).await;
        }
    }
    for mut call in calls {
        call.chunk(DONE).await;
        call.end().await;
    }
    let whole = [EVENT, EVENT, EVENT, EVENT, DONE].concat();
    for mut client in clients {
        let head = client.stream().await;
        assert_eq!(client.0.body(&head).await, (whole.clone(), Ending::Whole));
    }
    let count = u64::try_from(count).unwrap();
    assert_eq!(stand.settle().await["finished"], count);
    stand
        .until(|pool| pool["backends"].as_array().unwrap().len() == 1)
        .await;
    first.check();
    second.check();
}
