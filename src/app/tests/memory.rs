//! A gateway and an engine in memory, on a paused clock.
//!
//! The engine answers probes and holds every completion until it is told what
//! to say, so that nothing depends on time but what the test advances.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;

use super::super::taking::PATIENCE;
use super::super::*;
use super::{chat, config_of, header};
use crate::config::{Backend, Config};
use crate::core::backend::Health;
use crate::core::stats::PoolState;
use crate::telemetry::Reload;
use crate::upstream::client::{Client, Connector};

/// An engine at the other end of in-memory streams, whatever its address.
#[derive(Clone, Default)]
struct Engine {
    requests: Arc<Mutex<VecDeque<mpsc::UnboundedSender<Bytes>>>>,
    /// The host that takes no connection for completions.
    refusing: Arc<Mutex<Option<&'static str>>>,
}

/// A body that says what it is sent.
struct Told(mpsc::UnboundedReceiver<Bytes>);

const METRICS: &str = "vllm:num_requests_running{engine=\"0\"} 0\n\
vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"65\",kv_cache_size_tokens=\"1040\",engine=\"0\"} 1\n";
const MODELS: &str = r#"{"object":"list","data":[{"id":"tiny","max_model_len":1024}]}"#;

impl Engine {
    fn answer(&self, request: &Request<Incoming>) -> Response<Told> {
        let (say, told) = mpsc::unbounded_channel();
        let whole = |text: &'static str| {
            say.send(Bytes::from_static(text.as_bytes())).unwrap();
        };
        let mut answer = Response::builder();
        match request.uri().path() {
            "/metrics" => whole(METRICS),
            "/v1/models" => whole(MODELS),
            "/version" => whole(r#"{"version":"0.32.0"}"#),
            "/v1/chat/completions" => {
                answer = answer.header("content-type", "text/event-stream");
                self.requests.lock().unwrap().push_back(say.clone());
            }
            _ => {}
        }
        drop(say);
        answer.body(Told(told)).unwrap()
    }

    /// The oldest request that came and was not looked at yet.
    async fn next(&self) -> mpsc::UnboundedSender<Bytes> {
        loop {
            if let Some(say) = self.requests.lock().unwrap().pop_front() {
                return say;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Connector for Engine {
    type Io = DuplexStream;

    fn connect(&self, to: Uri) -> impl Future<Output = io::Result<DuplexStream>> + Send + 'static {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let engine = self.clone();
        async move {
            let refused = to.host().is_some() && to.host() == *engine.refusing.lock().unwrap();
            if refused {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let service = service_fn(move |request| {
                let answer = engine.answer(&request);
                async move { Ok::<_, Infallible>(answer) }
            });
            drop(tokio::spawn(async move {
                let served = http1::Builder::new().serve_connection(TokioIo::new(far), service);
                drop(served.await);
            }));
            Ok(near)
        }
    }
}

impl Body for Told {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0
            .poll_recv(cx)
            .map(|text| text.map(|text| Ok(Frame::data(text))))
    }
}

struct Memory {
    engine: Engine,
    gateway: Arc<Gateway>,
    _drain: Drain,
    watcher: Watcher,
}

impl Memory {
    async fn new(change: impl FnOnce(&mut Config)) -> Self {
        let engine = Engine::default();
        let mut config = config_of("http://engine:1");
        config.probe.interval = Duration::from_secs(1);
        change(&mut config);
        let client = Client::new(engine.clone(), timing(&config.upstream));
        let gateway = Arc::new(Gateway::assemble(config, client).unwrap());
        while !gateway.is_ready() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let (drain, watcher) = Drain::new();
        Self {
            engine,
            gateway,
            _drain: drain,
            watcher,
        }
    }

    /// A client's end of a new connection.
    async fn send(&self, request: &str) -> DuplexStream {
        let (mut near, far) = tokio::io::duplex(64 * 1024);
        let peer = std::net::IpAddr::from(std::net::Ipv4Addr::LOCALHOST).into();
        let serving = Arc::clone(&self.gateway).serve(far, peer, self.watcher.clone());
        drop(tokio::spawn(serving));
        near.write_all(request.as_bytes()).await.unwrap();
        near
    }

    fn pool(&self) -> PoolState {
        self.gateway.pools().all()[0].gate().state()
    }

    async fn until(&self, mut reached: impl FnMut(&PoolState) -> bool) {
        while !reached(&self.pool()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

async fn read(mut stream: DuplexStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

fn filling() -> String {
    chat(r#","max_tokens":900,"stream":true"#)
}

const EVENT: Bytes =
    Bytes::from_static(b"data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n");

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_to_its_deadline_is_told_when_to_come_back() {
    let memory = Memory::new(|config| {
        config.admission.reservation = crate::config::ReservationKind::Strict;
        config.queue.max_wait = Duration::from_secs(20);
    })
    .await;
    let _first = memory.send(&filling()).await;
    let _said = memory.engine.next().await;
    let began = tokio::time::Instant::now();
    let answer = read(memory.send(&filling()).await).await;
    assert_eq!(began.elapsed().as_secs(), 20);
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
    assert_eq!(header(&answer, "x-tidegate-reason"), Some("queue_timeout"));
    let wait: u64 = header(&answer, "retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_the_queue_leaves_no_trace() {
    let memory = Memory::new(|config| {
        config.admission.reservation = crate::config::ReservationKind::Strict;
    })
    .await;
    let first = memory.send(&filling()).await;
    let _said = memory.engine.next().await;
    let second = memory.send(&filling()).await;
    memory.until(|pool| pool.queue.requests == 1).await;
    drop(second);
    memory.until(|pool| pool.queue.requests == 0).await;
    assert_eq!(memory.pool().totals.left, 1);
    drop(first);
    memory.until(PoolState::is_idle).await;
    assert_eq!(memory.pool().totals.cancelled, 1);
}

/// Counters of the metrics are these totals, and counters never go down.
#[tokio::test(start_paused = true)]
async fn what_was_counted_of_a_model_outlives_its_absence() {
    let memory = Memory::new(|_| {}).await;
    let client = memory.send(&filling()).await;
    let _said = memory.engine.next().await;
    drop(client);
    memory.until(|pool| pool.totals.cancelled == 1).await;
    let present = memory.gateway.snapshot().config.as_ref().clone();
    let mut absent = present.clone();
    absent.models[0].name = "other".to_owned();
    assert_eq!(memory.gateway.reload(absent), Reload::Applied);
    assert_eq!(memory.pool().totals.received, 0);
    // Long enough for the last of the old pool to be tidied away.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(memory.gateway.reload(present), Reload::Applied);
    let back = memory.pool();
    assert_eq!((back.totals.received, back.totals.cancelled), (1, 1));
    // A pool of its own: the old one is gone.
    assert_eq!(back.backends[0].id.generation, 0);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_let_in_when_the_one_before_it_ends() {
    let memory = Memory::new(|config| {
        config.admission.reservation = crate::config::ReservationKind::Strict;
    })
    .await;
    let first = memory.send(&filling()).await;
    let said = memory.engine.next().await;
    let second = memory.send(&filling()).await;
    memory.until(|pool| pool.queue.requests == 1).await;
    said.send(Bytes::from_static(b"data: [DONE]\n\n")).unwrap();
    drop(said);
    assert!(read(first).await.ends_with("0\r\n\r\n"));
    let said = memory.engine.next().await;
    said.send(Bytes::from_static(b"data: [DONE]\n\n")).unwrap();
    drop(said);
    let answer = read(second).await;
    assert!(answer.contains("data: [DONE]"), "{answer}");
    memory.until(PoolState::is_idle).await;
    assert_eq!(memory.pool().totals.finished, 2);
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_is_cut_with_an_error_event() {
    let memory = Memory::new(|config| {
        config.upstream.stream_silence_timeout = Duration::from_secs(120);
    })
    .await;
    let client = memory.send(&filling()).await;
    let said = memory.engine.next().await;
    said.send(EVENT).unwrap();
    let answer = read(client).await;
    assert!(answer.contains("\"code\":\"upstream_timeout\""), "{answer}");
    // No last chunk: the client must see that the answer is not whole.
    assert!(!answer.ends_with("0\r\n\r\n"), "{answer}");
    assert_eq!(memory.pool().totals.failed, 1);
    assert!(said.is_closed());
}

#[tokio::test(start_paused = true)]
async fn headers_that_trickle_are_refused_and_cut() {
    let memory = Memory::new(|_| {}).await;
    let client = memory.send("POST /v1/completions HTTP/1.1\r\nhost:").await;
    let answer = read(client).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert_eq!(
        header(&answer, "x-tidegate-reason"),
        Some("request_timeout")
    );
    // One that says nothing is closed without a word.
    assert_eq!(read(memory.send("").await).await, "");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_of_its_answer_is_given_up() {
    let memory = Memory::new(|_| {}).await;
    let began = tokio::time::Instant::now();
    let _client = memory.send(&filling()).await;
    let said = memory.engine.next().await;
    for _ in 0..4000 {
        said.send(EVENT).unwrap();
    }
    tokio::time::sleep(PATIENCE - Duration::from_secs(1)).await;
    assert_eq!(memory.pool().backends[0].leases, 1);
    said.closed().await;
    assert!(began.elapsed() <= PATIENCE + Duration::from_secs(1));
    memory.until(PoolState::is_idle).await;
    assert_eq!(memory.pool().totals.cancelled, 1);
}

#[tokio::test(start_paused = true)]
async fn over_http2_a_client_that_takes_nothing_of_one_answer_loses_that_one() {
    let memory = Memory::new(|_| {}).await;
    let mut client = http2(&memory).await;
    let answer = tokio::spawn(client.send_request(chat_request()));
    let said = memory.engine.next().await;
    // More than the window of a stream.
    let event = format!(
        "data: {{\"choices\":[{{\"text\":\"{}\"}}]}}\n\n",
        "x".repeat(4000)
    );
    for _ in 0..1500 {
        said.send(Bytes::from(event.clone())).unwrap();
    }
    let answer = answer.await.unwrap().unwrap();
    tokio::time::sleep(PATIENCE - Duration::from_secs(1)).await;
    assert_eq!(memory.pool().backends[0].leases, 1);
    said.closed().await;
    memory.until(PoolState::is_idle).await;
    drop(answer);
    let next = tokio::spawn(client.send_request(chat_request()));
    memory.engine.next().await.send(EVENT).unwrap();
    assert!(next.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sent_ahead_and_leaves_the_queue_leaves_no_trace() {
    let memory = Memory::new(|config| {
        config.admission.reservation = crate::config::ReservationKind::Strict;
    })
    .await;
    let _first = memory.send(&filling()).await;
    let _said = memory.engine.next().await;
    for ahead in ["\r\n", "GET /v1/models HTTP/1.1\r\n\r\n"] {
        let second = memory.send(&(filling() + ahead)).await;
        memory.until(|pool| pool.queue.requests == 1).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(second);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(memory.pool().queue.requests, 0, "{ahead:?}");
    }
    assert_eq!(memory.pool().totals.left, 2);
}

/// Two backends, of which the first refuses connections once both are up.
#[tokio::test(start_paused = true)]
async fn a_request_that_no_backend_took_is_admitted_once_more() {
    let memory = Memory::new(|config| {
        let second = Backend::new("http://second:1".parse().unwrap());
        config.models[0].backends.push(second);
        // Long enough for the requests to come before the next look.
        config.probe.interval = Duration::from_secs(600);
    })
    .await;
    let up = |pool: &PoolState| {
        let mut backends = pool.backends.iter();
        backends.all(|backend| backend.health == Health::Up)
    };
    memory.until(up).await;
    *memory.engine.refusing.lock().unwrap() = Some("engine");
    let client = memory.send(&filling()).await;
    let said = memory.engine.next().await;
    said.send(Bytes::from_static(b"data: [DONE]\n\n")).unwrap();
    drop(said);
    let answer = read(client).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(header(&answer, "x-tidegate-backend"), Some("second:1"));
    let totals = memory.pool().totals;
    assert_eq!((totals.admitted, totals.finished, totals.failed), (2, 1, 1));
    assert!(memory.pool().is_idle());
    let metrics = memory.gateway.telemetry().metrics().render();
    let line =
        r#"tidegate_upstream_failures_total{model="tiny",backend="engine:1",kind="connect"} 1"#;
    assert!(metrics.contains(line), "{metrics}");
}

/// A client of one HTTP/2 connection.
async fn http2(memory: &Memory) -> http2::SendRequest<Full<Bytes>> {
    http2_by(memory, &http2::Builder::new(TokioExecutor::new())).await
}

async fn http2_by(
    memory: &Memory,
    builder: &http2::Builder<TokioExecutor>,
) -> http2::SendRequest<Full<Bytes>> {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let peer = std::net::IpAddr::from(std::net::Ipv4Addr::LOCALHOST).into();
    let serving = Arc::clone(&memory.gateway).serve(far, peer, memory.watcher.clone());
    drop(tokio::spawn(serving));
    let (sender, connection) = builder.handshake(TokioIo::new(near)).await.unwrap();
    drop(tokio::spawn(connection));
    sender
}

fn chat_request() -> Request<Full<Bytes>> {
    let whole = filling();
    let (_, body) = whole.split_once("\r\n\r\n").unwrap();
    Request::post("http://x/v1/chat/completions")
        .header("content-type", "application/json")
        .body(Full::from(body.to_owned()))
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn over_http2_a_stream_passes_and_one_that_breaks_is_reset() {
    let memory = Memory::new(|_| {}).await;
    let mut client = http2(&memory).await;
    let answer = tokio::spawn(client.send_request(chat_request()));
    let said = memory.engine.next().await;
    said.send(EVENT).unwrap();
    let mut body = answer.await.unwrap().unwrap().into_body();
    let event = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(event, EVENT);
    drop(said);
    let event = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(event.starts_with(b"data: {\"error\""), "{event:?}");
    let broken = body.frame().await.unwrap().unwrap_err();
    let cause = std::error::Error::source(&broken).unwrap().to_string();
    assert!(cause.contains("stream error received"), "{cause}");
    assert_eq!(memory.pool().totals.failed, 1);
}

#[tokio::test(start_paused = true)]
async fn over_http2_a_stream_given_up_in_the_queue_leaves_it() {
    let memory = Memory::new(|config| {
        config.admission.reservation = crate::config::ReservationKind::Strict;
    })
    .await;
    let mut client = http2(&memory).await;
    let first = tokio::spawn(client.send_request(chat_request()));
    let _said = memory.engine.next().await;
    let second = tokio::spawn(client.send_request(chat_request()));
    memory.until(|pool| pool.queue.requests == 1).await;
    second.abort();
    memory.until(|pool| pool.queue.requests == 0).await;
    assert_eq!(memory.pool().totals.left, 1);
    drop(first.await.unwrap().unwrap());
    memory.until(PoolState::is_idle).await;
}

#[tokio::test(start_paused = true)]
async fn over_http2_the_end_of_an_answer_is_there_for_a_client_that_pauses() {
    let memory = Memory::new(|_| {}).await;
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(16);
    let mut client = http2_by(&memory, &builder).await;
    let request = Request::get("http://x/v1/models").body(Full::default());
    let answer = client.send_request(request.unwrap()).await.unwrap();
    let length = answer.headers()["content-length"].to_str().unwrap();
    let length: usize = length.parse().unwrap();
    assert!(length > 64, "more than the window");
    // Over for the gateway, whose limit of idleness passes many times.
    tokio::time::sleep(PATIENCE / 2).await;
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body.len(), length);
}

#[tokio::test(start_paused = true)]
async fn over_http2_an_idle_connection_ends_at_once_and_one_that_never_asked_soon() {
    let memory = Memory::new(|_| {}).await;
    let limit = memory.gateway.snapshot().config.server.header_timeout;
    let began = tokio::time::Instant::now();
    let mut client = http2(&memory).await;
    let request = Request::get("http://x/v1/models").body(Full::default());
    let answer = client.send_request(request.unwrap()).await.unwrap();
    answer.into_body().collect().await.unwrap();
    while memory.gateway.crowd().open > 0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(began.elapsed().as_secs(), limit.as_secs());
    // Says its preface and no more, not even to a farewell.
    let began = tokio::time::Instant::now();
    let _silent = memory
        .send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await;
    while memory.gateway.crowd().open > 0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(began.elapsed() < 2 * limit, "{:?}", began.elapsed());
}
