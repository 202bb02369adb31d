//! A gateway with everything on, over streams in memory, on one thread.
//!
//! The clock stands still: what a timer would do between two requests is not
//! counted with one of them.

use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use memchr::memmem;
use tidegate::app::{Drain, Gateway, Watcher, timing};
use tidegate::config::load;
use tidegate::upstream::client::Client;
use tokio::io::DuplexStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

use crate::counting::{MODEL, TEMPLATE, small_chat, small_chat_tokens};
use crate::wire::{InMemory, Wire, pair};

const MODELS: &str = include_str!("../../tests/golden/vllm-0.32/models.json");
const METRICS: &str = include_str!("../../tests/golden/vllm-0.32/metrics-idle-fresh.txt");
const VERSION: &str = include_str!("../../tests/golden/vllm-0.32/version.json");
const ANSWER: &str = include_str!("../../tests/golden/vllm-0.32/chat-cached.json");
const EVENTS: &str = include_str!("../../tests/golden/vllm-0.32/chat-stream-usage.sse");
const STREAM: &str = r#"{"model":"tiny","messages":[{"role":"user","content":"hi"}],"max_tokens":2000,"stream":true}"#;
const STREAM_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 10:00:00 GMT\r\n\
    server: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
    transfer-encoding: chunked\r\n\r\n";

/// The engine's answer to a chat. It says of the prompt what the gateway counts: an
/// engine that counts otherwise is looked at more closely.
static CHAT: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let counted = format!("\"prompt_tokens\":{}", small_chat_tokens());
    let answer = ANSWER.replace("\"prompt_tokens\":65", &counted);
    whole("application/json", &answer)
});

/// A client's connection to the gateway, and the engine's side of a stream.
pub(crate) struct Path {
    runtime: Runtime,
    client: Wire,
    /// Connections of the engine on which a stream was asked for.
    streams: mpsc::UnboundedReceiver<Wire>,
    /// The one in progress.
    stream: Option<Wire>,
    _gateway: Arc<Gateway>,
    _ends: (Drain, Watcher),
}

// === impl Path ===

impl Path {
    /// A connection on which some requests were answered.
    pub(crate) fn idle() -> Self {
        let mut path = Self::new();
        path.chats(20);
        path
    }

    /// A connection on which a stream has begun.
    pub(crate) fn streaming() -> Self {
        let mut path = Self::idle();
        let Self {
            runtime,
            client,
            streams,
            ..
        } = &mut path;
        let stream = runtime.block_on(async {
            client.write(&post(STREAM)).await;
            let head = client.read_to(b"\r\n\r\n").await.unwrap();
            assert!(head.starts_with(b"HTTP/1.1 200"), "{head:?}");
            streams.recv().await.unwrap()
        });
        path.stream = Some(stream);
        path.chunks(20);
        path
    }

    fn new() -> Self {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        let (connector, opened) = InMemory::new();
        let (asked, streams) = mpsc::unbounded_channel();
        let (gateway, client, ends) = runtime.block_on(async {
            drop(tokio::spawn(engine(opened, asked)));
            let config = load(&config()).unwrap_or_else(|problems| panic!("{problems}"));
            let upstream = Client::new(connector, timing(&config.upstream));
            let gateway = Arc::new(Gateway::assemble(config, upstream).unwrap());
            while !gateway.is_ready() {
                tokio::task::yield_now().await;
            }
            let (drain, watcher) = Drain::new();
            let (near, far) = pair();
            let peer = IpAddr::from([127, 0, 0, 1]).into();
            let connection = Arc::clone(&gateway).serve(far, peer, watcher.clone());
            drop(tokio::spawn(connection));
            (gateway, Wire::new(near), (drain, watcher))
        });
        Self {
            runtime,
            client,
            streams,
            stream: None,
            _gateway: gateway,
            _ends: ends,
        }
    }

    /// Sends `count` chats, one after the other, and reads their answers.
    pub(crate) fn chats(&mut self, count: usize) {
        let Self {
            runtime, client, ..
        } = self;
        let request = post(&String::from_utf8(small_chat()).unwrap());
        runtime.block_on(async {
            for _ in 0..count {
                client.write(&request).await;
                let answer = client.message().await.unwrap();
                assert!(answer.starts_with(b"HTTP/1.1 200"), "{answer:?}");
            }
        });
    }

    /// Sends `count` events of a stream, each read before the next is sent.
    pub(crate) fn chunks(&mut self, count: usize) {
        let Self {
            runtime,
            client,
            stream,
            ..
        } = self;
        let engine = stream.as_mut().unwrap();
        let event = EVENTS.split_inclusive("\n\n").nth(1).unwrap();
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        runtime.block_on(async {
            for _ in 0..count {
                engine.write(chunk.as_bytes()).await;
                client.read_to(b"\n\n\r\n").await.unwrap();
            }
        });
    }
}

/// The gateway's configuration: defaults, and this engine.
fn config() -> String {
    format!(
        r#"
[log]
access_log = "/dev/null"
[probe]
interval = "10s"
stale_after = "600s"
[counting]
time_limit = "60s"
[[models]]
name = "tiny"
tokenizer = {MODEL:?}
chat_template_file = {TEMPLATE:?}
[[models.backends]]
name = "engine"
url = "http://engine:1"
max_num_seqs = 64
"#
    )
}

fn post(body: &str) -> Vec<u8> {
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nuser-agent: guard/1.0\r\n\
        accept: */*\r\ncontent-type: application/json\r\nauthorization: Bearer none";
    format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

// === the engine ===

/// Answers on every connection that was opened; those on which a stream is asked for
/// go out at `asked` once its head is written.
async fn engine(
    mut opened: mpsc::UnboundedReceiver<DuplexStream>,
    asked: mpsc::UnboundedSender<Wire>,
) {
    while let Some(io) = opened.recv().await {
        drop(tokio::spawn(answer(Wire::new(io), asked.clone())));
    }
}

async fn answer(mut wire: Wire, asked: mpsc::UnboundedSender<Wire>) {
    while let Some(message) = wire.message().await {
        if memmem::find(&message, b"\"stream\":true").is_some() {
            wire.write(STREAM_HEAD).await;
            asked.send(wire).unwrap();
            return;
        }
        if message.starts_with(b"POST /v1/chat/completions ") {
            wire.write(&CHAT).await;
        } else {
            wire.write(&page(&message)).await;
        }
    }
}

/// What an engine says of itself.
fn page(message: &[u8]) -> Vec<u8> {
    let path = message.split(|&byte| byte == b' ').nth(1);
    match path.unwrap_or_default() {
        b"/v1/models" => whole("application/json", MODELS),
        b"/metrics" => whole("text/plain", METRICS),
        b"/version" => whole("application/json", VERSION),
        b"/health" => whole("text/plain", ""),
        _ => b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec(),
    }
}

fn whole(media: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 10:00:00 GMT\r\nserver: uvicorn\r\n\
         content-length: {length}\r\ncontent-type: {media}\r\n\r\n{body}"
    )
    .into_bytes()
}
