//! The floods, each a process of its own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{Outcome, connect, ended};

/// Connections that send a byte each second, and from how many addresses.
const SLOW: u32 = 5000;
const ADDRESSES: u32 = 50;
/// Clients that send bodies.
const CLIENTS: u8 = 32;
const MEGABYTE: usize = 1 << 20;

/// Holds slow connections until the parent has gone; one that is closed is
/// opened again. Says a line once all were open.
pub(super) async fn slowloris(gateway: SocketAddr) -> Outcome<()> {
    let (opened, mut flood) = (Arc::new(AtomicU64::new(0)), JoinSet::new());
    for number in 0..SLOW {
        let opened = Arc::clone(&opened);
        flood.spawn(async move {
            loop {
                if slow(gateway, number, &opened).await.is_err() {
                    sleep(Duration::from_millis(100)).await;
                }
            }
        });
        // In seconds, not at once: the backlog is not what is measured.
        if number % 100 == 99 {
            sleep(Duration::from_millis(10)).await;
        }
    }
    while opened.load(Ordering::Relaxed) < u64::from(SLOW) {
        sleep(Duration::from_millis(10)).await;
    }
    println!("open");
    ended().await?;
    let opened = opened.load(Ordering::Relaxed);
    eprintln!("  {opened} slow connections were opened");
    Ok(())
}

/// One connection, until the gateway has had enough of it.
async fn slow(gateway: SocketAddr, number: u32, opened: &AtomicU64) -> std::io::Result<()> {
    let [.., last] = (number % ADDRESSES + 1).to_be_bytes();
    let socket = TcpSocket::new_v4()?;
    socket.bind((IpAddr::V4(Ipv4Addr::new(127, 0, 1, last)), 0).into())?;
    let mut stream: TcpStream = socket.connect(gateway).await?;
    opened.fetch_add(1, Ordering::Relaxed);
    stream
        .write_all(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx: ")
        .await?;
    loop {
        sleep(Duration::from_secs(1)).await;
        stream.write_all(b"y").await?;
    }
}

/// Sends bodies without pause until the parent has gone. Says a line once each
/// client has had an answer.
pub(super) async fn bodies(gateway: SocketAddr) -> Outcome<()> {
    let (answered, mut flood) = (Arc::new(AtomicU64::new(0)), JoinSet::new());
    for client in 0..CLIENTS {
        let answered = Arc::clone(&answered);
        flood.spawn(async move {
            let from = Ipv4Addr::new(127, 0, 2, client + 1);
            loop {
                if send(gateway, from, &answered).await.is_err() {
                    sleep(Duration::from_millis(10)).await;
                }
            }
        });
    }
    while answered.load(Ordering::Relaxed) < u64::from(CLIENTS) {
        sleep(Duration::from_millis(10)).await;
    }
    println!("flowing");
    ended().await?;
    let answered = answered.load(Ordering::Relaxed);
    eprintln!("  {answered} bodies of a megabyte were answered");
    Ok(())
}

/// Bodies on one connection, until it ends.
async fn send(gateway: SocketAddr, from: Ipv4Addr, answered: &AtomicU64) -> Outcome<()> {
    let mut sender = connect(from, gateway).await?;
    for number in 0_u64.. {
        sender.ready().await?;
        let request = Request::post("/v1/chat/completions")
            .header("host", "bench")
            .header("content-type", "application/json")
            .body(Full::from(body(from, number)))?;
        let answer = sender.send_request(request).await?;
        answer.into_body().collect().await?;
        answered.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// A megabyte of prose that begins like no other.
fn body(from: Ipv4Addr, number: u64) -> Bytes {
    let prose = "The tide comes in twice a day and nobody has to ask for it. ";
    let text = prose.repeat(MEGABYTE / prose.len());
    format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":"{from} {number} {text}"}}],"max_tokens":8}}"#
    )
    .into()
}
