//! What would become of a request, and why: the decision with all that led to it.
//!
//! Decides nothing of its own: the verdict is [`decide`](Admission::decide)'s, each
//! backend is asked through the gates of placement, and what is missing is found by
//! asking the same gates again of a backend that is larger by so much. Changes
//! nothing and learns nothing. When room will be there is a guess by what is
//! expected of those that run now, as if nobody else took it.

use std::time::Duration;

use super::grants::max_tokens;
use super::{Admission, Decision, MaxTokens};
use crate::core::ahead::span;
use crate::core::backend::{BackendId, Tier};
use crate::core::demand::{Demand, OutputLimit, Work};
use crate::core::fit::Sketch;
use crate::core::footprint::Shape;
use crate::core::gates::Barrier;
use crate::core::lengths::ClassKey;
use crate::core::overlap::Uncached;
use crate::core::placement::{Asked, Fleet, Placement, Prospect};
use crate::core::reject::Reject;
use crate::core::roster::Backend;
use crate::core::stats::{Hold, QueueState};
use crate::core::time::Time;
use crate::core::units::{BlockSize, Blocks, Tokens};
use crate::core::waits::Predicted;

/// Backends of which it is searched how many blocks are missing: each costs some
/// twenty looks at its books, under the lock of the pool.
const SEARCHED: usize = 8;

/// A decision, with all that led to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// What would happen now.
    pub decision: Decision,
    /// The tier it belongs to; `None` where nothing could ever hold it, or nothing
    /// is known yet.
    pub home: Option<Tier>,
    /// Its output bound, after clamping.
    pub output: OutputLimit,
    /// What would be written into it where it would go now, or as far as is known.
    pub max_tokens: MaxTokens,
    /// Prompt and expected output of all sequences: what it counts in line and
    /// against its tenant's share.
    pub tokens: Tokens,
    /// How long the answer of one sequence is expected to be.
    pub odds: Odds,
    /// Share of each pool that it must leave free, 0 to 1: more than 0 for large
    /// requests while others are lost for want of memory.
    pub leaves_free: f64,
    /// Its wait, had it to queue: at its place in line, with what is ahead of it.
    pub wait: Predicted,
    /// When it would be told to come back, were it refused for want of room.
    pub retry_after: Duration,
    /// What keeps it in line, whether or not there is room.
    pub hold: Option<Hold>,
    /// What its tenant has here.
    pub limits: Limits,
    /// What waits already.
    pub queue: QueueState,
    /// Every backend of the pool.
    pub views: Vec<View>,
}

/// Expected output tokens of one sequence; all 0 where nothing is generated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Odds {
    /// On average, rounded up.
    pub mean: Tokens,
    /// As likely longer as shorter.
    pub q50: Tokens,
    /// Nine in ten are no longer.
    pub q90: Tokens,
}

/// What a tenant has in a pool, and may have; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Its requests in line.
    pub waiting: u32,
    /// How many of those it may have.
    pub max_waiting: Option<u32>,
    /// Tokens charged to its in-flight share.
    pub in_flight: Tokens,
    /// How many of those it may have.
    pub max_in_flight: Option<Tokens>,
}

/// A request as one backend sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View {
    /// Which.
    pub id: BackendId,
    /// Its context class.
    pub tier: Tier,
    /// Whether it could take the request.
    pub room: Room,
    /// Tokens per block there; `None` while its capacity is unknown.
    pub block_size: Option<BlockSize>,
    /// Blocks of its pool.
    pub all: Blocks,
    /// Blocks that nobody holds, by our books and the last scrape.
    pub free: Blocks,
    /// Blocks that the prompt alone takes there.
    pub prompt: Blocks,
    /// Blocks at the end of an answer of mean length, or at its bound where it is
    /// booked as a whole.
    pub whole: Blocks,
    /// Predicted time to the first token, were it sent there now.
    pub first_token: Duration,
    /// Tokens of the prompt's beginning that it probably has already, by what was
    /// sent there.
    pub cached: Tokens,
}

/// Whether a backend could take a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Room {
    /// Now, and this many blocks would be taken at once.
    Now(Blocks),
    /// Not now.
    Later {
        /// The first gate that does not let it through.
        barrier: Barrier,
        /// Blocks that are missing, where memory is.
        missing: Option<Blocks>,
        /// When that is expected to be otherwise, where it can be told.
        after: Option<Duration>,
    },
    /// Not as things are configured, however long it waits.
    Never(Barrier),
}

/// A request on its way to a backend.
struct Quest<'a> {
    fleet: Fleet<'a>,
    asked: Asked<'a>,
    home: Tier,
    output: OutputLimit,
    open: [bool; Tier::ALL.len()],
    chosen: Option<Placement>,
    work: Uncached,
}

// === impl Explanation ===

impl Explanation {
    /// Why it would be refused at once, if it would.
    pub const fn rejected(&self) -> Option<Reject> {
        match self.decision {
            Decision::Reject(reject) => Some(reject),
            Decision::Admit(_) | Decision::Wait { .. } => None,
        }
    }
}

// === impl Admission ===

impl Admission {
    /// What would happen to `demand` now, and why; changes nothing. `now` must not
    /// precede the last call. O(backends) beside the decision, and O(leases) of the
    /// few backends whose memory is short.
    pub fn explain(&self, now: Time, demand: &Demand) -> Explanation {
        let shape = Shape::of(demand);
        let size = self.size_of(demand, demand.output);
        let leaves_free = self.trunk.left_by(now, size);
        let asked = Asked {
            demand,
            shape: &shape,
            ticket: None,
            sketch: &Sketch::leaving(leaves_free).patient(),
        };
        let fleet = self.fleet(now);
        let (home, output) = match fleet.prospect(asked) {
            Prospect::Possible { home, output } => (Some(home), output),
            Prospect::Unknown | Prospect::TooLong { .. } | Prospect::Nowhere => {
                (None, demand.output)
            }
        };
        let tier = home.unwrap_or(Tier::Standard);
        let tokens = self.tokens_of(demand, output);
        let promise = self.promise_to(now, (demand, &shape), output);
        let held = self.held(demand, (tier, tokens));
        let decision = self.decide(now, demand);
        let chosen = match decision {
            Decision::Admit(place) => Some(place),
            Decision::Wait { .. } | Decision::Reject(_) => fleet.place(asked, tier, output),
        };
        let quest = Quest {
            fleet,
            asked,
            home: tier,
            output,
            open: fleet.open_tiers(asked, tier),
            chosen,
            work: fleet.overlap.uncached(demand),
        };
        let odds = self.odds(demand, output);
        Explanation {
            decision,
            home,
            output,
            max_tokens: max_tokens(demand, chosen.map_or(output, |place| place.output)),
            tokens,
            odds,
            leaves_free,
            wait: promise.predicted,
            retry_after: self.returns.after(demand.tenant, promise),
            hold: held.or_else(|| match chosen {
                Some(_) => None,
                None => Some(fleet.lacks(asked, (tier, output))),
            }),
            limits: self.limits_of(demand),
            queue: self.queue.state(now),
            views: self.views(&quest, odds.mean),
        }
    }

    fn odds(&self, demand: &Demand, output: OutputLimit) -> Odds {
        if demand.work != Work::Generate {
            return Odds::default();
        }
        let curve = self.lengths.curve(ClassKey::of(demand), output);
        Odds {
            mean: curve.mean().believable(),
            q50: curve.quantile(Tokens::ZERO, 0.5),
            q90: curve.quantile(Tokens::ZERO, 0.9),
        }
    }

    fn limits_of(&self, demand: &Demand) -> Limits {
        let flow = self.flows.get(demand.tenant);
        flow.map_or_else(Limits::default, |flow| Limits {
            waiting: u32::try_from(flow.waiting.len()).unwrap_or(u32::MAX),
            max_waiting: flow.policy.max_waiting,
            in_flight: flow.in_flight,
            max_in_flight: flow.policy.max_in_flight,
        })
    }

    fn views(&self, quest: &Quest<'_>, mean: Tokens) -> Vec<View> {
        let mut searches = SEARCHED;
        let active = self.backends.iter().filter(|backend| backend.is_active());
        active
            .map(|backend| quest.view(backend, (mean, &mut searches)))
            .collect()
    }
}

// === impl Quest ===

impl Quest<'_> {
    fn view(&self, backend: &Backend, (mean, searches): (Tokens, &mut usize)) -> View {
        let Self { fleet, asked, .. } = *self;
        let account = fleet.ledger.account(backend.id);
        let capacity = backend.capacity.as_ref();
        let aside = asked.demand.work == Work::Aside;
        let blocks = |generated: Tokens| match capacity {
            Some(capacity) if !aside => asked.shape.blocks(generated, capacity),
            _ => Blocks::ZERO,
        };
        let room = self.room(backend, searches);
        let at_once = match room {
            Room::Now(blocks) => blocks,
            Room::Later { .. } | Room::Never(_) => Blocks::ZERO,
        };
        let all = capacity.map_or(Blocks::ZERO, |capacity| capacity.blocks);
        let used = account.held() + backend.foreign(fleet.now, fleet.observed_for);
        View {
            id: backend.id,
            tier: backend.tier,
            room,
            block_size: capacity.map(|capacity| capacity.block_size),
            all,
            free: all.saturating_sub(used),
            prompt: blocks(Tokens::ZERO),
            whole: blocks(mean).max(at_once),
            first_token: fleet.first_token_after(backend, self.work.on(backend.id)),
            cached: self.work.cached_on(backend.id),
        }
    }

    fn room(&self, backend: &Backend, searches: &mut usize) -> Room {
        let Self { fleet, asked, .. } = *self;
        if let Some(chosen) = self.chosen.filter(|chosen| chosen.backend == backend.id) {
            return Room::Now(chosen.blocks);
        }
        let barrier = match self.barrier(backend) {
            Some(barrier) => barrier,
            None => match fleet.room(backend, asked, (self.home, self.output)) {
                Ok(fit) => return Room::Now(fit.blocks),
                Err(barrier) => barrier,
            },
        };
        let closed = barrier == Barrier::TierClosed;
        if barrier.is_for_good() || (closed && !fleet.tier_may_open(self.home, backend.tier)) {
            return Room::Never(barrier);
        }
        let is_memory = matches!(barrier, Barrier::Memory | Barrier::Reserve);
        let searched = is_memory && *searches > 0;
        *searches -= usize::from(searched);
        let missing = searched.then(|| self.missing(backend)).flatten();
        Room::Later {
            barrier,
            missing,
            after: self.after(backend, (barrier, missing)),
        }
    }

    /// What stands before it here, room aside: first what no wait removes.
    fn barrier(&self, backend: &Backend) -> Option<Barrier> {
        let Self { fleet, asked, .. } = *self;
        let forbidden = backend.forbids(asked.demand);
        let aside = asked.demand.work == Work::Aside;
        let too_large =
            !aside && backend.capacity.is_some() && !backend.could_hold(asked.shape, self.output);
        let size = too_large.then_some(Barrier::Size);
        let work = self.work.on(backend.id);
        let gates = || fleet.barrier(backend, asked, (&self.open, work));
        let trusted = backend.is_trusted_with(asked.demand.work);
        let trust = (!trusted).then_some(Barrier::Trust);
        forbidden.or(size).or_else(gates).or(trust)
    }

    /// The fewest blocks with which it would fit there.
    fn missing(&self, backend: &Backend) -> Option<Blocks> {
        let sketch = self.asked.sketch;
        let fits = |more: u64| {
            sketch.imagine(Blocks::new(more));
            let room = self
                .fleet
                .room(backend, self.asked, (self.home, self.output));
            sketch.imagine(Blocks::ZERO);
            room.is_ok()
        };
        let pool = backend.capacity.as_ref()?.blocks.get();
        // Twice as large it is as good as empty.
        let (mut short, mut enough) = (0, pool.saturating_mul(2));
        if !fits(enough) {
            return None;
        }
        while enough - short > 1 {
            let middle = short.midpoint(enough);
            if fits(middle) {
                enough = middle;
            } else {
                short = middle;
            }
        }
        Some(Blocks::new(enough))
    }

    fn after(
        &self,
        backend: &Backend,
        (barrier, missing): (Barrier, Option<Blocks>),
    ) -> Option<Duration> {
        let fleet = &self.fleet;
        match barrier {
            Barrier::Prefill => {
                let ahead = backend.ahead.seconds(fleet.now, &backend.pace);
                Some(span(ahead - fleet.dispatch.late.as_secs_f64()))
            }
            Barrier::Memory | Barrier::Reserve => {
                let account = fleet.ledger.account(backend.id);
                let tokens = account.frees_after(missing?)?;
                Some(span(backend.step(account)?.as_secs_f64() * tokens.as_f64()))
            }
            _ => None,
        }
    }
}
