//! `POST /explain` tells what the gateway then does, and does nothing itself.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tidegate::sim::random::Random;
use tokio::task::JoinSet;

use crate::support::client::{Ask, Client, Reply};
use crate::support::fake::{Call, Fake, FakeSpec};
use crate::support::setup::{Setup, backend};
use crate::support::stand::Stand;

mod bodies;

use bodies::any_ask;

const KEYS: [(&str, &str); 3] = [
    ("one", "key-of-tenant-one"),
    ("two", "key-of-tenant-two"),
    ("three", "key-of-tenant-three"),
];

/// Long enough for anything here; what takes longer will never come.
const PATIENCE: Duration = Duration::from_secs(60);

/// A stream of one token.
const STREAM: &[u8] =
    b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\ndata: [DONE]\n\n";

/// Two standard engines of 1,024 tokens, a large one of 4,096 and an offload one.
struct Fleet {
    stand: Stand,
    fakes: Vec<Fake>,
    /// Requests in flight that are not answered before the end.
    held: Vec<(Client, Call)>,
}

/// What became of a request that was sent.
enum Became {
    Answered(Reply),
    Refused(Reply),
    Waited,
}

fn golden(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    format!("{:?}", root.join(name))
}

impl Fleet {
    async fn new(reservation: &str) -> Self {
        let mut fakes = Vec::new();
        let mut backends = Vec::new();
        let tiers = [
            ("a", "standard", 64),
            ("b", "standard", 64),
            ("c", "large", 256),
            ("d", "offload", 1024),
        ];
        for (name, tier, blocks) in tiers {
            let fake = Fake::start(FakeSpec {
                blocks,
                max_model_len: blocks * 16,
                counts: None,
                takes_too_much: true,
                ..FakeSpec::default()
            })
            .await;
            let line = format!("tier = \"{tier}\"");
            backends.push(backend(name, &fake.url(), &line));
            fakes.push(fake);
        }
        let model = format!(
            "name = \"tiny\"\ntokenizer = {}\nchat_template_file = {}",
            golden("tiny-model"),
            golden("templates/chatml.jinja")
        );
        let two = "max_prompt_tokens = 600\nmax_output_tokens = 300\nmax_waiting = 0\n\
                   max_in_flight_tokens = 900";
        let three = "tokens_per_minute = 1\ntoken_burst = 2000";
        let setup = Setup::new()
            .set("admission.reservation", &format!("{reservation:?}"))
            .set("server.max_body_bytes", "200_000")
            .model(&model, &backends)
            .tenant(KEYS[0].0, KEYS[0].1, "")
            .tenant(KEYS[1].0, KEYS[1].1, two)
            .tenant(KEYS[2].0, KEYS[2].1, three);
        Self {
            stand: Stand::start(&setup).await,
            fakes,
            held: Vec::new(),
        }
    }

    /// Sends a request that stays in flight.
    async fn hold(&mut self, prompt: usize, output: usize) {
        let ask = Ask::tokens(prompt, &format!(r#","max_tokens":{output}"#)).key(KEYS[0].1);
        let client = self.stand.send(&ask).await;
        let call = self.call().await;
        self.held.push((client, call));
        // What its prefill is foreseen to take is over: from now on nothing moves.
        let still = |pool: &Value| {
            let mut backends = pool["backends"].as_array().unwrap().iter();
            backends.all(|one| one["prefill_ahead_seconds"] == 0.0)
        };
        self.stand.until(still).await;
    }

    /// Holds one more request of a random size, where there is room for it.
    async fn fill(&mut self, random: &mut Random) {
        let prompt = usize::try_from(random.between(300, 900)).unwrap();
        let ask = Ask::tokens(prompt, r#","max_tokens":100"#);
        if self.told(&ask, KEYS[0].0).await["verdict"] == "admit" {
            self.hold(prompt, 100).await;
        }
    }

    /// The next request that reaches any engine.
    async fn call(&self) -> Call {
        loop {
            if let Some(call) = self.fakes.iter().find_map(Fake::try_call) {
                return call;
            }
            tokio::task::yield_now().await;
        }
    }

    async fn told(&self, ask: &Ask, tenant: &str) -> Value {
        let mut admin = Client::connect(self.stand.running.admin_addr()).await;
        let reply = admin.ask(&ask.about(tenant)).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    }

    /// Sends it and lets it have its answer, or leave once it waits.
    async fn send(&self, ask: &Ask) -> Became {
        let mut client = self.stand.send(ask).await;
        let answered = async {
            let call = self.call().await;
            match call.json()["stream"].as_bool() {
                Some(true) => call.answer(200, "text/event-stream", STREAM).await,
                _ => call.ok("{}").await,
            }
        };
        let waits = self.stand.until_waiting(1);
        let became = tokio::select! {
            reply = client.reply() => Some(Became::Refused(reply)),
            () = answered => None,
            _ = waits => Some(Became::Waited),
        };
        let became = match became {
            Some(became) => became,
            None => Became::Answered(client.reply().await),
        };
        drop(client);
        self.quiet().await;
        became
    }

    /// Waits until nothing is left of what was answered or has left: no lease, no
    /// place in line, no charge that is not settled.
    async fn quiet(&self) {
        let held = u64::try_from(self.held.len()).unwrap();
        loop {
            let state = self.stand.state().await;
            let pool = &state["pools"][0];
            let sum = |list: &Value, key: &str| -> u64 {
                let items = list.as_array().unwrap().iter();
                items.map(|one| one[key].as_u64().unwrap()).sum()
            };
            let left = (
                sum(&pool["backends"], "leases"),
                &pool["queue"]["requests"],
                sum(&state["tenants"], "booked_tokens"),
            );
            if left == (held, &0.into(), 0) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    async fn check(&self, ask: &Ask, (tenant, key): (&str, &str)) -> &'static str {
        let told = self.told(ask, tenant).await;
        let keyed = ask.clone().key(key);
        let sent = tokio::time::timeout(PATIENCE, self.send(&keyed));
        let Ok(became) = sent.await else {
            panic!("nothing became of it: {told:#}")
        };
        match became {
            Became::Answered(reply) => {
                is_admitted(&told, &reply);
                "admit"
            }
            Became::Waited => {
                assert_eq!(told["verdict"], "queue", "{told:#}");
                assert!(told["held_by"].is_string() && told["chosen"].is_null());
                assert!(told["wait_seconds"]["q50"].is_number(), "{told:#}");
                "queue"
            }
            Became::Refused(reply) => {
                is_refused(&told, &reply);
                "refuse"
            }
        }
    }
}

fn counted(told: &Value) -> Option<String> {
    let prompt = told["prompt"].as_object()?;
    let precision = prompt["precision"].as_str().unwrap();
    Some(format!("{};{precision}", prompt["tokens"]))
}

fn is_admitted(told: &Value, reply: &Reply) {
    assert_eq!(
        (&told["verdict"], reply.status),
        (&"admit".into(), 200),
        "{told:#}"
    );
    let header = |name: &str| reply.header(name).map(str::to_owned);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let chosen = &told["chosen"];
    assert_eq!(
        header("x-tidegate-backend"),
        text(&chosen["backend"]),
        "{told:#}"
    );
    assert_eq!(header("x-tidegate-tier"), text(&chosen["tier"]), "{told:#}");
    assert_eq!(
        header("x-tidegate-prompt-tokens"),
        counted(told),
        "{told:#}"
    );
    let written = told["output"]["written_max_tokens"].as_u64();
    let written = written.map(|tokens| tokens.to_string());
    assert_eq!(header("x-tidegate-max-tokens"), written, "{told:#}");
    let backends = told["backends"].as_array().unwrap().iter();
    let mut there = backends.filter(|one| one["name"] == chosen["backend"]);
    let there = there.next().unwrap();
    assert_eq!(
        (&there["fits"], &there["taken_blocks"]),
        (&"now".into(), &chosen["blocks"])
    );
    assert_eq!(told["wait_seconds"], Value::Null, "{told:#}");
}

fn is_refused(told: &Value, reply: &Reply) {
    let refusal = &told["refusal"];
    assert_eq!(told["verdict"], "refuse", "{told:#}");
    assert_eq!(refusal["status"], reply.status, "{told:#}\n{reply:?}");
    assert_eq!(
        refusal["reason"].as_str(),
        reply.header("x-tidegate-reason"),
        "{told:#}"
    );
    let error = &reply.json()["error"];
    for key in ["code", "param"] {
        assert_eq!(refusal[key], error[key], "{told:#}");
    }
    let header = reply.header("x-tidegate-prompt-tokens");
    // Of a prompt past its limit "at least" so much is counted as it takes to know
    // it, and more of one that was seen before.
    if told["prompt"]["precision"] != "at_least" {
        assert_eq!(refusal["message"], error["message"], "{told:#}");
        assert_eq!(header.map(str::to_owned), counted(told), "{told:#}");
    }
    let within = &refusal["retry_after_seconds"];
    let seconds = reply
        .header("retry-after")
        .map(|text| text.parse::<u64>().unwrap());
    let bounds = within["least"].as_u64().zip(within["most"].as_u64());
    match (seconds, bounds) {
        // A rate that refills may have come a second nearer in between.
        (Some(seconds), Some((least, most))) => {
            assert!(
                (least.saturating_sub(1)..=most).contains(&seconds),
                "{told:#}"
            );
        }
        (None, None) => {}
        other => panic!("{other:?}: {told:#}"),
    }
}

async fn random_requests(reservation: &str, seed: u64) -> [u32; 3] {
    let mut fleet = Fleet::new(reservation).await;
    let random = &mut Random::new(seed);
    let mut seen = [0; 3];
    for step in 0..150 {
        if step % 10 == 9 {
            fleet.fill(random).await;
        }
        // Half of them come from the tenant without limits, which may wait.
        let who = random.between(0, 3).saturating_sub(1);
        let who = KEYS[usize::try_from(who).unwrap()];
        let became = fleet.check(&any_ask(random), who).await;
        let index = ["admit", "queue", "refuse"]
            .iter()
            .position(|one| *one == became);
        seen[index.unwrap()] += 1;
    }
    fleet.held.clear();
    fleet.stand.settle().await;
    seen
}

#[tokio::test]
async fn what_is_told_of_random_bodies_is_what_is_done_with_them_under_strict() {
    let seen = random_requests("strict", 7).await;
    assert!(seen.iter().all(|&count| count >= 8), "{seen:?}");
}

#[tokio::test]
async fn what_is_told_of_random_bodies_is_what_is_done_with_them_under_the_forecast() {
    let seen = random_requests("forecast", 8).await;
    assert!(seen.iter().all(|&count| count >= 8), "{seen:?}");
}

/// What must not change, with what changes by itself taken out.
async fn fingerprint(stand: &Stand) -> (Value, Vec<String>) {
    let mut state = stand.state().await;
    for key in ["tasks", "uptime_seconds", "config", "certificates"] {
        state.as_object_mut().unwrap().remove(key);
    }
    let pool = state["pools"][0].as_object_mut().unwrap();
    pool.remove("endpoints");
    // What runs grows older, and less is kept for it.
    for backend in pool["backends"].as_array_mut().unwrap() {
        let backend = backend.as_object_mut().unwrap();
        let by_itself = [
            "growing_blocks",
            "free_blocks",
            "reserve_blocks",
            "observed",
        ];
        backend.retain(|key, _| !by_itself.contains(&key.as_str()));
    }
    let metrics = stand.admin("/metrics").await;
    let lines = metrics.text().lines();
    let ours = lines.filter(|line| {
        let by_itself = ["age_seconds", "scrape", "connection", "tidegate_config"];
        !by_itself.iter().any(|word| line.contains(word))
    });
    (state, ours.map(str::to_owned).collect())
}

#[tokio::test]
async fn telling_changes_no_book_no_rate_no_metric_and_reaches_no_engine() {
    let mut fleet = Fleet::new("strict").await;
    fleet.hold(200, 50).await;
    let before = fingerprint(&fleet.stand).await;
    let random = &mut Random::new(3);
    for _ in 0..60 {
        let ask = any_ask(random);
        for (tenant, _) in KEYS {
            fleet.told(&ask, tenant).await;
        }
    }
    assert!(fleet.fakes.iter().all(|fake| fake.try_call().is_none()));
    let after = fingerprint(&fleet.stand).await;
    assert_eq!(format!("{:#}", before.0), format!("{:#}", after.0));
    let new: Vec<_> = after
        .1
        .iter()
        .filter(|line| !before.1.contains(line))
        .collect();
    assert_eq!(new, Vec::<&String>::new());
    fleet.held.clear();
    let totals = fleet.stand.settle().await;
    assert_eq!(
        (&totals["received"], &totals["refused"]),
        (&1.into(), &0.into())
    );
}

#[tokio::test]
async fn many_are_told_at_once_within_the_body_budget() {
    let fleet = Fleet::new("strict").await;
    let ask = Ask::tokens(400, r#","max_tokens":10"#).about("one");
    let addr = fleet.stand.running.admin_addr();
    let mut all = JoinSet::new();
    for _ in 0..40 {
        let ask = ask.clone();
        all.spawn(async move { Client::connect(addr).await.ask(&ask).await.json() });
    }
    let told = all.join_all().await;
    assert!(told.iter().all(|one| one == &told[0]), "{:#}", told[0]);
    assert_eq!(told[0]["verdict"], "admit");
    assert_eq!(told[0]["backends"].as_array().unwrap().len(), 4);
    fleet.stand.settle().await;
}

#[tokio::test]
async fn a_question_that_cannot_be_answered_says_what_to_ask() {
    let fleet = Fleet::new("strict").await;
    let ask = Ask::chat("");
    let addr = fleet.stand.running.admin_addr();
    let asked = |path: &'static str| {
        let ask = Ask::post(path, ask.body());
        async move { Client::connect(addr).await.ask(&ask).await }
    };
    let nobody = asked("/explain?tenant=nobody").await;
    assert_eq!(
        (nobody.status, nobody.text()),
        (400, "no tenant of that name; there are: one, two, three\n")
    );
    let whose = asked("/explain").await;
    assert_eq!(
        (whose.status, whose.text()),
        (
            400,
            "say whose it is by ?tenant=NAME; there are: one, two, three\n"
        )
    );
    assert_eq!(asked("/explain?tenant=one&x=1").await.status, 400);
    let twice = asked("/explain?tenant=one&tenant=two").await;
    assert_eq!(
        (twice.status, twice.text()),
        (400, "tenant= is there twice, and only one can be meant\n")
    );
    // A route that is none and a path that is none are told alike: as a client is.
    for route in ["nonsense", "/v1/nonsense"] {
        let path = format!("/explain?tenant=one&route={route}");
        let ask = Ask::post(&path, ask.body());
        let none = Client::connect(addr).await.ask(&ask).await;
        let told = none.json();
        let refusal = (&told["verdict"], &told["refusal"]["status"]);
        assert_eq!(
            refusal,
            (&"refuse".into(), &404.into()),
            "{route}: {told:#}"
        );
    }
    let told = asked("/explain?tenant=one").await;
    assert_eq!(
        (told.status, &told.json()["verdict"]),
        (200, &"admit".into())
    );
    let get = fleet.stand.admin("/explain").await;
    assert_eq!((get.status, get.header("allow")), (405, Some("POST")));
    let page = Ask::post("/explain?tenant=one", ask.body());
    for (name, value) in [
        ("origin", "http://evil.example"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        let page = page.clone().header(name, value);
        let told = Client::connect(addr).await.ask(&page).await;
        assert_eq!(told.status, 403, "{name}: {value}");
    }
    fleet.stand.settle().await;
}

#[tokio::test]
async fn the_count_by_part_sums_to_the_count_and_the_access_log_says_why() {
    let mut fleet = Fleet::new("strict").await;
    let told = fleet.told(&Ask::chat(r#","max_tokens":5"#), "one").await;
    let parts = told["prompt"]["parts"].as_array().unwrap();
    let names: Vec<_> = parts
        .iter()
        .map(|part| part["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["template", "message 1 (user)"]);
    let sum: u64 = parts
        .iter()
        .map(|part| part["tokens"].as_u64().unwrap())
        .sum();
    assert_eq!(told["prompt"]["tokens"], sum);
    // The large tier is full, and what only it could hold says what is missing.
    fleet.hold(3000, 900).await;
    let ask = Ask::tokens(2000, r#","max_tokens":96"#).header("x-tidegate-allow-offload", "0");
    let told = fleet.told(&ask, "one").await;
    let large = &told["backends"][2];
    let missing = (&large["fits"], &large["barrier"], &large["missing_blocks"]);
    // 244 of 256 blocks are held, 131 are asked.
    assert_eq!(
        missing,
        (&"later".into(), &"memory".into(), &119.into()),
        "{told:#}"
    );
    assert_eq!(told["backends"][0]["barrier"], "size");
    assert_eq!(told["backends"][3]["barrier"], "offload");
    let waited = fleet.send(&ask.key(KEYS[0].1)).await;
    assert!(matches!(waited, Became::Waited));
    fleet.held.clear();
    fleet.stand.settle().await;
}
