//! A client that knows no more than HTTP/1.1.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::sim_server::SimServer;

/// An answer, taken apart.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

impl Answered {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// The JSON of every event but `[DONE]`.
    pub(super) fn events(&self) -> Vec<Value> {
        self.body
            .split("\n\n")
            .filter_map(|event| event.strip_prefix("data: "))
            .filter(|data| *data != "[DONE]")
            .map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }
}

pub(super) fn post(path: &str, body: &Value) -> String {
    let body = body.to_string();
    format!(
        "POST {path} HTTP/1.1\r\nHost: sim\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

pub(super) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: sim\r\nConnection: close\r\n\r\n")
}

/// Opens a connection and sends `request`.
pub(super) async fn send(server: &SimServer, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.addr()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Reads until what has come contains `mark`.
pub(super) async fn read_until(stream: &mut TcpStream, mark: &str) -> String {
    let mut text = String::new();
    while !text.contains(mark) {
        let mut chunk = [0; 4096];
        let read = stream.read(&mut chunk).await.unwrap();
        assert_ne!(read, 0, "ended before {mark:?}: {text}");
        text.push_str(std::str::from_utf8(&chunk[..read]).unwrap());
    }
    text
}

/// Sends `request` on a connection of its own and reads until the server closes it.
pub(super) async fn ask(server: &SimServer, request: &str) -> Answered {
    read_to_end(send(server, request).await).await
}

pub(super) async fn read_to_end(mut stream: TcpStream) -> Answered {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let body = if head.contains("transfer-encoding: chunked") {
        unchunk(body)
    } else {
        body.to_owned()
    };
    Answered {
        status: head[9..12].parse().unwrap(),
        head: head.to_owned(),
        body,
    }
}

fn unchunk(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        whole.push_str(&rest[..size]);
        body = &rest[size + 2..];
        if size == 0 {
            break;
        }
    }
    whole
}

pub(super) fn chat(fields: Value) -> Value {
    let mut body = json!({"model": "tiny", "messages": [{"role": "user", "content": "Hello"}]});
    body.as_object_mut()
        .unwrap()
        .append(&mut fields.as_object().unwrap().clone());
    body
}
