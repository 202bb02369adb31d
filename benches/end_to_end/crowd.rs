//! Small chats beside a client that sends prompts of a megabyte without pause.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use tidegate::config::{KeyDigest, Tenant};
use tidegate::core::units::Tokens;

use super::{Outcome, Part, Way, connect};

/// The key of the tenant that crowds, and its SHA-256 digest.
const KEY: &str = "crowd";
const DIGEST: &str = "5b4535bdd79ff9cd7894fcc2779dc3ee7c819a557555a7289dc286263be589e0";
/// Small chats of one turn.
const CHATS: usize = 100;
/// Different prompts of the crowd: none is in a cache when it comes again.
const PROMPTS: u64 = 48;
const MEGABYTE: usize = 1 << 20;

/// Refused once it was counted: no prompt of a megabyte fits its share.
pub(super) fn tenant() -> Tenant {
    let mut tenant = Tenant::new("crowd");
    tenant.keys = KeyDigest::from_hex(DIGEST).into_iter().collect();
    tenant.limits.max_in_flight = Some(Tokens::new(1000));
    tenant
}

pub(super) async fn measure(gateway: &Part, rounds: usize) -> Outcome<()> {
    let prose: Vec<Bytes> = (0..PROMPTS).map(prose).collect();
    let runs: Vec<Bytes> = ["a", " ", "^", "\\n", "漢", "xq"].map(run).into();
    for (what, prompts) in [("prose", prose), ("one character", runs)] {
        let (mut quiet, mut crowded) = (Way::default(), Way::default());
        let mut counted = 0;
        chats(gateway, &mut quiet, 10).await?;
        quiet = Way::default();
        for _ in 0..rounds {
            chats(gateway, &mut quiet, CHATS).await?;
            let over = Arc::new(AtomicBool::new(false));
            let crowd = tokio::spawn(crowd(gateway.addr, prompts.clone(), Arc::clone(&over)));
            chats(gateway, &mut crowded, CHATS).await?;
            over.store(true, Ordering::Relaxed);
            counted += crowd.await??;
        }
        let total = rounds * CHATS;
        println!("small chats beside prompts of a megabyte of {what}: {total} each way");
        println!(
            "  {:.0} such prompts counted per second, one after the other",
            f64::from(counted) / crowded.wall.as_secs_f64()
        );
        for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
            let (quiet, crowded) = (quiet.quantile(share), crowded.quantile(share));
            println!(
                "  latency {name}: quiet {quiet:.0} µs, crowded {crowded:.0} µs, added {:.0} µs",
                crowded - quiet
            );
        }
    }
    Ok(())
}

/// Sends small chats one after the other.
async fn chats(gateway: &Part, way: &mut Way, count: usize) -> Outcome<()> {
    let mut sender = connect(gateway.addr).await?;
    let began = Instant::now();
    for number in 0..count {
        let sent = Instant::now();
        let text = "The tide comes in twice a day and nobody has to ask. ".repeat(20);
        let body = format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":"{number} {text}"}}],"max_tokens":1}}"#
        );
        let status = send(&mut sender, "/v1/chat/completions", (body.into(), None)).await?;
        assert_eq!(status, StatusCode::OK);
        way.times.push(sent.elapsed());
    }
    way.wall += began.elapsed();
    Ok(())
}

/// Sends these prompts, over and over, until it is `over`; how many.
async fn crowd(
    addr: std::net::SocketAddr,
    prompts: Vec<Bytes>,
    over: Arc<AtomicBool>,
) -> Outcome<u32> {
    let mut sender = connect(addr).await?;
    let mut counted = 0;
    for prompt in prompts.iter().cycle() {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let status = send(&mut sender, "/v1/completions", (prompt.clone(), Some(KEY))).await?;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        counted += 1;
    }
    Ok(counted)
}

async fn send(
    sender: &mut SendRequest<Full<Bytes>>,
    path: &str,
    (body, key): (Bytes, Option<&str>),
) -> Outcome<StatusCode> {
    let mut request = Request::post(path)
        .header("host", "bench")
        .header("content-type", "application/json");
    if let Some(key) = key {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    tokio::time::timeout(Duration::from_secs(30), sender.ready()).await??;
    let answer = sender.send_request(request.body(Full::from(body))?).await?;
    let status = answer.status();
    answer.into_body().collect().await?;
    Ok(status)
}

/// A megabyte of words in an order of its own.
fn prose(seed: u64) -> Bytes {
    const WORDS: [&str; 16] = [
        "the", "tide", "comes", "in", "twice", "a", "day", "and", "nobody", "harbour", "measures",
        "quietly", "before", "sixteen", "vessels", "depart.",
    ];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = String::with_capacity(MEGABYTE + 16);
    while text.len() < MEGABYTE {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let index = usize::try_from(state >> 60).unwrap_or(0);
        let written = write!(text, "{} ", WORDS[index]);
        debug_assert!(written.is_ok(), "a string takes all");
    }
    body(&text)
}

/// A megabyte of one text.
fn run(text: &str) -> Bytes {
    body(&text.repeat(MEGABYTE / text.len()))
}

fn body(prompt: &str) -> Bytes {
    format!(r#"{{"model":"m","prompt":"{prompt}","max_tokens":1}}"#).into()
}
