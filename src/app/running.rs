//! A gateway with sockets, inside this program: for the command, tests and the demo.
//!
//! Decides the order of the end: the door closes, connections finish, what is
//! left is cut, the books' tasks go last. Dropping it cuts everything at once.

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::config::Config;
use crate::layers::pool::Pools;
use crate::telemetry::Telemetry;
use crate::upstream::client::{Client, Tcp};

use super::admin::Admin;
use super::discovery::SystemResolver;
use super::drain::{Drain, Phase, Watcher};
use super::error::Error;
use super::follow::Follower;
use super::gateway::{Gateway, Visitor, timing};
use super::given::{Given, adopt};
use super::listen::listen;
use super::sockets::{bind, prepare};

/// How often [`Running::ready`] looks.
const READY_LOOK: Duration = Duration::from_millis(10);

/// From the end of the drain timeout to the cut, so that what says why gets
/// out; a client that reads too slowly for it sees the cut alone.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// From the last answer until spans that are not sent are given up.
const LAST_SPANS: Duration = Duration::from_secs(2);

/// A gateway that listens.
pub struct Running {
    addr: SocketAddr,
    admin_addr: SocketAddr,
    gateway: Arc<Gateway>,
    drain: Drain,
    watcher: Watcher,
    clients: JoinSet<()>,
    admin: JoinSet<()>,
    follower: JoinSet<()>,
    /// Asks the follower to read everything anew; what is sent is dropped when it has.
    anew: Option<mpsc::UnboundedSender<oneshot::Sender<()>>>,
}

/// Starts a gateway on the addresses of `config`; port 0 takes a free one.
///
/// Returns once it listens; backends are found out and tokenizers loaded after
/// that, see `/readyz`.
///
/// # Errors
/// An address cannot be bound, a backend's address or key cannot be used, the
/// access log cannot be opened.
pub async fn start(config: Config) -> Result<Running, Error> {
    start_on(config, Given::default()).await
}

/// The same, on the sockets it was `given` where there are some.
///
/// # Errors
/// As [`start`]; a given socket cannot be listened on.
pub async fn start_on(config: Config, given: Given) -> Result<Running, Error> {
    let listener = open(given.public, config.server.listen)?;
    let admin_listener = open(given.admin, config.admin.listen)?;
    let (addr, admin_addr) = (local(&listener)?, local(&admin_listener)?);
    let client = Client::<Tcp>::tcp(timing(&config.upstream));
    let gateway = Arc::new(Gateway::assemble(config, client)?);
    let (drain, watcher) = Drain::new();
    let mut clients = JoinSet::new();
    clients.spawn({
        let (gateway, watcher) = (Arc::clone(&gateway), watcher.clone());
        async move {
            let (connections, places) = (watcher.clone(), gateway.places().clone());
            listen(listener, watcher, places, move |stream, peer, place| {
                let server = &gateway.snapshot().config.server;
                prepare(&stream, server.dead_client_timeout);
                let visitor = Visitor {
                    peer: peer.ip().into(),
                    place,
                };
                Arc::clone(&gateway).receive(stream, visitor, connections.clone())
            })
            .await;
        }
    });
    let mut admin = JoinSet::new();
    admin.spawn(Admin::new(Arc::clone(&gateway), watcher.clone()).listen(admin_listener));
    let mut follower = JoinSet::new();
    follower.spawn(gateway.discover(SystemResolver));
    Ok(Running {
        addr,
        admin_addr,
        gateway,
        drain,
        watcher,
        clients,
        admin,
        follower,
        anew: None,
    })
}

fn open(given: Option<std::net::TcpListener>, addr: SocketAddr) -> Result<TcpListener, Error> {
    match given {
        Some(socket) => adopt(socket).map_err(Error::Given),
        None => bind(addr).map_err(|source| Error::Bind { addr, source }),
    }
}

fn local(listener: &TcpListener) -> Result<SocketAddr, Error> {
    listener.local_addr().map_err(Error::Listener)
}

// === impl Running ===

impl Running {
    /// Where clients connect.
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where operators connect.
    pub const fn admin_addr(&self) -> SocketAddr {
        self.admin_addr
    }

    /// The pools in force, for a look at their books.
    pub fn pools(&self) -> Arc<Pools> {
        self.gateway.pools()
    }

    /// Waits until every model can be served. Cancelling is harmless.
    pub async fn ready(&self) {
        while !self.gateway.is_ready() {
            tokio::time::sleep(READY_LOOK).await;
        }
    }

    /// Follows the file at `path`, which its configuration was read from: what
    /// changes there or in a file it names is put in force within seconds, and
    /// what is wrong with it is told. See [`Gateway::reload_file`].
    pub fn follow(&mut self, path: impl Into<PathBuf>) {
        let follower = Follower::new(Arc::clone(&self.gateway), path.into());
        // As many as there are signals.
        let (ask, asked) = mpsc::unbounded_channel();
        self.anew = Some(ask);
        self.follower.spawn(follower.run(asked));
    }

    /// Has the configuration that is followed read at once, whether its files
    /// have changed or not, and then all tokenizers and templates, which goes on
    /// in the background. The future ends when the configuration was read, and
    /// need not be waited for; where no file is followed nothing happens.
    pub fn reload(&self) -> impl Future<Output = ()> + Send + use<> {
        let (told, done) = oneshot::channel();
        // Dropped at once where nobody follows.
        let asked = self.anew.as_ref().map(|anew| anew.send(told));
        async move {
            drop(asked);
            // Nothing is sent: whoever has read it drops the other end.
            drop(done.await);
        }
    }

    /// The gateway behind the sockets.
    pub fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// Metrics and access log.
    pub fn telemetry(&self) -> &Arc<Telemetry> {
        self.gateway.telemetry()
    }

    /// Stops taking requests and returns when every running one has ended. What
    /// is left after the configured drain timeout is told so and cut, a second
    /// later at most. Dropping the future cuts at once.
    pub async fn shutdown(mut self) {
        self.begin_drain();
        let limit = self.gateway.snapshot().config.server.drain_timeout;
        if !self.finished_within(limit).await {
            tracing::warn!(after = ?limit, "drain timeout: running requests are cut");
            self.gateway.end_requests();
            self.finished_within(LAST_WORDS).await;
        }
        let gateway = Arc::clone(&self.gateway);
        self.cut().await;
        gateway.telemetry().flush(LAST_SPANS).await;
    }

    /// Waits for the last client; says whether it has left in time.
    async fn finished_within(&mut self, limit: Duration) -> bool {
        let finish = async { while self.clients.join_next().await.is_some() {} };
        tokio::time::timeout(limit, finish).await.is_ok()
    }

    /// Takes no new request from now on; running ones go on.
    pub fn begin_drain(&self) {
        self.gateway.close_door();
        self.drain.advance(Phase::Draining);
    }

    /// Cuts what is left.
    pub async fn cut(mut self) {
        self.drain.advance(Phase::Cut);
        self.clients.shutdown().await;
        self.admin.shutdown().await;
    }

    /// Where the gateway is on its way out.
    pub fn phase(&self) -> Phase {
        self.watcher.phase()
    }
}
