//! The probe over real sockets, against the simulated engine: what only sockets
//! show. Each step waits for the state it expects; nothing here waits for time.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::time::Duration;

use http::Uri;
use tidegate::config;
use tidegate::core::admission::{Admission, PoolPolicy};
use tidegate::core::backend::{CapacitySource, Health};
use tidegate::core::placement::{LongOnStandard, Reservation, TierPolicy};
use tidegate::core::queue::{QueuePolicy, Unserved};
use tidegate::core::units::Tokens;
use tidegate::gate::{Clock, Gate};
use tidegate::sim::engine::EngineSpec;
use tidegate::sim_server::{Kill, SimServer, SimServerSpec};
use tidegate::upstream::client::{Bounds, Client, Endpoint, FetchError, SendError, Timing};
use tidegate::upstream::probe::{Handle, Outcome, Probe, Target};
use tokio::task::JoinSet;

/// A hang is a failure; nothing that passes takes a hundredth of it.
const HANG: Duration = Duration::from_secs(60);

const TIMING: Timing = Timing {
    connect: Duration::from_secs(5),
    first_byte: None,
    pool_idle: Duration::from_secs(4),
    max_age: Duration::from_secs(30),
};

struct Watched {
    engine: SimServer,
    gate: Gate,
    handle: Handle,
    client: Client,
    _tasks: JoinSet<()>,
}

fn gate() -> Gate {
    let policy = PoolPolicy {
        reservation: Reservation::Strict,
        queue: QueuePolicy {
            max_requests: 10,
            max_tokens: Tokens::new(100_000),
            max_bypass: Duration::from_secs(5),
            unserved: Unserved::Refuse,
        },
        tiers: TierPolicy {
            long_share: 0.25,
            free_reserve: 0.15,
            long_on_standard: LongOnStandard::WhenNothingLarger,
        },
        dispatch: tidegate::core::dispatch::DispatchPolicy::default(),
        observed_for: Duration::from_secs(10),
    };
    Gate::new(Admission::new(policy), Clock::start())
}

fn watch(spec: SimServerSpec) -> Watched {
    let engine = SimServer::start(spec).unwrap();
    let url: Uri = engine.url().parse().unwrap();
    let model = config::Model::new("m", vec![config::Backend::new(url)]);
    let target = Target::new(&model.backends[0], &model, Tokens::new(8192), 0).unwrap();
    let rules = config::Probe {
        interval: Duration::from_millis(20),
        ..config::Probe::default()
    };
    let client = Client::tcp(TIMING);
    let gate = gate();
    let probe = Probe::new(target, &client, gate.clone(), rules);
    let handle = probe.handle();
    let mut tasks = JoinSet::new();
    tasks.spawn(probe.run());
    Watched {
        engine,
        gate,
        handle,
        client,
        _tasks: tasks,
    }
}

fn spec(tokens: u64) -> SimServerSpec {
    SimServerSpec::new("m", EngineSpec::with_pool(Tokens::new(tokens)))
}

impl Watched {
    async fn becomes(&self, health: Health) {
        let mut running = self.handle.running();
        let reached = running.wait_for(|&now| now == health);
        let outcome = tokio::time::timeout(HANG, reached).await;
        let view = self.handle.view();
        assert!(outcome.is_ok(), "not {health:?} but {view:?}");
    }
}

#[tokio::test]
async fn an_engine_of_8192_tokens_comes_up_with_8192_tokens() {
    let watched = watch(spec(8192));
    watched.becomes(Health::Up).await;
    let backend = watched.gate.state().backends.remove(0);
    let capacity = backend.capacity.unwrap();
    assert_eq!(capacity.pool(), Tokens::new(8192));
    assert_eq!(capacity.max_model_len, Tokens::new(8192));
    assert_eq!(capacity.source, CapacitySource::AdvertisedTokens);
    assert_eq!(watched.handle.view().models[0].id, "m");
}

#[tokio::test]
async fn a_port_that_refuses_while_connections_stay_open_is_a_lost_engine() {
    let watched = watch(spec(8192));
    watched.becomes(Health::Up).await;
    watched.engine.refuse();
    watched.becomes(Health::Down).await;
}

#[tokio::test]
async fn a_restarted_engine_is_another_generation_with_its_own_capacity() {
    let watched = watch(spec(8192));
    watched.becomes(Health::Up).await;
    let before = watched.gate.state().backends.remove(0).id;
    watched.engine.kill(Kill::Reset);
    watched.becomes(Health::Down).await;
    let smaller = EngineSpec::with_pool(Tokens::new(4096));
    watched.engine.restart(smaller).unwrap();
    watched.becomes(Health::Up).await;
    let backends = watched.gate.state().backends;
    assert_eq!(backends.len(), 1);
    assert_ne!(backends[0].id.generation, before.generation);
    assert_eq!(backends[0].capacity.unwrap().pool(), Tokens::new(4096));
    assert_eq!(watched.handle.view().restarts, 1);
}

#[tokio::test]
async fn a_dead_engine_behind_a_living_server_is_down() {
    let watched = watch(spec(8192));
    watched.becomes(Health::Up).await;
    watched.engine.kill(Kill::EngineOnly);
    watched.becomes(Health::Down).await;
    let problem = watched.handle.view().problem.unwrap();
    assert_eq!(problem.name(), "engine_dead");
}

#[tokio::test]
async fn a_sleeping_engine_is_seen_asleep_and_awake_again() {
    let watched = watch(spec(8192));
    watched.becomes(Health::Up).await;
    watched.engine.sleep();
    watched.becomes(Health::Sleeping).await;
    watched.engine.wake();
    watched.becomes(Health::Up).await;
}

#[tokio::test]
async fn a_false_alarm_costs_one_look() {
    let watched = watch(spec(8192));
    watched.becomes(Health::Up).await;
    watched.handle.report(Outcome::Refused);
    watched.becomes(Health::Up).await;
    assert_eq!(watched.handle.view().restarts, 0);
}

#[tokio::test]
async fn a_closed_port_reads_as_refused() {
    let watched = watch(spec(8192));
    watched.becomes(Health::Up).await;
    watched.engine.kill(Kill::Reset);
    let url: Uri = watched.engine.url().parse().unwrap();
    let endpoint = Endpoint::new(&url, None).unwrap();
    let bounds = Bounds {
        time: HANG,
        bytes: 1024,
    };
    let error = watched.client.get(&endpoint, "/health", bounds).await;
    assert_eq!(error, Err(FetchError::Send(SendError::Refused)));
}
