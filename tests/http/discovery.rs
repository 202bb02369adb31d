//! Backends that come and go in a file of their own, or behind a name.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::json;
use tidegate::app::Resolver;
use tidegate::config::HostPort;

use crate::support::client::Ask;
use crate::support::fake::{Fake, FakeSpec};
use crate::support::memory::Memory;
use crate::support::setup::{Setup, backend};
use crate::support::stand::Stand;
use crate::support::wire::Ending;

const EVENT: &[u8] = b"data: {\"choices\":[{\"index\":0,\"text\":\"x\"}]}\n\n";
const DONE: &[u8] = b"data: [DONE]\n\n";

/// A file of its own for each test; gone with it.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> Self {
        let name = format!("backends-{}-{name}", std::process::id());
        Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    fn list(&self, fakes: &[(&str, &Fake)]) {
        let entry = |(name, fake): &(&str, &Fake)| json!({"name": name, "url": fake.url()});
        let entries: Vec<_> = fakes.iter().map(entry).collect();
        fs::write(&self.0, json!({"backends": entries}).to_string()).unwrap();
    }

    fn model(&self) -> Setup {
        let lines = format!("name = \"tiny\"\nbackends_file = {:?}", self.0);
        Setup::new().model(&lines, &[])
    }
}

impl Drop for File {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

fn names(pool: &serde_json::Value) -> Vec<(String, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let backends = pool["backends"].as_array().unwrap().iter();
    backends
        .map(|backend| (text(&backend["name"]), text(&backend["state"])))
        .collect()
}

fn are(pool: &serde_json::Value, expected: &[(&str, &str)]) -> bool {
    let names = names(pool);
    let names = names.iter().map(|(name, state)| (&**name, &**state));
    names.eq(expected.iter().copied())
}

#[tokio::test]
async fn what_joins_a_file_is_used_and_what_leaves_it_ends_its_streams() {
    let first = Fake::start(FakeSpec::default()).await;
    let second = Fake::start(FakeSpec::default()).await;
    let file = File::new("joins.json");
    file.list(&[("a", &first)]);
    let setup = file.model();
    let config = File::new("joins.toml");
    fs::write(&config.0, setup.text()).unwrap();
    let mut stand = Stand::start(&setup).await;
    stand.running.follow(&config.0);
    let ask = Ask::tokens(4, r#","max_tokens":4,"stream":true"#);
    let mut client = stand.send(&ask).await;
    let mut call = first.call().await;
    call.stream().await;
    let head = client.stream().await;
    file.list(&[("a", &first), ("b", &second)]);
    stand
        .until(|pool| are(pool, &[("a", "up"), ("b", "up")]))
        .await;
    file.list(&[("b", &second)]);
    stand
        .until(|pool| are(pool, &[("a", "draining"), ("b", "up")]))
        .await;
    // New requests go to what is left; the stream ends as if nothing had been.
    let mut next = stand.send(&Ask::tokens(4, "")).await;
    second.call().await.ok("{}").await;
    assert_eq!(next.reply().await.status, 200);
    call.chunk(EVENT).await;
    call.chunk(DONE).await;
    call.end().await;
    let (body, ending) = client.0.body(&head).await;
    assert_eq!((body, ending), ([EVENT, DONE].concat(), Ending::Whole));
    stand.until(|pool| are(pool, &[("b", "up")])).await;
    assert_eq!(stand.settle().await["finished"], 2);
    first.check();
    second.check();
}

#[tokio::test]
async fn a_file_of_backends_that_is_wrong_changes_nothing_and_is_told() {
    let fake = Fake::start(FakeSpec::default()).await;
    let file = File::new("wrong.json");
    file.list(&[("a", &fake)]);
    let setup = file.model();
    let config = File::new("wrong.toml");
    fs::write(&config.0, setup.text()).unwrap();
    let mut stand = Stand::start(&setup).await;
    stand.running.follow(&config.0);
    fs::write(&file.0, r#"{"backends": [{"url": "ftp://x:1"}]}"#).unwrap();
    let problem = loop {
        let state = stand.state().await;
        if state["config"]["last_reload"] == "refused" {
            break state["config"]["problems"][0].as_str().unwrap().to_owned();
        }
        tokio::task::yield_now().await;
    };
    let expected = format!("{}: backends[0].url = ", file.0.display());
    assert!(problem.starts_with(&expected), "{problem}");
    let mut client = stand.send(&Ask::tokens(4, "")).await;
    fake.call().await.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    assert!(are(&stand.pool().await, &[("a", "up")]));
    // No engine at all is no mistake: they may all be away.
    file.list(&[]);
    stand.until(|pool| are(pool, &[])).await;
    let refused = stand.ask(&Ask::tokens(4, "")).await;
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert_eq!(refused.json()["error"]["code"], "no_backend");
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn a_name_that_the_system_knows_is_a_backend_at_each_of_its_addresses() {
    let fake = Fake::start(FakeSpec::default()).await;
    let url = fake.url().replace("127.0.0.1", "localhost");
    let stand = Stand::unready(&Setup::tiny(&[backend("v", &url, "discover = \"dns\"")])).await;
    stand.running.ready().await;
    let mut client = stand.send(&Ask::tokens(4, "")).await;
    fake.call().await.ok("{}").await;
    let reply = client.reply().await;
    assert_eq!(reply.status, 200);
    // IPv4 comes first, where there is IPv6 too.
    assert_eq!(reply.header("x-tidegate-backend"), Some("v-0"));
    let state = stand.state().await;
    let found = &state["discovery"][0];
    assert_eq!(found["addresses"][0], "127.0.0.1");
    assert_eq!(found["dns"], url.strip_prefix("http://").unwrap());
    assert_eq!(found["interval_seconds"], 10.0);
    assert!(found["problem"].is_null() && found["age_seconds"].is_number());
    stand.settle().await;
    fake.check();
}

/// A resolver of one name: its addresses by their last number, or why not.
#[derive(Clone, Default)]
struct Names(Arc<Mutex<Answer>>);

#[derive(Default)]
struct Answer {
    last: Vec<u8>,
    fails: bool,
    asked: u32,
}

impl Names {
    fn say(&self, last: &[u8]) {
        self.change(|answer| (answer.last, answer.fails) = (last.to_vec(), false));
    }

    fn change(&self, change: impl FnOnce(&mut Answer)) {
        change(&mut self.0.lock().unwrap());
    }

    /// Waits until it was asked twice more: the first answer was taken then.
    async fn asked(&self) {
        let count = || self.0.lock().unwrap().asked;
        let until = count() + 2;
        while count() < until {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }
}

impl Resolver for Names {
    async fn addresses(&self, name: &HostPort) -> io::Result<BTreeSet<IpAddr>> {
        assert_eq!(name.to_string(), "fleet:1");
        let mut answer = self.0.lock().unwrap();
        answer.asked += 1;
        if answer.fails {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let address = |last: &u8| IpAddr::from([10, 0, 0, *last]);
        Ok(answer.last.iter().map(address).collect())
    }
}

fn at(memory: &Memory) -> Vec<String> {
    let backends = memory.backends().into_iter();
    backends
        .map(|(name, address, state)| format!("{name} {address} {state}"))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn an_address_that_is_gone_drains_and_its_number_is_given_away_after_that() {
    let names = Names::default();
    names.say(&[1]);
    let specs = || [(); 3].map(|()| FakeSpec::default());
    let mut memory = Memory::behind(specs(), names.clone());
    memory
        .in_time(|pool| pool.backends.iter().any(|b| b.health.admits()))
        .await;
    let ask = Ask::tokens(4, r#","max_tokens":4,"stream":true"#);
    let mut client = memory.send(&ask).await;
    let mut call = memory.fake(0).call().await;
    call.stream().await;
    let head = client.stream().await;
    names.say(&[2]);
    names.asked().await;
    // The stream runs on at the first, so the second cannot have its number.
    assert_eq!(at(&memory), ["v-1 10.0.0.2:1 up"]);
    assert_eq!(memory.pool().backends.len(), 2);
    call.chunk(EVENT).await;
    call.chunk(DONE).await;
    call.end().await;
    let (body, ending) = client.0.body(&head).await;
    assert_eq!((body, ending), ([EVENT, DONE].concat(), Ending::Whole));
    memory.in_time(|pool| pool.backends.len() == 1).await;
    names.asked().await;
    names.say(&[2, 3]);
    names.asked().await;
    assert_eq!(at(&memory), ["v-1 10.0.0.2:1 up", "v-0 10.0.0.3:1 up"]);
    memory.settle().await;
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_not_found_leaves_its_backends_as_they_are() {
    let names = Names::default();
    names.say(&[1, 2]);
    let specs = [FakeSpec::default(), FakeSpec::default()];
    let memory = Memory::behind(specs, names.clone());
    memory
        .in_time(|pool| pool.backends.iter().filter(|b| b.health.admits()).count() == 2)
        .await;
    let both = ["v-0 10.0.0.1:1 up", "v-1 10.0.0.2:1 up"];
    names.change(|answer| answer.fails = true);
    names.asked().await;
    assert_eq!(at(&memory), both);
    names.say(&[]);
    names.asked().await;
    assert_eq!(at(&memory), both);
    names.say(&[2]);
    names.asked().await;
    assert_eq!(at(&memory), both[1..]);
    memory.settle().await;
}
