//! What an operator may order and see on the admin address.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use tidegate::telemetry::Reload;

use crate::support::client::{Ask, Reply, ask};
use crate::support::fake::{Fake, FakeSpec};
use crate::support::refusal::refused;
use crate::support::setup::Setup;
use crate::support::stand::Stand;

const STREAM: &str = r#","max_tokens":100,"stream":true"#;

async fn order(stand: &Stand, path: &str) -> Reply {
    let order = Ask::new("POST", path).header("content-type", "application/json");
    ask(stand.running.admin_addr(), &order).await
}

#[tokio::test]
async fn a_drained_backend_ends_what_it_has_and_gets_nothing_new_until_it_is_undrained() {
    let (a, b) = (
        Fake::start(FakeSpec::default()).await,
        Fake::start(FakeSpec::default()).await,
    );
    let stand = Stand::start(&Setup::tiny(&[a.backend("a"), b.backend("b")])).await;
    let mut streams = Vec::new();
    for fake in [&a, &b] {
        let mut client = stand.send(&Ask::tokens(4, STREAM)).await;
        let mut call = fake.call().await;
        call.stream().await;
        client.stream().await;
        streams.push((client, call));
    }
    // Twice is as good as once.
    for _ in 0..2 {
        let reply = order(&stand, "/backends/a/drain").await;
        assert_eq!(reply.status, 200);
        let said = reply.json();
        assert_eq!(
            (&said["name"], &said["duty"]),
            (&"a".into(), &"drain".into())
        );
    }
    let pool = stand.pool().await;
    assert_eq!(pool["backends"][0]["state"], "draining");
    assert_eq!(pool["endpoints"][0]["duty"], "drain");
    for _ in 0..5 {
        let mut client = stand.send(&Ask::tokens(4, "")).await;
        b.call().await.ok("{}").await;
        assert_eq!(client.reply().await.status, 200);
    }
    for (mut client, mut call) in streams {
        call.chunk(b"data: [DONE]\n\n").await;
        call.end().await;
        assert_eq!(client.payload(14).await, b"data: [DONE]\n\n");
    }
    order(&stand, "/backends/b/drain").await;
    refused(
        &stand.ask(&Ask::tokens(4, "")).await,
        503,
        "no_backend",
        "no_backend",
    );
    assert_eq!(stand.admin("/readyz").await.status, 503);
    for _ in 0..2 {
        assert_eq!(order(&stand, "/backends/a/undrain").await.status, 200);
    }
    let mut client = stand.send(&Ask::tokens(4, "")).await;
    a.call().await.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    assert_eq!(stand.settle().await["finished"], 8);
    a.check();
    b.check();
}

#[tokio::test]
async fn what_keeps_a_model_from_being_ready_is_named_by_backend() {
    let spec = FakeSpec {
        model: "another".into(),
        ..FakeSpec::default()
    };
    let wrong = Fake::start(spec).await;
    let stand = Stand::unready(&Setup::tiny(&[wrong.backend("a")])).await;
    let told = json!([{"name": "a", "state": "starting", "problem": "wrong_model"}]);
    loop {
        let ready = stand.admin("/readyz").await;
        assert_eq!(ready.status, 503);
        if ready.json()["models"][0]["backends"] == told {
            break;
        }
        tokio::task::yield_now().await;
    }
    stand.settle().await;
}

#[tokio::test]
async fn a_drained_backend_stays_drained_over_a_reload_that_renames_it() {
    let (a, b) = (
        Fake::start(FakeSpec::default()).await,
        Fake::start(FakeSpec::default()).await,
    );
    let stand = Stand::start(&Setup::tiny(&[a.backend("a"), b.backend("b")])).await;
    assert_eq!(order(&stand, "/backends/a/drain").await.status, 200);
    let reload = |names: [&str; 2]| {
        let setup = Setup::tiny(&[b.backend(names[1]), a.backend(names[0])]);
        let reload = stand.running.gateway().reload(setup.config());
        assert_eq!(reload, Reload::Applied);
    };
    // Names are exchanged too: the order was for an engine, not for a name.
    for names in [["a", "b"], ["b", "a"]] {
        reload(names);
        let pool = stand.pool().await;
        let endpoints = pool["endpoints"].as_array().unwrap();
        let drained = |place: usize| {
            (
                endpoints[place]["duty"] == "drain",
                &endpoints[place]["name"],
            )
        };
        assert_eq!(drained(0), (false, &names[1].into()));
        assert_eq!(drained(1), (true, &names[0].into()));
        for _ in 0..3 {
            let mut client = stand.send(&Ask::tokens(4, "")).await;
            b.call().await.ok("{}").await;
            assert_eq!(client.reply().await.status, 200);
        }
        assert!(a.try_call().is_none());
    }
    assert_eq!(order(&stand, "/backends/b/undrain").await.status, 200);
    assert_eq!(order(&stand, "/backends/a/drain").await.status, 200);
    let mut client = stand.send(&Ask::tokens(4, "")).await;
    a.call().await.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    assert_eq!(stand.settle().await["finished"], 7);
    a.check();
    b.check();
}

#[tokio::test]
async fn what_a_web_page_can_send_drains_nothing() {
    let fake = Fake::start(FakeSpec::default()).await;
    let stand = Stand::start(&Setup::tiny(&[fake.backend("a")])).await;
    let admin = stand.running.admin_addr();
    let path = "/backends/a/drain";
    let plain = Ask::new("POST", path);
    let form = plain.clone().header("content-type", "text/plain");
    let json = plain.clone().header("content-type", "application/json");
    let foreign = json.header("origin", "http://evil.example");
    for (ask_for, status) in [
        (Ask::get(path), 405),
        (plain, 415),
        (form, 415),
        (foreign, 403),
        (Ask::post("/backends/b/drain", "{}"), 404),
        (Ask::post("/state", "{}"), 405),
        (Ask::post("/unknown", "{}"), 404),
        (Ask::post("/backends/a/kill", "{}"), 404),
        (Ask::get("/backends/a/kill"), 404),
    ] {
        assert_eq!(ask(admin, &ask_for).await.status, status, "{ask_for:?}");
    }
    assert_eq!(stand.pool().await["endpoints"][0]["duty"], "serve");
    stand.settle().await;
}

#[tokio::test]
async fn another_origins_page_sees_nothing_and_takes_no_place_of_those_who_watch() {
    let fake = Fake::start(FakeSpec::default()).await;
    let stand = Stand::start(&Setup::tiny(&[fake.backend("a")])).await;
    let admin = stand.running.admin_addr();
    let own = format!("http://{admin}");
    for path in [
        "/events", "/state", "/history", "/metrics", "/readyz", "/livez",
    ] {
        for (name, value) in [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("origin", "http://evil.example"),
            ("origin", "null"),
        ] {
            let page = Ask::get(path).header(name, value);
            assert_eq!(
                ask(admin, &page).await.status,
                403,
                "{path} {name}: {value}"
            );
        }
        if path == "/events" {
            continue;
        }
        for (name, value) in [
            ("sec-fetch-site", "same-origin"),
            ("sec-fetch-site", "none"),
            ("origin", own.as_str()),
            ("accept", "*/*"),
        ] {
            let asked = Ask::get(path).header("host", &admin.to_string());
            let asked = asked.header(name, value);
            let reply = ask(admin, &asked).await;
            assert_eq!(reply.status, 200, "{path} {name}: {value}");
        }
    }
    // A link to the page itself may stand anywhere.
    let linked = Ask::get("/").header("sec-fetch-site", "cross-site");
    assert_eq!(ask(admin, &linked).await.status, 200);
    assert_eq!(
        ask(admin, &Ask::get("/history?after=1&after=2"))
            .await
            .status,
        400
    );
    stand.settle().await;
}

#[tokio::test]
async fn a_name_that_leads_to_loopback_by_chance_is_shown_and_obeyed_in_nothing() {
    let fake = Fake::start(FakeSpec::default()).await;
    let stand = Stand::start(&Setup::tiny(&[fake.backend("a")])).await;
    let admin = stand.running.admin_addr();
    let own = format!("{admin}");
    for (host, status) in [
        (own.as_str(), 200),
        ("LOCALHOST:81", 200),
        ("evil.example", 403),
        ("evil.example:8081", 403),
        ("10.0.0.1", 403),
    ] {
        for path in ["/livez", "/state", "/metrics"] {
            let reply = ask(admin, &Ask::get(path).header("host", host)).await;
            assert_eq!(reply.status, status, "{host}{path}");
        }
        let drain = Ask::post("/backends/a/drain", "{}").header("host", host);
        assert_eq!(ask(admin, &drain).await.status, status, "{host}");
        let again = Ask::post("/backends/a/undrain", "{}");
        assert_eq!(ask(admin, &again).await.status, 200);
    }
    stand.settle().await;
}

#[tokio::test]
async fn without_the_token_only_life_and_readiness_are_told_in_a_word() {
    let fake = Fake::start(FakeSpec::default()).await;
    let file = std::env::temp_dir().join(format!("tidegate-admin-{}", std::process::id()));
    std::fs::write(&file, "operators-only\n").unwrap();
    let setup = Setup::tiny(&[fake.backend("a")]);
    let setup = setup.set("admin.token_file", &format!("{:?}", file.to_str().unwrap()));
    let stand = Stand::unready(&setup).await;
    stand.running.ready().await;
    let admin = stand.running.admin_addr();
    let live = ask(admin, &Ask::get("/livez")).await;
    assert_eq!((live.status, live.text()), (200, "ok\n"));
    let ready = ask(admin, &Ask::get("/readyz")).await;
    assert_eq!((ready.status, ready.text()), (200, "ready\n"));
    for path in ["/state", "/metrics", "/nothing"] {
        assert_eq!(ask(admin, &Ask::get(path)).await.status, 401, "{path}");
    }
    let known = Ask::get("/state").key("operators-only");
    let known = known.header("host", "tidegate.example");
    assert_eq!(ask(admin, &known).await.status, 200);
    let drain = Ask::post("/backends/a/drain", "{}");
    assert_eq!(ask(admin, &drain).await.status, 401);
    assert_eq!(
        ask(admin, &drain.clone().key("operators-onlx"))
            .await
            .status,
        401
    );
    let full = ask(admin, &Ask::get("/readyz").key("operators-only")).await;
    assert_eq!(full.json()["models"][0]["model"], "tiny");
    assert_eq!(ask(admin, &drain.key("operators-only")).await.status, 200);
    let ready = ask(admin, &Ask::get("/readyz")).await;
    assert_eq!((ready.status, ready.text()), (503, "not ready\n"));
    std::fs::remove_file(&file).unwrap();
    stand.will_be_cut();
}

/// Reads an exposition as strictly as the format allows: every series once, of a
/// family told before it, with its help and its kind, and no comment between.
fn strictly(page: &str) -> usize {
    let mut kinds = BTreeMap::new();
    let mut helped = BTreeSet::new();
    let mut closed = BTreeSet::new();
    let mut series = BTreeSet::new();
    let mut current = String::new();
    assert!(page.ends_with('\n'));
    for line in page.lines().filter(|line| !line.is_empty()) {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').unwrap();
            assert!(helped.insert(name.to_owned()) && !text.is_empty(), "{line}");
            continue;
        }
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(helped.contains(name), "{line}");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(
                kinds.insert(name.to_owned(), kind.to_owned()).is_none(),
                "{line}"
            );
            closed.insert(std::mem::replace(&mut current, name.to_owned()));
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(series.insert(name.to_owned()), "twice: {line}");
        value.parse::<f64>().unwrap();
        let family = name.split('{').next().unwrap();
        let parts = ["_bucket", "_sum", "_count"];
        let base = parts.iter().find_map(|part| family.strip_suffix(part));
        let family = match base {
            Some(base) if kinds.get(base).is_some_and(|kind| kind == "histogram") => base,
            _ => family,
        };
        assert!(family == current && !closed.contains(family), "{line}");
        let counts = kinds[family] == "counter";
        assert_eq!(counts, family.ends_with("_total"), "{line}");
        if let Some(labels) = name.split_once('{') {
            assert!(labels.1.ends_with("\"}"), "{line}");
        }
    }
    series.len()
}

#[tokio::test]
async fn its_own_metrics_are_read_by_the_strictest_reader() {
    let fake = Fake::start(FakeSpec::default()).await;
    let stand = Stand::start(&Setup::tiny(&[fake.backend("a")])).await;
    for status in [200, 500, 404] {
        let mut client = stand.send(&Ask::tokens(4, STREAM)).await;
        let call = fake.call().await;
        call.answer(status, "application/json", b"{}").await;
        client.reply().await;
    }
    let page = stand.admin("/metrics").await;
    assert_eq!(
        page.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    assert!(strictly(page.text()) > 40);
    stand.settle().await;
}
