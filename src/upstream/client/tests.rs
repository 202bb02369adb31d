//! Over in-memory streams, with the clock paused. The engine's side is raw
//! bytes, so that what is really sent is what is asserted.

use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;

use super::*;
use crate::upstream::capacity::RANK_HEADER;
use crate::upstream::fixture::{Mode, Pipes, TIMING};

mod exchange;

struct Bench {
    client: Client<Pipes>,
    opened: mpsc::UnboundedReceiver<DuplexStream>,
    pipes: Pipes,
}

fn bench() -> Bench {
    let (pipes, opened) = Pipes::new();
    Bench {
        client: Client::new(pipes.clone(), TIMING),
        opened,
        pipes,
    }
}

fn endpoint() -> Endpoint {
    let key = Secret::new("backend-key");
    Endpoint::new(&Uri::from_static("http://engine-1:8000"), Some(&key)).unwrap()
}

fn post(body: &'static str) -> Request<Full<Bytes>> {
    Request::post("/v1/completions?x=1")
        .body(Full::from(body))
        .unwrap()
}

/// Reads until `end` has come and returns all of it.
async fn read_until(io: &mut DuplexStream, end: &str) -> String {
    let mut text = Vec::new();
    while !String::from_utf8_lossy(&text).contains(end) {
        let mut part = [0; 1024];
        let count = io.read(&mut part).await.unwrap();
        assert_ne!(count, 0, "closed after {}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&part[..count]);
    }
    String::from_utf8(text).unwrap()
}

async fn sees_the_end(io: &mut DuplexStream) {
    let mut part = [0; 64];
    assert_eq!(io.read(&mut part).await.unwrap_or(0), 0);
}

const EMPTY_OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

#[tokio::test(start_paused = true)]
async fn a_request_bears_the_backends_key_host_and_rank_and_nothing_of_the_clients_connection() {
    let mut bench = bench();
    let mut request = post("{}");
    for (name, value) in [
        ("authorization", "Bearer client-key"),
        ("host", "gateway"),
        ("connection", "keep-alive, X-Foo"),
        ("x-foo", "1"),
        ("te", "trailers"),
        ("proxy-authorization", "x"),
        ("keep-alive", "timeout=5"),
        ("upgrade", "websocket"),
        ("expect", "100-continue"),
        ("accept-encoding", "gzip"),
        ("content-length", "77"),
        ("x-data-parallel-rank", "9"),
        ("x-kept", "yes"),
    ] {
        request
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    let endpoint = endpoint().pinned_to(3);
    let client = bench.client.clone();
    let sending = tokio::spawn(async move { client.send(&endpoint, request).await });
    let mut engine = bench.opened.recv().await.unwrap();
    let text = read_until(&mut engine, "\r\n\r\n{}").await;
    engine
        .write_all(
            b"HTTP/1.1 200 OK\r\nconnection: close, x-bar\r\nx-bar: 1\r\nx-kept: 2\r\ncontent-length: 0\r\n\r\n",
        )
        .await
        .unwrap();
    let mut lines: Vec<&str> = text.trim_end_matches("\r\n\r\n{}").split("\r\n").collect();
    lines[1..].sort_unstable();
    assert_eq!(
        lines,
        [
            "POST /v1/completions?x=1 HTTP/1.1",
            "authorization: Bearer backend-key",
            "content-length: 2",
            "host: engine-1:8000",
            "x-data-parallel-rank: 3",
            "x-kept: yes",
        ]
    );
    let response = sending.await.unwrap().unwrap();
    let names: Vec<&str> = response
        .headers()
        .keys()
        .map(|name| name.as_str())
        .collect();
    assert_eq!(names, ["x-kept", "content-length"]);
}

#[test]
fn an_endpoint_never_shows_its_key() {
    let shown = format!("{:?}", endpoint());
    assert!(!shown.contains("backend-key"), "{shown}");
    let broken = Endpoint::new(
        &Uri::from_static("http://engine-1:8000"),
        Some(&Secret::new("a\nb")),
    );
    assert_eq!(
        broken.unwrap_err().to_string(),
        "key of engine-1:8000 holds characters that no header may hold"
    );
    assert!(Endpoint::new(&Uri::from_static("/path"), None).is_err());
}

#[test]
fn without_a_key_the_clients_is_dropped_all_the_same() {
    let endpoint = Endpoint::new(&Uri::from_static("http://e:80"), None).unwrap();
    let mut headers = http::HeaderMap::new();
    headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer client"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from_static("5"));
    headers.insert(RANK_HEADER, HeaderValue::from_static("1"));
    headers::towards(&endpoint, &mut headers);
    assert_eq!(headers.len(), 1);
    assert_eq!(headers[HOST], "e:80");
}

#[tokio::test(start_paused = true)]
async fn a_refused_connect_says_that_nothing_was_delivered() {
    let bench = bench();
    for (kind, expected) in [
        (io::ErrorKind::ConnectionRefused, SendError::Refused),
        (
            io::ErrorKind::HostUnreachable,
            SendError::Connect(io::ErrorKind::HostUnreachable),
        ),
    ] {
        bench.pipes.set(Mode::Fail(kind));
        let error = bench
            .client
            .send(&endpoint(), post("{}"))
            .await
            .unwrap_err();
        assert_eq!(error, expected);
        assert_eq!(error.delivery(), Delivery::Nothing);
    }
}

#[tokio::test(start_paused = true)]
async fn a_black_holed_address_is_given_up_after_5_seconds() {
    let bench = bench();
    bench.pipes.set(Mode::Hang);
    let start = tokio::time::Instant::now();
    let error = bench
        .client
        .send(&endpoint(), post("{}"))
        .await
        .unwrap_err();
    assert_eq!(error, SendError::Connect(io::ErrorKind::TimedOut));
    assert_eq!(start.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_connection_lost_after_the_body_was_taken_may_have_been_delivered() {
    let mut bench = bench();
    let client = bench.client.clone();
    let sending = tokio::spawn(async move { client.send(&endpoint(), post("{\"a\":1}")).await });
    let mut engine = bench.opened.recv().await.unwrap();
    let text = read_until(&mut engine, "{\"a\":1}").await;
    drop(engine);
    let error = sending.await.unwrap().unwrap_err();
    let sent = u64::try_from(text.len()).unwrap();
    assert_eq!(error, SendError::Lost { sent });
    assert_eq!(error.delivery(), Delivery::Perhaps);
}

#[tokio::test(start_paused = true)]
async fn half_a_head_of_an_answer_still_counts_as_delivered() {
    let mut bench = bench();
    let client = bench.client.clone();
    let sending = tokio::spawn(async move { client.send(&endpoint(), post("{}")).await });
    let mut engine = bench.opened.recv().await.unwrap();
    read_until(&mut engine, "\r\n\r\n{}").await;
    engine.write_all(b"HTTP/1.1 200 OK\r\nconte").await.unwrap();
    drop(engine);
    let error = sending.await.unwrap().unwrap_err();
    assert_eq!(error.delivery(), Delivery::Perhaps, "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_closed_before_it_took_a_byte_delivered_nothing() {
    let bench = bench();
    bench.pipes.set(Mode::Gone);
    let error = bench
        .client
        .send(&endpoint(), post("{}"))
        .await
        .unwrap_err();
    assert_eq!(error, SendError::Unsent);
    assert_eq!(error.delivery(), Delivery::Nothing);
}

#[tokio::test(start_paused = true)]
async fn a_reused_connection_that_closes_idle_costs_no_request() {
    let mut bench = bench();
    let client = bench.client.clone();
    let first = tokio::spawn(async move { client.send(&endpoint(), post("{}")).await });
    let mut engine = bench.opened.recv().await.unwrap();
    read_until(&mut engine, "\r\n\r\n{}").await;
    engine.write_all(EMPTY_OK).await.unwrap();
    first.await.unwrap().unwrap();
    drop(engine);
    let client = bench.client.clone();
    let second = tokio::spawn(async move { client.send(&endpoint(), post("{}")).await });
    let mut engine = bench.opened.recv().await.unwrap();
    read_until(&mut engine, "\r\n\r\n{}").await;
    engine.write_all(EMPTY_OK).await.unwrap();
    assert_eq!(second.await.unwrap().unwrap().status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_second_request_lost_on_a_reused_connection_counts_its_own_bytes_only() {
    let mut bench = bench();
    let client = bench.client.clone();
    let first = tokio::spawn(async move { client.send(&endpoint(), post("{}")).await });
    let mut engine = bench.opened.recv().await.unwrap();
    let length = read_until(&mut engine, "\r\n\r\n{}").await.len();
    engine.write_all(EMPTY_OK).await.unwrap();
    first.await.unwrap().unwrap();
    let client = bench.client.clone();
    let second = tokio::spawn(async move { client.send(&endpoint(), post("{}")).await });
    read_until(&mut engine, "\r\n\r\n{}").await;
    drop(engine);
    let sent = u64::try_from(length).unwrap();
    assert_eq!(second.await.unwrap().unwrap_err(), SendError::Lost { sent });
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_used_again_for_4_seconds_and_not_longer() {
    let mut bench = bench();
    let mut engine = None;
    for (pause, opens) in [(0, true), (3, false), (5, true)] {
        tokio::time::advance(Duration::from_secs(pause)).await;
        let client = bench.client.clone();
        let sending = tokio::spawn(async move { client.send(&endpoint(), post("{}")).await });
        if opens {
            engine = bench.opened.recv().await;
        }
        let io = engine.as_mut().unwrap();
        read_until(io, "\r\n\r\n{}").await;
        io.write_all(EMPTY_OK).await.unwrap();
        sending.await.unwrap().unwrap();
        assert!(bench.opened.try_recv().is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_engine_is_given_up_after_60_seconds_and_its_connection_closed() {
    let mut bench = bench();
    let client = bench.client.clone();
    let sending = tokio::spawn(async move { client.send(&endpoint(), post("{}")).await });
    let mut engine = bench.opened.recv().await.unwrap();
    read_until(&mut engine, "\r\n\r\n{}").await;
    let start = tokio::time::Instant::now();
    let error = sending.await.unwrap().unwrap_err();
    assert_eq!(error, SendError::FirstByte(Duration::from_secs(60)));
    assert_eq!(start.elapsed().as_secs(), 60);
    assert_eq!(error.delivery(), Delivery::Perhaps);
    sees_the_end(&mut engine).await;
}

#[tokio::test(start_paused = true)]
async fn dropping_the_future_before_an_answer_closes_the_connection() {
    let mut bench = bench();
    let client = bench.client.clone();
    let sending = tokio::spawn(async move { client.send(&endpoint(), post("{}")).await });
    let mut engine = bench.opened.recv().await.unwrap();
    read_until(&mut engine, "\r\n\r\n{}").await;
    sending.abort();
    sees_the_end(&mut engine).await;
}

#[tokio::test(start_paused = true)]
async fn dropping_the_body_of_a_quiet_stream_closes_the_connection() {
    let mut bench = bench();
    let client = bench.client.clone();
    let sending = tokio::spawn(async move { client.send(&endpoint(), post("{}")).await });
    let mut engine = bench.opened.recv().await.unwrap();
    read_until(&mut engine, "\r\n\r\n{}").await;
    engine
        .write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")
        .await
        .unwrap();
    let mut body = sending.await.unwrap().unwrap().into_body();
    let frame = body.frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "hello");
    // The engine sends nothing more: the drop alone must be seen.
    drop(body);
    sees_the_end(&mut engine).await;
}

#[tokio::test(start_paused = true)]
async fn the_sending_side_stays_open_while_an_answer_streams() {
    let mut bench = bench();
    let client = bench.client.clone();
    let sending = tokio::spawn(async move { client.send(&endpoint(), post("{}")).await });
    let mut engine = bench.opened.recv().await.unwrap();
    read_until(&mut engine, "\r\n\r\n{}").await;
    engine
        .write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        .await
        .unwrap();
    let body = sending.await.unwrap().unwrap().into_body();
    let mut part = [0; 8];
    let quiet = tokio::time::timeout(Duration::from_secs(30), engine.read(&mut part)).await;
    assert!(quiet.is_err(), "a half-close would read as an end");
    drop(body);
}

#[tokio::test(start_paused = true)]
async fn a_connection_with_bytes_past_the_answer_is_not_used_again() {
    let mut bench = bench();
    let client = bench.client.clone();
    let first = tokio::spawn(async move { client.send(&endpoint(), post("{}")).await });
    let mut engine = bench.opened.recv().await.unwrap();
    read_until(&mut engine, "\r\n\r\n{}").await;
    engine
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokXX")
        .await
        .unwrap();
    let body = first.await.unwrap().unwrap().into_body();
    assert_eq!(body.collect().await.unwrap().to_bytes(), "ok");
    let client = bench.client.clone();
    let second = tokio::spawn(async move { client.send(&endpoint(), post("{}")).await });
    let mut fresh = bench.opened.recv().await.unwrap();
    read_until(&mut fresh, "\r\n\r\n{}").await;
    fresh.write_all(EMPTY_OK).await.unwrap();
    assert_eq!(second.await.unwrap().unwrap().status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_http_is_named_so() {
    let mut bench = bench();
    let client = bench.client.clone();
    let sending = tokio::spawn(async move { client.send(&endpoint(), post("{}")).await });
    let mut engine = bench.opened.recv().await.unwrap();
    read_until(&mut engine, "\r\n\r\n{}").await;
    engine.write_all(b"SSH-2.0-OpenSSH_9.6\r\n").await.unwrap();
    let error = sending.await.unwrap().unwrap_err();
    assert_eq!(error, SendError::NotHttp);
}

#[tokio::test(start_paused = true)]
async fn a_small_answer_above_its_bound_is_not_read() {
    let mut bench = bench();
    let bounds = Bounds {
        time: Duration::from_secs(2),
        bytes: 4,
    };
    let client = bench.client.clone();
    let fetching = tokio::spawn(async move { client.get(&endpoint(), "/metrics", bounds).await });
    let mut engine = bench.opened.recv().await.unwrap();
    let text = read_until(&mut engine, "\r\n\r\n").await;
    assert!(text.starts_with("GET /metrics HTTP/1.1\r\n"), "{text}");
    engine
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n12345")
        .await
        .unwrap();
    assert_eq!(fetching.await.unwrap(), Err(FetchError::Body(4)));
}

#[tokio::test(start_paused = true)]
async fn a_small_answer_that_does_not_come_is_given_up_after_2_seconds() {
    let mut bench = bench();
    let bounds = Bounds {
        time: Duration::from_secs(2),
        bytes: 4,
    };
    let client = bench.client.clone();
    let fetching = tokio::spawn(async move { client.get(&endpoint(), "/health", bounds).await });
    let mut engine = bench.opened.recv().await.unwrap();
    read_until(&mut engine, "\r\n\r\n").await;
    assert_eq!(
        fetching.await.unwrap(),
        Err(FetchError::Slow(Duration::from_secs(2)))
    );
    sees_the_end(&mut engine).await;
}

#[tokio::test(start_paused = true)]
async fn a_length_beside_a_transfer_coding_is_not_passed_on() {
    let mut bench = bench();
    let client = bench.client.clone();
    let sending = tokio::spawn(async move { client.send(&endpoint(), post("{}")).await });
    let mut engine = bench.opened.recv().await.unwrap();
    read_until(&mut engine, "\r\n\r\n{}").await;
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    engine.write_all(answer.as_bytes()).await.unwrap();
    let response = sending.await.unwrap().unwrap();
    assert!(response.headers().is_empty(), "{:?}", response.headers());
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "hello");
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_switches_protocols_unasked_gives_no_answer() {
    let mut bench = bench();
    let client = bench.client.clone();
    let sending = tokio::spawn(async move { client.send(&endpoint(), post("{}")).await });
    let mut engine = bench.opened.recv().await.unwrap();
    read_until(&mut engine, "\r\n\r\n{}").await;
    let answer = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: foo\r\n\r\n";
    engine.write_all(answer.as_bytes()).await.unwrap();
    let error = sending.await.unwrap().unwrap_err();
    assert_eq!(error, SendError::NotHttp);
    assert_eq!(error.delivery(), Delivery::Perhaps);
    sees_the_end(&mut engine).await;
}

#[tokio::test(start_paused = true)]
async fn a_busy_connection_takes_no_further_request_after_30_seconds() {
    let mut bench = bench();
    let mut engine = None;
    for second in 0..=30 {
        let client = bench.client.clone();
        let sending = tokio::spawn(async move {
            let answer = client.send(&endpoint(), post("{}")).await.unwrap();
            answer.into_body().collect().await.unwrap();
        });
        if second == 0 {
            engine = bench.opened.recv().await;
        }
        let io = engine.as_mut().unwrap();
        read_until(io, "\r\n\r\n{}").await;
        io.write_all(EMPTY_OK).await.unwrap();
        sending.await.unwrap();
        assert!(bench.opened.try_recv().is_err());
        // Never idle for long.
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    sees_the_end(engine.as_mut().unwrap()).await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_when_nobody_asks_for_it() {
    let mut bench = bench();
    let client = bench.client.clone();
    let sending = tokio::spawn(async move { client.send(&endpoint(), post("{}")).await });
    let mut engine = bench.opened.recv().await.unwrap();
    read_until(&mut engine, "\r\n\r\n{}").await;
    engine.write_all(EMPTY_OK).await.unwrap();
    sending.await.unwrap().unwrap();
    let start = tokio::time::Instant::now();
    sees_the_end(&mut engine).await;
    assert_eq!(start.elapsed().as_secs(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_still_sends_takes_no_other_request() {
    let mut bench = bench();
    let mut engines = Vec::new();
    for _ in 0..2 {
        let request = Request::post("/").body(Full::from(vec![b'x'; 4 << 20]));
        let client = bench.client.clone();
        let sending = tokio::spawn(async move { client.send(&endpoint(), request.unwrap()).await });
        let mut engine = bench.opened.recv().await.unwrap();
        read_until(&mut engine, "\r\n\r\n").await;
        engine.write_all(EMPTY_OK).await.unwrap();
        assert_eq!(sending.await.unwrap().unwrap().status(), StatusCode::OK);
        engines.push(engine);
    }
}
