//! The same bytes, read by this code and by hyper's client.
//!
//! Whatever hyper refuses is refused here; what both take is the same to the byte. Here
//! may be refused what hyper takes, never the other way around.

use std::future::poll_fn;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Request, StatusCode};
use http_body::Body as _;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::link::{Link, Outgoing};

const STATUS_LINES: [&str; 8] = [
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 200 \r\n",
    "HTTP/1.1 404 Gone Fishing\r\n",
    "HTTP/1.0 200 OK\r\n",
    "HTTP/1.1 204 No Content\r\n",
    "HTTP/1.1 103 Early Hints\r\nx: 1\r\n\r\nHTTP/1.1 200 OK\r\n",
    "HTTP/1.1 101 Switching Protocols\r\n",
];

const HEADERS: [&str; 14] = [
    "content-type: text/event-stream\r\n",
    "x-long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n",
    "X-Odd:\t \u{e9} \r\n",
    "content-length: 5\r\n",
    "content-length: 5, 5\r\n",
    "content-length: 7\r\n",
    "Content-Length: +5\r\n",
    "content-length: 18446744073709551614\r\n",
    "transfer-encoding: chunked\r\n",
    "Transfer-Encoding: gzip, Chunked\r\n",
    "transfer-encoding: chunked, gzip\r\n",
    "connection: close\r\n",
    "connection: keep-alive\r\n",
    "x-folded: a\r\n b\r\n",
];

/// The usual ways to say how long a body is, so that most cases come to one.
const FRAMINGS: [&str; 3] = [
    "transfer-encoding: chunked\r\n",
    "content-length: 12\r\n",
    "",
];

const BODIES: [&str; 14] = [
    "5\r\nhello\r\n",
    "c\r\ndata: abc\n\n!\r\n",
    "00C\r\ndata: abc\n\n!\r\n",
    "5 \t\r\nhello\r\n",
    "5;a=\"b\"\r\nhello\r\n",
    "5\nhello\n",
    "5\r\nhelloX\r\n",
    " 5\r\nhello\r\n",
    "fffffffffffffffff\r\nhello\r\n",
    "0\r\n\r\n",
    "0\r\n\r\n",
    "0\r\nx: y\r\nz: w\r\n\r\n",
    "0\r\nx y\r\n\r\n",
    "hello",
];

/// What became of an answer.
#[derive(Debug, PartialEq, Eq)]
struct Read {
    status: StatusCode,
    headers: Vec<(String, Vec<u8>)>,
    /// What came of the body, and whether that was all.
    body: Vec<u8>,
    is_whole: bool,
}

/// A byte that is not as it was: where, and what is there instead.
type Fault = (Index, Option<u8>);

fn answers() -> impl Strategy<Value = Vec<u8>> {
    let parts = (
        select(&STATUS_LINES[..]),
        vec(select(&HEADERS[..]), 0..3),
        select(&FRAMINGS[..]),
        vec(select(&BODIES[..]), 0..5),
        vec(any::<Fault>(), 0..3),
        any::<bool>(),
    );
    parts.prop_map(|(status, headers, framing, bodies, faults, is_clean)| {
        let (headers, bodies) = (headers.concat(), bodies.concat());
        let mut text = match is_clean {
            true => format!("HTTP/1.1 200 OK\r\n{framing}\r\n{bodies}0\r\n\r\n"),
            false => format!("{status}{headers}{framing}\r\n{bodies}"),
        }
        .into_bytes();
        for (place, byte) in faults.iter().filter(|_| !is_clean) {
            let at = place.index(text.len());
            match byte {
                Some(byte) => text[at] = *byte,
                None => drop(text.remove(at)),
            }
        }
        text
    })
}

fn request() -> Request<Full<Bytes>> {
    let request = Request::post("/v1/completions").header("host", "engine");
    request.body(Full::from("{}")).unwrap()
}

/// An engine that says `text` in pieces of these sizes and closes.
async fn engine(mut io: DuplexStream, text: Vec<u8>, sizes: Vec<usize>) {
    let mut seen = Vec::new();
    while !seen.ends_with(b"{}") {
        io.read_buf(&mut seen).await.unwrap();
    }
    let (mut rest, mut sizes) = (&text[..], sizes.iter().cycle());
    while !rest.is_empty() {
        let (piece, later) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
        if io.write_all(piece).await.is_err() {
            return;
        }
        tokio::task::yield_now().await;
        rest = later;
    }
}

/// All but the length, which is told once here, however often it was.
fn headers(headers: &http::HeaderMap) -> Vec<(String, Vec<u8>)> {
    let pair = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        (name.to_string(), value.as_bytes().to_vec())
    };
    let all = headers.iter();
    all.filter(|(name, _)| *name != CONTENT_LENGTH)
        .map(pair)
        .collect()
}

async fn ours(io: DuplexStream) -> Option<Read> {
    let (mut link, mut outgoing) = (Link::new(Box::new(io)), Outgoing::new(request()));
    let head = poll_fn(|cx| link.poll_answer(cx, &mut outgoing)).await;
    let head = head.ok()?;
    let (mut framing, mut body) = (head.framing, Vec::new());
    let is_whole = loop {
        match framing.take(&mut link.input) {
            Ok(Some(bytes)) => body.extend_from_slice(&bytes),
            Ok(None) if framing.is_over() => break true,
            Ok(None) => match poll_fn(|cx| link.poll_read(cx)).await {
                Ok(0) if framing.on_end().is_err() => break false,
                Ok(_) => {}
                Err(_) => break false,
            },
            Err(_) => break false,
        }
    };
    Some(Read {
        status: head.response.status(),
        headers: headers(head.response.headers()),
        body,
        is_whole,
    })
}

async fn hypers(io: DuplexStream) -> Option<Read> {
    let (mut sender, connection) = handshake(TokioIo::new(io)).await.ok()?;
    let connection = tokio::spawn(connection);
    let answer = sender.send_request(request()).await.ok()?;
    let (head, mut incoming) = answer.into_parts();
    let mut body = Vec::new();
    let is_whole = loop {
        match incoming.frame().await {
            Some(Ok(frame)) => body.extend(frame.into_data().unwrap_or_default()),
            Some(Err(_)) => break false,
            None => break true,
        }
    };
    assert!(!is_whole || incoming.is_end_stream() || incoming.frame().await.is_none());
    connection.abort();
    Some(Read {
        status: head.status,
        headers: headers(&head.headers),
        body,
        is_whole,
    })
}

/// What both make of `text`: ours, hyper's.
fn both(text: &[u8], sizes: &[usize]) -> (Option<Read>, Option<Read>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(async {
        let pipe = || {
            let (near, far) = tokio::io::duplex(64 * 1024);
            drop(tokio::spawn(engine(far, text.to_vec(), sizes.to_vec())));
            near
        };
        (ours(pipe()).await, hypers(pipe()).await)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn what_hyper_refuses_is_refused_and_what_both_take_is_the_same(
        text in answers(),
        sizes in vec(1_usize..40, 1..5),
    ) {
        let (ours, hypers) = both(&text, &sizes);
        let shown = String::from_utf8_lossy(&text);
        let Some(ours) = ours else {
            return Ok(());
        };
        prop_assert!(hypers.is_some(), "hyper takes no head of {shown:?}, here {ours:?}");
        let hypers = hypers.unwrap();
        prop_assert_eq!(ours.status, hypers.status);
        prop_assert_eq!(&ours.headers, &hypers.headers);
        if ours.is_whole {
            prop_assert!(hypers.is_whole, "hyper takes less of {shown:?} than {ours:?}");
            prop_assert_eq!(&ours.body, &hypers.body);
        } else {
            prop_assert!(hypers.body.starts_with(&ours.body) || ours.body.starts_with(&hypers.body));
        }
    }
}

#[test]
fn what_engines_send_is_taken_by_both_whatever_its_pieces() {
    let chunk = "f\r\ndata: {\"a\":1}\n\n\r\n";
    for text in [
        format!(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{}0\r\n\r\n",
            chunk.repeat(9)
        ),
        "HTTP/1.1 200 OK\r\ndate: x\r\ncontent-length: 13\r\n\r\n{\"choices\":0}".to_owned(),
        "HTTP/1.0 200 OK\r\n\r\nall there is".to_owned(),
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_owned(),
        "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
    ] {
        for size in [1, 2, 3, 7, 1000] {
            let (ours, hypers) = both(text.as_bytes(), &[size]);
            assert!(ours.as_ref().is_some_and(|read| read.is_whole), "{text:?}");
            assert_eq!(ours, hypers, "{text:?}");
        }
    }
}
