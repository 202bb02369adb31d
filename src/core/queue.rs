//! The waiting line: bounded in requests and in tokens, left in O(log n).
//!
//! It keeps who waits, until when, and since when; whose turn it is belongs to
//! [`fairness`](super::fairness), and who fits to [`placement`](super::placement).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::backend::Tier;
use super::demand::{Arrival, Demand, OutputLimit, TenantId};
use super::failures::Asking;
use super::fairness::{Charge, Cost};
use super::footprint::Shape;
use super::stats::QueueState;
use super::time::Time;
use super::units::Tokens;
use super::waits::{Pledge, Promise};

/// A place in the line, by arrival: counting a long prompt takes longer than a
/// short one, and must not cost a request its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TicketId {
    pub(super) arrival: Arrival,
    /// How many joined the line before.
    pub(super) number: u64,
}

/// A place in a tenant's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// Smaller goes first; of those alike the earlier arrival.
    pub(super) key: Time,
    pub(super) ticket: TicketId,
    /// Where its mark is; it says nothing of the order.
    pub(super) mark: u32,
}

/// Bounds of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePolicy {
    /// Requests that may wait. Too small refuses what a short burst would
    /// have drained; too large lets clients wait for answers they gave up on.
    pub max_requests: u32,
    /// Tokens, prompt and expected output, that may wait.
    pub max_tokens: Tokens,
    /// How long others may pass a request that does not fit; after that its
    /// blocks are set aside.
    pub max_bypass: Duration,
    /// What becomes of requests that no backend could serve now.
    pub unserved: Unserved,
}

/// What becomes of requests, new and waiting, that no usable backend could
/// serve though one is known that might again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unserved {
    /// They are refused at once with `no_backend`.
    Refuse,
    /// They wait for a backend as they would for room, and are refused with
    /// `no_backend` at their deadline.
    Wait,
}

/// A request that waits.
#[derive(Clone, Debug)]
pub(super) struct Waiter {
    pub(super) demand: Demand,
    pub(super) shape: Shape,
    /// Its output bound, after clamping.
    pub(super) output: OutputLimit,
    /// Tokens it asks for: prompt and expected output.
    pub(super) tokens: Tokens,
    /// What it will be charged, as time of the pool.
    pub(super) cost: Cost,
    /// Its order in its tenant's line.
    pub(super) key: Time,
    pub(super) coming: Coming,
    /// What was foreseen of its wait.
    pub(super) promise: Promise,
    /// The tier it belongs to.
    pub(super) home: Tier,
    pub(super) since: Time,
    /// When it came, as far as known by those of its tenant that came later.
    pub(super) arrived: Time,
    /// When it cannot have its first token in time any more.
    pub(super) in_vain: Option<Time>,
    /// Tokens of KV times seconds that it is expected to hold.
    pub(super) size: f64,
    /// What it waited for when last looked at, once it has left the line.
    pub(super) lacked: Lacked,
    /// Where its mark is while it is in line.
    pub(super) mark: u32,
}

/// What a walk along the line asks of each waiter, side by side: most are passed by,
/// and a whole waiter is many times as large.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    /// The round of the drain that has looked at it last.
    pub(super) examined: u64,
    /// How long others may pass it.
    pub(super) passed_until: Time,
    pub(super) prompt: Tokens,
    pub(super) tokens: Tokens,
    pub(super) asking: Asking,
    pub(super) home: Tier,
    pub(super) lacked: Lacked,
}

/// Whether a request comes for the first time, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coming {
    First,
    /// It was sent away, and is back when it was told to be.
    Back(Pledge),
}

/// What a waiter waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lacked {
    /// It was not looked at yet, or waits for its turn or its tenant.
    Nothing,
    /// Room on a backend.
    Memory,
    /// First tokens of those sent before it.
    Compute,
}

/// The line.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    waiters: BTreeMap<TicketId, Waiter>,
    /// Marks of those in line, and places of others to be used again.
    marks: Vec<Mark>,
    unused: Vec<u32>,
    deadlines: BTreeSet<(Time, TicketId)>,
    /// When each waiter has waited the bound of all.
    bypass_ends: BTreeSet<(Time, TicketId)>,
    /// From when on each waiter waits in vain.
    in_vain: BTreeSet<(Time, TicketId)>,
    /// When those in line came, by tenant and turn.
    arrivals: BTreeMap<(TenantId, TicketId), Time>,
    by_home: [u32; Tier::ALL.len()],
    tokens: Tokens,
    next: u64,
}

// === impl QueuePolicy ===

impl Default for QueuePolicy {
    /// A thousand requests, four million tokens, ten seconds of being passed.
    fn default() -> Self {
        Self {
            max_requests: 1024,
            max_tokens: Tokens::new(4_000_000),
            max_bypass: Duration::from_secs(10),
            unserved: Unserved::Refuse,
        }
    }
}

// === impl TicketId ===

impl TicketId {
    /// Before all others.
    pub(super) const FIRST: Self = Self {
        arrival: Arrival(0),
        number: 0,
    };
    /// Behind all others.
    const LAST: Self = Self {
        arrival: Arrival(u64::MAX),
        number: u64::MAX,
    };
}

// === impl Place ===

impl Place {
    /// Before all others.
    pub(super) const FIRST: Self = Self {
        key: Time::ZERO,
        ticket: TicketId::FIRST,
        mark: 0,
    };
}

// === impl Waiter ===

impl Waiter {
    /// How long others may pass it: its bound. One that wants its first token by some
    /// instant leaves at it, and to keep a backend for each costs those who could still
    /// be in time more than it brings; but once it has been sent away and is back it was
    /// passed before.
    fn passed_until(&self, policy: &QueuePolicy) -> Time {
        match (self.coming, self.demand.first_token_by) {
            (Coming::Back(_), _) => self.since,
            (Coming::First, Some(_)) => Time::NEVER,
            (Coming::First, None) => self.since + policy.max_bypass,
        }
    }

    /// Its place in its tenant's line, as the holder of `ticket`.
    pub(super) const fn place(&self, ticket: TicketId) -> Place {
        Place {
            key: self.key,
            ticket,
            mark: self.mark,
        }
    }

    /// What it will be charged.
    pub(super) const fn charge(&self) -> Charge {
        Charge {
            tokens: self.tokens,
            cost: self.cost,
        }
    }
}

// === impl Queue ===

impl Queue {
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.waiters.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(super) fn tokens(&self) -> Tokens {
        self.tokens
    }

    /// Waiters whose home is `tier`.
    pub(super) fn of_home(&self, tier: Tier) -> u32 {
        self.by_home[tier as usize]
    }

    /// Notes where a waiter belongs now and what it may generate there. If that
    /// is another tier than before, says how many are left in the old one.
    pub(super) fn settle(
        &mut self,
        ticket: TicketId,
        home: Tier,
        output: OutputLimit,
    ) -> Option<u32> {
        let waiter = self.waiters.get_mut(&ticket)?;
        if (waiter.home, waiter.output) != (home, output) {
            let mark = &mut self.marks[index(waiter.mark)];
            mark.asking = Asking::of(&waiter.demand, (home, output));
            mark.home = home;
        }
        waiter.output = output;
        if waiter.home == home {
            return None;
        }
        let old = std::mem::replace(&mut waiter.home, home);
        self.by_home[home as usize] += 1;
        self.by_home[old as usize] -= 1;
        Some(self.by_home[old as usize])
    }

    pub(super) fn get(&self, ticket: TicketId) -> Option<&Waiter> {
        self.waiters.get(&ticket)
    }

    /// The mark of a waiter in line.
    pub(super) fn mark(&self, place: Place) -> &Mark {
        &self.marks[index(place.mark)]
    }

    pub(super) fn mark_mut(&mut self, place: Place) -> &mut Mark {
        &mut self.marks[index(place.mark)]
    }

    /// What a waiter was found to wait for.
    pub(super) fn lacks(&self, waiter: &Waiter) -> Lacked {
        self.marks[index(waiter.mark)].lacked
    }

    /// Puts a waiter in line that the drain's `round` need not look at.
    pub(super) fn push(&mut self, mut waiter: Waiter, round: u64, policy: &QueuePolicy) -> Place {
        let ticket = TicketId {
            arrival: waiter.demand.arrival,
            number: self.next,
        };
        self.next += 1;
        waiter.mark = self.put_mark(&waiter, round, policy);
        let place = waiter.place(ticket);
        self.tokens += waiter.tokens;
        self.by_home[waiter.home as usize] += 1;
        self.deadlines.insert((waiter.demand.deadline, ticket));
        self.bypass_ends
            .insert((waiter.since + policy.max_bypass, ticket));
        self.arrivals
            .insert((waiter.demand.tenant, ticket), waiter.arrived);
        self.in_vain.extend(waiter.in_vain.map(|at| (at, ticket)));
        self.waiters.insert(ticket, waiter);
        place
    }

    fn put_mark(&mut self, waiter: &Waiter, round: u64, policy: &QueuePolicy) -> u32 {
        let mark = Mark {
            examined: round,
            passed_until: waiter.passed_until(policy),
            prompt: waiter.demand.prompt_total(),
            tokens: waiter.tokens,
            asking: Asking::of(&waiter.demand, (waiter.home, waiter.output)),
            home: waiter.home,
            lacked: Lacked::Nothing,
        };
        if let Some(unused) = self.unused.pop() {
            self.marks[index(unused)] = mark;
            return unused;
        }
        self.marks.push(mark);
        u32::try_from(self.marks.len() - 1).expect("fewer wait than there are tickets")
    }

    /// Takes a waiter out; O(log n). `None` if it is not in the line any more.
    pub(super) fn remove(&mut self, ticket: TicketId, policy: &QueuePolicy) -> Option<Waiter> {
        let mut waiter = self.waiters.remove(&ticket)?;
        waiter.lacked = self.lacks(&waiter);
        self.unused.push(waiter.mark);
        self.tokens -= waiter.tokens;
        self.by_home[waiter.home as usize] -= 1;
        self.deadlines.remove(&(waiter.demand.deadline, ticket));
        self.bypass_ends
            .remove(&(waiter.since + policy.max_bypass, ticket));
        self.arrivals.remove(&(waiter.demand.tenant, ticket));
        if let Some(at) = waiter.in_vain {
            self.in_vain.remove(&(at, ticket));
        }
        Some(waiter)
    }

    /// When a request of `tenant` came that joins the line now: not after any that
    /// came later and is in line already, however long it was counted.
    pub(super) fn arrived(&self, now: Time, tenant: TenantId, arrival: Arrival) -> Time {
        let later = TicketId {
            arrival: Arrival(arrival.0.saturating_add(1)),
            number: 0,
        };
        let mut behind = self
            .arrivals
            .range((tenant, later)..=(tenant, TicketId::LAST));
        behind.next().map_or(now, |(_, &came)| came.min(now))
    }

    /// The next waiter that waits in vain at `now`, when last looked at.
    pub(super) fn in_vain(&self, now: Time) -> Option<TicketId> {
        let first = self.in_vain.first().filter(|&&(from, _)| from <= now);
        first.map(|&(_, ticket)| ticket)
    }

    /// From now on `ticket` waits in vain from another instant on.
    pub(super) fn set_in_vain(&mut self, ticket: TicketId, from: Option<Time>) {
        let waiter = self
            .waiters
            .get_mut(&ticket)
            .expect("a timed ticket is in the queue");
        if let Some(old) = std::mem::replace(&mut waiter.in_vain, from) {
            self.in_vain.remove(&(old, ticket));
        }
        self.in_vain.extend(from.map(|at| (at, ticket)));
    }

    /// From now on the line has other bounds. Who waits already stays in its
    /// place, even beyond them. O(n log n) where the bypass has changed.
    pub(super) fn rebound(&mut self, from: &QueuePolicy, to: &QueuePolicy) {
        if from.max_bypass == to.max_bypass {
            return;
        }
        self.bypass_ends.clear();
        for (&ticket, waiter) in &self.waiters {
            self.marks[index(waiter.mark)].passed_until = waiter.passed_until(to);
            self.bypass_ends
                .insert((waiter.since + to.max_bypass, ticket));
        }
    }

    /// The next waiter whose deadline is `now` or earlier.
    pub(super) fn expired(&self, now: Time) -> Option<TicketId> {
        self.deadlines
            .first()
            .filter(|&&(deadline, _)| deadline <= now)
            .map(|&(_, ticket)| ticket)
    }

    /// The next instant at which a deadline ends or somebody begins to wait in vain,
    /// or, after `now`, at which a bypass ends.
    pub(super) fn next_timeout(&self, now: Time) -> Option<Time> {
        let deadline = self.deadlines.first().map(|&(at, _)| at);
        let bypass = self
            .bypass_ends
            .range((now, TicketId::LAST)..)
            .next()
            .map(|&(at, _)| at);
        let in_vain = self.in_vain.first().map(|&(at, _)| at);
        deadline.into_iter().chain(bypass).chain(in_vain).min()
    }

    pub(super) fn state(&self, now: Time) -> QueueState {
        // All bounds are as long, so the first to end began first.
        let oldest = self
            .bypass_ends
            .first()
            .and_then(|(_, ticket)| self.get(*ticket))
            .map_or(Duration::ZERO, |waiter| now - waiter.since);
        QueueState {
            requests: self.len(),
            tokens: self.tokens,
            oldest,
        }
    }
}

fn index(mark: u32) -> usize {
    usize::try_from(mark).expect("a mark's place is an index")
}
