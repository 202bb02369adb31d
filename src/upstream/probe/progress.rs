//! Whether an engine gets anywhere, by its own metrics.
//!
//! Decides from counters and gauges alone; `/health` says 200 while an engine
//! hangs. Never judges an engine that has nothing to do.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::core::time::Time;
use crate::upstream::scrape::{Counters, Engine, Scrape};

/// How long nothing may run while something waits.
const WAITING: Duration = Duration::from_secs(10);
/// How long sequences may run without any counter or the KV usage moving. A
/// prefill moves both with each chunk; one step of a slow engine moves neither.
const RUNNING: Duration = Duration::from_secs(60);

/// How long a scrape says anything: without a newer one nobody is judged.
const FRESH: Duration = Duration::from_secs(10);

/// Progress of the engines of one endpoint.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress(BTreeMap<u32, Track>);

#[derive(Clone, Copy, Debug)]
struct Track {
    counters: Counters,
    kv_usage: Option<f64>,
    load: Load,
    /// Since when nothing has moved under this load.
    since: Time,
    /// The last scrape.
    seen: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Idle,
    OnlyWaiting,
    Running,
}

// === impl Progress ===

impl Progress {
    /// Takes a scrape. An engine that has vanished from it is forgotten.
    pub(super) fn on_scrape(&mut self, now: Time, scrape: &Scrape) {
        self.0.retain(|rank, _| scrape.engines.contains_key(rank));
        for (&rank, engine) in &scrape.engines {
            let track = self
                .0
                .entry(rank)
                .or_insert_with(|| Track::new(now, engine));
            track.on_scrape(now, engine);
        }
    }

    /// Whether any engine has work and gets nowhere.
    pub(super) fn is_stalled(&self, now: Time) -> bool {
        self.0.values().any(|track| track.is_stalled(now))
    }

    /// Whether any counter is below where it was: only a restart does that.
    pub(super) fn went_backwards(&self, scrape: &Scrape) -> bool {
        scrape.engines.iter().any(|(rank, engine)| {
            self.0
                .get(rank)
                .is_some_and(|track| fell(&track.counters, &engine.counters))
        })
    }

    /// Since when no counter of any engine has moved; `None` without engines.
    pub(super) fn unmoved_since(&self) -> Option<Time> {
        self.0.values().map(|track| track.since).max()
    }
}

fn fell(before: &Counters, now: &Counters) -> bool {
    let pairs = [
        (before.generated, now.generated),
        (before.prompt, now.prompt),
        (before.finished, now.finished),
        (before.preemptions, now.preemptions),
    ];
    pairs.iter().any(|&(before, now)| match (before, now) {
        (Some(before), Some(now)) => now < before,
        _ => false,
    })
}

// === impl Track ===

impl Track {
    fn new(now: Time, engine: &Engine) -> Self {
        Self {
            counters: engine.counters,
            kv_usage: engine.kv_usage,
            load: Load::of(engine),
            since: now,
            seen: now,
        }
    }

    fn on_scrape(&mut self, now: Time, engine: &Engine) {
        let load = Load::of(engine);
        // Preempting and being preempted is no progress.
        let before = Counters {
            preemptions: engine.counters.preemptions,
            ..self.counters
        };
        let moved = before != engine.counters || self.kv_usage != engine.kv_usage;
        if moved || load != self.load {
            *self = Self::new(now, engine);
        }
        self.counters = engine.counters;
        self.seen = now;
    }

    fn is_stalled(&self, now: Time) -> bool {
        if now - self.seen > FRESH {
            return false;
        }
        let unmoved = self.seen - self.since;
        match self.load {
            Load::Idle => false,
            Load::OnlyWaiting => unmoved >= WAITING,
            Load::Running => unmoved >= RUNNING,
        }
    }
}

// === impl Load ===

impl Load {
    fn of(engine: &Engine) -> Self {
        match (engine.running.unwrap_or(0), engine.waiting.unwrap_or(0)) {
            (0, 0) => Self::Idle,
            (0, _) => Self::OnlyWaiting,
            _ => Self::Running,
        }
    }
}
