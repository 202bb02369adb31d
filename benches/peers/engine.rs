//! The mock engine: answers as vLLM does, from bytes built once, as cheaply as one
//! core can.
//!
//! Counts no tokens and computes nothing: how it answers stands in the prompt, see
//! [`script`](super::script).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until};

use super::script::{Asked, Events, MODEL, Pace, closing, json, plain};
use super::wire::{self, Body, Framing};

/// The page of a real, idle engine.
const METRICS: &str = include_str!("../../tests/golden/vllm-0.32/metrics-idle-fresh.txt");
/// KV pool and longest context that are told, in tokens: no load here fills them.
const POOL_TOKENS: u64 = 1 << 30;
const CONTEXT_TOKENS: u64 = 1 << 20;
/// Bytes asked of a connection at one time.
const READ: usize = 64 * 1024;

/// What all connections share.
pub(crate) struct Engine {
    events: Events,
    answers: AtomicU64,
    tokens: AtomicU64,
    /// Streams that have not ended.
    open: AtomicU64,
}

/// A stream while it is open.
struct Open<'a>(&'a AtomicU64);

/// A request as it came.
struct Request {
    /// Method and path, as in the first line.
    line: Vec<u8>,
    body: Vec<u8>,
    closes: bool,
}

/// A client's connection, and what was read of it and not used yet.
struct Link {
    stream: TcpStream,
    read: Vec<u8>,
}

/// Answers whoever connects, until it is dropped.
///
/// # Errors
/// When no further connection can be taken.
pub(crate) async fn serve(listener: TcpListener) -> io::Result<()> {
    let engine = Arc::new(Engine::new());
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let engine = Arc::clone(&engine);
        drop(tokio::spawn(async move {
            let read = Vec::with_capacity(READ);
            // A client that has gone needs no answer.
            let gone = engine.connection(Link { stream, read }).await;
            drop(gone);
        }));
    }
}

// === impl Engine ===

impl Engine {
    fn new() -> Self {
        Self {
            events: Events::new(),
            answers: AtomicU64::new(0),
            tokens: AtomicU64::new(0),
            open: AtomicU64::new(0),
        }
    }

    async fn connection(&self, mut link: Link) -> io::Result<()> {
        while let Some(request) = link.request().await? {
            self.answer(&mut link.stream, &request).await?;
            if request.closes {
                break;
            }
        }
        Ok(())
    }

    async fn answer(&self, stream: &mut TcpStream, request: &Request) -> io::Result<()> {
        let mut words = request.line.split(|&byte| byte == b' ');
        let target = words.nth(1).unwrap_or_default();
        let path = target.split(|&byte| byte == b'?').next();
        let bytes = match path.unwrap_or_default() {
            b"/v1/chat/completions" | b"/v1/completions" => {
                let asked = Asked::read(&request.body);
                if asked.streamed {
                    return self.stream(stream, &asked).await;
                }
                self.count(1);
                plain(&asked)
            }
            b"/health" => {
                b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-length: 0\r\n\r\n".to_vec()
            }
            b"/version" => json(r#"{"version":"0.32.0"}"#),
            b"/v1/models" => models(),
            b"/metrics" => self.metrics(),
            b"/open" => json(&self.open.load(Ordering::Relaxed).to_string()),
            _ => b"HTTP/1.1 404 Not Found\r\nserver: uvicorn\r\ncontent-length: 22\r\n\
                content-type: application/json\r\n\r\n{\"detail\":\"Not Found\"}"
                .to_vec(),
        };
        stream.write_all(&bytes).await
    }

    async fn stream(&self, stream: &mut TcpStream, asked: &Asked) -> io::Result<()> {
        let _open = Open::new(&self.open);
        let began = Instant::now();
        stream.write_all(&self.events.opening).await?;
        if asked.orders.pace == Pace::Hold {
            // An engine past its prefill: until then a gateway may hold others back.
            stream.write_all(&self.events.pieces[0]).await?;
            // Nothing is expected but the end.
            stream.read_u8().await?;
            return Err(io::ErrorKind::InvalidData.into());
        }
        for number in 1..=asked.chunks {
            if let Pace::Every(time) = asked.orders.pace {
                sleep_until(began + time * number).await;
            }
            let [even, odd] = &self.events.pieces;
            let piece = match number {
                last if last == asked.chunks => &self.events.last,
                number if number % 2 == 0 => even,
                _ => odd,
            };
            stream.write_all(piece).await?;
        }
        self.count(asked.chunks);
        stream.write_all(&closing(asked)).await
    }

    fn count(&self, tokens: u32) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        self.tokens.fetch_add(u64::from(tokens), Ordering::Relaxed);
    }

    /// A scrape: a real page, with this model, this pool and counters that move.
    fn metrics(&self) -> Vec<u8> {
        let pool = |key: &str| format!("{key}=\"{POOL_TOKENS}\"");
        let blocks = POOL_TOKENS / 32;
        let answers = self.answers.load(Ordering::Relaxed);
        let tokens = self.tokens.load(Ordering::Relaxed);
        let page = METRICS
            .replace(
                "kv_cache_size_tokens=\"8224\"",
                &pool("kv_cache_size_tokens"),
            )
            .replace(
                "num_gpu_blocks=\"257\"",
                &format!("num_gpu_blocks=\"{blocks}\""),
            )
            .replace(
                "vllm:generation_tokens_total{engine=\"0\",model_name=\"tiny\"} 0.0",
                &format!(
                    "vllm:generation_tokens_total{{engine=\"0\",model_name=\"tiny\"}} {tokens}.0"
                ),
            )
            .replace(
                "finished_reason=\"length\",model_name=\"tiny\"} 0.0",
                &format!("finished_reason=\"length\",model_name=\"tiny\"}} {answers}.0"),
            )
            .replace("model_name=\"tiny\"", &format!("model_name=\"{MODEL}\""));
        let mut bytes = format!(
            "HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-length: {}\r\n\
             content-type: text/plain; version=0.0.4; charset=utf-8\r\n\r\n",
            page.len()
        )
        .into_bytes();
        bytes.extend(page.into_bytes());
        bytes
    }
}

// === impl Open ===

impl<'a> Open<'a> {
    fn new(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn models() -> Vec<u8> {
    json(&format!(
        r#"{{"object":"list","data":[{{"id":"{MODEL}","object":"model","created":1795961331,"owned_by":"vllm","root":"{MODEL}","parent":null,"max_model_len":{CONTEXT_TOKENS},"permission":[]}}]}}"#
    ))
}

// === impl Link ===

impl Link {
    /// The next request; `None` when the client has gone.
    async fn request(&mut self) -> io::Result<Option<Request>> {
        let malformed = |_| io::Error::from(io::ErrorKind::InvalidData);
        let head = loop {
            if let Some(head) = wire::head(&self.read).map_err(malformed)? {
                break head;
            }
            if self.more().await? == 0 {
                return Ok(None);
            }
        };
        let end = memchr::memchr(b'\r', &self.read).unwrap_or(0);
        let mut request = Request {
            line: self.read[..end].to_vec(),
            body: Vec::new(),
            closes: head.closes,
        };
        let mut used = head.bytes;
        let mut body = Body::new(head.framing.unwrap_or(Framing::Sized(0)));
        loop {
            let mut input = &self.read[used..];
            while let Some(piece) = body.next(&mut input).map_err(malformed)? {
                request.body.extend_from_slice(piece);
            }
            used = self.read.len() - input.len();
            if body.is_done() {
                self.read.drain(..used);
                return Ok(Some(request));
            }
            self.read.clear();
            used = 0;
            if self.more().await? == 0 {
                return Ok(None);
            }
        }
    }

    async fn more(&mut self) -> io::Result<usize> {
        self.read.reserve(READ);
        self.stream.read_buf(&mut self.read).await
    }
}
