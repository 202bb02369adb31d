//! Looks up the names that stand for several backends, and takes what it finds.
//!
//! Decides when to look, and that a name which cannot be looked up, or has no
//! addresses, leaves everything as it was: a resolver that is down is no reason to
//! send away engines that answer, and engines that are gone are found out by
//! probes. What is new joins, what is gone drains: its streams go on. The system's
//! resolver does not tell how long an answer is good for, so the interval counts.
//! Never more than one question for a name at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::lookup_host;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::Instant;

use crate::config::{Config, Found, HostPort};

use super::gateway::Gateway;

/// How soon a changed configuration is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Finds the addresses behind a name.
pub trait Resolver: Send + Sync + 'static {
    /// Looks `name` up.
    ///
    /// # Errors
    /// It is not known, or nobody can be asked.
    fn addresses(
        &self,
        name: &HostPort,
    ) -> impl Future<Output = io::Result<BTreeSet<IpAddr>>> + Send;
}

/// The system's resolver: what it says, with `/etc/hosts` and all.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

/// What is written and what was found.
#[derive(Debug)]
pub(super) struct Discovery(Mutex<Known>);

#[derive(Debug)]
struct Known {
    /// The configuration as the operator wrote it.
    written: Arc<Config>,
    found: Found,
    /// How the last looks went.
    looks: BTreeMap<HostPort, Look>,
}

#[derive(Clone, Debug)]
struct Look {
    /// When a name was last found; `None` before that.
    found: Option<Instant>,
    problem: Option<String>,
}

/// Looks names up for a gateway.
pub(super) struct Lookout<R> {
    gateway: Arc<Gateway>,
    resolver: Arc<R>,
    /// When each name is due; `None` while it is being looked up.
    due: BTreeMap<HostPort, Option<Instant>>,
    asking: JoinSet<Answer>,
}

/// What came of looking a name up, and when to do so again.
struct Answer {
    name: HostPort,
    every: Duration,
    addresses: io::Result<BTreeSet<IpAddr>>,
}

// === impl SystemResolver ===

impl Resolver for SystemResolver {
    async fn addresses(&self, name: &HostPort) -> io::Result<BTreeSet<IpAddr>> {
        let found = lookup_host((name.host.as_str(), name.port)).await?;
        Ok(found.map(|address| address.ip()).collect())
    }
}

// === impl Discovery ===

impl Discovery {
    pub(super) fn new(written: Config) -> Self {
        Self(Mutex::new(Known {
            written: Arc::new(written),
            found: Found::default(),
            looks: BTreeMap::new(),
        }))
    }

    /// Held for a copy or the work of one lookup; nothing under it panics half way.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The configuration as it was written.
    pub(super) fn written(&self) -> Arc<Config> {
        Arc::clone(&self.known().written)
    }

    /// `next` is what is written now.
    pub(super) fn write(&self, next: Config) {
        let mut known = self.known();
        known.written = Arc::new(next);
        let written = Arc::clone(&known.written);
        let named = |name: &HostPort| written.discovered().any(|(_, b, _)| b.host_port() == *name);
        known.looks.retain(|name, _| named(name));
    }

    /// What `config` stands for, with what was found so far.
    pub(super) fn expand(&self, config: &Config) -> Config {
        config.expanded(&self.known().found)
    }

    /// For `/state`.
    pub(super) fn view(&self) -> Vec<Value> {
        let known = self.known();
        let view = known.written.discovered().map(|(model, backend, every)| {
            let name = backend.host_port();
            let look = known.looks.get(&name);
            let age = look.and_then(|look| look.found).map(|at| at.elapsed());
            json!({
                "model": model.name,
                "backend": backend.name,
                "dns": name.to_string(),
                "interval_seconds": every.as_secs_f64(),
                "addresses": known.found.behind(&name).collect::<Vec<_>>(),
                "age_seconds": age.map(|age| age.as_secs_f64()),
                "problem": look.and_then(|look| look.problem.as_deref()),
            })
        });
        view.collect()
    }

    /// Notes how a look went; says whether that is another problem, or none after one.
    fn note(&self, name: &HostPort, problem: Option<String>) -> bool {
        let mut known = self.known();
        let look = known.looks.entry(name.clone()).or_insert(Look {
            found: None,
            problem: None,
        });
        if problem.is_none() {
            look.found = Some(Instant::now());
        }
        let is_news = look.problem != problem;
        look.problem = problem;
        is_news
    }
}

// === impl Lookout ===

impl<R: Resolver> Lookout<R> {
    pub(super) fn new(gateway: Arc<Gateway>, resolver: R) -> Self {
        Self {
            gateway,
            resolver: Arc::new(resolver),
            due: BTreeMap::new(),
            asking: JoinSet::new(),
        }
    }

    /// Looks for ever; run it as one owned task.
    pub(super) async fn run(mut self) {
        loop {
            self.ask();
            let next = self.due.values().flatten().min().copied();
            let soon = Instant::now() + LOOK;
            let next = next.map_or(soon, |next| next.min(soon));
            tokio::select! {
                Some(Ok(answer)) = self.asking.join_next() => self.take(answer).await,
                () = tokio::time::sleep_until(next) => {}
            }
        }
    }

    /// Asks for each name that is due.
    fn ask(&mut self) {
        let written = self.gateway.discovery().written();
        let now = Instant::now();
        let named = |name: &HostPort| written.discovered().any(|(_, b, _)| b.host_port() == *name);
        self.due.retain(|name, due| due.is_none() || named(name));
        for (_, backend, every) in written.discovered() {
            let name = backend.host_port();
            let due = self.due.entry(name.clone()).or_insert(Some(now));
            if due.is_none_or(|due| due > now) {
                continue;
            }
            *due = None;
            let resolver = Arc::clone(&self.resolver);
            self.asking.spawn(async move {
                let addresses = resolver.addresses(&name).await;
                Answer {
                    name,
                    every,
                    addresses,
                }
            });
        }
    }

    async fn take(&mut self, answer: Answer) {
        let Answer {
            name,
            every,
            addresses,
        } = answer;
        self.due.insert(name.clone(), Some(Instant::now() + every));
        let addresses = match addresses {
            Ok(addresses) if addresses.is_empty() => Err("it has no addresses".to_owned()),
            Ok(addresses) => Ok(addresses),
            Err(error) => Err(error.to_string()),
        };
        let problem = addresses.as_ref().err().cloned();
        let is_news = self.gateway.discovery().note(&name, problem.clone());
        match problem {
            Some(problem) if is_news => {
                tracing::warn!(%name, problem, "a name is not found: its backends stay as they are");
            }
            None if is_news => tracing::info!(%name, "a name is found again"),
            _ => {}
        }
        let (Ok(addresses), gateway) = (addresses, Arc::clone(&self.gateway)) else {
            return;
        };
        // Pools are made over under a lock: not on an async thread.
        let taken = spawn_blocking(move || gateway.take_found(&name, &addresses)).await;
        if let Err(error) = taken {
            tracing::error!(%error, "what was found behind a name is not taken");
        }
    }
}

// === impl Gateway ===

impl Gateway {
    /// Looks up the names its configuration has in the place of backends, for as
    /// long as the future is polled.
    pub fn discover<R: Resolver>(
        self: &Arc<Self>,
        resolver: R,
    ) -> impl Future<Output = ()> + Send + 'static {
        Lookout::new(Arc::clone(self), resolver).run()
    }

    /// Puts the backends at `addresses` in force in the place of `name`. Blocks for
    /// a moment.
    fn take_found(&self, name: &HostPort, addresses: &BTreeSet<IpAddr>) {
        let mut works = self.works();
        let pools = self.pools();
        let written = self.discovery().written();
        let mut discovered = written.discovered();
        let Some((model, backend, _)) = discovered.find(|(_, b, _)| b.host_port() == *name) else {
            return;
        };
        let mut names = BTreeSet::new();
        for pool in pools.all() {
            let seats = pool.seats();
            names.extend(
                seats
                    .values()
                    .map(|seat| endpoint_of(seat.name()).to_owned()),
            );
        }
        let is_free = |number| !names.contains(&backend.numbered_name(number));
        let mut found = self.discovery().known().found.clone();
        if !found.take(name, addresses, is_free) {
            return;
        }
        let expanded = written.expanded(&found);
        match works.prepare(&expanded) {
            Ok(plan) => {
                self.discovery().known().found = found;
                self.put_in_force(&mut **works, plan, expanded);
                let (model, addresses) = (&model.name, addresses.len());
                tracing::info!(%name, model, addresses, "backends are what was found");
            }
            Err(problems) => {
                for problem in problems {
                    tracing::error!(%name, %problem, "what was found cannot be used");
                }
            }
        }
    }
}

/// The backend a seat belongs to: ranks bear its name, a `/` and their number.
fn endpoint_of(seat: &str) -> &str {
    seat.split_once('/').map_or(seat, |(name, _)| name)
}
