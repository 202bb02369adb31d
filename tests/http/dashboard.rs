//! The operator's page, the stream of states and the last hour.

use serde_json::{Value, json};

use crate::support::client::{Ask, Client, ask};
use crate::support::fake::{Fake, FakeSpec};
use crate::support::refusal::refused;
use crate::support::setup::Setup;
use crate::support::stand::Stand;
use crate::support::wire::Ending;

const STREAM: &str = r#","max_tokens":100,"stream":true"#;

/// The next state of a stream, whatever stands before it.
async fn next_state(client: &mut Client) -> Value {
    let mut text = String::new();
    loop {
        let chunk = client.0.chunk().await.unwrap().unwrap();
        text.push_str(std::str::from_utf8(&chunk).unwrap());
        let data = text.split("\n\n").find_map(|event| {
            let event = event.strip_prefix("event: state\n")?;
            event
                .split('\n')
                .find_map(|line| line.strip_prefix("data: "))
        });
        if let Some(state) = data.filter(|_| text.ends_with("\n\n")) {
            return serde_json::from_str(state).unwrap();
        }
    }
}

#[tokio::test]
async fn the_page_and_its_files_come_with_a_policy_that_keeps_them_to_this_listener() {
    let fake = Fake::start(FakeSpec::default()).await;
    let stand = Stand::start(&Setup::tiny(&[fake.backend("a")])).await;
    let files = [
        ("/", "text/html; charset=utf-8"),
        ("/dashboard/style.css", "text/css; charset=utf-8"),
        ("/dashboard/icon.svg", "image/svg+xml"),
        ("/dashboard/main.js", "text/javascript; charset=utf-8"),
    ];
    for (path, media) in files {
        let file = stand.admin(path).await;
        assert_eq!(file.status, 200, "{path}");
        let header = |name| file.header(name).unwrap_or_default();
        assert_eq!(header("content-type"), media);
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("cache-control"), "no-cache");
        assert_eq!(header("referrer-policy"), "no-referrer");
        let policy = header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"));
        assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"));
    }
    let admin = stand.running.admin_addr();
    assert_eq!(ask(admin, &Ask::post("/", "{}")).await.status, 405);
    assert_eq!(stand.admin("/dashboard/nothing.js").await.status, 404);
    // Where no token is asked for, only what names this machine gets anything.
    for path in ["/", "/events", "/history"] {
        let elsewhere = Ask::get(path).header("host", "tidegate.example");
        assert_eq!(ask(admin, &elsewhere).await.status, 403, "{path}");
    }
    for path in ["/state", "/history"] {
        let data = stand.admin(path).await;
        assert_eq!(data.header("cache-control"), Some("no-store"));
        assert_eq!(data.header("x-content-type-options"), Some("nosniff"));
    }
    stand.settle().await;
}

#[tokio::test]
async fn states_stream_as_state_tells_them_through_a_drain_to_the_end() {
    let fake = Fake::start(FakeSpec::default()).await;
    let stand = Stand::start(&Setup::tiny(&[fake.backend("a")])).await;
    let mut watcher = Client::with(stand.running.admin_addr(), &Ask::get("/events")).await;
    let head = watcher.stream().await;
    assert_eq!(head.get("content-type"), Some("text/event-stream"));
    assert_eq!(head.get("cache-control"), Some("no-store"));
    let first = next_state(&mut watcher).await;
    let asked = stand.state().await;
    assert_eq!(first["instance"], asked["instance"]);
    assert_eq!(first["pools"][0]["backends"], asked["pools"][0]["backends"]);
    let mut client = stand.send(&Ask::tokens(40, STREAM)).await;
    let mut call = fake.call().await;
    call.stream().await;
    client.stream().await;
    let held = loop {
        let state = next_state(&mut watcher).await;
        let backend = &state["pools"][0]["backends"][0];
        if backend["leases"] == 1 {
            break backend["held_blocks"].clone();
        }
    };
    assert_eq!(held, stand.pool().await["backends"][0]["held_blocks"]);
    stand.running.begin_drain();
    while next_state(&mut watcher).await["phase"] != "draining" {}
    call.chunk(b"data: [DONE]\n\n").await;
    call.end().await;
    assert_eq!(client.payload(14).await, b"data: [DONE]\n\n");
    stand.settle().await;
    stand.will_be_cut();
    drop(stand);
    let (_, ending) = watcher.0.rest().await;
    assert!(
        matches!(ending, Ending::Closed | Ending::Reset),
        "{ending:?}"
    );
}

#[tokio::test]
async fn only_so_many_watch_and_one_that_leaves_makes_room() {
    let fake = Fake::start(FakeSpec::default()).await;
    let stand = Stand::start(&Setup::tiny(&[fake.backend("a")])).await;
    let admin = stand.running.admin_addr();
    let mut watchers = Vec::new();
    for _ in 0..32 {
        let mut watcher = Client::with(admin, &Ask::get("/events")).await;
        watcher.stream().await;
        watchers.push(watcher);
    }
    let full = stand.admin("/events").await;
    assert_eq!((full.status, full.header("retry-after")), (503, Some("5")));
    assert_eq!(stand.admin("/state").await.status, 200);
    watchers.pop();
    let mut late = loop {
        let mut late = Client::with(admin, &Ask::get("/events")).await;
        if late.0.head().await.unwrap().second_word() == "200" {
            break late;
        }
        tokio::task::yield_now().await;
    };
    next_state(&mut late).await;
    stand.settle().await;
}

#[tokio::test]
async fn with_a_token_the_page_is_open_and_its_data_are_not() {
    let fake = Fake::start(FakeSpec::default()).await;
    let file = std::env::temp_dir().join(format!("tidegate-board-{}", std::process::id()));
    std::fs::write(&file, "operators-only\n").unwrap();
    let setup = Setup::tiny(&[fake.backend("a")]);
    let setup = setup.set("admin.token_file", &format!("{:?}", file.to_str().unwrap()));
    let stand = Stand::unready(&setup).await;
    stand.running.ready().await;
    let admin = stand.running.admin_addr();
    for path in ["/", "/dashboard/main.js"] {
        let elsewhere = Ask::get(path).header("host", "tidegate.example");
        assert_eq!(ask(admin, &elsewhere).await.status, 200, "{path}");
    }
    for path in ["/events", "/history", "/state"] {
        assert_eq!(ask(admin, &Ask::get(path)).await.status, 401, "{path}");
        let wrong = Ask::get(path).key("operators-onlx");
        assert_eq!(ask(admin, &wrong).await.status, 401, "{path}");
    }
    let history = ask(admin, &Ask::get("/history").key("operators-only")).await;
    assert_eq!(history.json()["step_seconds"], 5);
    let known = Ask::get("/events").key("operators-only");
    let mut watcher = Client::with(admin, &known).await;
    watcher.stream().await;
    assert_eq!(next_state(&mut watcher).await["phase"], "running");
    std::fs::remove_file(&file).unwrap();
    stand.will_be_cut();
}

/// The only head of the line is a request of 200 tokens that may grow by 100.
fn waits_for_its_own_tenant(pool: &Value) {
    let head = &pool["heads"][0];
    assert_eq!(pool["heads"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&head["tenant"], &head["waits_for"], &head["tier"]),
        (&json!("acme"), &json!("tenant_limit"), &json!("standard"))
    );
    assert_eq!(
        (&head["prompt_tokens"], &head["tokens"]),
        (&json!(200), &json!(300))
    );
    // Only its tenant's own requests decide when.
    assert_eq!(head["expected_seconds"]["q50"], Value::Null);
    let promised = |name: &str| head["promised_seconds"][name].as_f64().unwrap();
    assert!(promised("q20") <= promised("q50") && promised("q50") <= promised("q80"));
}

fn was_refused_once(state: &Value) {
    let acme = &state["tenants"][0];
    assert_eq!(
        (&acme["name"], &acme["weight"]),
        (&json!("acme"), &json!(3))
    );
    assert_eq!(acme["limits"]["max_in_flight_tokens"], 300);
    assert_eq!(acme["ended"]["refused"], 1);
    assert_eq!(acme["refusals"], json!({"tenant_queue_full": 1}));
    assert_eq!(state["refusals"], json!({"tenant_queue_full": 1}));
}

/// Blocks of all parts of a backend's bar together.
fn parts(backend: &Value) -> Option<u64> {
    let parts = [
        "held_blocks",
        "growing_blocks",
        "foreign_blocks",
        "reserve_blocks",
        "free_blocks",
    ];
    parts.into_iter().map(|part| backend[part].as_u64()).sum()
}

#[tokio::test]
async fn who_waits_is_told_with_why_and_until_when_and_who_was_refused_by_tenant() {
    let fake = Fake::start(FakeSpec::default()).await;
    let setup = Setup::tiny(&[fake.backend("a")])
        .set("admission.reservation", "\"strict\"")
        .tenant(
            "acme",
            "tg-acme",
            "max_in_flight_tokens = 300\nmax_waiting = 1\nweight = 3",
        )
        .tenant("beta", "tg-beta", "");
    let stand = Stand::start(&setup).await;
    let ask = |key: &str| Ask::tokens(200, STREAM).key(key);
    let mut first = stand.send(&ask("tg-acme")).await;
    let mut call = fake.call().await;
    call.stream().await;
    first.stream().await;
    let mut second = stand.send(&ask("tg-acme")).await;
    waits_for_its_own_tenant(&stand.until_waiting(1).await);
    refused(
        &stand.ask(&ask("tg-acme")).await,
        429,
        "tenant_limit_exceeded",
        "tenant_queue_full",
    );
    // A request is booked when its answer has been handed over.
    let state = loop {
        let state = stand.state().await;
        if state["refusals"] != json!({}) {
            break state;
        }
        tokio::task::yield_now().await;
    };
    was_refused_once(&state);
    let backend = &state["pools"][0]["backends"][0];
    assert_eq!(parts(backend), backend["capacity"]["blocks"].as_u64());
    call.chunk(b"data: [DONE]\n\n").await;
    call.end().await;
    first.payload(14).await;
    let mut call = fake.call().await;
    call.stream().await;
    second.stream().await;
    call.chunk(b"data: [DONE]\n\n").await;
    call.end().await;
    second.payload(14).await;
    assert_eq!(stand.settle().await["prompt_tokens"], 400);
}

#[tokio::test]
async fn the_last_hour_is_told_step_by_step_from_where_it_was_read_last() {
    let fake = Fake::start(FakeSpec::default()).await;
    let stand = Stand::start(&Setup::tiny(&[fake.backend("a")])).await;
    let mut client = stand.send(&Ask::tokens(4, "")).await;
    fake.call().await.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    let history = loop {
        let history = stand.admin("/history").await.json();
        if history["next"].as_u64().unwrap() >= 1 {
            break history;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(history["instance"], stand.state().await["instance"]);
    assert_eq!(
        (&history["first"], &history["span_seconds"]),
        (&json!(0), &json!(3600))
    );
    let model = &history["models"][0];
    assert_eq!(model["model"], "tiny");
    assert!(model["queue_p50_seconds"][0].is_number(), "{model}");
    assert_eq!(model["backends"][0]["name"], "a");
    assert_eq!(model["backends"][0]["held_share"], json!([0.0]));
    let next = history["next"].as_u64().unwrap();
    let none = stand.admin(&format!("/history?after={next}")).await.json();
    assert!(none["next"].as_u64().unwrap() - none["first"].as_u64().unwrap() <= 1);
    assert_eq!(stand.admin("/history?after=x").await.status, 400);
    stand.settle().await;
}
