//! What a pool looks like at one moment, as plain data for people and tests.

use std::time::Duration;

use super::backend::{BackendId, Capacity, Health, Observed, Tier};
use super::demand::TenantId;
use super::units::{Blocks, Tokens};
use super::waits::Predicted;

/// One pool: its backends, its queue, its tenants and what it has counted.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolState {
    /// Live backends, and removed ones that still have leases.
    pub backends: Vec<BackendState>,
    /// What waits.
    pub queue: QueueState,
    /// Tenants that have been seen.
    pub tenants: Vec<TenantState>,
    /// Totals since the pool was made.
    pub totals: Totals,
    /// Tokens of KV given back per second, lately; `None` until something was.
    pub drain_tokens_per_second: Option<f64>,
}

/// One backend's books.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendState {
    /// Identity.
    pub id: BackendId,
    /// Context class.
    pub tier: Tier,
    /// State; a retired backend is [`Health::Draining`].
    pub health: Health,
    /// Capacity, once known.
    pub capacity: Option<Capacity>,
    /// Blocks held by live leases and the prefixes they share.
    pub held: Blocks,
    /// Blocks that the forecast keeps for the growth of live leases beyond that, as
    /// surely as it plans; 0 where all that they may need is held already.
    pub growing: Blocks,
    /// Blocks that somebody else uses, by the last fresh scrape.
    pub foreign: Blocks,
    /// Blocks that are to stay free: what the forecast leaves for what it cannot
    /// see, and in a larger tier, where that is more, what is left to long requests.
    pub reserve: Blocks,
    /// Live leases.
    pub leases: u32,
    /// Sequences of live leases.
    pub sequences: u64,
    /// The waiter these blocks are being set aside for, if any.
    pub set_aside: bool,
    /// The last scrape.
    pub observed: Option<Observed>,
    /// How the forecast plans it; `None` under strict.
    pub plan: Option<Plan>,
    /// Predicted prefill on its way to it, without a first token yet.
    pub prefill_ahead: Duration,
    /// Predicted time of a prefill of a thousand tokens there.
    pub prefill_of_1000: Duration,
}

/// How the forecast plans a backend, as preemptions and scrapes have taught.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Standard deviations of the future peak that are left free.
    pub confidence: f64,
    /// Share of the pool that is planned.
    pub share: f64,
}

/// The waiting line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueState {
    /// Requests that wait.
    pub requests: u32,
    /// Tokens they ask for, prompts and expected output.
    pub tokens: Tokens,
    /// How long the longest-waiting request has waited.
    pub oldest: Duration,
}

/// A request near the head of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingHead {
    /// Whose it is.
    pub tenant: TenantId,
    /// Tokens of its prompts.
    pub prompt: Tokens,
    /// Most tokens that each of its sequences may emit; `None` for no limit.
    pub max_output: Option<Tokens>,
    /// Tokens it asks for: prompts and expected output.
    pub tokens: Tokens,
    /// The tier it belongs to.
    pub home: Tier,
    /// How long it has waited.
    pub waited: Duration,
    /// How long it may still wait.
    pub leaves_in: Duration,
    /// What it waits for.
    pub hold: Hold,
    /// How long it will wait from now on; `None` where that depends on its tenant's
    /// own requests alone.
    pub expected: Option<Predicted>,
    /// What was foreseen of its whole wait when it came.
    pub promised: Predicted,
}

/// What a waiting request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hold {
    /// What comes free is kept for one that has waited longer, or it is about to be
    /// looked at.
    Turn,
    /// No backend it may go to has room for it.
    Memory,
    /// Every backend it may go to has enough prefill on its way.
    Prefill,
    /// A backend that has its beginning cached is expected to be the soonest, once
    /// less prefill is on its way there.
    Cached,
    /// Its tenant holds as much as it may.
    TenantLimit,
    /// What is free is wanted back by a tenant that holds less than its own share.
    OthersShare,
    /// No usable backend could serve it.
    NoBackend,
    /// It has waited its bound: what comes free on one backend is kept for it.
    SetAside,
}

/// One tenant's share of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantState {
    /// Which tenant.
    pub tenant: TenantId,
    /// Requests in flight.
    pub leases: u32,
    /// Tokens charged to its in-flight share.
    pub in_flight: Tokens,
    /// Requests that wait.
    pub waiting: u32,
    /// Tokens served since the pool was made, prompt and output.
    pub served: Tokens,
}

/// Totals that only grow. Always `received = admitted + waiting + refused +
/// expired + left`, and `admitted = finished + failed + cancelled + in flight`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests that asked.
    pub received: u64,
    /// Requests that got a lease, at once or after waiting.
    pub admitted: u64,
    /// Requests refused on arrival, or dropped from the queue for want of a backend.
    pub refused: u64,
    /// Requests that waited until their deadline.
    pub expired: u64,
    /// Requests whose client left while they waited.
    pub left: u64,
    /// Leases that ended with an answer.
    pub finished: u64,
    /// Leases that ended with an engine's failure.
    pub failed: u64,
    /// Leases whose client left.
    pub cancelled: u64,
    /// Answers whose length was seen to its end, and so judges the forecast.
    pub measured: u64,
    /// Output tokens of one sequence of each of those.
    pub measured_output: Tokens,
    /// What had been expected of those on average, at admission.
    pub foreseen_output: Tokens,
    /// By how many tokens the mean expected at admission was off, over or under,
    /// for each of those: divided by `measured_output`, the relative error.
    pub output_error: Tokens,
    /// Waits that ended in a lease.
    pub promised: u64,
    /// Those that were not longer than was foreseen for four in five.
    pub kept: u64,
    /// What they waited together.
    pub waited: Duration,
    /// What had been foreseen for them as likely longer as shorter, together.
    pub foreseen_wait: Duration,
    /// How far the waits foreseen as likely longer as shorter were off, together.
    pub wait_error: Duration,
    /// Prompt tokens of requests that got a lease.
    pub prompt: Tokens,
    /// Output tokens seen so far, of all sequences, in answers under way too.
    pub generated: Tokens,
    /// Admissions that took a backend over its capacity. Always 0: anything else
    /// is a fault of this program.
    pub overdrawn: u64,
}

// === impl Hold ===

impl Hold {
    /// All of them, in declaration order.
    pub const ALL: [Self; 8] = [
        Self::Turn,
        Self::Memory,
        Self::Prefill,
        Self::Cached,
        Self::TenantLimit,
        Self::OthersShare,
        Self::NoBackend,
        Self::SetAside,
    ];

    /// The word in `/state`; stable once released.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Memory => "memory",
            Self::Prefill => "prefill",
            Self::Cached => "cached",
            Self::TenantLimit => "tenant_limit",
            Self::OthersShare => "others_share",
            Self::NoBackend => "no_backend",
            Self::SetAside => "set_aside",
        }
    }
}

// === impl PoolState ===

impl PoolState {
    /// Whether nothing is held and nothing waits.
    pub fn is_idle(&self) -> bool {
        let quiet = |backend: &BackendState| backend.held.is_zero() && backend.leases == 0;
        self.queue.requests == 0
            && self.backends.iter().all(quiet)
            && self
                .tenants
                .iter()
                .all(|tenant| tenant.leases == 0 && tenant.in_flight.is_zero())
    }
}
