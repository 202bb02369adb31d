//! An engine that says what a test tells it to, byte by byte.
//!
//! It answers probes and `/tokenize` by itself, or as a test wants it with
//! [`Fake::page`], and hands every generation request to the test as a
//! [`Call`]. It keeps what came, byte by byte, and how each connection ended.
//! What must not reach an engine (other paths, a client's credentials or
//! orders, more KV than there is) fails the test in [`Fake::check`] or at once.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;
use tidegate::protocol::Route;
use tidegate::upstream::client::Connector;
use tokio::io::DuplexStream;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::task::{AbortHandle, JoinHandle};

use super::wire::{Ending, Head, Io, Wire};

mod call;
mod link;
mod spec;

pub(crate) use call::Call;
use link::Line;
pub(crate) use link::{Link, LinkEnd};
pub(crate) use spec::{FakeSpec, Page};

/// A running engine; dropping it closes its port and its connections.
pub(crate) struct Fake<I: Io = TcpStream> {
    shared: Arc<Shared<I>>,
    addr: SocketAddr,
    listener: Option<JoinHandle<()>>,
}

struct Shared<I: Io> {
    facts: Mutex<Facts<I>>,
    news: Notify,
}

struct Facts<I: Io> {
    spec: FakeSpec,
    pages: BTreeMap<String, Page>,
    /// Requests for each page that is the engine's own.
    asked: BTreeMap<String, u32>,
    calls: VecDeque<Call<I>>,
    strangers: Vec<String>,
    held: u64,
    peak: u64,
    sequences: u64,
    peak_sequences: u64,
    tokenized: Vec<Value>,
    links: Vec<Link>,
    connections: Vec<AbortHandle>,
    /// What an engine that is given its connections does with them.
    port: Port,
}

/// What becomes of a new connection in memory.
#[derive(Clone, Copy)]
enum Port {
    Open,
    Refusing,
    /// Nobody is at the address: nothing comes back.
    Gone,
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

impl Fake<DuplexStream> {
    /// Refuses connections from now on and closes those that only wait.
    pub(crate) fn refuse(&self) {
        self.shared.lock().port = Port::Refusing;
        self.hang_up();
    }

    /// Lets connections hang from now on, and closes those that only wait.
    pub(crate) fn vanish(&self) {
        self.shared.lock().port = Port::Gone;
        self.hang_up();
    }

    /// Takes connections again.
    pub(crate) fn accept(&self) {
        self.shared.lock().port = Port::Open;
    }
}

impl<I: Io> Fake<I> {
    /// An engine that is given its connections.
    pub(crate) fn new(spec: FakeSpec) -> Self {
        let facts = Facts {
            spec,
            pages: BTreeMap::new(),
            asked: BTreeMap::new(),
            calls: VecDeque::new(),
            strangers: Vec::new(),
            held: 0,
            peak: 0,
            sequences: 0,
            peak_sequences: 0,
            tokenized: Vec::new(),
            links: Vec::new(),
            connections: Vec::new(),
            port: Port::Open,
        };
        Self {
            shared: Arc::new(Shared {
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

    /// From now on `path` (of GET pages and `/tokenize`) answers this.
    pub(crate) fn page(&self, path: &str, page: Page) {
        self.shared.lock().pages.insert(path.into(), page);
        self.shared.news.notify_waiters();
    }

    /// From now on `path` answers as an engine does by itself.
    pub(crate) fn own_page(&self, path: &str) {
        self.shared.lock().pages.remove(path);
        self.shared.news.notify_waiters();
    }

    /// From now on it says this of itself.
    pub(crate) fn change(&self, change: impl FnOnce(&mut FakeSpec)) {
        change(&mut self.shared.lock().spec);
    }

    /// What it says of itself.
    pub(crate) fn spec(&self) -> FakeSpec {
        self.shared.spec()
    }

    /// Requests so far for `path`, one of its own pages.
    pub(crate) fn asked(&self, path: &str) -> u32 {
        self.shared.lock().asked.get(path).copied().unwrap_or(0)
    }

    /// Waits until `path` was asked `more` times from now on.
    pub(crate) async fn until_asked(&self, path: &str, more: u32) {
        let enough = self.asked(path) + more;
        self.until(|fake| fake.asked(path) >= enough).await;
    }

    /// Waits until something the engine sees is as awaited.
    pub(crate) async fn until(&self, awaited: impl Fn(&Self) -> bool) {
        loop {
            // Registered first, so that what happens in between is seen.
            let news = self.shared.news.notified();
            if awaited(self) {
                return;
            }
            news.await;
        }
    }

    /// The next generation request.
    pub(crate) async fn call(&self) -> Call<I> {
        loop {
            // Registered first, so that a call that comes in between is seen.
            let news = self.shared.news.notified();
            if let Some(call) = self.try_call() {
                return call;
            }
            news.await;
        }
    }

    /// The next generation request, uncharged: for engines that do not see at
    /// once that a request has left them.
    pub(crate) async fn any_call(&self) -> Call<I> {
        loop {
            let news = self.shared.news.notified();
            let call = self.shared.lock().calls.pop_front();
            if let Some(call) = call {
                call.check();
                return call;
            }
            news.await;
        }
    }

    /// The next generation request, if one is there.
    pub(crate) fn try_call(&self) -> Option<Call<I>> {
        let mut call = self.shared.lock().calls.pop_front()?;
        call.check();
        call.hold();
        Some(call)
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

    /// Most sequences of such requests at once.
    pub(crate) fn peak_sequences(&self) -> u64 {
        self.shared.lock().peak_sequences
    }

    /// Every connection so far, in the order of their beginnings.
    pub(crate) fn links(&self) -> Vec<Link> {
        self.shared.lock().links.clone()
    }

    /// Connections that are open.
    pub(crate) fn open_links(&self) -> usize {
        let facts = self.shared.lock();
        facts
            .links
            .iter()
            .filter(|link| link.ended.is_none())
            .count()
    }

    /// Everything that came was expected.
    pub(crate) fn check(&self) {
        let facts = self.shared.lock();
        assert_eq!(facts.strangers, [""; 0]);
        assert_eq!(facts.calls.len(), 0, "a request reached the engine");
        assert_eq!((facts.held, facts.sequences), (0, 0));
    }
}

impl<I: Io> Drop for Fake<I> {
    fn drop(&mut self) {
        if let Some(listener) = &self.listener {
            listener.abort();
        }
        self.hang_up();
        // They hold what holds them.
        let calls = std::mem::take(&mut self.shared.lock().calls);
        let strangers = self.shared.lock().strangers.clone();
        let unseen = calls.len();
        drop(calls);
        if !std::thread::panicking() {
            assert_eq!(strangers, [""; 0]);
            assert_eq!(unseen, 0, "requests reached an engine and no test");
        }
    }
}

/// Reaches engines over in-memory streams by the host of their address.
#[derive(Clone)]
pub(crate) struct InMemory(pub(crate) Arc<BTreeMap<String, Arc<Fake<DuplexStream>>>>);

impl Connector for InMemory {
    type Io = DuplexStream;

    fn connect(
        &self,
        to: http::Uri,
    ) -> impl Future<Output = io::Result<DuplexStream>> + Send + 'static {
        let fake = &self.0[to.host().unwrap()];
        let port = fake.shared.lock().port;
        let (near, far) = tokio::io::duplex(64 * 1024);
        if let Port::Open = port {
            fake.shared.connect(far);
        }
        async move {
            match port {
                Port::Open => Ok(near),
                Port::Refusing => Err(io::ErrorKind::ConnectionRefused.into()),
                Port::Gone => std::future::pending().await,
            }
        }
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

    fn spec(&self) -> FakeSpec {
        self.lock().spec.clone()
    }

    fn connect(self: &Arc<Self>, io: I) {
        let line = Line::new(Wire::keeping(io), self);
        let serving = tokio::spawn(Arc::clone(self).serve(line));
        self.lock().connections.push(serving.abort_handle());
    }

    async fn serve(self: Arc<Self>, mut line: Line<I>) {
        loop {
            let head = match line.wire.head().await {
                Ok(head) => head,
                Err(ending) => return line.peer_ended(ending),
            };
            let (body, ending) = line.wire.body(&head).await;
            if ending != Ending::Whole {
                return line.peer_ended(ending);
            }
            line.asked();
            let raw = line.wire.taken();
            let back = if is_forwarded(&head) {
                let (back, returned) = oneshot::channel();
                self.take(Call {
                    head,
                    body,
                    raw,
                    line,
                    held: 0,
                    sequences: 0,
                    shared: Arc::clone(&self),
                    back,
                });
                returned.await.ok()
            } else {
                self.show(line, &head, &body).await
            };
            let Some(returned) = back else { return };
            line = returned;
        }
    }

    fn take(&self, call: Call<I>) {
        self.lock().calls.push_back(call);
        self.news.notify_waiters();
    }

    /// Answers anything but a generation request, if the connection stays.
    async fn show(&self, mut line: Line<I>, head: &Head, body: &[u8]) -> Option<Line<I>> {
        let path = head.second_word();
        *self.lock().asked.entry(path.to_owned()).or_default() += 1;
        self.news.notify_waiters();
        let page = self.page_of(path).await;
        match page {
            None => {
                let own = self.own_answer(path, body);
                line.wire.send(&own).await.ok()?;
            }
            Some(Page::Whole(status, media, body)) => {
                let whole = answer(status, media, body.as_bytes());
                line.wire.send(&whole).await.ok()?;
            }
            Some(Page::Raw(bytes)) => {
                line.wire.send(&bytes).await.ok()?;
                return None;
            }
            Some(Page::Reset) => {
                line.reset();
                return None;
            }
            Some(Page::Closed | Page::Silent | Page::Late(..)) => return None,
        }
        Some(line)
    }

    /// What a test put in place of a page, once it says something.
    async fn page_of(&self, path: &str) -> Option<Page> {
        loop {
            let news = self.news.notified();
            let mut page = self.lock().pages.get(path).cloned();
            while let Some(Page::Late(delay, then)) = page {
                tokio::time::sleep(delay).await;
                page = Some(*then);
            }
            if !matches!(page, Some(Page::Silent)) {
                return page;
            }
            news.await;
        }
    }

    /// What an engine answers by itself.
    fn own_answer(&self, path: &str, body: &[u8]) -> Vec<u8> {
        let json = "application/json";
        let spec = self.spec();
        match (path, spec.counts) {
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
