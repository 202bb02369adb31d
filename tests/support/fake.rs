//! An engine that says what a test tells it to, byte by byte.
//!
//! It answers probes and `/tokenize` by itself and hands every generation
//! request to the test as a [`Call`]. What must not reach an engine (other
//! paths, a client's credentials or orders, more KV than there is) fails the
//! test in [`Fake::check`] or at once.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;
use tidegate::protocol::{Route, WorkKind};
use tidegate::upstream::client::Connector;
use tokio::io::DuplexStream;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::task::{AbortHandle, JoinHandle};

use super::wire::{Ending, Head, Io, Wire};

/// What the engine says of itself.
#[derive(Clone, Debug)]
pub(crate) struct FakeSpec {
    pub(crate) model: String,
    /// Data-parallel engines behind its address.
    pub(crate) ranks: u64,
    /// Usable blocks of each; it advertises one more, the null block.
    pub(crate) blocks: u64,
    pub(crate) block_size: u64,
    pub(crate) max_model_len: u64,
    /// Tokens `/tokenize` counts in anything; `None` answers 404.
    pub(crate) counts: Option<u64>,
    /// The only credentials it may see.
    pub(crate) key: Option<String>,
}

/// A running engine; dropping it closes its port and its connections.
pub(crate) struct Fake<I: Io = TcpStream> {
    shared: Arc<Shared<I>>,
    addr: SocketAddr,
    listener: Option<JoinHandle<()>>,
}

struct Shared<I: Io> {
    spec: FakeSpec,
    facts: Mutex<Facts<I>>,
    news: Notify,
}

struct Facts<I: Io> {
    calls: VecDeque<Call<I>>,
    strangers: Vec<String>,
    held: u64,
    peak: u64,
    tokenized: Vec<Value>,
    connections: Vec<AbortHandle>,
}

/// One generation request and the connection it came on.
pub(crate) struct Call<I: Io = TcpStream> {
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
    wire: Wire<I>,
    /// Blocks it holds while the test has it.
    held: u64,
    shared: Arc<Shared<I>>,
    /// Where the connection goes when the answer is complete.
    back: oneshot::Sender<Wire<I>>,
}

impl Default for FakeSpec {
    /// 64 usable blocks of 16 tokens: 1,024 tokens of KV.
    fn default() -> Self {
        Self {
            model: "tiny".into(),
            ranks: 1,
            blocks: 64,
            block_size: 16,
            max_model_len: 1024,
            counts: Some(10),
            key: None,
        }
    }
}

// === impl Fake ===

impl Fake {
    /// Listens on a free port.
    pub(crate) async fn start(spec: FakeSpec) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut fake = Self::new(spec);
        fake.addr = listener.local_addr().unwrap();
        fake.listen_on(listener);
        fake
    }

    fn listen_on(&mut self, listener: TcpListener) {
        let shared = Arc::clone(&self.shared);
        self.listener = Some(tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                shared.connect(stream);
            }
        }));
    }

    /// Refuses connections from now on and closes those that only wait.
    pub(crate) async fn die(&mut self) {
        let listener = self.listener.take().unwrap();
        listener.abort();
        // Joined, so that the port is closed when this returns.
        assert!(listener.await.unwrap_err().is_cancelled());
        self.hang_up();
    }

    /// Listens again on the same port.
    pub(crate) async fn come_back(&mut self) {
        let listener = TcpListener::bind(self.addr).await.unwrap();
        self.listen_on(listener);
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }
}

impl<I: Io> Fake<I> {
    /// An engine that is given its connections.
    pub(crate) fn new(spec: FakeSpec) -> Self {
        let facts = Facts {
            calls: VecDeque::new(),
            strangers: Vec::new(),
            held: 0,
            peak: 0,
            tokenized: Vec::new(),
            connections: Vec::new(),
        };
        Self {
            shared: Arc::new(Shared {
                spec,
                facts: Mutex::new(facts),
                news: Notify::new(),
            }),
            addr: SocketAddr::from(([127, 0, 0, 1], 1)),
            listener: None,
        }
    }

    /// Closes every connection that no [`Call`] holds.
    pub(crate) fn hang_up(&self) {
        let connections = std::mem::take(&mut self.shared.lock().connections);
        connections.iter().for_each(AbortHandle::abort);
    }

    /// The next generation request.
    pub(crate) async fn call(&self) -> Call<I> {
        loop {
            // Registered first, so that a call that comes in between is seen.
            let news = self.shared.news.notified();
            let call = self.shared.lock().calls.pop_front();
            if let Some(mut call) = call {
                call.check();
                call.hold();
                return call;
            }
            news.await;
        }
    }

    /// Generation requests that nobody looked at.
    pub(crate) fn unseen(&self) -> usize {
        self.shared.lock().calls.len()
    }

    /// Bodies of the `/tokenize` requests so far.
    pub(crate) fn tokenized(&self) -> Vec<Value> {
        self.shared.lock().tokenized.clone()
    }

    /// Most blocks held at once by requests the test had in hand.
    pub(crate) fn peak(&self) -> u64 {
        self.shared.lock().peak
    }

    /// Everything that came was expected.
    pub(crate) fn check(&self) {
        let facts = self.shared.lock();
        assert_eq!(facts.strangers, [""; 0]);
        assert_eq!(facts.calls.len(), 0, "a request reached the engine");
        assert_eq!(facts.held, 0);
    }
}

impl<I: Io> Drop for Fake<I> {
    fn drop(&mut self) {
        if let Some(listener) = &self.listener {
            listener.abort();
        }
        self.hang_up();
    }
}

/// Reaches an engine over in-memory streams, whatever the address.
#[derive(Clone)]
pub(crate) struct InMemory(pub(crate) Arc<Fake<DuplexStream>>);

impl Connector for InMemory {
    type Io = DuplexStream;

    fn connect(
        &self,
        _: http::Uri,
    ) -> impl Future<Output = io::Result<DuplexStream>> + Send + 'static {
        let (near, far) = tokio::io::duplex(64 * 1024);
        self.0.shared.connect(far);
        std::future::ready(Ok(near))
    }
}

/// Whether a request is a client's, and not a question of the gateway's own.
fn is_forwarded(head: &Head) -> bool {
    let served = route_of(head).is_some_and(|route| route != Route::Models);
    served && head.get("x-request-id").is_some()
}

fn route_of(head: &Head) -> Option<Route> {
    let path = head.second_word();
    let mut served = Route::served();
    served.find_map(|(served, route)| (served == path).then_some(route))
}

// === impl Shared ===

impl<I: Io> Shared<I> {
    fn lock(&self) -> MutexGuard<'_, Facts<I>> {
        self.facts.lock().unwrap()
    }

    fn connect(self: &Arc<Self>, io: I) {
        let serving = tokio::spawn(Arc::clone(self).serve(Wire::new(io)));
        self.lock().connections.push(serving.abort_handle());
    }

    async fn serve(self: Arc<Self>, mut wire: Wire<I>) {
        loop {
            let Ok(head) = wire.head().await else { return };
            let (body, Ending::Whole) = wire.body(&head).await else {
                return;
            };
            let is_ours = is_forwarded(&head);
            let back = if is_ours {
                let (back, returned) = oneshot::channel();
                self.take(Call {
                    head,
                    body,
                    wire,
                    held: 0,
                    shared: Arc::clone(&self),
                    back,
                });
                returned.await.ok()
            } else {
                let sent = wire.send(&self.page(&head, &body)).await;
                sent.map(|()| wire).ok()
            };
            let Some(returned) = back else { return };
            wire = returned;
        }
    }

    fn take(&self, call: Call<I>) {
        self.lock().calls.push_back(call);
        self.news.notify_waiters();
    }

    /// The answer to anything but a generation request.
    fn page(&self, head: &Head, body: &[u8]) -> Vec<u8> {
        let spec = &self.spec;
        let json = "application/json";
        match (head.second_word(), spec.counts) {
            ("/health", _) => answer(200, json, b""),
            ("/version", _) => answer(200, json, br#"{"version":"0.32.0"}"#),
            ("/v1/models", _) => answer(200, json, spec.models().as_bytes()),
            ("/metrics", _) => answer(200, "text/plain", spec.metrics().as_bytes()),
            ("/tokenize", Some(count)) => {
                let asked = serde_json::from_slice(body).unwrap();
                self.lock().tokenized.push(asked);
                answer(200, json, spec.tokens(count).as_bytes())
            }
            ("/v1/messages/count_tokens", Some(count)) => {
                let asked = serde_json::from_slice(body).unwrap();
                self.lock().tokenized.push(asked);
                let counted = format!(r#"{{"input_tokens":{count}}}"#);
                answer(200, json, counted.as_bytes())
            }
            ("/tokenize" | "/v1/messages/count_tokens", None) => {
                answer(404, json, br#"{"detail":"Not Found"}"#)
            }
            (path, _) => {
                self.lock().strangers.push(path.to_owned());
                answer(404, json, b"{}")
            }
        }
    }
}

// === impl FakeSpec ===

impl FakeSpec {
    fn models(&self) -> String {
        let (model, longest) = (&self.model, self.max_model_len);
        format!(
            r#"{{"object":"list","data":[{{"id":"{model}","object":"model","created":1,"owned_by":"vllm","root":"{model}","parent":null,"max_model_len":{longest}}}]}}"#
        )
    }

    fn metrics(&self) -> String {
        let size = self.block_size;
        let tokens = (self.blocks + 1) * size;
        // The front end writes the sum over its engines on each of them.
        let blocks = (self.blocks + 1) * self.ranks;
        let of_rank = |rank: u64| {
            format!(
                "vllm:num_requests_running{{engine=\"{rank}\"}} 0\n\
                 vllm:num_requests_waiting{{engine=\"{rank}\"}} 0\n\
                 vllm:cache_config_info{{block_size=\"{size}\",num_gpu_blocks=\"{blocks}\",\
                 kv_cache_size_tokens=\"{tokens}\",engine=\"{rank}\"}} 1\n"
            )
        };
        (0..self.ranks).map(of_rank).collect()
    }

    fn tokens(&self, count: u64) -> String {
        let longest = self.max_model_len;
        let ids = vec!["7"; usize::try_from(count).unwrap()].join(",");
        format!(
            r#"{{"count":{count},"max_model_len":{longest},"tokens":[{ids}],"token_strs":null}}"#
        )
    }

    /// Blocks a request holds until its end, by its own body.
    fn footprint(&self, body: &Value) -> u64 {
        let prompt = match &body["prompt"] {
            Value::Array(ids) => u64::try_from(ids.len()).unwrap(),
            _ => self.counts.unwrap_or(1),
        };
        let asked = body["max_tokens"]
            .as_u64()
            .or(body["max_output_tokens"].as_u64());
        let output = asked.unwrap_or(1);
        (prompt + output - 1).div_ceil(self.block_size)
    }
}

// === impl Call ===

impl<I: Io> Call<I> {
    /// The body as JSON, with or without a byte order mark, as engines read it.
    pub(crate) fn json(&self) -> Value {
        let body = self.body.strip_prefix("\u{feff}".as_bytes());
        serde_json::from_slice(body.unwrap_or(&self.body)).unwrap()
    }

    fn check(&self) {
        let orders = |name: &str| name.starts_with("x-tidegate-") || name.starts_with("x-vllm-");
        for (name, value) in &self.head.headers {
            assert!(!orders(name), "the engine got {name}: {value}");
        }
        let key = self.shared.spec.key.as_ref();
        let bearer = key.map(|key| format!("Bearer {key}"));
        assert_eq!(self.head.get("authorization"), bearer.as_deref());
        assert!(self.head.get("x-request-id").is_some());
    }

    /// Charges it; more than the pool fails the test.
    fn hold(&mut self) {
        let spec = &self.shared.spec;
        // A form is no JSON, and what it holds is not for this engine to know.
        let body = serde_json::from_slice(&self.body).unwrap_or_default();
        self.held = match route_of(&self.head).map(Route::work) {
            Some(WorkKind::Aside) => 0,
            _ => spec.footprint(&body),
        };
        let mut facts = self.shared.lock();
        facts.held += self.held;
        facts.peak = facts.peak.max(facts.held);
        let (held, blocks) = (facts.held, spec.blocks * spec.ranks);
        drop(facts);
        assert!(held <= blocks, "{held} blocks of {blocks}");
    }

    fn give_back(&mut self) {
        self.shared.lock().held -= std::mem::take(&mut self.held);
    }

    /// Sends these bytes as they are.
    pub(crate) async fn say(&mut self, bytes: &[u8]) {
        self.wire.send(bytes).await.unwrap();
    }

    /// Sends what of `bytes` is taken at once; returns how much that was.
    pub(crate) async fn try_some(&mut self, bytes: &[u8]) -> usize {
        self.wire.send_some(bytes).await
    }

    /// Begins a stream.
    pub(crate) async fn stream(&mut self) {
        let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
            transfer-encoding: chunked\r\n\r\n";
        self.say(head).await;
    }

    /// A piece of a stream, one chunk; not empty, which would end the stream.
    pub(crate) async fn chunk(&mut self, payload: &[u8]) {
        let mut bytes = format!("{:x}\r\n", payload.len()).into_bytes();
        bytes.extend_from_slice(payload);
        bytes.extend_from_slice(b"\r\n");
        self.say(&bytes).await;
    }

    /// Ends a stream properly.
    pub(crate) async fn end(mut self) {
        self.give_back();
        self.say(b"0\r\n\r\n").await;
        self.hand_back();
    }

    /// Answers at once and completely.
    pub(crate) async fn answer(mut self, status: u16, media: &str, body: &[u8]) {
        self.give_back();
        self.say(&answer(status, media, body)).await;
        self.hand_back();
    }

    /// Answers with this JSON.
    pub(crate) async fn ok(self, body: &str) {
        self.answer(200, "application/json", body.as_bytes()).await;
    }

    /// The answer is complete: the connection waits for the next request.
    pub(crate) fn hand_back(mut self) {
        self.give_back();
        let (back, wire) = (self.back, self.wire);
        // An engine that died meanwhile has no use for it.
        drop(back.send(wire));
    }

    /// Closes the connection without a reset.
    pub(crate) fn close(mut self) {
        self.give_back();
    }

    /// Resets the connection.
    pub(crate) fn reset(mut self) {
        self.give_back();
        self.wire.reset();
    }

    /// Waits until the gateway closes the connection, and says how.
    pub(crate) async fn gone(mut self) -> Ending {
        let (said, ending) = self.wire.rest().await;
        assert_eq!(said, b"", "nothing may follow a request");
        self.give_back();
        ending
    }
}

/// A whole answer.
fn answer(status: u16, media: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: {media}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}
