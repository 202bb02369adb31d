//! Letting waiters in: in fair order, a few at a time, nobody passed for ever.
//!
//! A round starts whenever something may have come free, and walks the waiters
//! in the order of service. One call examines at most [`EXAMINED`] of them, so
//! the lock around the pool is never held long; the rest follows in the next
//! call. A waiter that does not fit is passed by those behind it that do, until
//! it has waited its bound: then a backend that could hold it takes nobody else
//! until it has.

use std::time::Duration;

use super::refuse::{no_backend, too_late};
use super::{Admission, Admitted, Effect};
use crate::core::backend::Trust;
use crate::core::fairness::Turn;
use crate::core::fit::Sketch;
use crate::core::placement::{Asked, Placement, Prospect};
use crate::core::queue::{Lacked, TicketId, Unserved, Waiter};
use crate::core::reject::Reject;
use crate::core::roster::Backend;
use crate::core::table::Row;
use crate::core::time::Time;
use crate::core::units::Tokens;

/// Waiters examined in one call.
const EXAMINED: u32 = 2;

/// Looks at all leases of a backend after which a call examines nobody else: each takes
/// about a microsecond.
const LOOKS: u32 = 8;

/// Waiters skipped in one call because they are plainly too large for now.
const SKIPPED: u32 = 32;

/// Waiters passed in one call because this round has looked at them: a grant
/// changes the order of service, and the walk begins at its front again.
const PASSED: u32 = 128;

/// Waiters of a round that may wait on for what a backend has cached: they are looked
/// at again in each, whatever failed before them.
const HELD: u32 = 32;

/// Growth makes the future peak lower token by token; looking more often than
/// this costs more than it brings.
pub(super) const GROWTH_PAUSE: Duration = Duration::from_millis(10);

/// What an examination found.
enum Finding {
    Fits(Placement),
    /// No backend has room for it.
    NoRoom,
    /// Every backend it could go to has enough prefill on its way.
    Shut,
    /// A backend that has its beginning is about to take it.
    Held,
    /// Its deadline has come, whatever there is room for.
    Late,
    /// It is not its turn, whatever there is room for.
    NotNow,
    /// No usable backend could serve it, and it may not wait for one.
    Unserved,
    Never(Reject),
}

/// Waiters that one call has gone by.
#[derive(Clone, Copy, Debug, Default)]
struct Walk {
    skipped: u32,
    passed: u32,
}

// === impl Walk ===

impl Walk {
    /// Whether the rest is left to the next call.
    const fn is_over(self) -> bool {
        self.skipped >= SKIPPED || self.passed >= PASSED
    }
}

// === impl Admission ===

impl Admission {
    /// Something may have come free: looks at everybody again.
    pub(super) fn start_round(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.begin_round(now);
        self.drain_queue(now, out);
    }

    fn begin_round(&mut self, now: Time) {
        self.round.number += 1;
        self.round.resume = None;
        self.round.judging = false;
        self.round.held = 0;
        self.failures.clear();
        self.round.again = false;
        self.round.grown = false;
        self.round.growth = now;
    }

    /// What backends can hold has changed: looks at everybody, even at those
    /// that are too large for what is free, since they may never fit again.
    pub(super) fn recheck(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.extent = self.measured_extent();
        self.survey(now);
        self.round.thorough = true;
        self.start_round(now, out);
    }

    /// Looks at everybody again, and refuses whom no usable backend could serve.
    pub(super) fn judge(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.round.thorough = true;
        self.begin_round(now);
        self.round.judging = true;
        self.drain_queue(now, out);
    }

    /// Starts a round for growth, unless one was started moments ago.
    pub(super) fn drain_after_growth(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.round.grown && self.round.growth + GROWTH_PAUSE <= now {
            self.start_round(now, out);
        }
    }

    /// Goes on with the present round.
    pub(super) fn drain_queue(&mut self, now: Time, out: &mut Vec<Effect>) {
        let mut examined = 0;
        let mut walk = Walk::default();
        self.round.looks = 0;
        self.round.unfinished = false;
        while let Some(turn) = self.next_unexamined(now, &mut walk) {
            let is_tired = examined == EXAMINED || self.round.looks >= LOOKS;
            if is_tired || walk.is_over() {
                self.round.resume = Some(turn);
                self.round.unfinished = true;
                out.push(Effect::Again);
                return;
            }
            examined += 1;
            self.examine(now, turn, out);
        }
        self.round.resume = None;
        self.round.thorough = false;
        self.round.judging = false;
        let again = std::mem::take(&mut self.round.again);
        if again && !self.queue.is_empty() {
            self.failures.clear();
            self.round.held = 0;
            self.round.number += 1;
            self.round.unfinished = true;
            out.push(Effect::Again);
        }
    }

    /// The next waiter in order that this round has not looked at and that may
    /// fit. Marks those that cannot as looked at, up to the allowed number.
    fn next_unexamined(&mut self, now: Time, walk: &mut Walk) -> Option<Turn> {
        if !self.round.thorough && self.open_rows(now).next().is_none() {
            return None;
        }
        let largest = self.largest_free(now);
        let can_set_aside = self.table.can_set_aside();
        let mut passed = Vec::new();
        let mut found = None;
        for turn in self.flows.in_order(self.round.resume) {
            let mark = self.queue.mark(turn.place());
            if mark.examined == self.round.number {
                walk.passed += 1;
                if walk.is_over() {
                    found = Some(turn);
                    break;
                }
                continue;
            }
            let now = self.round.growth;
            let overdue = can_set_aside && mark.passed_until <= now;
            let must_look = self.round.thorough || overdue || walk.is_over();
            let hopeless = mark.prompt > largest || self.failures.cover(&mark.asking);
            if must_look || !hopeless || self.has_set_aside(turn.ticket()) {
                found = Some(turn);
                break;
            }
            walk.skipped += 1;
            passed.push(turn);
        }
        for turn in passed {
            self.mark_examined(turn);
            self.note_shortage(turn);
        }
        found
    }

    pub(super) fn has_set_aside(&self, ticket: TicketId) -> bool {
        self.table.has_set_aside(ticket)
    }

    /// Backends that may be sent more.
    fn open_rows(&self, now: Time) -> impl Iterator<Item = &Row> {
        let late = self.policy.dispatch.late;
        let rows = self.table.rows.iter().zip(&self.backends);
        let open = rows.filter(move |(row, backend)| {
            let is_open = || backend.is_open(now, late, self.ledger.account(backend.id));
            row.admits
                && if row.holds(now) {
                    !row.is_shut()
                } else {
                    is_open()
                }
        });
        open.map(|(row, _)| row)
    }

    /// The most tokens that are free on any one backend that may be sent more. Shared
    /// blocks a newcomer would not need are not known here: everything shared counts
    /// as free, so that nobody is skipped wrongly.
    fn largest_free(&self, now: Time) -> Tokens {
        let free = self.open_rows(now).map(|row| row.loose);
        free.max().unwrap_or(Tokens::ZERO)
    }

    fn mark_examined(&mut self, turn: Turn) {
        self.queue.mark_mut(turn.place()).examined = self.round.number;
    }

    fn examine(&mut self, now: Time, turn: Turn, out: &mut Vec<Effect>) {
        let ticket = turn.ticket();
        self.mark_examined(turn);
        self.round.resume = Some(turn);
        match self.find(now, ticket) {
            Finding::Fits(placement) => self.let_in(now, (ticket, placement), out),
            Finding::Never(reject) => self.refuse_waiter(now, (ticket, reject), out),
            Finding::NoRoom => {
                let mark = self.queue.mark(turn.place());
                self.failures.record(&mark.asking);
                self.note_shortage(turn);
                self.set_aside(now, ticket);
            }
            Finding::Shut => {
                let mark = self.queue.mark_mut(turn.place());
                self.failures.record_shut(&mark.asking);
                mark.lacked = Lacked::Compute;
            }
            Finding::Held => {
                self.round.held += 1;
                self.queue.mark_mut(turn.place()).lacked = Lacked::Compute;
            }
            Finding::Late => {
                self.expire(now, ticket, out);
                self.round.resume = None;
            }
            // A tenant over its share waits for itself, not for memory.
            Finding::NotNow => {}
            Finding::Unserved if self.round.judging => {
                let reject = no_backend();
                self.refuse_waiter(now, (ticket, reject), out);
            }
            Finding::Unserved => {
                self.round.unserved = true;
                out.push(Effect::Again);
            }
        }
    }

    fn let_in(
        &mut self,
        now: Time,
        (ticket, placement): (TicketId, Placement),
        out: &mut Vec<Effect>,
    ) {
        let waiter = self
            .drop_waiter(now, ticket)
            .expect("an examined ticket is in the queue");
        let Waiter {
            demand,
            shape,
            since,
            promise,
            coming,
            ..
        } = waiter;
        self.keep_promise(promise, now - since);
        self.on_returned(demand.tenant, (coming, Some(now - since)));
        let request = Admitted {
            demand: &demand,
            shape,
            since,
        };
        let grant = self.take(now, request, placement);
        self.round.again |= self.flows.on_relieved(demand.tenant);
        out.push(Effect::Grant { ticket, grant });
        // The order of service has changed.
        self.round.resume = None;
    }

    /// A waiter has found no memory: its tenant may want its share back.
    fn note_shortage(&mut self, turn: Turn) {
        let mark = self.queue.mark_mut(turn.place());
        mark.lacked = Lacked::Memory;
        let (home, tokens) = (mark.home, mark.tokens);
        let claim = self.claim(turn.tenant, home, tokens);
        self.flows.on_short(claim);
    }

    fn refuse_waiter(
        &mut self,
        now: Time,
        (ticket, reject): (TicketId, Reject),
        out: &mut Vec<Effect>,
    ) {
        let waiter = self
            .drop_waiter(now, ticket)
            .expect("an examined ticket is in the queue");
        self.totals.refused += 1;
        if reject.retry_after().is_some() {
            self.send_away(now, &waiter);
        }
        out.push(Effect::Refuse { ticket, reject });
        self.round.resume = None;
    }

    fn find(&mut self, now: Time, ticket: TicketId) -> Finding {
        let waiter = self
            .queue
            .get(ticket)
            .expect("an examined ticket is in the queue");
        if waiter.demand.deadline <= now {
            return Finding::Late;
        }
        if self
            .waits_in_vain_from(now, ticket)
            .is_some_and(|from| from <= now)
        {
            let promise = self.promise(waiter.demand.tenant, waiter.key, waiter.cost);
            let told = self.returns.after(waiter.demand.tenant, promise);
            return Finding::Never(too_late(told));
        }
        let asked = Asked {
            demand: &waiter.demand,
            shape: &waiter.shape,
            ticket: Some(ticket),
            sketch: &Sketch::default(),
        };
        let (home, output) = match self.fleet(now).prospect(asked) {
            Prospect::Possible { home, output } => (home, output),
            Prospect::TooLong { limit, pool } => {
                return Finding::Never(super::refuse::too_long(&waiter.demand, limit, pool));
            }
            Prospect::Nowhere => return Finding::Never(no_backend()),
            Prospect::Unknown if self.policy.queue.unserved == Unserved::Refuse => {
                return Finding::Unserved;
            }
            Prospect::Unknown => return Finding::NotNow,
        };
        // Where it belongs changes with what the backends can hold; whoever
        // leaves a tier may let others borrow it.
        self.round.again |= self.queue.settle(ticket, home, output) == Some(0);
        self.find_room(now, ticket)
    }

    /// What there is for a waiter that has settled where it belongs.
    fn find_room(&mut self, now: Time, ticket: TicketId) -> Finding {
        let size = self.queue.get(ticket).map(|waiter| waiter.size);
        // Who was passed long enough has stood back.
        let size = size.filter(|_| !self.has_set_aside(ticket));
        let left = size.map_or(0.0, |size| self.trunk.left_by(now, size));
        let sketch = match self.round.held {
            HELD => Sketch::leaving(left),
            _ => Sketch::leaving(left).patient(),
        };
        let finding = self.find_room_by(now, ticket, &sketch);
        self.round.looks += sketch.looks.get();
        finding
    }

    fn find_room_by(&self, now: Time, ticket: TicketId, sketch: &Sketch) -> Finding {
        let waiter = self
            .queue
            .get(ticket)
            .expect("an examined ticket is in the queue");
        let asked = Asked {
            demand: &waiter.demand,
            shape: &waiter.shape,
            ticket: Some(ticket),
            sketch,
        };
        let (home, output) = (waiter.home, waiter.output);
        let (tenant, tokens) = (waiter.demand.tenant, self.tokens_of(&waiter.demand, output));
        // The share may have been lowered since it joined the line.
        if let Some(limit) = self.above_share(tenant, tokens) {
            return Finding::Never(Reject::AboveTenantShare {
                asked: tokens,
                limit,
            });
        }
        let fleet = self.fleet(now);
        let may_hold = self.flows.may_hold(self.claim(tenant, home, tokens));
        let placement = may_hold.then(|| fleet.place(asked, home, output)).flatten();
        let refuses = self.policy.queue.unserved == Unserved::Refuse;
        match placement {
            Some(placement) => Finding::Fits(placement),
            None if refuses && !fleet.is_served(asked, home, output) => Finding::Unserved,
            None if sketch.is_held() => Finding::Held,
            None if may_hold && fleet.is_shut(asked, home) => Finding::Shut,
            None if may_hold => Finding::NoRoom,
            None => Finding::NotNow,
        }
    }

    /// Whether a usable backend could serve the waiter.
    pub(super) fn is_served(&self, now: Time, ticket: TicketId) -> bool {
        let waiter = self
            .queue
            .get(ticket)
            .expect("an expired ticket is in the queue");
        let asked = Asked {
            demand: &waiter.demand,
            shape: &waiter.shape,
            ticket: Some(ticket),
            sketch: &Sketch::default(),
        };
        self.fleet(now).is_served(asked, waiter.home, waiter.output)
    }

    /// Keeps the emptiest backend that could ever hold the waiter for it, once it has
    /// been passed as long as it may be and none of its tier is kept for another.
    fn set_aside(&mut self, now: Time, ticket: TicketId) {
        let waiter = self
            .queue
            .get(ticket)
            .expect("an examined ticket is in the queue");
        let over = self.queue.mark(waiter.place(ticket)).passed_until <= now;
        let mut backends = self.backends.iter();
        let taken = backends.any(|other| other.tier == waiter.home && other.set_aside.is_some());
        if !over || taken {
            return;
        }
        let asked = Asked {
            demand: &waiter.demand,
            shape: &waiter.shape,
            ticket: Some(ticket),
            sketch: &Sketch::default(),
        };
        let well_served = self
            .fleet(now)
            .is_well_served(asked, waiter.home, waiter.output);
        let could_hold = |backend: &Backend| {
            let open = backend.admits() && backend.tier == waiter.home;
            let trusted = backend.trust == Trust::Whole || !well_served;
            open && trusted
                && backend.may_serve(&waiter.demand)
                && backend.could_hold(&waiter.shape, waiter.output)
        };
        let free = |backend: &&Backend| {
            let capacity = backend.capacity.expect("checked by could_hold");
            let free = capacity
                .blocks
                .saturating_sub(self.ledger.account(backend.id).held());
            (
                free.tokens(capacity.block_size),
                std::cmp::Reverse(backend.id),
            )
        };
        let best = self
            .backends
            .iter()
            .filter(|backend| could_hold(backend))
            .max_by_key(free);
        let Some(id) = best.map(|backend| backend.id) else {
            return;
        };
        if let Some(place) = self.place_of(id) {
            self.backends[place].set_aside = Some(ticket);
            self.table.rows[place].set_aside = Some(ticket);
        }
    }
}
