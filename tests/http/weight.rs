//! What the gateway weighs, as a process of its own: its memory and files do
//! not grow with what clients and engines make of it.
//!
//! Bounds are several times what is seen, and far below what a fault costs.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tidegate::core::backend::Tier;
use tidegate::telemetry::{AccessRecord, Metrics};

use crate::support::client::{Ask, Client, ask, tokens_body};
use crate::support::fake::{Fake, FakeSpec};
use crate::support::setup::Setup;
use crate::support::wire::Ending;
use crate::support::{Guard, full};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// A gateway in a process of its own; dropping it kills it.
struct Apart {
    child: Child,
    addr: SocketAddr,
    admin: SocketAddr,
    _guard: Guard,
}

impl Apart {
    async fn start(setup: Setup) -> Self {
        let guard = Guard::new();
        let setup = setup.set("log.format", "\"json\"");
        let name = format!("weight-{}.toml", rand::random::<u64>());
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&file, setup.text()).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["serve", "--config"])
            .arg(&file)
            // The allocator keeps for a moment what was given back: not here.
            .env("MIMALLOC_PURGE_DELAY", "0")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let told = |line: std::io::Result<String>| -> Option<[SocketAddr; 2]> {
            let line: Value = serde_json::from_str(&line.unwrap()).ok()?;
            let told = line.get("fields").unwrap_or(&line);
            let addr = |name: &str| told.get(name)?.as_str()?.parse().ok();
            Some([addr("addr")?, addr("admin")?])
        };
        let [addr, admin] = lines.by_ref().find_map(told).unwrap();
        drop(std::thread::spawn(move || lines.for_each(drop)));
        std::fs::remove_file(file).unwrap();
        while ask(admin, &Ask::get("/readyz")).await.status != 200 {
            tokio::task::yield_now().await;
        }
        Self {
            child,
            addr,
            admin,
            _guard: guard,
        }
    }

    /// A figure of `/proc`, in bytes: `VmRSS` now, `VmHWM` the most ever.
    fn memory(&self, figure: &str) -> u64 {
        let status = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(status).unwrap();
        let lines = status.lines();
        let mut found = lines.filter_map(|line| line.strip_prefix(figure)?.strip_prefix(':'));
        let words = found.next().unwrap();
        let kib: u64 = words.split_whitespace().next().unwrap().parse().unwrap();
        kib * KIB
    }

    fn files(&self) -> usize {
        let files = format!("/proc/{}/fd", self.child.id());
        std::fs::read_dir(files).unwrap().count()
    }

    /// Waits until nothing is held for any request.
    async fn idle(&self) {
        loop {
            let state = ask(self.admin, &Ask::get("/state")).await.json();
            let pool = &state["pools"][0];
            let held = &pool["backends"][0]["leases"];
            if *held == 0 && pool["queue"]["requests"] == 0 && state["body_bytes"] == 0 {
                return;
            }
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

async fn engine() -> (Fake, Setup) {
    let fake = Fake::start(FakeSpec::default()).await;
    let setup = Setup::tiny(&[fake.backend("a")]).set("probe.interval", "\"10s\"");
    let setup = setup.set("probe.stale_after", "\"60s\"");
    (fake, setup)
}

/// A request of `size` bytes, nearly all of which no engine reads.
fn large(size: usize) -> Ask {
    let rest = format!(r#","max_tokens":40,"user":"{}""#, "u".repeat(size));
    Ask::tokens(4, &rest)
}

/// One served, one refused, one with a strange key, one that leaves.
async fn mixed(apart: &Apart, fake: &Fake, number: usize) {
    let id = format!("id-{number}");
    let fine = Ask::tokens(4, r#","max_tokens":1"#).header("x-request-id", &id);
    let mut client = Client::with(apart.addr, &fine).await;
    fake.call().await.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    let unknown = tokens_body(&format!("model-{number}"), 4, "");
    let unknown = Ask::post("/v1/completions", unknown);
    assert_eq!(client.ask(&unknown).await.status, 404);
    let stranger = fine.clone().key(&format!("key-{number}"));
    assert!(client.ask(&stranger).await.status > 400);
    let leaving = Client::with(apart.addr, &fine).await;
    let call = fake.call().await;
    drop(leaving);
    call.gone().await;
}

#[tokio::test]
async fn many_short_requests_leave_nothing_behind() {
    let (fake, setup) = engine().await;
    let apart = Apart::start(setup.tenant("t", "not-asked", "").anonymous("")).await;
    let count = full(400, 100_000);
    for number in 0..count {
        mixed(&apart, &fake, number).await;
    }
    apart.idle().await;
    let (memory, files) = (apart.memory("VmRSS"), apart.files());
    for number in count..3 * count {
        mixed(&apart, &fake, number).await;
    }
    apart.idle().await;
    let grown = apart.memory("VmRSS").saturating_sub(memory);
    assert!(grown < memory / 10, "{grown} bytes more than {memory}");
    let now = apart.files();
    assert!(now <= files + 4, "{now} files, {files} before");
}

#[tokio::test]
async fn a_body_costs_less_than_three_times_its_size_and_nothing_once_answered() {
    let (fake, setup) = engine().await;
    let (count, size) = (full(4, 10), full(6, 50) << 20);
    let setup = setup
        .set("server.max_body_bytes", "67108864")
        .set("server.body_budget_bytes", "1073741824");
    let apart = Apart::start(setup).await;
    let before = apart.memory("VmRSS");
    let request = large(size).bytes();
    let send = async || {
        let mut client = Client::connect(apart.addr).await;
        client.0.send(&request).await.unwrap();
        client
    };
    let sending: Vec<_> = (0..count).map(|_| send()).collect();
    let mut clients = Vec::new();
    let mut calls = Vec::new();
    for sending in sending {
        clients.push(sending.await);
        calls.push(fake.call().await);
    }
    let total = u64::try_from(count * size).unwrap();
    let peak = apart.memory("VmHWM") - before;
    assert!(peak < 3 * total, "{peak} bytes for {total}");
    // All are at the engine, which has answered none: each is kept once.
    let state = ask(apart.admin, &Ask::get("/state")).await.json();
    let kept = state["body_bytes"].as_u64().unwrap();
    assert!(kept < total + total / 100, "{kept} bytes for {total}");
    for (mut client, call) in clients.into_iter().zip(calls) {
        call.ok("{}").await;
        assert_eq!(client.reply().await.status, 200);
    }
    apart.idle().await;
}

#[tokio::test]
async fn what_is_announced_costs_nothing_and_what_comes_is_bounded() {
    let (fake, setup) = engine().await;
    let setup = setup
        .set("server.max_body_bytes", "67108864")
        .set("server.body_budget_bytes", "67108864")
        .set("server.min_body_bytes_per_second", "0");
    let apart = Apart::start(setup).await;
    let before = apart.memory("VmRSS");
    let head = "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
        content-length: 60000000\r\n\r\n{\"model\":\"tiny\",";
    let mut slow = Vec::new();
    for _ in 0..full(200, 500) {
        let mut client = Client::connect(apart.addr).await;
        client.0.send(head.as_bytes()).await.unwrap();
        slow.push(client);
    }
    let filling = Ask::tokens(4, "");
    let served = Client::with(apart.addr, &filling);
    let mut served = served.await;
    fake.call().await.ok("{}").await;
    assert_eq!(served.reply().await.status, 200);
    let grown = apart.memory("VmHWM") - before;
    assert!(grown < 64 * MIB, "{grown} bytes for announcements");
    drop(slow);
    apart.idle().await;
    // Bodies that wait for memory are held, up to the budget and no further.
    let holding = Ask::tokens(4, r#","max_tokens":1000"#);
    let mut first = Client::with(apart.addr, &holding).await;
    let call = fake.call().await;
    let waiting = large(8 << 20).bytes();
    let kept = async || {
        let state = ask(apart.admin, &Ask::get("/state")).await.json();
        state["body_bytes"].as_u64().unwrap()
    };
    let mut clients = Vec::new();
    for _ in 0..full(12, 500) {
        let mut client = Client::connect(apart.addr).await;
        // Cut short where it was refused before all of it was there.
        drop(client.0.send(&waiting).await);
        assert!(kept().await <= 64 * MIB);
        clients.push(client);
    }
    // The budget is as full as bodies of this size make it.
    while kept().await <= 40 * MIB {
        tokio::task::yield_now().await;
    }
    let peak = apart.memory("VmHWM") - before;
    assert!(peak < 256 * MIB, "{peak} bytes for bodies that wait");
    drop(clients);
    // Each is noticed once what it sent is read.
    while kept().await > KIB {
        tokio::task::yield_now().await;
    }
    call.ok("{}").await;
    assert_eq!(first.reply().await.status, 200);
    apart.idle().await;
}

#[tokio::test]
async fn a_huge_refusal_of_an_engine_is_passed_on_and_not_kept() {
    let (fake, setup) = engine().await;
    let apart = Apart::start(setup).await;
    let mut client = Client::connect(apart.addr).await;
    // Once small, so that what a first answer costs is not counted.
    client.send(&Ask::tokens(4, "")).await;
    fake.call().await.ok("{}").await;
    client.reply().await;
    let before = apart.memory("VmRSS");
    client.send(&Ask::tokens(4, "")).await;
    let mut call = fake.call().await;
    let pieces = full(64, 200);
    let piece = vec![b'e'; 1 << 20];
    let begin = br#"{"error":{"message":""#;
    let end = br#""}}"#;
    let length = begin.len() + pieces * piece.len() + end.len();
    let head = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    let telling = async {
        call.say(head.as_bytes()).await;
        call.say(begin).await;
        for _ in 0..pieces {
            call.say(&piece).await;
        }
        call.say(end).await;
        call.hand_back();
    };
    let ((), reply) = tokio::join!(telling, client.reply());
    assert_eq!((reply.status, reply.ending), (400, Ending::Whole));
    assert_eq!(reply.body.len(), length);
    let grown = apart.memory("VmHWM").saturating_sub(before);
    assert!(grown < 16 * MIB, "{grown} bytes for an answer of {length}");
}

#[tokio::test]
async fn clients_that_read_nothing_cost_less_than_a_megabyte_each() {
    let (fake, setup) = engine().await;
    let apart = Apart::start(setup).await;
    let mut before = 0;
    let stream = r#","max_tokens":20,"stream":true"#;
    let event = format!(
        "data: {{\"choices\":[{{\"index\":0,\"text\":\"{}\"}}]}}\n\n",
        "y".repeat(64 << 10)
    );
    let framed = format!("{:x}\r\n{event}\r\n", event.len()).into_bytes();
    // The first few fill what each thread of the allocator keeps for itself.
    let (first, count) = (8, full(16, 200));
    let (mut clients, mut calls) = (Vec::new(), Vec::new());
    for number in 0..first + count {
        if number == first {
            before = apart.memory("VmRSS");
        }
        clients.push(Client::with(apart.addr, &Ask::tokens(4, stream)).await);
        let mut call = fake.call().await;
        call.stream().await;
        // Until nothing more is taken for long: every buffer on the way is full.
        let (mut looks, mut sent) = (0, 0);
        while looks < 2000 {
            let taken = call.try_some(&framed[sent..]).await;
            looks = if taken == 0 { looks + 1 } else { 0 };
            sent = (sent + taken) % framed.len();
            tokio::task::yield_now().await;
        }
        calls.push(call);
    }
    let grown = apart.memory("VmRSS").saturating_sub(before);
    let most = u64::try_from(count).unwrap() * MIB + 8 * MIB;
    assert!(grown < most, "{grown} bytes for {count} clients");
    // One that reads is not slowed down.
    let mut quick = Client::with(apart.addr, &Ask::tokens(4, stream)).await;
    let mut call = fake.call().await;
    call.stream().await;
    quick.stream().await;
    for _ in 0..100 {
        call.chunk(event.as_bytes()).await;
        assert_eq!(quick.payload(event.len()).await.len(), event.len());
    }
    call.chunk(b"data: [DONE]\n\n").await;
    call.end().await;
    drop(clients);
    for call in calls {
        call.gone().await;
    }
    apart.idle().await;
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Floods of frames on one connection, after its preface.
fn floods() -> [Vec<u8>; 8] {
    // A GET of /: indexed headers of the static table.
    let get = [0x82, 0x84, 0x86];
    let resets: Vec<u8> = (0..5000_u32)
        .flat_map(|n| {
            [
                frame(1, 5, 2 * n + 1, &get),
                frame(3, 0, 2 * n + 1, &[0, 0, 0, 8]),
            ]
        })
        .flatten()
        .collect();
    let open: Vec<u8> = (0..5000_u32)
        .flat_map(|n| frame(1, 4, 2 * n + 1, &get))
        .collect();
    let endless = [
        frame(1, 1, 1, &get),
        frame(
            9,
            0,
            1,
            &[&[0, 1, b'x', 127, 0xff, 0x7e][..], &[b'y'; 16_000]].concat(),
        )
        .repeat(200),
    ];
    [
        resets,
        open,
        endless.concat(),
        frame(4, 0, 0, &[0, 4, 0, 0, 255, 255]).repeat(20_000),
        frame(6, 0, 0, &[7; 8]).repeat(20_000),
        frame(2, 0, 1, &[0, 0, 0, 0, 1]).repeat(20_000),
        frame(8, 0, 0, &[0x7f, 0xff, 0xff, 0xff]).repeat(10),
        frame(0, 0, 1, &[]).repeat(20_000),
    ]
}

#[tokio::test]
async fn floods_of_http2_frames_cost_no_memory_and_hurt_nobody() {
    let (fake, setup) = engine().await;
    let apart = Apart::start(setup).await;
    let preface = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        &frame(4, 0, 0, &[])[..],
    ]
    .concat();
    let before = apart.memory("VmRSS");
    for flood in &floods() {
        for _ in 0..full(2, 50) {
            let mut bad = Client::connect(apart.addr).await;
            bad.0.send(&preface).await.unwrap();
            // It may be cut off while it still sends, and reads nothing.
            let sending = bad.0.send(flood);
            let other = async {
                let mut good = Client::with(apart.addr, &Ask::tokens(4, "")).await;
                fake.call().await.ok("{}").await;
                assert_eq!(good.reply().await.status, 200);
            };
            let limit = Duration::from_secs(1);
            let (sent, ()) = tokio::join!(tokio::time::timeout(limit, sending), other);
            drop(sent);
        }
    }
    apart.idle().await;
    let grown = apart.memory("VmHWM").saturating_sub(before);
    assert!(grown < 48 * MIB, "{grown} bytes for floods of frames");
}

/// Observes without a reader and says by how many bytes this process has grown.
#[test]
#[ignore = "run in a process of its own by the test below"]
fn millions_of_observations() {
    let status = || std::fs::read_to_string("/proc/self/status").unwrap();
    let memory = || -> u64 {
        let status = status();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let words = line.unwrap().split_whitespace().next();
        words.unwrap().parse().unwrap()
    };
    let metrics = Metrics::new(4);
    let record = AccessRecord {
        model: Some("model".into()),
        tier: Some(Tier::Standard),
        queue_ms: Some(Duration::from_millis(1)),
        ttft_ms: Some(Duration::from_millis(2)),
        duration_ms: Some(Duration::from_millis(3)),
        ..AccessRecord::new(SystemTime::now(), "r".into(), "completions")
    };
    metrics.finished(&record);
    metrics.upkeep();
    let before = memory();
    // As often as the gateway does at 10,000 requests a second.
    for number in 1..=full(1_000_000, 10_000_000) {
        metrics.finished(&record);
        if number % 50_000 == 0 {
            metrics.upkeep();
        }
    }
    println!("grown by {} KiB", memory().saturating_sub(before));
}

#[test]
fn observations_that_nobody_reads_are_folded() {
    let exe = std::env::current_exe().unwrap();
    let name = "weight::millions_of_observations";
    let mut child = Command::new(exe);
    let child = child.args([name, "--exact", "--ignored", "--nocapture"]);
    let told = String::from_utf8(child.output().unwrap().stdout).unwrap();
    let grown = told.split_once("grown by ").unwrap().1;
    let grown: u64 = grown.split_once(" KiB").unwrap().0.parse().unwrap();
    assert!(grown < 20 * KIB, "{grown} KiB more");
}
