//! `/state` and `/history` as far as they are shown.
//!
//! What an older gateway does not say is not there: only names are asked for.

use std::collections::{BTreeMap, VecDeque};

use serde::Deserialize;
use serde_json::Value;

/// Points of the hour that are kept, as the gateway keeps them.
const MOST_POINTS: usize = 720;

/// The gateway at one moment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct State {
    pub(super) version: String,
    pub(super) instance: String,
    pub(super) uptime_seconds: f64,
    pub(super) phase: String,
    pub(super) ready: bool,
    pub(super) tenants: Vec<Tenant>,
    /// By reason, since the start.
    pub(super) refusals: BTreeMap<String, u64>,
    pub(super) pools: Vec<Pool>,
}

/// One model.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pool {
    pub(super) model: String,
    pub(super) ready: bool,
    pub(super) reservation: Option<String>,
    pub(super) backends: Vec<Backend>,
    pub(super) queue: Queue,
    pub(super) heads: Vec<Head>,
    pub(super) tenants: Vec<PoolTenant>,
}

/// One backend's books.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Backend {
    pub(super) name: String,
    pub(super) tier: String,
    pub(super) state: String,
    pub(super) capacity: Option<Capacity>,
    pub(super) held_blocks: u64,
    pub(super) growing_blocks: u64,
    pub(super) foreign_blocks: u64,
    pub(super) reserve_blocks: u64,
    pub(super) free_blocks: u64,
    pub(super) leases: u64,
    pub(super) set_aside: bool,
    pub(super) observed: Option<Observed>,
}

/// What a backend can hold.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Capacity {
    pub(super) blocks: u64,
    pub(super) block_size: u64,
    pub(super) max_model_len: u64,
}

/// What its engine said last.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Observed {
    pub(super) running: u64,
    pub(super) waiting: u64,
    pub(super) preemptions: u64,
}

/// A model's line.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Queue {
    pub(super) requests: u64,
    pub(super) tokens: u64,
    pub(super) oldest_seconds: f64,
}

/// One of those at its head.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Head {
    pub(super) tenant: Option<String>,
    pub(super) prompt_tokens: u64,
    pub(super) tier: String,
    pub(super) waited_seconds: f64,
    pub(super) waits_for: String,
    pub(super) expected_seconds: Expected,
}

/// When it is expected to be let in: as likely sooner as later, and four in five.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Expected {
    pub(super) q50: Option<f64>,
    pub(super) q80: Option<f64>,
}

/// A tenant's share of one model.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PoolTenant {
    pub(super) name: Option<String>,
    pub(super) leases: u64,
    pub(super) in_flight_tokens: u64,
    pub(super) waiting: u64,
}

/// A tenant over all models.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Tenant {
    pub(super) name: String,
    pub(super) weight: u64,
    pub(super) tokens: Option<Gauge>,
    pub(super) refusals: BTreeMap<String, u64>,
}

/// A rate.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Gauge {
    pub(super) per_minute: u64,
    pub(super) remaining: u64,
}

/// The last hour, put together from what the gateway added at each look.
#[derive(Clone, Debug, Default)]
pub(super) struct Hour {
    instance: String,
    next: u64,
    pub(super) step_seconds: f64,
    pub(super) models: BTreeMap<String, Series>,
}

/// One model's figures, oldest first; `None` where there was nothing to say.
#[derive(Clone, Debug, Default)]
pub(super) struct Series {
    pub(super) ttft_p50: Points,
    pub(super) ttft_p99: Points,
    pub(super) queue_p99: Points,
    pub(super) output_rate: Points,
    pub(super) running: Points,
}

/// Values over time, oldest first.
pub(super) type Points = VecDeque<Option<f64>>;

/// What is read of `/history`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct News {
    instance: String,
    step_seconds: f64,
    first: u64,
    next: u64,
    models: Vec<ModelNews>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ModelNews {
    model: String,
    ttft_p50_seconds: Points,
    ttft_p99_seconds: Points,
    queue_p99_seconds: Points,
    output_tokens_per_second: Points,
    running: Points,
}

// === impl Hour ===

impl Hour {
    /// What to ask for, of a gateway that is `instance`: all of it after a restart, else
    /// what is new.
    pub(super) fn path(&mut self, instance: &str) -> String {
        if self.instance != instance {
            *self = Self::default();
            self.instance = instance.to_owned();
        }
        format!("/history?after={}", self.next)
    }

    /// Adds what came. What was missed in between is a gap, and what is no history is none.
    pub(super) fn take(&mut self, news: &Value) {
        let Ok(news) = News::deserialize(news) else {
            return;
        };
        if news.instance != self.instance {
            *self = Self::default();
            self.instance = news.instance;
        }
        let missed = usize::try_from(news.first.saturating_sub(self.next)).unwrap_or(MOST_POINTS);
        let missed = missed.min(MOST_POINTS);
        (self.next, self.step_seconds) = (news.next, news.step_seconds);
        self.models
            .retain(|name, _| news.models.iter().any(|model| model.model == *name));
        for model in news.models {
            let series = self.models.entry(model.model).or_default();
            let lists = [
                (&mut series.ttft_p50, model.ttft_p50_seconds),
                (&mut series.ttft_p99, model.ttft_p99_seconds),
                (&mut series.queue_p99, model.queue_p99_seconds),
                (&mut series.output_rate, model.output_tokens_per_second),
                (&mut series.running, model.running),
            ];
            for (points, new) in lists {
                if !points.is_empty() {
                    points.extend(std::iter::repeat_n(None, missed));
                }
                points.extend(new);
                points.drain(..points.len().saturating_sub(MOST_POINTS));
            }
        }
    }
}

// === impl Backend ===

impl Backend {
    /// Held, growing, foreign, reserve and free, in blocks: together its capacity, unless
    /// it is over it.
    pub(super) const fn parts(&self) -> [u64; 5] {
        [
            self.held_blocks,
            self.growing_blocks,
            self.foreign_blocks,
            self.reserve_blocks,
            self.free_blocks,
        ]
    }

    /// Share of its pool that is held or foreign, in percent; `None` while it is unknown.
    pub(super) fn used_percent(&self) -> Option<u64> {
        let blocks = self.capacity?.blocks;
        let used = self.held_blocks.saturating_add(self.foreign_blocks);
        used.saturating_mul(100).checked_div(blocks)
    }
}
