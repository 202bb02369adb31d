//! One small pool for the tests of the steps: 64 blocks of 16 tokens, one
//! backend, one tenant without limits.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use tokio::sync::watch;

use crate::config::{AccessLog, Config, Limits, OnUncountable, Queue};
use crate::core::admission::{Admission, PoolPolicy};
use crate::core::backend::{
    BackendFacts, Capacity, CapacitySource, Health, PrefixCaching, ServedId, Tier,
};
use crate::core::demand::Arrival;
use crate::core::placement::{LongOnStandard, Reservation, TierPolicy};
use crate::core::queue::{QueuePolicy, Unserved};
use crate::core::stats::PoolState;
use crate::core::units::{BlockSize, Blocks, Tokens};
use crate::gate::{Clock, Gate, Lease, Submission};
use crate::protocol::{Route, parse};
use crate::telemetry::Telemetry;
use crate::tenants::{TenantRef, Tenants};
use crate::tokenize::{CounterSpec, ModelCounter, Source};
use crate::upstream::client::{Client, Endpoint, Tcp, Timing};
use crate::upstream::probe::Outcome;

use super::budget::Budget;
use super::measure::MeasureLayer;
use super::owned::owned;
use super::pool::{Counting, CountingPlace, Pool, PoolParts, PoolRules, Pools};
use super::seat::Seat;
use super::snapshot::{Current, Snapshot};
use super::steps::{Body, Letter, Measured, Parsed};
use super::threads::Threads;
use super::trail::Trail;

/// A pool under test and both ends of what it is wired to.
pub(crate) struct Fixture {
    pub(crate) pool: Arc<Pool>,
    pub(crate) tenant: TenantRef,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) current: Current,
    pub(crate) health: watch::Sender<Health>,
    outcomes: Arc<Mutex<Vec<Outcome>>>,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::counting(OnUncountable::Estimate)
    }

    /// A pool whose prompts must be counted exactly, with nothing to count by.
    pub(crate) fn exact_only() -> Self {
        Self::counting(OnUncountable::Refuse)
    }

    fn counting(on_uncountable: OnUncountable) -> Self {
        let mut config = Config::default();
        config.log.access = AccessLog::Off;
        let tenant = Tenants::new(&config).all().next().unwrap();
        let telemetry = Arc::new(Telemetry::start(&config).unwrap());
        let (health, watched) = watch::channel(Health::Up);
        let outcomes = Arc::<Mutex<Vec<Outcome>>>::default();
        let heard = Arc::clone(&outcomes);
        let endpoint = Endpoint::new(&"http://127.0.0.1:9".parse().unwrap(), None).unwrap();
        let seat = Seat::new(
            Arc::from("a"),
            endpoint,
            watched,
            Arc::new(move |outcome| heard.lock().unwrap().push(outcome)),
        );
        let counter = ModelCounter::load(CounterSpec::new(Source::Estimate)).unwrap();
        let pool = Arc::new(Pool::new(PoolParts {
            source: "estimate".to_owned(),
            name: Arc::from("model"),
            gate: gate(),
            counter: Arc::new(counter),
            seats: vec![Arc::new(seat)],
            rules: PoolRules {
                ids: vec![Arc::from("model")],
                served: vec![ServedId(0)],
                counting: Counting {
                    place: CountingPlace::Here,
                    on_uncountable,
                    stored_history: Tokens::new(100),
                },
                queue: Queue {
                    max_requests: 4,
                    max_tokens: Tokens::new(100_000),
                    ..config.queue.clone()
                },
                endpoints: Vec::new(),
            },
        }));
        config.counting.check_one_in = 0;
        config.counting.time_limit = Duration::from_secs(1);
        let current = Current::new(Snapshot {
            tenants: Tenants::new(&config),
            pools: Arc::new(Pools::new(vec![Arc::clone(&pool)])),
            config: Arc::new(config),
        });
        Self {
            pool,
            current,
            tenant,
            telemetry,
            health,
            outcomes,
        }
    }

    /// A snapshot with this pool, configured anew.
    pub(crate) fn snapshot(&self, change: impl FnOnce(&mut Config)) -> Snapshot {
        let mut config = Config::clone(&self.current.load().config);
        change(&mut config);
        Snapshot {
            tenants: Tenants::new(&config),
            pools: Arc::new(Pools::new(vec![Arc::clone(&self.pool)])),
            config: Arc::new(config),
        }
    }

    /// Gives the tenant these limits.
    pub(crate) fn limit(&mut self, limits: Limits) {
        let mut tenant = (*self.tenant.tenant).clone();
        tenant.limits = limits;
        self.tenant.tenant = Arc::new(tenant);
    }

    pub(crate) fn layer(&self) -> MeasureLayer<Tcp> {
        MeasureLayer {
            threads: Threads::new(1),
            sampler: Arc::default(),
            client: Client::tcp(timing()),
        }
    }

    /// A request with this body, parsed.
    pub(crate) fn parsed(&self, route: Route, body: &str) -> Parsed {
        let bytes = Bytes::copy_from_slice(body.as_bytes());
        let request = Box::new(owned(parse(route, &bytes).unwrap()));
        let trail = Trail::begin("t", Some(route), Arc::clone(&self.telemetry));
        trail.note(|facts| {
            facts.record.model = Some(Arc::clone(self.pool.name()));
            facts.record.backend = Some(Arc::from("a"));
        });
        let letter = Box::new(Letter {
            head: Box::new(Request::new(()).into_parts().0),
            body: Body {
                bytes,
                share: Budget::new(1 << 20).share(self.tenant.id),
            },
            trail,
            tenant: self.tenant.clone(),
            arrival: Arrival::default(),
            snapshot: self.current.load(),
            route,
            path: "/v1/completions",
            pool: Arc::clone(&self.pool),
            served: ServedId(0),
        });
        Parsed { letter, request }
    }

    /// A chat request with this body, measured.
    pub(crate) async fn measured(&self, body: &str) -> Measured {
        let parsed = self.parsed(Route::ChatCompletions, body);
        self.layer().measure(parsed).await.ok().unwrap()
    }

    /// A lease for `measured`, which must fit.
    pub(crate) fn lease(&self, measured: &Measured) -> Lease {
        match self.pool.gate().submit(measured.demand.clone()) {
            Submission::Admitted(lease) => lease,
            _ => panic!("the pool is empty"),
        }
    }

    pub(crate) fn state(&self) -> PoolState {
        self.pool.gate().state()
    }

    /// What the seat was told, oldest first.
    pub(crate) fn outcomes(&self) -> Vec<Outcome> {
        self.outcomes.lock().unwrap().clone()
    }

    /// Whether the metrics have this line.
    pub(crate) fn counted(&self, line: &str) -> bool {
        let text = self.telemetry.metrics().render();
        text.lines().any(|found| found == line)
    }
}

fn gate() -> Gate {
    let policy = PoolPolicy {
        reservation: Reservation::Strict,
        queue: QueuePolicy {
            max_requests: 4,
            max_tokens: Tokens::new(100_000),
            max_bypass: Duration::from_secs(10),
            unserved: Unserved::Refuse,
        },
        tiers: TierPolicy {
            long_share: 0.25,
            free_reserve: 0.15,
            long_on_standard: LongOnStandard::WhenNothingLarger,
        },
        dispatch: crate::core::dispatch::DispatchPolicy::default(),
        observed_for: Duration::from_secs(10),
    };
    let gate = Gate::new(Admission::new(policy), Clock::start());
    let facts = BackendFacts {
        slot: 0,
        tier: Tier::Standard,
        serves: vec![ServedId(0)],
        capacity: Some(Capacity {
            blocks: Blocks::new(64),
            block_size: BlockSize::new(16).unwrap(),
            max_model_len: Tokens::new(1024),
            max_num_seqs: None,
            lookahead: Tokens::ZERO,
            prefix_caching: PrefixCaching::Shared,
            source: CapacitySource::Configured,
        }),
        health: Health::Up,
    };
    gate.update(|admission, now, out| admission.add_backend(now, facts, out));
    gate
}

fn timing() -> Timing {
    Timing {
        connect: Duration::from_secs(1),
        first_byte: None,
        pool_idle: Duration::from_secs(4),
        max_age: Duration::from_secs(30),
    }
}
