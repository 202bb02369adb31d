//! Bodies that come compressed: counted and sent on as what they unpack to.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use crate::support::client::{Ask, Client};
use crate::support::fake::{Fake, FakeSpec};
use crate::support::refusal::refused;
use crate::support::setup::Setup;
use crate::support::stand::Stand;

const ANSWER: &str = r#"{"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":1}}"#;
const MIB: usize = 1 << 20;

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn zstd(text: &[u8]) -> Vec<u8> {
    compress_to_vec(text, CompressionLevel::Fastest)
}

fn post(packed: Vec<u8>, coding: &str) -> Ask {
    Ask::post("/v1/completions", packed).header("content-encoding", coding)
}

async fn gateway() -> (Stand, Fake) {
    let fake = Fake::start(FakeSpec::default()).await;
    let setup = Setup::tiny(&[fake.backend("a")])
        .set("server.max_body_bytes", &MIB.to_string())
        .set("server.body_budget_bytes", &(4 * MIB).to_string());
    (Stand::start(&setup).await, fake)
}

#[tokio::test]
async fn a_compressed_body_is_counted_and_sent_on_unpacked() {
    let (stand, fake) = gateway().await;
    let plain = Ask::tokens(40, r#","max_tokens":1"#);
    for (packed, coding) in [(gzip(plain.body()), "GZip"), (zstd(plain.body()), "zstd")] {
        let mut client = Client::connect(stand.addr()).await;
        client.send(&post(packed, coding)).await;
        let call = fake.call().await;
        assert_eq!(call.body, plain.body(), "{coding}");
        assert_eq!(call.head.get("content-encoding"), None);
        let length = plain.body().len().to_string();
        assert_eq!(call.head.get("content-length"), Some(length.as_str()));
        call.ok(ANSWER).await;
        let reply = client.reply().await;
        assert_eq!(reply.text(), ANSWER);
        let counted = reply.header("x-tidegate-prompt-tokens").unwrap();
        assert!(counted.starts_with("40;"), "{coding}: {counted}");
    }
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn a_body_that_does_not_unpack_reaches_no_engine() {
    let (stand, fake) = gateway().await;
    let whole = gzip(Ask::tokens(4, "").body());
    for packed in [
        b"{}".to_vec(),
        whole[..whole.len() - 3].to_vec(),
        vec![0x1f],
    ] {
        let mut client = Client::connect(stand.addr()).await;
        let reply = client.ask(&post(packed, "gzip")).await;
        refused(&reply, 400, "invalid_request", "invalid_request");
    }
    // Nothing inside is as bad as nothing at all.
    let mut client = Client::connect(stand.addr()).await;
    let reply = client.ask(&post(gzip(b""), "gzip")).await;
    refused(&reply, 400, "invalid_json", "invalid_json");
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn twenty_bombs_at_once_are_refused_at_the_limit_and_leave_nothing_behind() {
    let (stand, fake) = gateway().await;
    let bombs = [
        (gzip(&vec![b' '; 16 * MIB]), "gzip"),
        (zstd(&vec![b' '; 16 * MIB]), "zstd"),
    ];
    let addr = stand.addr();
    let asks = (0..20).map(|index| {
        let (packed, coding) = bombs[index % 2].clone();
        tokio::spawn(async move {
            let mut client = Client::connect(addr).await;
            client.ask(&post(packed, coding)).await
        })
    });
    for asked in asks.collect::<Vec<_>>() {
        let reply = asked.await.unwrap();
        // Past the limit, unless others hold the budget at that moment.
        let why = match reply.status {
            413 => "request_too_large",
            _ => "server_busy",
        };
        let status = if why == "server_busy" { 503 } else { 413 };
        refused(&reply, status, why, why);
    }
    let mut client = Client::connect(addr).await;
    client.send(&Ask::tokens(4, r#","max_tokens":1"#)).await;
    fake.call().await.ok(ANSWER).await;
    assert_eq!(client.reply().await.text(), ANSWER);
    stand.settle().await;
    fake.check();
}
