//! Floor 5: the simulated engine behind HTTP, shaped like a vLLM server.
//!
//! [`SimServer::start`] gives a server in this process for tests and the demo; the
//! `vllm-sim` command runs one alone. It answers the routes, error bodies, streams and
//! metrics of vLLM 0.32 as captured from a real server, with [`crate::sim::engine`]
//! deciding who runs. It never admits or refuses beyond what vLLM does. Faults are
//! injected through the library, not through HTTP. Invariant: a request whose client has
//! gone holds no KV block.

mod answer;
mod apis;
mod clock;
mod connection;
mod door;
mod job;
mod meters;
mod named;
mod page;
mod prompt;
mod read;
mod refuse;
mod routes;
mod state;
mod stream;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use tokio::task::{JoinHandle, JoinSet};

use crate::sim::engine::{EngineSpec, EngineStats};

pub use prompt::CHAT_TEMPLATE;

use door::{Closing, Door};
use state::{Mode, Shared};

/// What a server is started with.
#[derive(Clone, Debug)]
pub struct SimServerSpec {
    /// The engine behind it.
    pub engine: EngineSpec,
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Names it answers to; the first labels the metrics: `--served-model-name`. Never empty.
    pub models: Vec<String>,
    /// Real seconds per simulated second, positive: 1 is the profile's own speed, 0.1 ten
    /// times faster.
    pub time_scale: f64,
    /// How long answers are where the request does not say.
    pub output: OutputLength,
    /// Seed of ids and of drawn lengths.
    pub seed: u64,
    /// Sequences running and waiting beyond which a request gets 503: `--max-num-queued-reqs`.
    pub max_num_queued_reqs: Option<u32>,
    /// Key that `/v1` asks for: `--api-key`.
    pub api_key: Option<String>,
    /// An idle connection is closed after this long; vLLM's is 5 s.
    pub keep_alive: Duration,
}

/// How long a sequence really is, where the body bears no `vllm_xargs.sim_output_tokens`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OutputLength {
    /// Always to the limit, as with `ignore_eos`.
    Limit,
    /// This share of the limit, drawn evenly per request from the seed; both within 0..=1.
    Share {
        /// The least.
        least: f64,
        /// The most.
        most: f64,
    },
    /// This many tokens, or the limit where that is less.
    Tokens(u64),
}

/// How an engine dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kill {
    /// Streams get an error event, `[DONE]` and a clean end, other requests 500; the port
    /// refuses at once.
    InBand,
    /// The same, but the HTTP server stays: `/health` is 503 and requests get 500.
    EngineOnly,
    /// Every connection is reset and the port refuses.
    Reset,
}

/// What a server was asked, as it arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// All headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

/// A running server. Dropping it stops it and cuts every connection.
pub struct SimServer {
    shared: Arc<Shared>,
    door: Arc<Door>,
    _driver: Task,
    _listener: Task,
}

/// A task that ends with its owner.
struct Task(JoinHandle<()>);

/// Whether a server turns generation requests away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shedding {
    /// Every one, with 503.
    All,
    /// Those beyond its own limits, as configured.
    AsConfigured,
}

// === impl SimServerSpec ===

impl SimServerSpec {
    /// A server on a free loopback port for one model, at the profile's own speed, with
    /// answers that run to their limit.
    pub fn new(model: impl Into<String>, engine: EngineSpec) -> Self {
        Self {
            engine,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            models: vec![model.into()],
            time_scale: 1.0,
            output: OutputLength::Limit,
            seed: 0,
            max_num_queued_reqs: None,
            api_key: None,
            keep_alive: Duration::from_secs(5),
        }
    }
}

// === impl SimServer ===

impl SimServer {
    /// Binds and serves until dropped. Needs a tokio runtime around it.
    ///
    /// # Errors
    /// Where the address cannot be bound.
    pub fn start(spec: SimServerSpec) -> io::Result<Self> {
        let door = Arc::new(Door::open(spec.listen)?);
        let shared = Arc::new(Shared::new(spec));
        let driver = tokio::spawn(Arc::clone(&shared).drive());
        let listener = tokio::spawn(listen(Arc::clone(&door), Arc::clone(&shared)));
        Ok(Self {
            shared,
            door,
            _driver: Task(driver),
            _listener: Task(listener),
        })
    }

    /// Where it listens; the same after a restart.
    pub fn addr(&self) -> SocketAddr {
        self.door.addr
    }

    /// `http://host:port`.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr())
    }

    /// Levels and counters of the engine now.
    pub fn stats(&self) -> EngineStats {
        self.shared.lock().engine.stats()
    }

    /// Waits until the engine's figures satisfy `reached` and returns them. Cancelling is
    /// harmless.
    ///
    /// # Panics
    /// Once the engine has, under [`crate::sim::engine::OnOverflow::Panic`].
    pub async fn wait_until(&self, mut reached: impl FnMut(&EngineStats) -> bool) -> EngineStats {
        let mut stats = self.shared.watch();
        let seen = stats
            .wait_for(|stats| stats.as_ref().is_none_or(&mut reached))
            .await;
        let seen = seen.expect("the figures are published as long as the server lives");
        seen.expect("the simulated engine did not panic")
    }

    /// The requests received so far, oldest first; the last 1024 of them.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.lock().seen.iter().cloned().collect()
    }

    /// Stops the engine's clock: requests are accepted, wait or stand still, and `/health`
    /// stays 200. A wedged engine; also the way to watch a state without racing it.
    pub fn hold(&self) {
        self.shared.update(|state| state.stop(Mode::Held));
    }

    /// Lets a held engine go on.
    pub fn release(&self) {
        self.shared.update(|state| state.go_on_from(Mode::Held));
    }

    /// Runs at most `steps` steps of a held engine at once. The step that is being computed
    /// counts as the first.
    pub fn run_steps(&self, steps: u32) {
        self.shared.update(|state| state.run_steps(steps));
    }

    /// Puts the engine to sleep: what runs is aborted, new requests hang, `/health` is 200
    /// and `vllm:engine_sleep_state` says so.
    pub fn sleep(&self) {
        self.shared.update(state::State::sleep);
    }

    /// Wakes a sleeping engine.
    pub fn wake(&self) {
        self.shared.update(|state| state.go_on_from(Mode::Asleep));
    }

    /// Kills the engine. Only [`SimServer::restart`] brings it back.
    pub fn kill(&self, how: Kill) {
        match how {
            Kill::EngineOnly => self.shared.update(state::State::kill),
            Kill::InBand => {
                self.shared.update(state::State::kill);
                self.door.shut(Closing::Graceful);
            }
            Kill::Reset => {
                self.shared.update(state::State::vanish);
                self.door.shut(Closing::Reset);
            }
        }
    }

    /// Refuses new connections from now on; open ones stay.
    pub fn refuse(&self) {
        self.door.shut(Closing::Keep);
    }

    /// Serves again on the same address with a new engine: counters begin at zero, and open
    /// connections end.
    ///
    /// # Errors
    /// Where the address cannot be listened on again.
    pub fn restart(&self, engine: EngineSpec) -> io::Result<()> {
        self.door.shut(Closing::Graceful);
        self.shared.update(|state| state.restart(engine));
        self.door.reopen()
    }

    /// Answers 503 for a full queue to every generation request, or stops doing so.
    pub fn shed(&self, shedding: Shedding) {
        self.shared.update(|state| state.shedding = shedding);
    }

    /// Waits this long before the headers of every generation answer; zero for none.
    pub fn delay_headers(&self, delay: Duration) {
        self.shared.update(|state| state.header_delay = delay);
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Accepts for ever; owns every connection.
async fn listen(door: Arc<Door>, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            (stream, closing) = door.accept() => {
                connections.spawn(connection::serve(stream, Arc::clone(&shared), closing));
            }
            Some(_ended) = connections.join_next() => {}
        }
    }
}
