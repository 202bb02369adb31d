//! More connections than there is room for: whoever asks keeps his, whoever
//! does not makes room.

use std::net::{IpAddr, Ipv4Addr};

use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Duration, Instant};

use crate::support::client::{Ask, Client, tokens_body};
use crate::support::fake::{Fake, FakeSpec};
use crate::support::h2::{Http2, post, reply};
use crate::support::memory::{Memory, seconds_since};
use crate::support::setup::Setup;
use crate::support::stand::Stand;
use crate::support::wire::{Ending, Wire};

const STREAM: &str = r#","max_tokens":9,"stream":true"#;

async fn gateway(change: impl FnOnce(Setup) -> Setup) -> (Stand, Fake) {
    let fake = Fake::start(FakeSpec::default()).await;
    let stand = Stand::start(&change(Setup::tiny(&[fake.backend("a")]))).await;
    (stand, fake)
}

/// A connection from another address of this machine.
async fn from(address: Ipv4Addr, stand: &Stand) -> Client {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((IpAddr::V4(address), 0).into()).unwrap();
    let stream: TcpStream = socket.connect(stand.addr()).await.unwrap();
    Client(Wire::new(stream))
}

#[tokio::test]
async fn a_flood_of_silent_connections_crowds_itself_out_and_hurts_nobody() {
    let (stand, fake) = gateway(|setup| setup.set("server.max_connections", "64")).await;
    // One that asks, before the flood.
    let mut streaming = stand.send(&Ask::tokens(4, STREAM)).await;
    let mut call = fake.call().await;
    call.stream().await;
    streaming.stream().await;
    let mut flood = Vec::new();
    for turn in 0..300_u32 {
        let [.., last] = (turn % 200 + 2).to_be_bytes();
        let mut silent = from(Ipv4Addr::new(127, 0, 0, last), &stand).await;
        let half = [
            &b""[..],
            b"POST /v1/compl",
            b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{",
        ];
        // It may have been crowded out already.
        let sent = silent
            .0
            .send(half[usize::try_from(turn).unwrap() % 3])
            .await;
        flood.push((silent, sent));
        if turn % 50 == 0 {
            let reply = stand.ask(&Ask::get("/v1/models")).await;
            assert_eq!(reply.status, 200);
        }
    }
    let mut client = stand.send(&Ask::tokens(4, "")).await;
    fake.call().await.ok("{}").await;
    assert_eq!(client.reply().await.text(), "{}");
    call.chunk(b"data: [DONE]\n\n").await;
    call.end().await;
    assert_eq!(streaming.payload(14).await, b"data: [DONE]\n\n");
    let cut = stand
        .metric("tidegate_connections_cut_total{reason=\"crowded_out\"}")
        .await;
    assert!(cut >= 230.0, "{cut}");
    let silent = stand.metric("tidegate_connections{state=\"silent\"}").await;
    assert!(silent <= 64.0, "{silent}");
    drop(flood);
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn where_everybody_asks_a_newcomer_is_closed_at_once() {
    let (stand, fake) = gateway(|setup| setup.set("server.max_connections", "16")).await;
    let mut asking = Vec::new();
    for _ in 0..16 {
        let client = stand.send(&Ask::tokens(4, STREAM)).await;
        let mut call = fake.call().await;
        call.stream().await;
        asking.push((client, call));
    }
    let mut late = stand.send(&Ask::get("/v1/models")).await;
    let (bytes, _) = late.0.rest().await;
    assert_eq!(bytes, b"");
    let turned = "tidegate_connections_cut_total{reason=\"turned_away\"}";
    assert_eq!(stand.metric(turned).await, 1.0);
    for (mut client, mut call) in asking {
        call.chunk(b"data: [DONE]\n\n").await;
        call.end().await;
        client.stream().await;
        assert_eq!(client.payload(14).await, b"data: [DONE]\n\n");
    }
    assert_eq!(stand.settle().await["finished"], 16);
    fake.check();
}

#[tokio::test(start_paused = true)]
async fn one_address_keeps_few_connections_that_never_asked() {
    let change = |setup: Setup| setup.set("server.max_silent_per_address", "3");
    let mut memory = Memory::new(change).await;
    let mut known = memory.connect();
    assert_eq!(known.ask(&Ask::get("/v1/models")).await.status, 200);
    let mut old: Vec<_> = (0..5).map(|_| memory.connect()).collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let new: Vec<_> = (0..3).map(|_| memory.connect()).collect();
    for silent in &mut old {
        assert_eq!(silent.0.rest().await.1, Ending::Closed);
    }
    for mut client in new.into_iter().chain([known]) {
        assert_eq!(client.ask(&Ask::get("/v1/models")).await.status, 200);
    }
    memory.settle().await;
}

#[tokio::test(start_paused = true)]
async fn an_http2_connection_without_a_stream_is_closed_like_one_without_a_head() {
    let mut memory = Memory::new(|setup| setup).await;
    let began = Instant::now();
    let mut client = memory.connect();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    client.0.send(preface).await.unwrap();
    let (_, ending) = client.0.rest().await;
    assert_eq!((ending, seconds_since(began)), (Ending::Closed, 11));
    memory.settle().await;
}

#[tokio::test]
async fn streams_that_are_reset_before_their_answer_end_the_connection_and_no_other() {
    let (stand, fake) = gateway(|setup| setup).await;
    let mut good = Http2::connect(stand.addr()).await;
    let mut bad = Http2::connect(stand.addr()).await;
    let filling = tokens_body("tiny", 500, r#","max_tokens":500"#);
    let holding = good.send(post("/v1/completions", filling.clone()));
    let call = fake.call().await;
    let mut sent = 0;
    // Each waits for memory until it is reset.
    while sent < 100_000 && !bad.connection.is_finished() {
        let asked = bad.send(post("/v1/completions", filling.clone()));
        tokio::task::yield_now().await;
        drop(asked);
        sent += 1;
    }
    assert!(sent < 100_000, "{sent} streams were reset");
    call.ok("{}").await;
    assert_eq!(reply(holding.await.unwrap()).await.text(), "{}");
    let models = good.send(post("/v1/nothing", "{}")).await.unwrap();
    assert_eq!(models.status(), 404);
    stand.settle().await;
    fake.check();
}
