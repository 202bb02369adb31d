//! What a request asks of the fleet, measured and bounded before it may queue.

use super::backend::{ServedId, TierSet};
use super::prefix::{PrefixChain, PrefixTrail};
use super::time::Time;
use super::units::Tokens;

/// Index of a tenant, given out by whoever loads the tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u32);

/// When a request was complete, as a number that grows from one to the next:
/// whoever reads requests gives it out. Those of one number are in the order in
/// which they came to the line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arrival(pub u64);

/// How much a request may generate per sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutputLimit {
    /// The client asked for at most this many tokens.
    Asked(Tokens),
    /// The client did not say: the rest of the context, at most this many where
    /// the tenant has a limit.
    Open {
        /// The tenant's `max_output_tokens`, if any.
        at_most: Option<Tokens>,
    },
}

/// What tells the answers of one tenant apart by length, besides prompt and
/// bound: the route, tools, a fixed format. Whoever reads requests numbers the
/// kinds; nothing is read into the number but that it is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(pub u8);

/// How long the KV of a request lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// Prompt and output, until the last token.
    Generate,
    /// Prompt only, for one step (embeddings, scores).
    Pool,
    /// None: the engine's tokenizer alone works on it. It takes no block and no
    /// seat, counts against no share, waits for nothing and may be of any length.
    Aside,
}

/// Whether growth of the sequences can be watched while they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Progress {
    /// A stream: growth is reported block by block.
    Streamed,
    /// One answer at the end: nothing is known in between, so the whole bound
    /// counts from the start.
    Unseen,
}

/// When a request may use the offload tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OffloadRule {
    /// Never.
    Never,
    /// Only where nothing faster can ever hold it.
    WhenOnly,
    /// Where its first token is predicted to come sooner, or nothing else can hold it.
    WhenFaster,
}

/// Whether a request is long-document traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Length {
    /// Decided by its footprint against the smallest tier's live pool.
    ByFootprint,
    /// Said to be long by the tenant, the route, a header or `documents`.
    Long,
}

/// A measured request: everything admission needs, nothing else.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// Who asks.
    pub tenant: TenantId,
    /// Its place among the requests of its tenant, however long counting took.
    pub arrival: Arrival,
    /// Which served model id must be on the backend.
    pub served: ServedId,
    /// Tokens of each prompt; never empty. A list of prompts is one entry each.
    pub prompts: Vec<Tokens>,
    /// Sequences generated for each prompt (`n`, beam width); at least 1.
    pub samples: u32,
    /// Output bound of each sequence.
    pub output: OutputLimit,
    /// What its answers are like.
    pub kind: Kind,
    /// How long its KV lives.
    pub work: Work,
    /// Whether its growth is seen.
    pub progress: Progress,
    /// Tiers the tenant and the request allow.
    pub tiers: TierSet,
    /// Its rule for the offload tier.
    pub offload: OffloadRule,
    /// Whether it is long-document traffic.
    pub length: Length,
    /// Hashes of the prompt's full blocks, where known; empty otherwise.
    pub prefix: PrefixChain,
    /// Hashes of the prompt's beginnings, where known: what an engine that has had
    /// them need not compute again.
    pub trail: PrefixTrail,
    /// The instant by which its first token is worth having; `None` where nobody
    /// has said. It orders the line, and who can no longer make it is refused.
    pub first_token_by: Option<Time>,
    /// Leaves the queue unanswered at this instant.
    pub deadline: Time,
}

impl Demand {
    /// All prompt tokens together.
    pub fn prompt_total(&self) -> Tokens {
        self.prompts.iter().copied().sum()
    }

    /// The longest single prompt: what `max_model_len` is compared with.
    pub fn prompt_longest(&self) -> Tokens {
        self.prompts.iter().copied().max().unwrap_or(Tokens::ZERO)
    }

    /// Sequences the engine will run for it.
    pub fn sequences(&self) -> u64 {
        u64::from(self.samples) * u64::try_from(self.prompts.len()).unwrap_or(u64::MAX)
    }
}
