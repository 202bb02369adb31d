//! HTTP/2 in clear text: many requests on one connection, each ending alone.

use http::Request;
use http_body_util::{BodyExt, Full};

use crate::support::client::{Ask, tokens_body};
use crate::support::fake::{Fake, FakeSpec};
use crate::support::h2::{Http2, post, reply, rest};
use crate::support::refusal::refused;
use crate::support::setup::Setup;
use crate::support::stand::Stand;

const EVENT: &str = "data: {\"choices\":[{\"index\":0,\"text\":\"x\"}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";
const STREAM: &str = r#","max_tokens":100,"stream":true"#;

async fn gateway() -> (Stand, Fake) {
    let fake = Fake::start(FakeSpec::default()).await;
    let stand = Stand::start(&Setup::tiny(&[fake.backend("a")])).await;
    (stand, fake)
}

fn completion(prompt: usize, rest: &str) -> Request<Full<bytes::Bytes>> {
    post("/v1/completions", tokens_body("tiny", prompt, rest))
}

#[tokio::test]
async fn answers_are_the_same_as_over_http1() {
    let (stand, fake) = gateway().await;
    let mut client = Http2::connect(stand.addr()).await;
    let asked = client.send(completion(20, r#","max_tokens":4"#));
    let body = r#"{"usage":{"prompt_tokens":20,"completion_tokens":4}}"#;
    let call = fake.call().await;
    assert!(call.head.line.ends_with(" HTTP/1.1"));
    call.ok(body).await;
    let got = reply(asked.await.unwrap()).await;
    assert_eq!((got.status, got.text()), (200, body));
    assert_eq!(got.header("x-tidegate-prompt-tokens"), Some("20;exact"));
    assert_eq!(got.header("connection"), None);
    let got = client.send(completion(2000, "")).await.unwrap();
    let got = reply(got).await;
    refused(&got, 400, "context_length_exceeded", "context_too_long");
    let got = client.send(post("/sleep", "{}")).await.unwrap();
    refused(&reply(got).await, 404, "not_found", "unknown_route");
    assert_eq!(stand.settle().await["finished"], 1);
    fake.check();
}

#[tokio::test]
async fn many_streams_run_on_one_connection() {
    let (stand, fake) = gateway().await;
    let mut client = Http2::connect(stand.addr()).await;
    let asked: Vec<_> = (0..8).map(|_| client.send(completion(4, STREAM))).collect();
    let mut calls = Vec::new();
    for _ in 0..8 {
        calls.push(fake.call().await);
    }
    for call in &mut calls {
        call.stream().await;
        call.chunk(EVENT.as_bytes()).await;
    }
    for call in calls {
        let mut call = call;
        call.chunk(DONE.as_bytes()).await;
        call.end().await;
    }
    for one in asked {
        let (body, reset) = rest(one.await.unwrap().into_body()).await;
        let body = String::from_utf8(body).unwrap();
        assert_eq!((body, reset), ([EVENT, DONE].concat(), None));
    }
    assert_eq!(stand.settle().await["finished"], 8);
    fake.check();
}

#[tokio::test]
async fn an_engine_lost_mid_stream_resets_that_stream_and_no_other() {
    let (stand, fake) = gateway().await;
    let mut client = Http2::connect(stand.addr()).await;
    let healthy = client.send(completion(4, STREAM));
    let mut kept = fake.call().await;
    kept.stream().await;
    for cut in [0, 10] {
        let asked = client.send(completion(4, STREAM));
        let mut lost = fake.call().await;
        lost.stream().await;
        let mut body = asked.await.unwrap().into_body();
        lost.chunk(EVENT.as_bytes()).await;
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first, EVENT);
        if cut > 0 {
            lost.chunk(&EVENT.as_bytes()[..cut]).await;
        }
        lost.reset();
        let (told, reset) = rest(body).await;
        let told = String::from_utf8(told).unwrap();
        // Half of an event is held back and given to nobody.
        let event = told.strip_prefix("data: ").unwrap();
        assert!(event.contains(r#""code":"upstream_failed""#), "{told}");
        assert!(event.ends_with("\n\n"), "{told}");
        let reset = reset.expect("no clean end");
        assert!(reset.contains("stream"), "{reset}");
    }
    kept.chunk(DONE.as_bytes()).await;
    kept.end().await;
    let (body, reset) = rest(healthy.await.unwrap().into_body()).await;
    assert_eq!((body, reset), (DONE.into(), None));
    let totals = stand.settle().await;
    let ends = (&totals["failed"], &totals["finished"]);
    assert_eq!(ends, (&2.into(), &1.into()));
    fake.check();
}

#[tokio::test]
async fn a_stream_that_is_reset_by_its_client_frees_its_engine_at_once() {
    let (stand, fake) = gateway().await;
    let mut client = Http2::connect(stand.addr()).await;
    let filling = r#","max_tokens":500,"stream":true"#;
    // Before the headers, after them, and mid-stream; the connection stays.
    for progress in 0..3 {
        let asked = client.send(completion(500, filling));
        let mut call = fake.call().await;
        let waiting = client.send(completion(500, filling));
        stand.until_waiting(1).await;
        if progress == 0 {
            drop(asked);
        } else {
            call.stream().await;
            let mut body = asked.await.unwrap().into_body();
            if progress == 2 {
                call.chunk(EVENT.as_bytes()).await;
                body.frame().await.unwrap().unwrap();
            }
            drop(body);
        }
        call.gone().await;
        let mut next = fake.call().await;
        next.stream().await;
        next.chunk(DONE.as_bytes()).await;
        next.end().await;
        let (body, reset) = rest(waiting.await.unwrap().into_body()).await;
        assert_eq!((body, reset), (DONE.into(), None));
    }
    let totals = stand.settle().await;
    let ends = (&totals["cancelled"], &totals["finished"]);
    assert_eq!(ends, (&3.into(), &3.into()));
    fake.check();
}

#[tokio::test]
async fn a_waiting_stream_that_is_reset_leaves_the_queue() {
    let (stand, fake) = gateway().await;
    let mut client = Http2::connect(stand.addr()).await;
    let running = client.send(completion(500, r#","max_tokens":500"#));
    let call = fake.call().await;
    let waiting = client.send(completion(500, r#","max_tokens":500"#));
    stand.until_waiting(1).await;
    drop(waiting);
    stand.until_waiting(0).await;
    call.ok("{}").await;
    assert_eq!(reply(running.await.unwrap()).await.text(), "{}");
    assert_eq!(stand.settle().await["left"], 1);
    fake.check();
}

#[tokio::test]
async fn a_connection_that_goes_takes_all_its_requests_with_it() {
    let (stand, fake) = gateway().await;
    let mut client = Http2::connect(stand.addr()).await;
    let asked: Vec<_> = (0..4)
        .map(|_| client.send(completion(200, STREAM)))
        .collect();
    let mut calls = Vec::new();
    for _ in 0..3 {
        calls.push(fake.call().await);
    }
    stand.until_waiting(1).await;
    client.connection.abort();
    drop((client, asked));
    for call in calls {
        call.gone().await;
    }
    let totals = stand.settle().await;
    // The one that waits may be granted by the first end before its own.
    let ends = ["cancelled", "left"].map(|end| totals[end].as_u64().unwrap());
    assert!(ends[0] >= 3 && ends[0] + ends[1] == 4, "{totals}");
    // The next client is none the wiser.
    let mut next = stand.send(&Ask::tokens(4, "")).await;
    fake.call().await.ok("{}").await;
    assert_eq!(next.reply().await.status, 200);
    stand.settle().await;
    fake.check();
}
