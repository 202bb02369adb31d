//! A client that sends what it is told and keeps what it gets.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::net::TcpStream;

use super::secrets;
use super::wire::{Ending, Head, Io, Wire};

/// A request to send.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    line: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// An answer, as far as it came.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
    pub(crate) ending: Ending,
}

/// A connection to the gateway.
pub(crate) struct Client<I = TcpStream>(pub(crate) Wire<I>);

// === impl Ask ===

impl Ask {
    /// A request without a body.
    pub(crate) fn new(method: &str, path: &str) -> Self {
        Self {
            line: format!("{method} {path} HTTP/1.1"),
            headers: vec![("host".into(), "localhost".into())],
            body: Vec::new(),
        }
    }

    pub(crate) fn get(path: &str) -> Self {
        Self::new("GET", path)
    }

    /// A JSON body.
    pub(crate) fn post(path: &str, body: impl Into<Vec<u8>>) -> Self {
        let ask = Self::new("POST", path).header("content-type", "application/json");
        Self {
            body: body.into(),
            ..ask
        }
    }

    /// A chat of one message; `rest` is more members, each with a comma before.
    pub(crate) fn chat(rest: &str) -> Self {
        let body =
            format!(r#"{{"model":"tiny","messages":[{{"role":"user","content":"hi"}}]{rest}}}"#);
        Self::post("/v1/chat/completions", body)
    }

    /// A completion of `prompt` token ids; `rest` as in [`Ask::chat`].
    pub(crate) fn tokens(prompt: usize, rest: &str) -> Self {
        Self::post("/v1/completions", tokens_body("tiny", prompt, rest))
    }

    /// As [`Ask::tokens`], but no engine has seen a prompt that begins with
    /// `first` before: nothing of it is found in a prefix cache.
    pub(crate) fn new_tokens(first: usize, prompt: usize, rest: &str) -> Self {
        let rest_of_prompt = ",7".repeat(prompt - 1);
        let ids = format!("{first}{rest_of_prompt}");
        let body = format!(r#"{{"model":"tiny","prompt":[{ids}]{rest}}}"#);
        Self::post("/v1/completions", body)
    }

    /// One more header, or another value for one that is there.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(key, _)| key != name);
        self.headers.push((name.into(), value.into()));
        self
    }

    /// One more header, whether one of its name is there or not.
    pub(crate) fn also(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The API key to come with.
    pub(crate) fn key(self, key: &str) -> Self {
        self.header("authorization", &format!("Bearer {key}"))
    }

    /// Without this header.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(key, _)| key != name);
        self
    }

    /// The same, asked about and not sent: `POST /explain` without its key, for
    /// `tenant` and the path it has.
    pub(crate) fn about(&self, tenant: &str) -> Self {
        let path = self.line.split(' ').nth(1).unwrap();
        let line = format!("POST /explain?tenant={tenant}&route={path} HTTP/1.1");
        let ask = self.clone().without("authorization");
        Self { line, ..ask }
    }

    fn head(&self, framing: &str) -> String {
        let headers = self.headers.iter().map(|(k, v)| format!("{k}: {v}\r\n"));
        let headers: String = headers.collect();
        format!("{}\r\n{headers}{framing}\r\n", self.line)
    }

    /// What nobody but an engine may read.
    fn remember(&self) {
        let keys = ["authorization", "x-api-key"];
        for (name, value) in &self.headers {
            if keys.contains(&name.as_str()) {
                secrets::key(value);
            }
        }
        secrets::body(&self.body);
    }

    /// The bytes, with a length.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.remember();
        let framing = format!("content-length: {}\r\n", self.body.len());
        let framing = if self.body.is_empty() { "" } else { &framing };
        let mut bytes = self.head(framing).into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// The bytes, in chunks of `size`.
    pub(crate) fn chunked(&self, size: usize) -> Vec<u8> {
        self.remember();
        let mut bytes = self.head("transfer-encoding: chunked\r\n").into_bytes();
        for piece in self.body.chunks(size) {
            bytes.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            bytes.extend_from_slice(piece);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
        bytes
    }

    /// The body alone.
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }
}

/// A completion body over token ids.
pub(crate) fn tokens_body(model: &str, prompt: usize, rest: &str) -> String {
    let ids = vec!["7"; prompt].join(",");
    format!(r#"{{"model":"{model}","prompt":[{ids}]{rest}}}"#)
}

// === impl Client ===

impl Client {
    pub(crate) async fn connect(addr: SocketAddr) -> Self {
        Self(Wire::new(TcpStream::connect(addr).await.unwrap()))
    }

    /// Connects and sends `ask`.
    pub(crate) async fn with(addr: SocketAddr, ask: &Ask) -> Self {
        let mut client = Self::connect(addr).await;
        client.send(ask).await;
        client
    }
}

impl<I: Io> Client<I> {
    pub(crate) async fn send(&mut self, ask: &Ask) {
        self.0.send(&ask.bytes()).await.unwrap();
    }

    /// The next answer, interim ones included.
    pub(crate) async fn reply(&mut self) -> Reply {
        let head = self.0.head().await.unwrap();
        let (body, ending) = self.0.body(&head).await;
        Reply {
            status: head.second_word().parse().unwrap(),
            head,
            body,
            ending,
        }
    }

    /// The head of a streamed answer, which must be one.
    pub(crate) async fn stream(&mut self) -> Head {
        let head = self.0.head().await.unwrap();
        assert_eq!(head.second_word(), "200", "{head:?}");
        assert_eq!(head.get("transfer-encoding"), Some("chunked"), "{head:?}");
        head
    }

    /// Payload of a stream until `size` bytes are there.
    pub(crate) async fn payload(&mut self, size: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < size {
            all.extend(self.0.chunk().await.unwrap().unwrap());
        }
        all
    }

    /// Asks and waits for the answer, on the same connection.
    pub(crate) async fn ask(&mut self, ask: &Ask) -> Reply {
        self.send(ask).await;
        self.reply().await
    }
}

/// Asks on a new connection.
pub(crate) async fn ask(addr: SocketAddr, ask: &Ask) -> Reply {
    Client::with(addr, ask).await.reply().await
}

// === impl Reply ===

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.get(name)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}
