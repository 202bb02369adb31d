//! A gateway on real sockets in this process, and the checks at its end.

use std::net::SocketAddr;

use serde_json::Value;
use tidegate::app::{Running, start};

use super::Guard;
use super::client::{Ask, Client, Reply, ask};
use super::promises::Watch;
use super::setup::Setup;

/// A running gateway; dropping it cuts everything.
pub(crate) struct Stand {
    pub(crate) running: Running,
    watch: Watch,
    _guard: Guard,
}

impl Stand {
    /// Starts and waits until every backend is up.
    pub(crate) async fn start(setup: &Setup) -> Self {
        let stand = Self::unready(setup).await;
        stand.running.ready().await;
        while !all_up(&stand.state().await) {
            tokio::task::yield_now().await;
        }
        stand
    }

    /// Starts, whatever its backends do.
    pub(crate) async fn unready(setup: &Setup) -> Self {
        let guard = Guard::new();
        let running = start(setup.config()).await.unwrap();
        Self {
            watch: Watch::new(running.gateway()),
            running,
            _guard: guard,
        }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.running.addr()
    }

    /// Asks on a connection of its own.
    pub(crate) async fn ask(&self, request: &Ask) -> Reply {
        ask(self.addr(), request).await
    }

    /// A connection on which `request` was sent.
    pub(crate) async fn send(&self, request: &Ask) -> Client {
        Client::with(self.addr(), request).await
    }

    /// For a test that cuts what runs and looks at the books by itself.
    pub(crate) fn will_be_cut(&self) {
        self.watch.cut();
    }

    /// Whether the test would fail if it ended here, for it has not settled.
    pub(crate) fn forgotten(&self) -> bool {
        self.watch.is_open()
    }

    /// A page of the operator's listener.
    pub(crate) async fn admin(&self, path: &str) -> Reply {
        ask(self.running.admin_addr(), &Ask::get(path)).await
    }

    /// `/state` now.
    pub(crate) async fn state(&self) -> Value {
        self.admin("/state").await.json()
    }

    /// The first pool of `/state` now.
    pub(crate) async fn pool(&self) -> Value {
        self.state().await["pools"][0].clone()
    }

    /// Looks at the first pool until it is as awaited.
    pub(crate) async fn until(&self, awaited: impl Fn(&Value) -> bool) -> Value {
        let mut admin = Client::connect(self.running.admin_addr()).await;
        loop {
            let state = admin.ask(&Ask::get("/state")).await.json();
            if awaited(&state["pools"][0]) {
                return state["pools"][0].clone();
            }
            tokio::task::yield_now().await;
        }
    }

    /// Waits until `count` requests wait in the first pool.
    pub(crate) async fn until_waiting(&self, count: u64) -> Value {
        self.until(|pool| pool["queue"]["requests"] == count).await
    }

    /// The value of a series in `/metrics`; 0 where it is not there.
    pub(crate) async fn metric(&self, series: &str) -> f64 {
        let page = self.admin("/metrics").await;
        let value = page.text().lines().find_map(|line| {
            let rest = line.strip_prefix(series)?;
            rest.strip_prefix(' ')?.parse().ok()
        });
        value.unwrap_or(0.0)
    }

    /// Waits until nothing is held, then checks what must hold at the end of
    /// every test, and returns the totals of the first pool.
    pub(crate) async fn settle(&self) -> Value {
        let mut admin = Client::connect(self.running.admin_addr()).await;
        let state = loop {
            let state = admin.ask(&Ask::get("/state")).await.json();
            if is_idle(&state) && self.watch.is_idle() {
                break state;
            }
            tokio::task::yield_now().await;
        };
        let metrics = admin.ask(&Ask::get("/metrics")).await;
        let ready = admin.ask(&Ask::get("/readyz")).await;
        let pages = [metrics.text(), &state.to_string(), ready.text()];
        self.watch.settled(&pages);
        for line in metrics.text().lines() {
            assert!(!is_level(line) || line.ends_with(" 0"), "{line}");
        }
        state["pools"][0]["totals"].clone()
    }
}

/// Whether this line is a level that must be zero at the end.
fn is_level(line: &str) -> bool {
    let levels = [
        "tidegate_kv_held_",
        "tidegate_in_flight_",
        "tidegate_waiting_",
    ];
    levels.iter().any(|level| line.starts_with(level))
}

fn all_up(state: &Value) -> bool {
    let up = |pool: &Value| {
        let mut backends = pool["backends"].as_array().unwrap().iter();
        backends.all(|backend| backend["state"] == "up" && !backend["capacity"].is_null())
    };
    state["pools"].as_array().unwrap().iter().all(up)
}

fn is_idle(state: &Value) -> bool {
    let zero = |value: &Value, keys: &[&str]| keys.iter().all(|key| value[key] == 0);
    let all = |list: &Value, keys: &[&str]| {
        let mut items = list.as_array().unwrap().iter();
        items.all(|item| zero(item, keys))
    };
    let pool_idle = |pool: &Value| {
        zero(&pool["queue"], &["requests", "tokens"])
            && all(&pool["backends"], &["held_blocks", "leases", "sequences"])
            && all(&pool["tenants"], &["leases", "in_flight_tokens", "waiting"])
    };
    let mut pools = state["pools"].as_array().unwrap().iter();
    state["body_bytes"] == 0 && pools.all(pool_idle)
}
