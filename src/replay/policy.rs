//! Who decides where calls go: the rivals and ours, by name and with their settings.
//!
//! Decides nothing itself. A kind with a setting that its users tune stands for every
//! value tried, see [`PolicyKind::candidates`]: a report takes the best of them at each
//! load, so that no rival loses by a bad setting.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::core::admission::{PoolPolicy, TenantPolicy};
use crate::core::demand::TenantId;

/// A policy by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyKind {
    /// One engine after the other.
    RoundRobin,
    /// The engine with the fewest calls of ours.
    LeastOutstanding,
    /// The better of two drawn at random.
    PowerOfTwo,
    /// By the longest match in an approximate prefix tree, unless loads differ.
    CacheAware,
    /// By the cheapest prefill and decode blocks.
    KvCost,
    /// Scored by queue and KV usage; held in the gateway while the fleet is saturated.
    FlowControl,
    /// A bounded number of calls at each engine, first come first served.
    Semaphore,
    /// The same, without those that are too late, past heads that must wait.
    SemaphoreDrop,
    /// The least predicted time to the first token; refused at arrival if too long.
    EarlyRejection,
    /// Prompt and output bound reserved from the start.
    WorstCase,
    /// The prompt alone reserved.
    PromptOnly,
    /// The shipped core.
    Ours,
    /// The shipped core, told the true length of each answer.
    OursTrueLengths,
}

/// A policy with its settings.
#[derive(Clone, Debug, PartialEq)]
pub enum Policy {
    /// [`PolicyKind::RoundRobin`].
    RoundRobin,
    /// [`PolicyKind::LeastOutstanding`].
    LeastOutstanding,
    /// [`PolicyKind::PowerOfTwo`].
    PowerOfTwo,
    /// [`PolicyKind::CacheAware`].
    CacheAware(CacheAware),
    /// [`PolicyKind::KvCost`].
    KvCost,
    /// [`PolicyKind::FlowControl`].
    FlowControl(FlowControl),
    /// [`PolicyKind::Semaphore`] and [`PolicyKind::SemaphoreDrop`].
    Semaphore(Semaphore),
    /// [`PolicyKind::EarlyRejection`].
    EarlyRejection,
    /// [`PolicyKind::WorstCase`] and [`PolicyKind::PromptOnly`].
    Reserve(Reserve),
    /// [`PolicyKind::Ours`] and [`PolicyKind::OursTrueLengths`].
    Ours(Box<Ours>),
}

/// Settings of the cache-aware rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheAware {
    /// Share of the prompt that must match for the engine with the match to be taken.
    pub match_threshold: f64,
    /// Loads differ when the largest is more than this above the smallest …
    pub balance_abs: u64,
    /// … and more than this times it.
    pub balance_rel: f64,
}

/// When the fleet counts as saturated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowControl {
    /// An engine with this many waiting counts as full.
    pub queue_depth: u32,
    /// An engine with this share of its KV in use counts as full.
    pub kv_usage: f64,
}

/// A bound on the calls at each engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Semaphore {
    /// Calls at once at each engine; at least 1.
    pub each: usize,
    /// What becomes of calls that are too late.
    pub late: Late,
}

/// What a line does with calls whose first token can no longer be in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// They are served in their turn.
    Served,
    /// They are refused, and nobody waits for a head that does not fit.
    Dropped,
}

/// How much a reserving rival books for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// Prompt and output bound, or the bound the fleet assumes.
    WorstCase,
    /// The prompt.
    Prompt,
}

/// The shipped core and its settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Ours {
    /// As an operator would set them.
    pub pool: PoolPolicy,
    /// Tenants with settings of their own.
    pub tenants: BTreeMap<TenantId, TenantPolicy>,
    /// What is known of the lengths of answers.
    pub lengths: Lengths,
    /// How long a call waits at most, where its first token is not due sooner.
    pub max_wait: Duration,
    /// Whether it knows which prompts begin alike.
    pub beginnings: Beginnings,
}

/// Whether the core is told how prompts begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginnings {
    /// As far as the trace says.
    Told,
    /// Nothing: every prompt counts as new.
    Untold,
}

/// What the core is told of the length of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lengths {
    /// The client's `max_tokens`, if any.
    Learned,
    /// The truth, as a `max_tokens` that binds.
    True,
}

// === impl PolicyKind ===

impl PolicyKind {
    /// All of them, rivals first.
    pub const ALL: [Self; 13] = [
        Self::RoundRobin,
        Self::LeastOutstanding,
        Self::PowerOfTwo,
        Self::CacheAware,
        Self::KvCost,
        Self::FlowControl,
        Self::Semaphore,
        Self::SemaphoreDrop,
        Self::EarlyRejection,
        Self::WorstCase,
        Self::PromptOnly,
        Self::Ours,
        Self::OursTrueLengths,
    ];

    /// The name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::LeastOutstanding => "least-outstanding",
            Self::PowerOfTwo => "power-of-two",
            Self::CacheAware => "cache-aware",
            Self::KvCost => "dynamo-like",
            Self::FlowControl => "llm-d-like",
            Self::Semaphore => "semaphore",
            Self::SemaphoreDrop => "semaphore-drop",
            Self::EarlyRejection => "early-rejection",
            Self::WorstCase => "worst-case",
            Self::PromptOnly => "prompt-only",
            Self::Ours => "ours",
            Self::OursTrueLengths => "ours-true-lengths",
        }
    }

    /// The kind of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Every setting of this kind that is tried; one for most.
    pub fn candidates(self) -> Vec<Policy> {
        const EACH: [usize; 8] = [6, 8, 12, 16, 24, 32, 48, 64];
        let semaphores = |late: Late| {
            EACH.map(|each| Policy::Semaphore(Semaphore { each, late }))
                .to_vec()
        };
        match self {
            Self::RoundRobin => vec![Policy::RoundRobin],
            Self::LeastOutstanding => vec![Policy::LeastOutstanding],
            Self::PowerOfTwo => vec![Policy::PowerOfTwo],
            Self::CacheAware => CacheAware::PUBLISHED.map(Policy::CacheAware).to_vec(),
            Self::KvCost => vec![Policy::KvCost],
            Self::FlowControl => vec![Policy::FlowControl(FlowControl::default())],
            Self::Semaphore => semaphores(Late::Served),
            Self::SemaphoreDrop => semaphores(Late::Dropped),
            Self::EarlyRejection => vec![Policy::EarlyRejection],
            Self::WorstCase => vec![Policy::Reserve(Reserve::WorstCase)],
            Self::PromptOnly => vec![Policy::Reserve(Reserve::Prompt)],
            Self::Ours => vec![Policy::Ours(Box::default())],
            Self::OursTrueLengths => vec![Policy::Ours(Box::new(Ours {
                lengths: Lengths::True,
                ..Ours::default()
            }))],
        }
    }
}

// === impl Policy ===

impl Policy {
    /// The kind it is a setting of.
    pub fn kind(&self) -> PolicyKind {
        match self {
            Self::RoundRobin => PolicyKind::RoundRobin,
            Self::LeastOutstanding => PolicyKind::LeastOutstanding,
            Self::PowerOfTwo => PolicyKind::PowerOfTwo,
            Self::CacheAware(_) => PolicyKind::CacheAware,
            Self::KvCost => PolicyKind::KvCost,
            Self::FlowControl(_) => PolicyKind::FlowControl,
            Self::Semaphore(semaphore) => match semaphore.late {
                Late::Served => PolicyKind::Semaphore,
                Late::Dropped => PolicyKind::SemaphoreDrop,
            },
            Self::EarlyRejection => PolicyKind::EarlyRejection,
            Self::Reserve(Reserve::WorstCase) => PolicyKind::WorstCase,
            Self::Reserve(Reserve::Prompt) => PolicyKind::PromptOnly,
            Self::Ours(ours) => match ours.lengths {
                Lengths::Learned => PolicyKind::Ours,
                Lengths::True => PolicyKind::OursTrueLengths,
            },
        }
    }

    /// Its setting among the candidates of its kind, where there are several.
    pub fn setting(&self) -> Option<String> {
        match self {
            Self::CacheAware(rule) => Some(format!(
                "{}/{}/{}",
                rule.match_threshold, rule.balance_abs, rule.balance_rel
            )),
            Self::Semaphore(semaphore) => Some(semaphore.each.to_string()),
            _ => None,
        }
    }
}

// === impl CacheAware ===

impl CacheAware {
    /// The settings shipped by sglang-router and by its successor.
    pub const PUBLISHED: [Self; 2] = [
        Self {
            match_threshold: 0.5,
            balance_abs: 32,
            balance_rel: 1.1,
        },
        Self {
            match_threshold: 0.3,
            balance_abs: 64,
            balance_rel: 1.5,
        },
    ];
}

// === impl FlowControl ===

impl Default for FlowControl {
    /// As the gateway API inference extension ships them.
    fn default() -> Self {
        Self {
            queue_depth: 5,
            kv_usage: 0.8,
        }
    }
}

// === impl Ours ===

impl Default for Ours {
    /// As shipped, every tenant alike.
    fn default() -> Self {
        Self {
            pool: PoolPolicy::default(),
            tenants: BTreeMap::new(),
            lengths: Lengths::Learned,
            max_wait: Duration::from_secs(60),
            beginnings: Beginnings::Told,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_by_its_name_and_by_its_candidates() {
        for kind in PolicyKind::ALL {
            assert_eq!(PolicyKind::parse(kind.name()), Some(kind));
            assert!(kind.candidates().iter().all(|policy| policy.kind() == kind));
        }
        assert_eq!(PolicyKind::parse("nobody"), None);
    }
}
