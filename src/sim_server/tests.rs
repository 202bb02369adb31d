//! The server over real sockets, with a client that knows no more than HTTP/1.1.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::core::units::{BlockSize, Blocks, Tokens};
use crate::sim::engine::StepTime;

/// The engine of the captures, at a pace no test waits for.
fn spec() -> SimServerSpec {
    let engine = EngineSpec {
        blocks: Blocks::new(257),
        block_size: BlockSize::new(32).unwrap(),
        step: StepTime::constant(Duration::from_micros(10)),
        ..EngineSpec::with_pool(Tokens::new(8192))
    };
    SimServerSpec::new("tiny", engine)
}

/// An answer, taken apart.
#[derive(Debug)]
struct Answered {
    status: u16,
    head: String,
    body: String,
}

impl Answered {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// The JSON of every event but `[DONE]`.
    fn events(&self) -> Vec<Value> {
        self.body
            .split("\n\n")
            .filter_map(|event| event.strip_prefix("data: "))
            .filter(|data| *data != "[DONE]")
            .map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }
}

fn post(path: &str, body: &Value) -> String {
    let body = body.to_string();
    format!(
        "POST {path} HTTP/1.1\r\nHost: sim\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: sim\r\nConnection: close\r\n\r\n")
}

/// Sends `request` on a connection of its own and reads until the server closes it.
async fn ask(server: &SimServer, request: &str) -> Answered {
    let mut stream = TcpStream::connect(server.addr()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    read_to_end(stream).await
}

async fn read_to_end(mut stream: TcpStream) -> Answered {
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

fn chat(fields: Value) -> Value {
    let mut body = json!({"model": "tiny", "messages": [{"role": "user", "content": "Hello"}]});
    body.as_object_mut()
        .unwrap()
        .append(&mut fields.as_object().unwrap().clone());
    body
}

#[tokio::test]
async fn a_chat_is_answered_with_the_tokens_it_asked_for() {
    let server = SimServer::start(spec()).unwrap();
    let answered = ask(
        &server,
        &post("/v1/chat/completions", &chat(json!({"max_tokens": 8}))),
    )
    .await;
    assert_eq!(answered.status, 200, "{answered:?}");
    let answer = answered.json();
    assert_eq!(answer["usage"]["completion_tokens"], 8);
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    let answered = ask(&server, &post("/v1/chat/completions", &chat(json!({"max_tokens": 3, "n": 2, "stream": true, "stream_options": {"include_usage": true}})))).await;
    assert_eq!(server.stats().used, Blocks::ZERO);
}
