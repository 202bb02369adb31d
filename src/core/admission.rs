//! Admission: one pool's books, queue and backends as a pure state machine.
//!
//! Facts go in with the time they happened, decisions come out as data. The
//! order of calls is the caller's: [`decide`](Admission::decide) only looks,
//! [`commit`](Admission::commit) acts on what it found, and everything that may
//! free memory appends the grants that follow to `out`, so that "release, then
//! grant the next" is one step. Deliver effects only after giving up whatever
//! lock guards this struct: a refused grant is released through the same door.
//!
//! Invariant: once no [`Effect::Again`] is pending, no waiter is left that
//! would pass every gate of its policy.

use std::time::Duration;

use super::backend::{BackendId, Capacity, Tier};
use super::demand::{Demand, OutputLimit, TenantId, Work};
use super::dispatch::DispatchPolicy;
use super::failures::Failures;
use super::fairness::{Charge, Claim, Flows, Turn};
use super::fit::Sketch;
use super::footprint::Shape;
use super::ledger::{Entry, LeaseId, Ledger};
use super::lengths::{ClassKey, Lengths};
use super::overlap::Overlap;
use super::placement::{
    Asked, Fleet, ForecastPolicy, Placement, Prospect, Reservation, TierPolicy,
};
use super::queue::{Queue, QueuePolicy, TicketId, Unserved};
use super::reject::Reject;
use super::roster::Backend;
use super::stats::{Hold, Totals};
use super::table::Table;
use super::time::Time;
use super::trunk::Trunk;
use super::units::Tokens;
use super::waits::{Backlog, Caller, Drain, Returns, Waits};

pub use super::fairness::TenantPolicy;
pub use super::waits::Predicted;
pub use explain::{Explanation, Limits, Odds, Room, View};
use grants::Admitted;
pub use outcome::{Decision, Effect, End, Grant, MaxTokens, Standing, Verdict};
use refuse::{Newcomer, no_backend, too_late};
pub use shadow::Would;

mod cost;
mod drain;
mod explain;
mod grants;
mod heads;
mod learning;
mod observing;
mod order;
mod outcome;
mod pacing;
mod promises;
mod refuse;
mod roster;
mod rows;
mod shadow;
#[cfg(test)]
mod tests;
mod timeouts;

/// Everything that is decided for a pool by its operator.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolPolicy {
    /// How much is reserved for a request.
    pub reservation: Reservation,
    /// Bounds of the queue.
    pub queue: QueuePolicy,
    /// Rules of the tiers.
    pub tiers: TierPolicy,
    /// What is sent when, and to which of those that have room.
    pub dispatch: DispatchPolicy,
    /// Scrapes older than this say nothing about foreign traffic.
    pub observed_for: Duration,
}

/// One pool's admission.
#[derive(Clone, Debug)]
pub struct Admission {
    policy: PoolPolicy,
    /// In the order of their generations.
    backends: Vec<Backend>,
    table: Table,
    ledger: Ledger,
    queue: Queue,
    flows: Flows,
    drain: Drain,
    waits: Waits,
    returns: Returns,
    lengths: Lengths,
    overlap: Overlap,
    paces: pacing::TierPaces,
    totals: Totals,
    round: Round,
    failures: Failures,
    next_generation: u32,
    trunk: Trunk,
    extent: cost::Extent,
}

/// Where the drain of the queue stands.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// Advances whenever something may have come free.
    number: u64,
    /// Where the unfinished walk goes on; `None` starts from the front.
    resume: Option<Turn>,
    /// Whether waiters are left that this round has not looked at.
    unfinished: bool,
    /// Whether the line must be walked once more: somebody joined it on the
    /// way, or whoever left had kept others out of a tier or a backend.
    again: bool,
    /// When growth last started a round.
    growth: Time,
    /// Whether growth since then may have made room.
    grown: bool,
    /// Waiters of this round that wait for what a backend has cached.
    held: u32,
    /// Looks at leases in this call.
    looks: u32,
    /// Look at every waiter, even those that are plainly too large for now.
    thorough: bool,
    /// Whether waiters were found that no usable backend could serve.
    unserved: bool,
    /// Whether such waiters are refused in this round: only in one that begins
    /// by itself, since a fact that takes a backend away may be followed by
    /// another of the same moment that brings it back.
    judging: bool,
}

// === impl PoolPolicy ===

impl Default for PoolPolicy {
    /// The forecast, and scrapes that say nothing after ten seconds.
    fn default() -> Self {
        Self {
            reservation: Reservation::Forecast(ForecastPolicy::default()),
            queue: QueuePolicy::default(),
            tiers: TierPolicy::default(),
            dispatch: DispatchPolicy::default(),
            observed_for: Duration::from_secs(10),
        }
    }
}

// === impl Admission ===

impl Admission {
    /// A pool without backends, idle.
    pub fn new(policy: PoolPolicy) -> Self {
        Self {
            lengths: Lengths::new(policy.reservation.open_output()),
            policy,
            backends: Vec::new(),
            table: Table::default(),
            ledger: Ledger::default(),
            queue: Queue::default(),
            flows: Flows::default(),
            drain: Drain::default(),
            waits: Waits::default(),
            returns: Returns::default(),
            overlap: Overlap::default(),
            paces: pacing::TierPaces::default(),
            totals: Totals::default(),
            round: Round::default(),
            failures: Failures::default(),
            next_generation: 0,
            trunk: Trunk::default(),
            extent: cost::Extent::default(),
        }
    }

    /// Counts on from `past`, the totals of an idle pool of the same model.
    #[must_use]
    pub fn counting_on(self, past: Totals) -> Self {
        Self {
            totals: past,
            ..self
        }
    }

    /// Sets a tenant's weight and limits; they hold from the next decision on.
    /// Where tenants are waiting, follow it by [`set_policy`](Self::set_policy).
    pub fn set_tenant(&mut self, tenant: TenantId, policy: TenantPolicy) {
        self.flows.set_policy(tenant, policy);
    }

    /// A tenant is none any more. Its leases, its waiters and what still comes of it
    /// end by the limits it had; it is shown as long as it has any.
    pub fn remove_tenant(&mut self, tenant: TenantId) {
        self.flows.leave(tenant);
    }

    /// Changes the rules of the pool and looks at every waiter anew. Books, order
    /// and clocks stay; who waits beyond a smaller bound goes on waiting.
    /// O(n log n) of the waiters where the bypass has changed.
    pub fn set_policy(&mut self, now: Time, policy: PoolPolicy, out: &mut Vec<Effect>) {
        self.queue.rebound(&self.policy.queue, &policy.queue);
        self.lengths.set_prior(policy.reservation.open_output());
        self.policy = policy;
        self.recheck(now, out);
    }

    /// What would happen to `demand` now; changes nothing. O(backends), and
    /// O(leases²) of a backend where the forecast is close to its limit.
    pub fn decide(&self, now: Time, demand: &Demand) -> Decision {
        let shape = Shape::of(demand);
        let weight = self.weigh(demand);
        let left = self.trunk.left_by(now, weight.size);
        let asked = Asked {
            demand,
            shape: &shape,
            ticket: None,
            sketch: &Sketch::leaving(left).patient(),
        };
        let fleet = self.fleet(now);
        let (home, output) = match fleet.prospect(asked) {
            Prospect::Possible { home, output } => (home, output),
            Prospect::TooLong { limit, pool } => {
                return Decision::Reject(refuse::too_long(demand, limit, pool));
            }
            Prospect::Unknown if self.policy.queue.unserved == Unserved::Wait => {
                (Tier::Standard, demand.output)
            }
            Prospect::Unknown | Prospect::Nowhere => return Decision::Reject(no_backend()),
        };
        let tokens = self.tokens_of(demand, output);
        let in_vain = self.in_vain_from(now, demand, &shape);
        let standing = || {
            let weight = self.weigh_again(weight, demand, output);
            self.standing_of(now, (demand, &shape), (weight, in_vain))
        };
        if in_vain.is_some_and(|from| from <= now) {
            let promise = self.promise_at(&standing());
            return Decision::Reject(too_late(self.returns.after(demand.tenant, promise)));
        }
        if let Some(limit) = self.above_share(demand.tenant, tokens) {
            return Decision::Reject(Reject::AboveTenantShare {
                asked: tokens,
                limit,
            });
        }
        let refused = self.policy.queue.unserved == Unserved::Refuse;
        if refused && !fleet.is_served(asked, home, output) {
            return Decision::Reject(no_backend());
        }
        // Those who wait and have not been looked at yet come first.
        let held = self.held(demand, (home, tokens));
        let place = || fleet.place(asked, home, output);
        if let Some(placement) = held.is_none().then(place).flatten() {
            return Decision::Admit(placement);
        }
        let hold = || held.unwrap_or_else(|| fleet.lacks(asked, (home, output)));
        let line = self.join(now, demand, (home, output), (standing(), &hold));
        match line {
            // Who may not wait need not.
            Decision::Reject(_) if asked.sketch.is_held() => {
                let sketch = &Sketch::leaving(left);
                let place = fleet.place(Asked { sketch, ..asked }, home, output);
                place.map_or(line, Decision::Admit)
            }
            _ => line,
        }
    }

    /// What would happen to `demand` where it is not let in, and stands in line there.
    fn join(
        &self,
        now: Time,
        demand: &Demand,
        (home, output): (Tier, OutputLimit),
        (standing, hold): (Standing, &dyn Fn() -> Hold),
    ) -> Decision {
        let newcomer = Newcomer {
            demand,
            tokens: self.tokens_of(demand, output),
            promise: self.promise_at(&standing),
        };
        match self.refuses_wait(now, &newcomer) {
            Some(reject) => Decision::Reject(reject),
            None => Decision::Wait {
                home,
                output,
                predicted: newcomer.promise.predicted,
                hold: hold(),
                standing,
            },
        }
    }

    /// Acts on a decision that was made for `demand` at this `now`, with
    /// nothing in between.
    pub fn commit(&mut self, now: Time, demand: Demand, decision: Decision) -> Verdict {
        self.totals.received += 1;
        let size = match &decision {
            Decision::Wait { standing, .. } => standing.weight.size,
            Decision::Admit(_) | Decision::Reject(_) => self.size_of(&demand, demand.output),
        };
        self.trunk.on_asked(size);
        let coming = self.coming(now, &demand);
        self.returns.redeem(now, Caller::of(&demand, now));
        match decision {
            Decision::Admit(placement) => {
                self.on_returned(demand.tenant, (coming, Some(Duration::ZERO)));
                let shape = Shape::of(&demand);
                let request = Admitted {
                    demand: &demand,
                    shape,
                    since: now,
                };
                Verdict::Admit(self.take(now, request, placement))
            }
            Decision::Wait {
                home,
                output,
                standing,
                ..
            } => {
                let tenant = demand.tenant;
                self.round.again |= self.round.unfinished;
                self.set_backlogged(now, Backlog::Some);
                let waiter = self.line_up(now, demand, (home, output), standing);
                let charge = waiter.charge();
                let round = self.round.number;
                let place = self.queue.push(waiter, round, &self.policy.queue);
                self.flows.enqueue(now, tenant, place, charge);
                Verdict::Wait(place.ticket)
            }
            Decision::Reject(reject) => {
                self.totals.refused += 1;
                self.on_returned(demand.tenant, (coming, None));
                if reject.retry_after().is_some() {
                    let shape = Shape::of(&demand);
                    let promise = self.promise_to(now, (&demand, &shape), demand.output);
                    let key = self.key_of(now, (&demand, &shape), size);
                    self.note_refused(now, &demand, (promise, key));
                }
                Verdict::Reject(reject)
            }
        }
    }

    /// The client of a waiter left; others may move up. Unknown tickets are
    /// ignored: the grant and the leaving crossed, and the grant comes back by
    /// its own release.
    pub fn cancel(&mut self, now: Time, ticket: TicketId, out: &mut Vec<Effect>) {
        if self.drop_waiter(now, ticket).is_some() {
            self.totals.left += 1;
            self.start_round(now, out);
        }
    }

    /// The sequences of `lease` have emitted `generated` tokens together.
    ///
    /// A lease taken under the forecast takes the blocks they have grown into; one
    /// taken under strict has them from the start. Waiters profit at most every ten
    /// milliseconds, since each token makes the future peak a little lower.
    pub fn on_growth(
        &mut self,
        now: Time,
        lease: LeaseId,
        generated: Tokens,
        out: &mut Vec<Effect>,
    ) {
        let id = self.ledger.home(lease);
        let sequences = self.ledger.sequences_of(lease);
        let generated = self.believed(id, sequences, generated);
        let each = Tokens::new(generated.get().div_ceil(sequences.max(1)));
        let opened = self.on_emitted(now, lease, each);
        let lengths = &self.lengths;
        let curve = |class, output| lengths.curve(class, output);
        if let Some((class, growth)) = self.ledger.grow(lease, each, curve) {
            self.lengths.on_grown(class, growth);
            self.count_growth(growth, sequences);
        }
        self.note(now, id);
        self.age(now, id);
        if opened && !self.queue.is_empty() {
            self.start_round(now, out);
        } else if let Reservation::Forecast(_) = self.policy.reservation {
            self.round.grown = !self.queue.is_empty();
            self.drain_after_growth(now, out);
        }
    }

    /// Gives a lease back and lets the next ones in.
    ///
    /// # Panics
    ///
    /// If `lease` was released before: the books would be wrong.
    pub fn release(&mut self, now: Time, lease: LeaseId, end: End, out: &mut Vec<Effect>) {
        let (id, entry) = self.ledger.give_back(now, lease);
        let generated = match end {
            End::Finished { generated, .. } => {
                self.believed(id, entry.shape.sequences(), generated)
            }
            End::Cancelled | End::Failed => entry.generated * entry.shape.sequences(),
        };
        self.learn_length(&entry, end, generated);
        match end {
            End::Finished { .. } => self.totals.finished += 1,
            End::Cancelled => self.totals.cancelled += 1,
            End::Failed => self.totals.failed += 1,
        }
        let used = Charge {
            tokens: entry.shape.prompt_total() + generated,
            cost: self.cost_used(now, id, &entry),
        };
        let charged = Charge {
            tokens: entry.charged,
            cost: entry.cost,
        };
        self.flows.on_ended(entry.tenant, charged, used);
        self.drain.on_release(now, used.tokens);
        self.on_given_back(now, (id, lease), &entry);
        self.note(now, id);
        self.close_retired(now, id);
        self.start_round(now, out);
    }

    /// Whether every balance of the books equals the sum of its leases.
    pub fn books_are_right(&self) -> bool {
        self.ledger.audit()
            && self.extent == self.measured_extent()
            && self.rows_are_right()
            && self.overlap.audit()
    }

    fn fleet(&self, now: Time) -> Fleet<'_> {
        Fleet {
            backends: &self.backends,
            table: &self.table,
            ledger: &self.ledger,
            lengths: &self.lengths,
            overlap: &self.overlap,
            reservation: &self.policy.reservation,
            tiers: &self.policy.tiers,
            dispatch: &self.policy.dispatch,
            waiting: Tier::ALL.map(|tier| self.queue.of_home(tier)),
            drain: (&self.drain, self.queue.tokens()),
            observed_for: self.policy.observed_for,
            now,
        }
    }

    /// Prompt plus expected output of all sequences.
    fn tokens_of(&self, demand: &Demand, output: OutputLimit) -> Tokens {
        let each = match demand.work {
            Work::Generate => self.policy.reservation.expected_output(output),
            Work::Pool => Tokens::ZERO,
            Work::Aside => return Tokens::ZERO,
        };
        demand.prompt_total() + each * demand.sequences()
    }

    fn above_share(&self, tenant: TenantId, tokens: Tokens) -> Option<Tokens> {
        let share = self.flows.get(tenant)?.policy.max_in_flight?;
        (tokens > share).then_some(share)
    }

    /// What keeps a newcomer in line that asks for `tokens`, room aside.
    fn held(&self, demand: &Demand, (home, tokens): (Tier, Tokens)) -> Option<Hold> {
        match demand.work {
            // What holds nothing waits for nobody.
            Work::Aside => None,
            _ if self.round.unfinished => Some(Hold::Turn),
            _ => self
                .flows
                .withholds(self.claim(demand.tenant, home, tokens)),
        }
    }

    fn claim(&self, tenant: TenantId, home: Tier, tokens: Tokens) -> Claim {
        Claim {
            tenant,
            home,
            tokens,
            pool: self.kv(),
        }
    }

    fn capacity_of(&self, id: BackendId) -> Capacity {
        let backend = self.backend(id).expect("leases are taken on live backends");
        backend
            .capacity
            .expect("only backends of known capacity fit")
    }
}
