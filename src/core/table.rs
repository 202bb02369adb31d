//! What decides of every backend, side by side.
//!
//! A decision asks each backend the same few questions, mostly to be told no. The
//! figures they turn on are kept here, a row for each backend, and what depends on
//! size and role alone once for each kind of backend, of which a pool has few.
//! Decides nothing of its own: a row says what its backend would say, and where it
//! cannot be sure that something is too little, the backend is asked.
//!
//! Invariant: a row is what would be read off its backend and its account anew, at
//! the time at which it was read.

use super::ahead::{Coming, span};
use super::backend::{Capacity, Health, ServedId, Tier, Trust};
use super::demand::{Demand, Work};
use super::dispatch::DispatchPolicy;
use super::gates::forbidden;
use super::ledger::Account;
use super::outlook::{Applicant, Bar, Room};
use super::pace::Prefill;
use super::placement::Reservation;
use super::queue::TicketId;
use super::roster::Backend;
use super::time::Time;
use super::units::{BlockSize, Blocks, Tokens};
use std::cell::Cell;
use std::fmt;
use std::time::Duration;

/// All backends of a pool, in the order in which the pool has them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Table {
    pub(super) kinds: Vec<Kind>,
    pub(super) rows: Vec<Row>,
}

/// Backends that take part, of one tier and size, serving the same.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Kind {
    pub(super) tier: Tier,
    serves: Vec<ServedId>,
    pub(super) capacity: Option<Capacity>,
    /// How many of them admit, and how many of those are in whole trust.
    pub(super) admitting: u32,
    pub(super) trusted: u32,
}

/// One backend.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// Which kind it is of; `None` where it takes no part.
    pub(super) kind: Option<usize>,
    pub(super) admits: bool,
    trust: Trust,
    has_trial: bool,
    pub(super) set_aside: Option<TicketId>,
    pub(super) degraded: bool,
    /// When it was read, and until when time alone does not change it.
    since: Time,
    until: Time,
    /// Whether enough prefill is on its way to it.
    shut: bool,
    /// What of that was noted last.
    pub(super) noted_shut: bool,
    /// When the next prefill without seen tokens is taken to be done.
    pub(super) next_assumed: Time,
    coming: Coming,
    /// Seconds of a thousand tokens and of a million pairs of prefill, and whether
    /// that was seen.
    pace: (f64, f64),
    knows_prefill: bool,
    /// Seconds about a prefill, and of a decode step.
    delay: f64,
    pub(super) step: Option<f64>,
    /// Blocks in use by anyone, of so many.
    used: Blocks,
    all: Blocks,
    block_size: Option<BlockSize>,
    sequences: u64,
    most_sequences: Option<u32>,
    /// Blocks that a newcomer may take at once, at most, and its sequences.
    free: Blocks,
    seats: u64,
    /// Tokens in blocks that are not held, or are shared.
    pub(super) loose: Tokens,
    /// What refuses under the forecast, until then.
    bar: Barred,
}

/// What is known to refuse newcomers. It changes no answer, only what it costs.
#[derive(Clone, Default)]
struct Barred(Cell<Option<(Bar, Time)>>);

/// By what a row is read.
#[derive(Clone, Copy)]
pub(super) struct Terms<'a> {
    pub(super) now: Time,
    pub(super) dispatch: &'a DispatchPolicy,
    pub(super) reservation: &'a Reservation,
    pub(super) observed_for: Duration,
}

// === impl Barred ===

impl fmt::Debug for Barred {
    /// Nothing: it is no part of what a row says.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barred").finish_non_exhaustive()
    }
}

impl PartialEq for Barred {
    /// Always: it is no part of what a row says.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

// === impl Kind ===

impl Kind {
    /// Whether the model, the tenant and the request allow these backends.
    pub(super) fn may_serve(&self, demand: &Demand) -> bool {
        forbidden((self.tier, &self.serves), demand).is_none()
    }

    fn is_of(&self, backend: &Backend) -> bool {
        self.tier == backend.tier
            && self.capacity == backend.capacity
            && self.serves == backend.serves
    }
}

// === impl Table ===

impl Table {
    /// All of `backends` with their accounts. O(backends × kinds).
    pub(super) fn of<'a>(
        backends: impl Iterator<Item = (&'a Backend, &'a Account)>,
        terms: Terms<'_>,
    ) -> Self {
        let mut table = Self::default();
        for (backend, account) in backends {
            let kind = backend.is_active().then(|| table.kind_of(backend));
            let row = Row::of((backend, account), kind, terms);
            table.rows.push(row);
        }
        table
    }

    /// The kind of an active backend, which is counted there.
    fn kind_of(&mut self, backend: &Backend) -> usize {
        let known = self.kinds.iter().position(|kind| kind.is_of(backend));
        let index = known.unwrap_or_else(|| {
            self.kinds.push(Kind {
                tier: backend.tier,
                serves: backend.serves.clone(),
                capacity: backend.capacity,
                admitting: 0,
                trusted: 0,
            });
            self.kinds.len() - 1
        });
        if backend.admits() {
            let kind = &mut self.kinds[index];
            kind.admitting += 1;
            kind.trusted += u32::from(backend.trust == Trust::Whole);
        }
        index
    }

    /// Rows that admit, of kinds that take part.
    pub(super) fn usable(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.admits)
    }

    /// Whether there is a tier of which no backend is kept for anybody.
    pub(super) fn can_set_aside(&self) -> bool {
        Tier::ALL.into_iter().any(|tier| {
            let in_tier = |row: &&Row| row.kind.is_some_and(|kind| self.kinds[kind].tier == tier);
            let mut rows = self.usable().filter(in_tier).peekable();
            rows.peek().is_some() && rows.all(|row| row.set_aside.is_none())
        })
    }

    pub(super) fn has_set_aside(&self, ticket: TicketId) -> bool {
        self.rows.iter().any(|row| row.set_aside == Some(ticket))
    }
}

// === impl Row ===

impl Row {
    /// What `backend` and `account` say now.
    pub(super) fn of(
        (backend, account): (&Backend, &Account),
        kind: Option<usize>,
        terms: Terms<'_>,
    ) -> Self {
        let Terms {
            now, observed_for, ..
        } = terms;
        let pace = &backend.pace;
        let load = backend.load(account);
        let foreign = backend.foreign(now, observed_for);
        let used = account.held().saturating_add(foreign);
        let capacity = backend.capacity.as_ref();
        let all = capacity.map_or(Blocks::ZERO, |capacity| capacity.blocks);
        let unheld = all.saturating_sub(account.held());
        let most_sequences = capacity.and_then(|capacity| capacity.max_num_seqs);
        let stale = backend.observed.filter(|_| !foreign.is_zero());
        let stale = stale.map_or(Time::NEVER, |seen| {
            seen.at + observed_for + Duration::from_nanos(1)
        });
        let mut row = Self {
            kind,
            admits: backend.admits(),
            trust: backend.trust,
            has_trial: backend.trial.is_some(),
            set_aside: backend.set_aside,
            degraded: backend.health == Health::Degraded && backend.trust != Trust::Trial,
            since: now,
            until: stale.min(backend.ahead.next_end(now)),
            shut: !backend.is_open(now, terms.dispatch.late, account),
            noted_shut: backend.shut,
            next_assumed: backend.ahead.next_assumed().unwrap_or(Time::NEVER),
            coming: backend.ahead.coming(now, pace),
            pace: pace.prefill_pace(),
            knows_prefill: pace.knows_prefill(),
            delay: pace.delay(load),
            step: None,
            used,
            all,
            block_size: capacity.map(|capacity| capacity.block_size),
            sequences: account.sequences(),
            most_sequences,
            free: Blocks::ZERO,
            seats: match most_sequences {
                Some(most) if account.sequences() > 0 => {
                    u64::from(most).saturating_sub(account.sequences())
                }
                _ => u64::MAX,
            },
            loose: capacity.map_or(Tokens::ZERO, |capacity| {
                (unheld + account.shared()).tokens(capacity.block_size)
            }),
            bar: Barred::default(),
        };
        row.step = backend.step_seconds(account);
        row.free = row.free_by(backend, terms.reservation);
        row.bar((backend, account), terms);
        row
    }

    /// Looks anew for what refuses newcomers there.
    pub(super) fn bar(&self, (backend, account): (&Backend, &Account), terms: Terms<'_>) {
        let Reservation::Forecast(policy) = terms.reservation else {
            return;
        };
        let Some(capacity) = backend.capacity.as_ref().filter(|_| self.sequences > 0) else {
            return;
        };
        let watch = &backend.watch;
        let plan = capacity.blocks.share(watch.share(policy.margin));
        let foreign = backend.foreign(terms.now, terms.observed_for);
        let room = Room {
            blocks: plan.as_f64() - (account.fixed() + foreign).as_f64(),
            confidence: watch.confidence(policy.confidence),
            doubt: 0.0,
        };
        let bar = account.bar(capacity, room);
        let until = watch.calm_until(terms.observed_for);
        self.bar.0.set(Some((bar, until)));
    }

    /// Whether `applicant` finds too little memory there, for sure; only where the row
    /// holds.
    pub(super) fn bars(&self, now: Time, applicant: &Applicant, capacity: &Capacity) -> bool {
        let known = self.bar.0.get().filter(|&(_, until)| now <= until);
        known.is_some_and(|(bar, _)| bar.refuses(applicant, capacity))
    }

    /// Blocks that a newcomer may take at once, whatever comes after.
    fn free_by(&self, backend: &Backend, reservation: &Reservation) -> Blocks {
        let planned = match reservation {
            Reservation::Forecast(policy) if self.sequences > 0 || self.used > Blocks::ZERO => {
                self.all.share(backend.watch.share(policy.margin))
            }
            Reservation::Strict | Reservation::Forecast(_) => self.all,
        };
        planned.saturating_sub(self.used)
    }

    /// Tokens of it that nobody is known to use.
    pub(super) fn unused(&self) -> Tokens {
        let unused = self.all.saturating_sub(self.used);
        self.block_size
            .map_or(Tokens::ZERO, |size| unused.tokens(size))
    }

    /// Whether the row still holds at `now`.
    pub(super) fn holds(&self, now: Time) -> bool {
        self.since <= now && now < self.until
    }

    /// Whether enough prefill is on its way; only where the row holds.
    pub(super) const fn is_shut(&self) -> bool {
        self.shut
    }

    /// Whether its trust lets one more request go there.
    pub(super) fn is_trusted_with(&self, work: Work) -> bool {
        match self.trust {
            Trust::Whole => true,
            Trust::Trial => !self.has_trial || work == Work::Aside,
            Trust::Withheld => false,
        }
    }

    /// Whether `sequences` that take at least `blocks` at once are too many, for sure;
    /// only where the row holds.
    pub(super) fn is_too_full_for(&self, sequences: u64, blocks: Blocks) -> bool {
        sequences > self.seats || blocks > self.free
    }

    /// Seconds of prefill that `work` is there.
    pub(super) fn prefill(&self, work: Prefill) -> f64 {
        work.seconds(self.pace)
    }

    /// The same, or zero where it is only guessed.
    pub(super) fn known_prefill(&self, work: Prefill) -> f64 {
        if self.knows_prefill {
            self.prefill(work)
        } else {
            0.0
        }
    }

    /// Predicted time from now to the first token of `work`, sent there now; only
    /// where the row holds.
    pub(super) fn first_token_after(&self, now: Time, work: Prefill) -> Duration {
        span(self.coming.remaining(now) + self.prefill(work) + self.delay)
    }

    /// Share of the pool in use with `prompt` more, or of the places for sequences
    /// with `sequences` more, whichever is the greater.
    pub(super) fn use_with(&self, prompt: Blocks, sequences: u64) -> f64 {
        let used = self.used.saturating_add(prompt);
        let memory = used.as_f64() / self.all.as_f64().max(1.0);
        let places = self.most_sequences.map_or(0.0, |most| {
            let sequences = Tokens::new(self.sequences + sequences);
            sequences.as_f64() / f64::from(most.max(1))
        });
        memory.max(places)
    }

    pub(super) const fn sequences(&self) -> u64 {
        self.sequences
    }

    /// When it was read.
    pub(super) const fn since(&self) -> Time {
        self.since
    }
}
