//! A gateway without sockets: the stack, the pools, and the tasks behind them.
//!
//! Decides nothing about requests; puts the configured parts together and owns
//! them. [`Gateway::serve`] takes any byte stream, so that scenarios with long
//! timers run in memory on a paused clock. Dropping it ends its tasks.

use std::convert::Infallible;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use http::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;

use crate::config::{Config, Server, Upstream};
use crate::gate::Clock;
use crate::hub::Hub;
use crate::layers::arrivals::Arrivals;
use crate::layers::budget::Budget;
use crate::layers::door::Door;
use crate::layers::explain::{Explain, Question, Told};
use crate::layers::forward::Forward;
use crate::layers::ingest::IngestLayer;
use crate::layers::measure::MeasureLayer;
use crate::layers::pool::Pools;
use crate::layers::snapshot::{Current, Snapshot};
use crate::layers::tenant::{Peer, TenantLayer};
use crate::layers::threads::Threads;
use crate::layers::{BoxFuture, Parts, StackBody, stack, zero};
use crate::telemetry::{Crowd, Metrics, Telemetry, Tracer};
use crate::tenants::Tenants;
use crate::upstream::client::{Client, Connector, Timing};

use super::arriving::Arriving;
use super::collector::Otlp;
use super::connection::{ConnectionLimits, Terms, serve_connection};
use super::discovery::Discovery;
use super::drain::Watcher;
use super::error::Error;
use super::loader::Loader;
use super::loading::Shared;
use super::places::{Place, Places, Room};
use super::pools::{Plan, Remake, Tools, Works};
use super::reload::Reloads;
use super::tls::Handshakes;

/// How often histogram samples are folded.
const UPKEEP: Duration = Duration::from_secs(5);

/// How often backends that left are looked at.
const TIDY: Duration = Duration::from_secs(1);

/// The request path, ready to be called.
type Path = BoxCloneSyncService<Request<Arriving>, Response<StackBody>, Infallible>;

/// What looks at requests that nobody sends.
type Looker = Arc<dyn Fn(Question<Arriving>) -> BoxFuture<Told> + Send + Sync>;

/// A gateway without sockets.
pub struct Gateway {
    telemetry: Arc<Telemetry>,
    current: Current,
    /// Taken for a reload and for tidying up, both short, and never in a request.
    works: Arc<Mutex<Box<dyn Remake>>>,
    reloads: Reloads,
    discovery: Discovery,
    budget: Budget,
    door: Door,
    clock: Clock,
    path: Path,
    looker: Looker,
    places: Places,
    /// Another at each start.
    instance: String,
    /// Counts how often counters were to be loaded anew.
    reload: watch::Sender<u64>,
    /// Held only to end with the gateway.
    _tasks: Mutex<JoinSet<()>>,
}

/// A client that has its place.
pub(super) struct Visitor {
    /// Who it is.
    pub(super) peer: Peer,
    /// Its connection's place.
    pub(super) place: Place,
}

/// The time limits of connections to engines.
pub fn timing(upstream: &Upstream) -> Timing {
    Timing {
        connect: upstream.connect_timeout,
        // Requests bring their own, from the snapshot they run under.
        first_byte: None,
        pool_idle: upstream.pool_idle_timeout,
        max_age: upstream.max_connection_age,
    }
}

// === impl Gateway ===

impl Gateway {
    /// Puts a gateway together that reaches its backends by `client`. Needs a
    /// tokio runtime around it, for the tasks it starts.
    ///
    /// # Errors
    /// A backend cannot be addressed, the access log cannot be opened.
    pub fn assemble<C: Connector>(config: Config, client: Client<C>) -> Result<Self, Error> {
        let telemetry = Arc::new(Telemetry::start(&config).map_err(Error::AccessLog)?);
        zero::begin(telemetry.metrics(), &config);
        let clock = Clock::start();
        let reload = watch::Sender::new(0);
        let mut works = Works::new(Tools {
            client: client.clone(),
            clock,
            counters: Shared {
                hub: Arc::new(Hub::new(&config.hub)),
                loader: Loader::new(cores()),
                reload: reload.subscribe(),
                metrics: Arc::clone(telemetry.metrics()),
            },
        });
        let discovery = Discovery::new(config);
        let config = Arc::new(discovery.expand(&discovery.written()));
        let tenants = Tenants::new(&config);
        let plan = works.prepare(&config).map_err(first)?;
        let current = Current::new(Snapshot {
            pools: Arc::new(works.make(plan, &config, &tenants)),
            tenants,
            config: Arc::clone(&config),
        });
        let works: Arc<Mutex<Box<dyn Remake>>> = Arc::new(Mutex::new(Box::new(works)));
        let mut tasks = JoinSet::new();
        tasks.spawn(tidy(Arc::clone(&works)));
        tasks.spawn(spans(&telemetry, &config, client.clone())?);
        tasks.spawn(upkeep(Arc::clone(telemetry.metrics())));
        let budget = Budget::new(config.server.body_budget_bytes);
        let door = Door::default();
        let tenant = TenantLayer {
            current: current.clone(),
            budget: budget.clone(),
            door: door.clone(),
            clock,
        };
        let parts = parts(client, tenant, Arc::clone(&telemetry));
        Ok(Self {
            places: places(&current),
            telemetry,
            current,
            works,
            reloads: Reloads::new(clock.now()),
            discovery,
            budget,
            door,
            clock,
            looker: looker(&parts),
            path: BoxCloneSyncService::new(stack(parts)),
            reload,
            instance: format!("{:016x}", rand::random::<u64>()),
            _tasks: Mutex::new(tasks),
        })
    }

    /// Serves one connection of a client at `peer`, until it ends, it must make
    /// room, or `watcher` ends it; one that finds no place is closed at once.
    /// Dropping the future drops its requests.
    pub fn serve<I>(
        self: Arc<Self>,
        io: I,
        peer: Peer,
        watcher: Watcher,
    ) -> impl Future<Output = ()> + Send + 'static
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let place = self.places.enter(peer.address);
        async move {
            if let Some(place) = place {
                self.receive(io, Visitor { peer, place }, watcher).await;
            }
        }
    }

    /// Serves one connection that has its place.
    pub(super) fn receive<I>(
        self: Arc<Self>,
        io: I,
        visitor: Visitor,
        watcher: Watcher,
    ) -> impl Future<Output = ()> + Send + 'static
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Visitor { peer, place } = visitor;
        let service = self
            .path
            .clone()
            .map_request(move |mut request: Request<Arriving>| {
                let extensions = request.extensions_mut();
                let mut peer = peer.clone();
                peer.certificate = extensions.remove().or(peer.certificate);
                extensions.insert(peer);
                request
            });
        let server = &self.snapshot().config.server;
        let terms = Terms {
            limits: connection_limits(server),
            watcher,
            place,
            secured: Handshakes::of(server.tls.as_ref(), "clients", self.telemetry.metrics()),
        };
        serve_connection(io, service, terms)
    }

    /// What would become of a request that nobody sends.
    pub(super) async fn look(&self, question: Question<Arriving>) -> Told {
        (self.looker)(question).await
    }

    /// The places of its clients' connections.
    pub(super) const fn places(&self) -> &Places {
        &self.places
    }

    /// Its clients' connections, as there are now.
    pub fn crowd(&self) -> Crowd {
        self.places.crowd()
    }

    /// The configuration in force and what was made of it.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.current.load()
    }

    /// The pools in force, for a look at their books.
    pub fn pools(&self) -> Arc<Pools> {
        Arc::clone(&self.snapshot().pools)
    }

    /// What makes the pools, for one reload at a time.
    pub(super) fn works(&self) -> MutexGuard<'_, Box<dyn Remake>> {
        lock(&self.works)
    }

    /// Puts what was prepared in force. Requests let in before go on with what
    /// they began with, so what is gone is taken out last.
    pub(super) fn put_in_force(&self, works: &mut dyn Remake, plan: Plan, config: Config) {
        let tenants = self.snapshot().tenants.reloaded(&config);
        self.telemetry.metrics().know(&config);
        zero::begin(self.telemetry.metrics(), &config);
        self.budget.set_limit(config.server.body_budget_bytes);
        let config = Arc::new(config);
        self.current.store(Snapshot {
            pools: Arc::new(works.make(plan, &config, &tenants)),
            tenants,
            config: Arc::clone(&config),
        });
        works.retire(&config);
    }

    /// What is written, and what was found in its place.
    pub(super) const fn discovery(&self) -> &Discovery {
        &self.discovery
    }

    pub(super) const fn reloads(&self) -> &Reloads {
        &self.reloads
    }

    /// Metrics and access log.
    pub const fn telemetry(&self) -> &Arc<Telemetry> {
        &self.telemetry
    }

    /// What tells this start of the gateway from any other.
    pub(super) fn instance(&self) -> &str {
        &self.instance
    }

    /// Bytes of request bodies held.
    pub fn body_bytes(&self) -> u64 {
        self.budget.used()
    }

    /// The clock its books are kept by.
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// Loads the tokenizers and templates of all models anew, in the background,
    /// and returns at once. What cannot be loaded stays as it is; see `/state`.
    pub fn reload_counters(&self) {
        self.reload
            .send_modify(|times| *times = times.wrapping_add(1));
    }

    /// Refuses new requests from now on, with `server_shutdown`.
    pub fn close_door(&self) {
        self.door.close();
    }

    /// Ends what is not answered yet, with `server_shutdown`: as a refusal, or
    /// as an error event in a stream.
    pub fn end_requests(&self) {
        self.door.end();
    }

    /// Whether every model can be served: a backend is usable and its counter is
    /// in place (or known not to come).
    pub fn is_ready(&self) -> bool {
        let snapshot = self.snapshot();
        !self.door.is_closed() && snapshot.pools.all().iter().all(|pool| pool.is_ready())
    }
}

/// A panic half-way through a reload leaves pools of two configurations: like
/// wrong books, nothing to go on with.
fn lock(works: &Mutex<Box<dyn Remake>>) -> MutexGuard<'_, Box<dyn Remake>> {
    match works.lock() {
        Ok(works) => works,
        Err(_) => std::process::abort(),
    }
}

/// Folds histogram samples now and then.
async fn upkeep(metrics: Arc<Metrics>) {
    loop {
        tokio::time::sleep(UPKEEP).await;
        metrics.upkeep();
    }
}

/// Sends spans of requests, where that is asked for.
fn spans<C: Connector>(
    telemetry: &Telemetry,
    config: &Config,
    client: Client<C>,
) -> Result<impl Future<Output = ()> + Send + 'static, Error> {
    let collector = Otlp::new(&config.traces, client).map_err(Error::Traces)?;
    let outbox = telemetry.tracer().and_then(Tracer::outbox);
    Ok(async move {
        if let (Some(outbox), Some(collector)) = (outbox, collector) {
            outbox.run(collector).await;
        }
    })
}

/// Ends what a reload took out once nothing is held there.
async fn tidy(works: Arc<Mutex<Box<dyn Remake>>>) {
    loop {
        tokio::time::sleep(TIDY).await;
        lock(&works).tidy();
    }
}

/// The first of several problems; the others are found once it is gone.
fn first(problems: Vec<Error>) -> Error {
    let mut problems = problems.into_iter();
    problems.next().expect("a refusal has a problem")
}

/// Cores this process may use, 1 where nobody can tell.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn parts<C: Connector>(
    client: Client<C>,
    tenant: TenantLayer,
    telemetry: Arc<Telemetry>,
) -> Parts<C> {
    // One core is left to the async threads where there is more than one.
    let threads = Threads::new(cores().saturating_sub(1));
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let ingest = IngestLayer {
        budget: tenant.budget.clone(),
        arrivals: Arrivals::default(),
        threads: threads.clone(),
        started: since_1970.map_or(0, |age| age.as_secs()),
    };
    let door = tenant.door.clone();
    Parts {
        telemetry,
        tenant,
        ingest,
        measure: MeasureLayer {
            threads,
            sampler: Arc::default(),
            client: client.clone(),
        },
        forward: Forward::new(client, door),
    }
}

/// A look by the very steps of the path.
fn looker<C: Connector>(parts: &Parts<C>) -> Looker {
    let steps = (
        parts.tenant.clone(),
        parts.ingest.clone(),
        parts.measure.clone(),
    );
    let explain = Arc::new(Explain::new(steps, Arc::clone(&parts.telemetry)));
    Arc::new(move |question| {
        let explain = Arc::clone(&explain);
        Box::pin(async move { explain.explain(question).await })
    })
}

fn connection_limits(server: &Server) -> ConnectionLimits {
    ConnectionLimits {
        header_timeout: server.header_timeout,
        // A block just over the limit is answered properly by the stack; this
        // is where reading stops.
        max_header_bytes: server.max_header_bytes.saturating_mul(2),
    }
}

/// As many connections as the configuration in force wants and this process can
/// have.
fn places(current: &Current) -> Places {
    let wished = |current: &Current| {
        let server = &current.load().config.server;
        Room {
            total: server.max_connections,
            strangers: server.max_silent_per_address,
        }
    };
    // Raised before anything starts, so it does not change.
    let files = rlimit::Resource::NOFILE.get();
    let files = files.map_or(u64::MAX, |(soft, _)| soft);
    let first = wished(current);
    let most = first.within(files).total;
    if most < first.total {
        tracing::warn!(
            most,
            wished = first.total,
            "fewer connections than configured: files are limited (ulimit -n)"
        );
    }
    let current = current.clone();
    Places::new(move || wished(&current).within(files))
}
