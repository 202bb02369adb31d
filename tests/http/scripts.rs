//! Random scripts against the whole gateway in memory: clients that leave at any
//! phase, engines that answer, err, hang or die at any phase. After each script
//! everything is zero and conserved.
//!
//! `TIDEGATE_SEED=n` plays one script again; `TIDEGATE_FULL=1` plays thousands.

use std::time::Duration;

use tidegate::core::stats::Totals;
use tokio::io::DuplexStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::support::client::{Ask, Client};
use crate::support::fake::{Call, FakeSpec};
use crate::support::memory::Memory;
use crate::support::setup::Setup;

const EVENT: &[u8] = b"data: {\"choices\":[{\"index\":0,\"text\":\"x\"}]}\n\n";
const DONE: &[u8] = b"data: [DONE]\n\n";
const STREAM: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
    transfer-encoding: chunked\r\n\r\n";
/// Clients of one script.
const CLIENTS: u64 = 16;

/// A seeded generator (SplitMix64).
#[derive(Clone)]
struct Random(u64);

/// Tells the seed of a script that fails.
struct Told(u64);

// === impl Random ===

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn pause(&mut self, most_ms: u64) -> Duration {
        Duration::from_millis(self.below(most_ms + 1))
    }

    /// Another one, for somebody else.
    fn fork(&mut self) -> Self {
        Self(self.below(u64::MAX))
    }
}

// === impl Told ===

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("TIDEGATE_SEED={} plays this script again", self.0);
        }
    }
}

fn ask(random: &mut Random) -> Ask {
    let (prompt, output) = (1 + random.below(700), 1 + random.below(400));
    let stream = [r#","stream":true"#, ""][usize::from(random.below(3) == 0)];
    let samples = ["", r#","n":2"#][usize::from(random.below(8) == 0)];
    let rest = format!(r#","max_tokens":{output}{samples}{stream}"#);
    match random.below(10) {
        0 => Ask::chat(&rest),
        1 => Ask::post("/v1/completions", "{\"model\":\"tiny\",\"prompt\":"),
        2 => Ask::get("/v1/models"),
        _ => Ask::tokens(usize::try_from(prompt).unwrap(), &rest),
    }
}

/// One client from its coming to its leaving, in whatever phase that is.
async fn visit(mut client: Client<DuplexStream>, mut random: Random) {
    sleep(random.pause(8000)).await;
    for _ in 0..=random.below(3) {
        let bytes = ask(&mut random).bytes();
        let leaves_within = random.below(6) == 0;
        let size = bytes.len() as u64;
        let sent = if leaves_within {
            random.below(size)
        } else {
            size
        };
        let sent = usize::try_from(sent).unwrap();
        if client.0.send(&bytes[..sent]).await.is_err() {
            return;
        }
        let patience = match random.below(3) {
            0 => random.pause(40_000),
            1 => random.pause(1000),
            _ => Duration::from_secs(3600),
        };
        let answered = timeout(patience, async {
            let Ok(head) = client.0.head().await else {
                return false;
            };
            let (_, ending) = client.0.body(&head).await;
            ending == crate::support::wire::Ending::Whole
        });
        if leaves_within || answered.await != Ok(true) {
            return;
        }
    }
}

/// One answer of an engine, in whatever way it ends.
async fn serve(mut call: Call<DuplexStream>, mut random: Random) {
    sleep(random.pause(3000)).await;
    match random.below(12) {
        0 => call.close(),
        1 => call.reset(),
        2 => drop(call.gone().await),
        3 => {
            call.tell(b"HTTP/1.1 200 OK\r\ncontent-le").await;
            call.close();
        }
        4 => {
            let error = br#"HTTP/1.1 500 X
content-type: application/json
content-length: 2

{}"#;
            let error = String::from_utf8_lossy(error).replace('\n', "\r\n");
            call.tell(error.as_bytes()).await;
            call.hand_back();
        }
        _ if !call.json()["stream"].as_bool().unwrap_or(false) => {
            let whole =
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 60\r\n\r\n";
            call.tell(whole).await;
            let body = format!(
                "{:60}",
                r#"{"usage":{"prompt_tokens":1,"completion_tokens":1}}"#
            );
            let sent = if random.below(5) == 0 { 30 } else { 60 };
            sleep(random.pause(500)).await;
            if call.tell(&body.as_bytes()[..sent]).await && sent == 60 {
                call.hand_back();
            } else {
                call.close();
            }
        }
        way => stream(call, random, way).await,
    }
}

async fn stream(mut call: Call<DuplexStream>, mut random: Random, way: u64) {
    if !call.tell(STREAM).await {
        return call.close();
    }
    for _ in 0..random.below(30) {
        sleep(random.pause(1500)).await;
        if !call.tell_chunk(EVENT).await {
            return call.close();
        }
    }
    match way {
        5 => call.close(),
        6 => drop(call.gone().await),
        // The end without the last event.
        7 => {
            call.tell(b"0\r\n\r\n").await;
            call.hand_back();
        }
        _ => {
            let ended = call.tell_chunk(DONE).await && call.tell(b"0\r\n\r\n").await;
            if ended {
                call.hand_back();
            } else {
                call.close();
            }
        }
    }
}

/// The gateway of a script.
fn setup(setup: Setup, random: &mut Random) -> Setup {
    let reservation = ["\"strict\"", "\"forecast\""][usize::from(random.below(2) == 0)];
    let places = (1 + random.below(12)).to_string();
    setup
        .set("admission.reservation", reservation)
        .set("queue.max_requests", &places)
        .set("queue.max_wait", "\"15s\"")
        .set("queue.max_bypass", "\"3s\"")
        .set("server.header_timeout", "\"60s\"")
        .set("server.body_timeout", "\"10s\"")
        .set("upstream.first_byte_timeout", "\"20s\"")
        .set("upstream.stream_silence_timeout", "\"20s\"")
        .set("upstream.request_timeout", "\"60s\"")
}

async fn play(seed: u64) -> Totals {
    let _told = Told(seed);
    let mut random = Random(seed);
    let specs = [FakeSpec::default(), FakeSpec::default()];
    let mut memory = Memory::of(specs, |with| setup(with, &mut random)).await;
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(visit(memory.connect(), random.fork()));
    }
    let mut engines = JoinSet::new();
    let mut deaths = random.fork();
    let mut next_death = Box::pin(sleep(deaths.pause(20_000)));
    loop {
        tokio::select! {
            biased;
            left = clients.join_next() => match left {
                Some(left) => left.unwrap(),
                None => break,
            },
            call = memory.fake(0).any_call() => drop(engines.spawn(serve(call, random.fork()))),
            call = memory.fake(1).any_call() => drop(engines.spawn(serve(call, random.fork()))),
            () = &mut next_death => {
                let fake = memory.fake(usize::try_from(deaths.below(2)).unwrap());
                match deaths.below(2) {
                    0 => fake.refuse(),
                    _ => fake.accept(),
                }
                next_death = Box::pin(sleep(deaths.pause(20_000)));
            }
            ended = engines.join_next(), if !engines.is_empty() => ended.unwrap().unwrap(),
        }
    }
    // What nobody waits for any more may still be on its way to an engine.
    sleep(Duration::from_secs(1)).await;
    for at in 0..2 {
        while memory.fake(at).unseen() > 0 {
            memory.fake(at).any_call().await.close();
        }
    }
    memory.settle().await.totals
}

fn seeds() -> std::ops::Range<u64> {
    let said = std::env::var("TIDEGATE_SEED").ok();
    match said.and_then(|seed| seed.parse::<u64>().ok()) {
        Some(seed) => seed..seed + 1,
        None if std::env::var_os("TIDEGATE_FULL").is_some() => 0..5000,
        None => 0..256,
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_clients_and_engines_do_everything_ends_at_zero() {
    let mut sums = [0; 7];
    for seed in seeds() {
        let totals = play(seed).await;
        let ends = [
            totals.finished,
            totals.failed,
            totals.cancelled,
            totals.left,
            totals.expired,
            totals.refused,
            totals.received,
        ];
        for (sum, end) in sums.iter_mut().zip(ends) {
            *sum += end;
        }
    }
    // The scripts reach every end there is.
    if std::env::var_os("TIDEGATE_SEED").is_none() {
        assert!(sums.iter().all(|&sum| sum >= 10), "{sums:?}");
    }
}
