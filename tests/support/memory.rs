//! A gateway and scripted engines over in-memory streams, for scenarios whose
//! timers are long: with a paused clock time jumps from one timer to the next,
//! but only once nothing else can happen.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate::app::{Drain, Gateway, Resolver, Watcher, timing};
use tidegate::core::stats::PoolState;
use tidegate::upstream::client::Client as Upstream;
use tokio::io::DuplexStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Guard;
use super::client::{Ask, Client};
use super::fake::{Call, Fake, FakeSpec, InMemory};
use super::promises::Watch;
use super::setup::{Setup, backend};
use super::wire::Wire;

/// How often [`Memory::in_time`] looks, on the paused clock.
const STEP: Duration = Duration::from_millis(100);

/// The gateway, its engines, and the connections between.
pub(crate) struct Memory {
    fakes: Vec<Arc<Fake<DuplexStream>>>,
    gateway: Arc<Gateway>,
    connections: JoinSet<()>,
    watcher: Watcher,
    _drain: Drain,
    watch: Watch,
    _guard: Guard,
}

impl Memory {
    /// One engine of 1,024 tokens behind `tiny`.
    pub(crate) async fn new(change: impl FnOnce(Setup) -> Setup) -> Self {
        Self::of([FakeSpec::default()], change).await
    }

    /// One engine of each spec behind `tiny`, as backends `a`, `b` and so on.
    pub(crate) async fn of(
        specs: impl IntoIterator<Item = FakeSpec>,
        change: impl FnOnce(Setup) -> Setup,
    ) -> Self {
        let fakes = specs.into_iter().map(|spec| Arc::new(Fake::new(spec)));
        let fakes: Vec<_> = fakes.collect();
        let names = ('a'..='z').map(String::from).zip(&fakes);
        let backends = names
            .clone()
            .map(|(name, _)| backend(&name, &format!("http://{name}:1"), ""));
        let setup = change(Setup::tiny(&backends.collect::<Vec<_>>()));
        let config = setup
            .set("probe.interval", "\"10s\"")
            .set("probe.stale_after", "\"60s\"")
            .config();
        let reached: BTreeMap<_, _> = names.map(|(name, fake)| (name, Arc::clone(fake))).collect();
        let memory = Self::assemble(fakes, reached, config);
        memory.up().await;
        memory
    }

    /// One engine of each spec at 10.0.0.1, 10.0.0.2 and so on, port 1, of which
    /// `tiny` has those that `resolver` knows behind `fleet`. Returns at once.
    pub(crate) fn behind<R: Resolver>(
        specs: impl IntoIterator<Item = FakeSpec>,
        resolver: R,
    ) -> Self {
        let fakes = specs.into_iter().map(|spec| Arc::new(Fake::new(spec)));
        let fakes: Vec<_> = fakes.collect();
        let address = |number: usize| format!("10.0.0.{}", number + 1);
        let reached = fakes.iter().enumerate();
        let reached = reached.map(|(number, fake)| (address(number), Arc::clone(fake)));
        let lines = "discover = \"dns\"\ndiscover_interval = \"5s\"";
        let setup = Setup::tiny(&[backend("v", "http://fleet:1", lines)]);
        let mut memory = Self::assemble(fakes.clone(), reached.collect(), setup.config());
        let lookout = memory.gateway.discover(resolver);
        memory.connections.spawn(lookout);
        memory
    }

    fn assemble(
        fakes: Vec<Arc<Fake<DuplexStream>>>,
        reached: BTreeMap<String, Arc<Fake<DuplexStream>>>,
        config: tidegate::config::Config,
    ) -> Self {
        let guard = Guard::new();
        let upstream = Upstream::new(InMemory(Arc::new(reached)), timing(&config.upstream));
        let gateway = Arc::new(Gateway::assemble(config, upstream).unwrap());
        let (drain, watcher) = Drain::new();
        Self {
            fakes,
            watch: Watch::new(&gateway),
            gateway,
            connections: JoinSet::new(),
            watcher,
            _drain: drain,
            _guard: guard,
        }
    }

    /// Waits until every backend is up.
    async fn up(&self) {
        while !self.gateway.is_ready() || !is_all_up(&self.gateway) {
            tokio::task::yield_now().await;
        }
    }

    /// Backends in force, by name and address, with the state of each.
    pub(crate) fn backends(&self) -> Vec<(String, String, &'static str)> {
        let pools = self.gateway.pools();
        let endpoints = pools.all()[0].endpoints().iter().map(|endpoint| {
            let view = endpoint.view();
            let authority = view.authority.to_string();
            (view.name.to_string(), authority, view.health.name())
        });
        endpoints.collect()
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

    /// The next request at the first engine.
    pub(crate) async fn call(&self) -> Call<DuplexStream> {
        self.fakes[0].call().await
    }

    /// Engine number `at`.
    pub(crate) fn fake(&self, at: usize) -> &Fake<DuplexStream> {
        &self.fakes[at]
    }

    /// The books of the pool.
    pub(crate) fn pool(&self) -> PoolState {
        self.gateway.pools().all()[0].gate().state()
    }

    /// Waits until the books are as awaited, while the clock goes on in steps of
    /// a tenth of a second.
    pub(crate) async fn in_time(&self, awaited: impl Fn(&PoolState) -> bool) {
        while !awaited(&self.pool()) {
            tokio::time::sleep(STEP).await;
        }
    }

    /// Waits until the books are as awaited; the clock stands still.
    pub(crate) async fn until(&self, awaited: impl Fn(&PoolState) -> bool) {
        while !awaited(&self.pool()) {
            tokio::task::yield_now().await;
        }
    }

    /// Waits until `count` requests wait.
    pub(crate) async fn until_waiting(&self, count: u32) {
        self.until(|pool| pool.queue.requests == count).await;
    }

    /// The books at the end: nothing held, everything accounted for.
    pub(crate) async fn settle(&self) -> PoolState {
        while !self.watch.is_idle() {
            tokio::task::yield_now().await;
        }
        let metrics = self.gateway.telemetry().metrics().render();
        self.watch.settled(&[&metrics]);
        for fake in &self.fakes {
            fake.check();
        }
        self.pool()
    }
}

/// Whether every backend is up and known.
fn is_all_up(gateway: &Gateway) -> bool {
    gateway.pools().all().iter().all(|pool| {
        let backends = pool.gate().state().backends;
        backends
            .iter()
            .all(|at| at.health.admits() && at.capacity.is_some())
    })
}

/// Whole seconds since `began`, on the paused clock.
pub(crate) fn seconds_since(began: Instant) -> u64 {
    began.elapsed().as_secs()
}
