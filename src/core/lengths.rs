//! How long answers get, learned while they are given.
//!
//! Output lengths of one tenant, prompt size, bound and kind resemble each
//! other, and the age of a running answer says more than anything known before
//! it began. So each class keeps hazards (the share of answers that end in a bin
//! of those that come into it), drawn towards its tenant's, these towards the
//! model's, and these towards a weak prior. It never looks at content, never
//! predicts a single number where a distribution is asked for, and reads nothing
//! but the facts given to it in their order: the same facts give the same curves.
//!
//! What counts as an end: only that an answer stopped by itself. One that its
//! bound cut off, or whose client left, has shown no more than that it was
//! longer (censored), so neither makes answers look shorter than they are, and a
//! class that always runs into its bound ends with all its mass there.
//!
//! Before answers have stopped by themselves, a bound that a client has set is
//! taken to be where they end. Classes are split by tenant and by prompt because
//! that is what tells lengths apart in public traces: the tenant in ServeGen's
//! deepseek-r1, the prompt in Azure's conversations of 2023; neither costs much
//! where it says nothing (Mooncake's conversations).
//!
//! Invariant: a bounded number of classes, whatever clients ask for.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::demand::{Demand, Kind, OutputLimit, TenantId};
use super::units::Tokens;
use counts::Counts;
use curve::Table;
use shelf::Shelf;

pub use curve::Curve;

mod bins;
mod counts;
mod curve;
mod shelf;
#[cfg(test)]
mod tests;

/// Classes of all tenants that are remembered: about 3 KB each.
const MOST_CLASSES: usize = 1024;

/// Classes of one tenant, so that none takes the room of all others.
const MOST_OF_A_TENANT: usize = 64;

/// Tenants that are remembered.
const MOST_TENANTS: usize = 1024;

/// How many answers that stop by themselves outweigh the suspicion that answers
/// go to the bound a client has set.
const SUSPICION: f64 = 4.0;

/// Requests whose answers are expected to be alike in length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassKey {
    tenant: TenantId,
    kind: Kind,
    /// 0 where the client set no bound, else 1 + log2 of it.
    bound: u8,
    /// log2 of the prompt.
    prompt: u8,
}

/// How far an answer has come since it was last reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// Tokens each sequence had emitted at the last report; 0 for the first.
    pub from: Tokens,
    /// Tokens each sequence has emitted.
    pub to: Tokens,
}

/// What is known of the output lengths of one pool.
#[derive(Clone, Debug)]
pub struct Lengths {
    prior: Prior,
    model: Counts,
    /// Answers that stopped by themselves, short of any bound.
    stopped: u32,
    tenants: Shelf<TenantId>,
    classes: Shelf<ClassKey>,
}

/// What is believed where nothing is known.
#[derive(Clone, Debug)]
struct Prior {
    mean: Tokens,
    table: Arc<Table>,
}

/// A fact about one answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fact {
    Passed,
    Ended,
    Lost,
}

// === impl ClassKey ===

impl ClassKey {
    /// The class of `demand`: its tenant, its kind, and the magnitudes of the
    /// bound the client set and of the longest prompt.
    pub fn of(demand: &Demand) -> Self {
        let bound = match demand.output {
            OutputLimit::Asked(bound) => 1 + magnitude(bound),
            OutputLimit::Open { .. } => 0,
        };
        Self {
            tenant: demand.tenant,
            kind: demand.kind,
            bound,
            prompt: magnitude(demand.prompt_longest()),
        }
    }

    /// Every class of its tenant.
    fn siblings(self) -> RangeInclusive<Self> {
        let end = |kind, size| Self {
            tenant: self.tenant,
            kind,
            bound: size,
            prompt: size,
        };
        end(Kind(0), 0)..=end(Kind(u8::MAX), u8::MAX)
    }
}

/// log2, rounded **down**; 0 for 0.
fn magnitude(tokens: Tokens) -> u8 {
    let log = tokens.get().checked_ilog2().unwrap_or(0);
    u8::try_from(log).expect("a u64 has 64 bits")
}

// === impl Lengths ===

impl Lengths {
    /// Nothing learned: answers of `prior` tokens on average, with a heavy tail.
    /// Too small a prior makes the first admissions of a new pool optimistic, too
    /// large a one makes them wait for each other; after some tens of answers it
    /// does not matter.
    pub fn new(prior: Tokens) -> Self {
        let table = Arc::new(Table::prior(prior));
        Self {
            model: Counts::new(Arc::clone(&table)),
            prior: Prior { mean: prior, table },
            stopped: 0,
            tenants: Shelf::new(MOST_TENANTS),
            classes: Shelf::new(MOST_CLASSES),
        }
    }

    /// Changes what is believed where nothing is known.
    pub fn set_prior(&mut self, prior: Tokens) {
        let table = Arc::new(Table::prior(prior));
        self.prior = Prior { mean: prior, table };
        self.model.draw(&self.prior.table);
    }

    /// The survival of answers of class `key` with this bound, by all that is
    /// known: of the class, else of its tenant, else of the model, else the prior.
    /// O(log classes); draws nothing.
    pub fn curve(&self, key: ClassKey, output: OutputLimit) -> Curve {
        let class = self.classes.get(key);
        let known = class.or_else(|| self.tenants.get(key.tenant));
        let table = known.unwrap_or(&self.model).table();
        let (bound, unbroken) = match output {
            OutputLimit::Asked(bound) => (bound, self.unbroken(bound)),
            OutputLimit::Open { at_most } => (at_most.unwrap_or(Tokens::MAX), 0.0),
        };
        Curve::new(Arc::clone(table), bound, unbroken)
    }

    /// Share of answers taken to go to `bound` before it is known how far they go:
    /// all where it is near what is expected anyhow, fewer the further beyond it is,
    /// since a large bound is mostly a default that nobody means.
    fn unbroken(&self, bound: Tokens) -> f64 {
        let near = self.prior.mean.as_f64() * 2.0 / bound.as_f64().max(1.0);
        near.min(1.0) * SUSPICION / (SUSPICION + f64::from(self.stopped))
    }

    /// A running answer has grown. Cheap where it has not left its bin.
    pub fn on_grown(&mut self, key: ClassKey, growth: Growth) {
        if bins::of(growth.to) > bins::of(growth.from) {
            self.on_fact(key, growth, Fact::Passed);
        }
    }

    /// An answer ended, by itself or because it reached `output`.
    pub fn on_finished(&mut self, key: ClassKey, growth: Growth, output: OutputLimit) {
        let bound = match output {
            OutputLimit::Asked(bound) => Some(bound),
            OutputLimit::Open { at_most } => at_most,
        };
        let cut_off = bound.is_some_and(|bound| growth.to >= bound);
        let fact = if cut_off { Fact::Lost } else { Fact::Ended };
        self.on_fact(key, growth, fact);
    }

    /// Nothing more will be seen of an answer: its client left or its engine failed.
    pub fn on_left(&mut self, key: ClassKey, growth: Growth) {
        self.on_fact(key, growth, Fact::Lost);
    }

    /// Classes that are remembered.
    pub fn classes(&self) -> usize {
        self.classes.len()
    }

    fn on_fact(&mut self, key: ClassKey, growth: Growth, fact: Fact) {
        self.stopped = self.stopped.saturating_add(u32::from(fact == Fact::Ended));
        self.model.on_fact(growth, fact, &self.prior.table);
        let above = self.model.table();
        let tenant = self.tenants.take_up(key.tenant, above);
        tenant.on_fact(growth, fact, above);
        if self.classes.get(key).is_none() {
            self.classes.make_room(key.siblings(), MOST_OF_A_TENANT);
        }
        let above = tenant.table();
        let class = self.classes.take_up(key, above);
        class.on_fact(growth, fact, above);
    }
}

// === impl Counts ===

impl Counts {
    fn on_fact(&mut self, Growth { from, to }: Growth, fact: Fact, above: &Table) {
        match fact {
            Fact::Passed => self.on_passed(from, to),
            Fact::Ended => self.on_ended(from, to),
            Fact::Lost => self.on_lost(from, to),
        }
        self.refresh(above);
    }
}
