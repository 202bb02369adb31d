//! What requests cost, as time of the pool: expected, and as it came to.

use super::Admission;
use super::outcome::Weight;
use crate::core::ahead::span;
use crate::core::backend::BackendId;
use crate::core::demand::{Demand, OutputLimit, Work};
use crate::core::fairness::{Cost, Usage};
use crate::core::ledger::{Booking, Entry};
use crate::core::lengths::ClassKey;
use crate::core::pace::Prefill;
use crate::core::roster::Backend;
use crate::core::time::Time;
use crate::core::units::Tokens;

/// Seconds of a decode step before any was measured.
const STEP: f64 = 0.03;

/// Backends whose pace stands for all: asking more says no more.
const SAMPLED: usize = 8;

impl Admission {
    /// What a request is expected to use: its prefill, and its memory for as long as
    /// it is expected to stay. O(backends).
    pub(super) fn usage_of(&self, demand: &Demand, output: OutputLimit) -> Usage {
        let class = match demand.work {
            Work::Generate => Some(ClassKey::of(demand)),
            Work::Pool => None,
            Work::Aside => return Usage::default(),
        };
        let each = self.foreseen(class, output);
        // Whatever was asked is weighed here, also what will fit nowhere.
        let grown = each.saturating_mul(demand.sequences());
        let prefill = self.prefill_of_all(Prefill::of(demand));
        Usage {
            prefill: span(prefill.together),
            held: demand
                .prompt_total()
                .saturating_add(Tokens::new(grown.get() / 2)),
            stay: span(prefill.alone + self.step() * each.as_f64()),
        }
    }

    /// What a lease that ends now has cost.
    pub(super) fn cost_used(&self, now: Time, id: BackendId, entry: &Entry) -> Cost {
        let capacity = self.backend(id).and_then(|backend| backend.capacity);
        let Some(capacity) = capacity.filter(|_| entry.cost > Cost::ZERO) else {
            return entry.cost;
        };
        let prefix = Tokens::new(u64::try_from(entry.prefix.hashes().len()).unwrap_or(u64::MAX));
        let prefix = prefix.saturating_mul(u64::from(capacity.block_size.get()));
        let last = entry.own.tokens(capacity.block_size).saturating_add(prefix);
        let prompt = entry.shape.prompt_total();
        let held = match entry.booking {
            Booking::Whole => last,
            // It grew evenly from its prompt.
            Booking::AsItGrows => Tokens::new(prompt.get().midpoint(last.max(prompt).get())),
        };
        let usage = Usage {
            held,
            stay: now - entry.admitted,
            ..entry.usage
        };
        self.cost_of(usage)
    }

    /// What a request is expected to use as it was asked.
    pub(super) fn weigh(&self, demand: &Demand) -> Weight {
        let usage = self.usage_of(demand, demand.output);
        Weight {
            usage,
            size: usage.size(),
        }
    }

    /// The same with `output` as its bound, where that is another.
    pub(super) fn weigh_again(
        &self,
        weight: Weight,
        demand: &Demand,
        output: OutputLimit,
    ) -> Weight {
        if output == demand.output {
            return weight;
        }
        let usage = self.usage_of(demand, output);
        Weight { usage, ..weight }
    }

    /// Tokens of KV times seconds that a request is expected to hold. O(backends).
    pub(super) fn size_of(&self, demand: &Demand, output: OutputLimit) -> f64 {
        self.usage_of(demand, output).size()
    }

    /// Tokens of the largest pool that may be used; at least 1.
    pub(super) fn largest_pool(&self) -> f64 {
        self.extent.largest.max(Tokens::new(1)).as_f64()
    }

    /// The larger of the shares of this pool.
    pub(super) fn cost_of(&self, usage: Usage) -> Cost {
        usage.cost(self.kv())
    }

    /// What the backends that admit hold together.
    pub(super) fn kv(&self) -> Tokens {
        self.extent.kv
    }

    /// How much there is now, added up.
    pub(super) fn measured_extent(&self) -> Extent {
        let mut extent = Extent::default();
        for backend in self.usable() {
            let pool = backend.capacity.map(|capacity| capacity.pool());
            let pool = pool.unwrap_or_default();
            extent.kv += pool;
            extent.largest = extent.largest.max(pool);
            extent.backends += 1.0;
        }
        extent
    }

    /// Seconds a prefill takes one backend, on average, and all of them side by side.
    fn prefill_of_all(&self, work: Prefill) -> PrefillTime {
        let (mut rate, mut backends) = (0.0, 0.0);
        for row in self.table.usable().take(SAMPLED) {
            rate += 1.0 / row.prefill(work).max(1e-6);
            backends += 1.0;
        }
        let all = self.extent.backends;
        match rate > 0.0 {
            true => PrefillTime {
                together: backends / rate / all,
                alone: backends / rate,
            },
            false => PrefillTime::default(),
        }
    }

    /// Seconds of a decode step as loaded as backends are now.
    fn step(&self) -> f64 {
        let (mut seconds, mut backends) = (0.0, 0.0);
        for step in self.table.usable().take(SAMPLED).filter_map(|row| row.step) {
            seconds += step;
            backends += 1.0;
        }
        if backends > 0.0 {
            seconds / backends
        } else {
            STEP
        }
    }

    fn usable(&self) -> impl Iterator<Item = &Backend> {
        self.backends.iter().filter(|backend| backend.admits())
    }
}

/// What the backends that admit have together. It changes only with them, and is
/// asked for at every step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Extent {
    /// What they hold.
    kv: Tokens,
    /// What the largest of them holds.
    largest: Tokens,
    /// How many they are.
    backends: f64,
}

/// How long a prefill takes, in seconds.
#[derive(Clone, Copy, Debug, Default)]
struct PrefillTime {
    alone: f64,
    together: f64,
}
