//! A gateway and a scripted engine over in-memory streams, for scenarios whose
//! timers are long: with a paused clock time jumps from one timer to the next,
//! but only once nothing else can happen.

use std::sync::Arc;

use tidegate::app::{Drain, Gateway, Watcher, timing};
use tidegate::core::stats::PoolState;
use tidegate::upstream::client::Client as Upstream;
use tokio::io::DuplexStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Guard;
use super::client::{Ask, Client};
use super::fake::{Call, Fake, FakeSpec, InMemory};
use super::setup::{Setup, backend};
use super::wire::Wire;

/// The gateway, the engine, and the connections between.
pub(crate) struct Memory {
    fake: Arc<Fake<DuplexStream>>,
    gateway: Arc<Gateway>,
    connections: JoinSet<()>,
    watcher: Watcher,
    _drain: Drain,
    _guard: Guard,
}

impl Memory {
    /// One engine of 1,024 tokens behind `tiny`.
    pub(crate) async fn new(change: impl FnOnce(Setup) -> Setup) -> Self {
        let guard = Guard::new();
        let fake = Arc::new(Fake::new(FakeSpec::default()));
        let setup = change(Setup::tiny(&[backend("a", "http://engine:1", "")]));
        let config = setup
            .set("probe.interval", "\"10s\"")
            .set("probe.stale_after", "\"60s\"")
            .config();
        let upstream = Upstream::new(InMemory(Arc::clone(&fake)), timing(&config.upstream));
        let gateway = Arc::new(Gateway::assemble(config, upstream).unwrap());
        while !gateway.is_ready() {
            tokio::task::yield_now().await;
        }
        let (drain, watcher) = Drain::new();
        Self {
            fake,
            gateway,
            connections: JoinSet::new(),
            watcher,
            _drain: drain,
            _guard: guard,
        }
    }

    /// A new connection.
    pub(crate) fn connect(&mut self) -> Client<DuplexStream> {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let peer = std::net::IpAddr::from(std::net::Ipv4Addr::LOCALHOST).into();
        let gateway = Arc::clone(&self.gateway);
        self.connections
            .spawn(gateway.serve(far, peer, self.watcher.clone()));
        Client(Wire::new(near))
    }

    /// A new connection on which `ask` was sent.
    pub(crate) async fn send(&mut self, ask: &Ask) -> Client<DuplexStream> {
        let mut client = self.connect();
        client.send(ask).await;
        client
    }

    /// The next request at the engine.
    pub(crate) async fn call(&self) -> Call<DuplexStream> {
        self.fake.call().await
    }

    /// The books of the pool.
    pub(crate) fn pool(&self) -> PoolState {
        self.gateway.pools().all()[0].gate().state()
    }

    /// Waits until `count` requests wait.
    pub(crate) async fn until_waiting(&self, count: u32) {
        while self.pool().queue.requests != count {
            tokio::task::yield_now().await;
        }
    }

    /// The books at the end: nothing held, everything accounted for.
    pub(crate) async fn settle(&self) -> PoolState {
        while !self.pool().is_idle() || self.gateway.body_bytes() > 0 {
            tokio::task::yield_now().await;
        }
        let pool = self.pool();
        let totals = &pool.totals;
        let asked = totals.admitted + totals.refused + totals.expired + totals.left;
        assert_eq!(totals.received, asked);
        let ended = totals.finished + totals.failed + totals.cancelled;
        assert_eq!(totals.admitted, ended);
        self.fake.check();
        pool
    }
}

/// Whole seconds since `began`, on the paused clock.
pub(crate) fn seconds_since(began: Instant) -> u64 {
    began.elapsed().as_secs()
}
