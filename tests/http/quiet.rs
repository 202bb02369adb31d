//! Streams in which nothing happens for a long time, on a paused clock: comments
//! keep their connections open where the operator wants them, and nowhere else.

use std::time::Duration;

use serde_json::Value;
use tokio::io::DuplexStream;
use tokio::time::{Instant, sleep};

use crate::support::client::{Ask, Client};
use crate::support::memory::{Memory, seconds_since};
use crate::support::wire::Ending;

const COMMENT: &[u8] = b": ping\n";
const STREAM: &str = r#","max_tokens":500,"stream":true"#;
const EVENT: &[u8] = b"data: {\"choices\":[{\"index\":0,\"text\":\"x\"}]}\n\n";
const DONE: &[u8] = b"data: [DONE]\n\n";

async fn beating(every: &str) -> Memory {
    Memory::new(|s| s.set("server.stream_keepalive", every)).await
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The next pieces of a stream, each with the second it came in, until `last`.
async fn heard(
    client: &mut Client<DuplexStream>,
    began: Instant,
    last: &[u8],
) -> Vec<(u64, String)> {
    let mut heard = Vec::new();
    loop {
        let piece = client.0.chunk().await.unwrap().unwrap();
        let is_last = piece == last;
        heard.push((seconds_since(began), String::from_utf8(piece).unwrap()));
        if is_last {
            return heard;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn comments_come_after_dispatch_until_the_first_event_and_then_in_gaps() {
    let mut memory = beating("\"15s\"").await;
    let mut first = memory.send(&Ask::tokens(500, r#","max_tokens":500"#)).await;
    let held = memory.call().await;
    let mut client = memory.send(&Ask::tokens(500, STREAM)).await;
    memory.until_waiting(1).await;
    // In the queue nothing is on the wire: the answer may still be a refusal.
    sleep(seconds(40)).await;
    held.ok("{}").await;
    assert_eq!(first.reply().await.status, 200);
    let mut call = memory.call().await;
    call.stream().await;
    client.stream().await;
    let began = Instant::now();
    let say = async {
        sleep(seconds(50)).await;
        for gap in [5, 14, 16, 31] {
            call.chunk(EVENT).await;
            sleep(seconds(gap)).await;
        }
        call.chunk(DONE).await;
        call.end().await;
    };
    let ((), heard) = tokio::join!(say, heard(&mut client, began, DONE));
    let at = |text: &[u8]| {
        let told = heard.iter().filter(|(_, piece)| piece.as_bytes() == text);
        told.map(|(at, _)| *at).collect::<Vec<_>>()
    };
    assert_eq!(at(COMMENT), [15, 30, 45, 84, 100, 115]);
    assert_eq!(at(EVENT), [50, 55, 69, 85]);
    assert_eq!((at(DONE), heard.len()), (vec![116], 11));
    assert_eq!(client.0.chunk().await, Ok(None));
    assert_eq!(memory.settle().await.totals.finished, 2);
}

#[tokio::test(start_paused = true)]
async fn a_failure_after_comments_is_one_error_event_and_a_cut() {
    let mut memory = beating("\"15s\"").await;
    let mut client = memory.send(&Ask::tokens(500, STREAM)).await;
    let mut call = memory.call().await;
    call.stream().await;
    let head = client.stream().await;
    let die = async {
        sleep(seconds(70)).await;
        call.close();
    };
    let ((), (body, ending)) = tokio::join!(die, client.0.body(&head));
    let body = String::from_utf8(body).unwrap();
    let event = body.strip_prefix(": ping\n: ping\n: ping\n: ping\ndata: ");
    let json: Value = serde_json::from_str(event.unwrap()).unwrap();
    assert_eq!(json["error"]["code"], "upstream_failed");
    assert_ne!(ending, Ending::Whole);
    assert_eq!(memory.settle().await.totals.failed, 1);
}

#[tokio::test(start_paused = true)]
async fn no_comment_comes_within_an_event_nor_between_the_halves_of_its_end() {
    let mut memory = beating("\"15s\"").await;
    let asked = r#","max_tokens":500,"stream":true,"stream_options":{"include_usage":true}"#;
    let stops: [&[&[u8]]; 4] = [
        &[b"data: {\"choices\":[{", b"\"text\":\"x\"}]}\n\n"],
        &[b"data: {}\r\n\r", b"\ndata: {}\r\n\r\n"],
        &[b"data: {}\r\r", b"data: {}\r\r"],
        &[b"id: 7\n", b"data: {}\n\n"],
    ];
    for pieces in stops {
        let mut client = memory.send(&Ask::tokens(50, asked)).await;
        let mut call = memory.call().await;
        call.stream().await;
        let head = client.stream().await;
        let say = async {
            for piece in pieces {
                call.chunk(piece).await;
                sleep(seconds(50)).await;
            }
            call.chunk(DONE).await;
            call.end().await;
        };
        let ((), (body, ending)) = tokio::join!(say, client.0.body(&head));
        let body = String::from_utf8(body).unwrap();
        // Only after the last piece the stream stands between two events.
        let end = if pieces[1].ends_with(b"\r") { 0 } else { 3 };
        let all = [&pieces.concat(), &COMMENT.repeat(end)[..], DONE].concat();
        assert_eq!(body, String::from_utf8(all).unwrap());
        assert_eq!(ending, Ending::Whole);
    }
    memory.settle().await;
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_held_back_does_not_hold_back_comments() {
    let mut memory = beating("\"15s\"").await;
    let mut client = memory.send(&Ask::tokens(50, STREAM)).await;
    let mut call = memory.call().await;
    call.stream().await;
    let head = client.stream().await;
    let say = async {
        call.chunk(b"data: {\"id\":\"x\",").await;
        sleep(seconds(20)).await;
        call.chunk(b"\"choices\":[],\"usage\":{\"prompt_tokens\":50,\"completion_tokens\":1}}\n\n")
            .await;
        call.chunk(DONE).await;
        call.end().await;
    };
    let ((), (body, _)) = tokio::join!(say, client.0.body(&head));
    let body = String::from_utf8(body).unwrap();
    assert_eq!(body, ": ping\ndata: [DONE]\n\n");
    memory.settle().await;
}

#[tokio::test(start_paused = true)]
async fn every_dialect_has_them_and_what_is_no_stream_has_none() {
    let mut memory = beating("\"15s\"").await;
    let chat = r#""model":"tiny","messages":[{"role":"user","content":"hi"}],"max_tokens":9,"stream":true"#;
    let response = r#""model":"tiny","input":"hi","max_output_tokens":9,"stream":true"#;
    for (path, body, last) in [
        ("/v1/chat/completions", chat, "data: [DONE]\n\n"),
        (
            "/v1/messages",
            chat,
            "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        ),
        (
            "/v1/responses",
            response,
            "event: response.completed\ndata: {\"response\":{\"status\":\"completed\"}}\n\n",
        ),
    ] {
        let ask = Ask::post(path, format!("{{{body}}}"));
        let mut client = memory.send(&ask).await;
        let mut call = memory.call().await;
        call.stream().await;
        let head = client.stream().await;
        let say = async {
            sleep(seconds(20)).await;
            call.chunk(last.as_bytes()).await;
            call.end().await;
        };
        let ((), (body, ending)) = tokio::join!(say, client.0.body(&head));
        let body = String::from_utf8(body).unwrap();
        assert_eq!((body, ending), (format!(": ping\n{last}"), Ending::Whole));
    }
    let mut client = memory.send(&Ask::tokens(50, r#","max_tokens":5"#)).await;
    let mut call = memory.call().await;
    call.say(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
    )
    .await;
    call.chunk(b"{").await;
    sleep(seconds(100)).await;
    call.chunk(b"}").await;
    call.end().await;
    assert_eq!(client.reply().await.text(), "{}");
    memory.settle().await;
}

#[tokio::test(start_paused = true)]
async fn comments_are_off_where_nobody_asks_for_them_and_are_no_sign_of_life() {
    let mut off = Memory::new(|s| s).await;
    let mut client = off.send(&Ask::tokens(500, STREAM)).await;
    let mut call = off.call().await;
    call.stream().await;
    client.stream().await;
    let began = Instant::now();
    let say = async {
        sleep(seconds(7200)).await;
        call.chunk(EVENT).await;
    };
    let ((), heard) = tokio::join!(say, heard(&mut client, began, EVENT));
    assert_eq!(heard.len(), 1);
    drop(client);
    call.gone().await;
    off.settle().await;
    // Our own comments do not keep a silent engine.
    let silent = |s: crate::support::setup::Setup| {
        s.set("server.stream_keepalive", "\"15s\"")
            .set("upstream.stream_silence_timeout", "\"60s\"")
    };
    let mut memory = Memory::new(silent).await;
    let mut client = memory.send(&Ask::tokens(500, STREAM)).await;
    let mut call = memory.call().await;
    call.stream().await;
    let head = client.stream().await;
    let began = Instant::now();
    call.chunk(EVENT).await;
    // The engine's comments do.
    sleep(seconds(50)).await;
    call.chunk(b": alive\n\n").await;
    let (body, _) = client.0.body(&head).await;
    assert_eq!(seconds_since(began), 110);
    assert!(
        String::from_utf8(body)
            .unwrap()
            .contains("upstream_timeout")
    );
    call.gone().await;
    assert_eq!(memory.settle().await.totals.failed, 1);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_one_event_a_second_is_never_too_long() {
    let limit = "upstream.stream_silence_timeout";
    let mut memory = Memory::new(|s| s.set(limit, "\"60s\"")).await;
    let mut client = memory.send(&Ask::tokens(500, STREAM)).await;
    let mut call = memory.call().await;
    call.stream().await;
    let head = client.stream().await;
    let rounds = 45 * 60;
    let say = async {
        for _ in 0..rounds {
            call.chunk(EVENT).await;
            sleep(seconds(1)).await;
        }
        call.chunk(DONE).await;
        call.end().await;
    };
    let ((), (body, ending)) = tokio::join!(say, client.0.body(&head));
    assert_eq!(body.len(), rounds * EVENT.len() + DONE.len());
    assert_eq!(ending, Ending::Whole);
    assert_eq!(memory.settle().await.totals.finished, 1);
}
