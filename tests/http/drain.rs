//! The way out: what runs is finished, nothing new is begun.

use crate::support::client::{Ask, Client, tokens_body};
use crate::support::fake::{Fake, FakeSpec};
use crate::support::h2::{Http2, post, reply, rest};
use crate::support::refusal::refused;
use crate::support::setup::Setup;
use crate::support::stand::Stand;
use crate::support::wire::Ending;

const STREAM: &str = r#","max_tokens":500,"stream":true"#;
const EVENT: &[u8] = b"data: {\"choices\":[{\"index\":0,\"text\":\"x\"}]}\n\n";
const DONE: &[u8] = b"data: [DONE]\n\n";

async fn gateway(change: impl FnOnce(Setup) -> Setup) -> (Stand, Fake) {
    let fake = Fake::start(FakeSpec::default()).await;
    let setup = change(Setup::tiny(&[fake.backend("a")]));
    (Stand::start(&setup).await, fake)
}

#[tokio::test]
async fn a_drain_finishes_what_runs_and_what_waits() {
    let (stand, fake) = gateway(|setup| setup).await;
    let mut running = stand.send(&Ask::tokens(500, STREAM)).await;
    let mut call = fake.call().await;
    call.stream().await;
    let head = running.stream().await;
    let mut waiting = stand.send(&Ask::tokens(500, r#","max_tokens":500"#)).await;
    stand.until_waiting(1).await;
    let mut idle = Client::connect(stand.addr()).await;
    let listed = idle.ask(&Ask::get("/v1/models")).await;
    assert_eq!(listed.status, 200);
    stand.running.begin_drain();
    let ready = stand.admin("/readyz").await;
    assert_eq!(
        (ready.status, &ready.json()["phase"]),
        (503, &"draining".into())
    );
    assert_eq!(stand.admin("/livez").await.status, 200);
    // An idle connection is closed, a new one is not taken.
    assert_eq!(idle.0.rest().await, (Vec::new(), Ending::Closed));
    call.chunk(EVENT).await;
    call.chunk(DONE).await;
    call.end().await;
    let (body, ending) = running.0.body(&head).await;
    assert_eq!((body, ending), ([EVENT, DONE].concat(), Ending::Whole));
    fake.call().await.ok("{}").await;
    assert_eq!(waiting.reply().await.status, 200);
    assert_eq!(stand.settle().await["finished"], 2);
    let addr = stand.addr();
    stand.running.shutdown().await;
    let refused = tokio::net::TcpStream::connect(addr).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    fake.check();
}

#[tokio::test]
async fn a_closed_door_refuses_on_every_connection_that_is_still_there() {
    let (stand, fake) = gateway(|setup| setup).await;
    let mut old = Client::connect(stand.addr()).await;
    old.send(&Ask::tokens(4, "")).await;
    fake.call().await.ok("{}").await;
    assert_eq!(old.reply().await.status, 200);
    stand.running.gateway().close_door();
    for ask in [
        Ask::tokens(4, ""),
        Ask::chat(STREAM),
        Ask::get("/v1/models"),
    ] {
        let reply = old.ask(&ask).await;
        refused(&reply, 503, "server_shutdown", "server_shutdown");
        let reply = stand.ask(&ask).await;
        refused(&reply, 503, "server_shutdown", "server_shutdown");
    }
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn an_http2_connection_ends_after_its_streams_and_takes_none_on_the_way() {
    let (stand, fake) = gateway(|setup| setup).await;
    let mut client = Http2::connect(stand.addr()).await;
    let body = tokens_body("tiny", 4, STREAM);
    let running = client.send(post("/v1/completions", body.clone()));
    let mut call = fake.call().await;
    call.stream().await;
    call.chunk(EVENT).await;
    let running = running.await.unwrap().into_body();
    stand.running.begin_drain();
    // Sent before the client could learn of it.
    let late = client.send(post("/v1/completions", body));
    let late = reply(late.await.unwrap()).await;
    refused(&late, 503, "server_shutdown", "server_shutdown");
    call.chunk(DONE).await;
    call.end().await;
    assert_eq!(rest(running).await, ([EVENT, DONE].concat(), None));
    client.connection.await.unwrap().unwrap();
    assert_eq!(stand.settle().await["finished"], 1);
    fake.check();
}

#[tokio::test]
async fn what_outlasts_the_drain_is_told_so_and_cut() {
    let (stand, fake) = gateway(|setup| setup.set("server.drain_timeout", "\"0s\"")).await;
    let mut running = stand.send(&Ask::tokens(400, STREAM)).await;
    let mut call = fake.call().await;
    call.stream().await;
    let head = running.stream().await;
    call.chunk(EVENT).await;
    assert_eq!(running.payload(EVENT.len()).await, EVENT);
    // One that has no answer yet, and one that waits.
    let mut silent = stand.send(&Ask::tokens(10, r#","max_tokens":10"#)).await;
    let unanswered = fake.call().await;
    let mut waiting = stand.send(&Ask::tokens(500, r#","max_tokens":500"#)).await;
    stand.until_waiting(1).await;
    let pools = stand.running.pools();
    stand.will_be_cut();
    stand.running.shutdown().await;
    let (told, ending) = running.0.body(&head).await;
    assert_ne!(ending, Ending::Whole);
    let told = String::from_utf8(told).unwrap();
    assert!(told.starts_with("data: {\"error\":"), "{told}");
    assert!(told.contains(r#""code":"server_shutdown""#), "{told}");
    for client in [&mut silent, &mut waiting] {
        let reply = client.reply().await;
        refused(&reply, 503, "server_shutdown", "server_shutdown");
    }
    call.gone().await;
    unanswered.gone().await;
    let pool = pools.all()[0].gate().state();
    assert!(pool.is_idle());
    // The one that waits may be granted by the others' end before its own.
    let totals = pool.totals;
    assert!(
        totals.cancelled >= 2 && totals.cancelled + totals.left == 3,
        "{totals:?}"
    );
    fake.check();
}

#[tokio::test]
async fn dropping_a_gateway_frees_its_engines() {
    let (stand, fake) = gateway(|setup| setup).await;
    let mut running = stand.send(&Ask::tokens(500, STREAM)).await;
    let mut call = fake.call().await;
    call.stream().await;
    running.stream().await;
    let _waiting = stand.send(&Ask::tokens(500, STREAM)).await;
    stand.until_waiting(1).await;
    let pools = stand.running.pools();
    stand.will_be_cut();
    drop(stand);
    call.gone().await;
    let (_, ending) = running.0.rest().await;
    assert_ne!(ending, Ending::Whole);
    while !pools.all()[0].gate().state().is_idle() {
        tokio::task::yield_now().await;
    }
    fake.check();
}
