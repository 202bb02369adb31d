//! What time brings: deadlines, and the end of what waiters may be passed.
//!
//! A waiter whose deadline has come is never let in, whoever looks at it first:
//! the timer, or a release that comes before the timer does. Few leave in one
//! call, so that the lock is not held for a crowd that came at one moment.

use super::drain::GROWTH_PAUSE;
use super::refuse::no_backend;
use super::{Admission, Effect};
use crate::core::queue::TicketId;
use crate::core::reject::Reject;
use crate::core::time::Time;

/// Waiters dropped in one call because their deadline has come.
const EXPIRED: u32 = 8;

impl Admission {
    /// The next instant at which [`handle_timeout`](Self::handle_timeout) has
    /// something to do; `None` while nothing waits.
    pub fn poll_timeout(&self, now: Time) -> Option<Time> {
        if self.round.unfinished || self.round.unserved {
            return Some(now).filter(|_| !self.queue.is_empty());
        }
        let growth = self.round.grown.then_some(self.round.growth + GROWTH_PAUSE);
        let stale = self.next_staleness(now);
        let assumed = self.next_assumed();
        let waiting = !self.queue.is_empty();
        let due = self
            .queue
            .next_timeout(now)
            .into_iter()
            .chain(growth)
            .chain(stale)
            .chain(assumed)
            .min();
        due.filter(|_| waiting)
    }

    /// Drops waiters whose deadline has come, sets blocks aside for those that
    /// were passed long enough, and goes on with an unfinished drain. A few at a
    /// time: where more are left, [`Effect::Again`] is in `out`.
    pub fn handle_timeout(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.round.again |= self.forget_assumed(now);
        let mut dropped = false;
        for _ in 0..EXPIRED {
            let Some(ticket) = self.queue.expired(now) else {
                break;
            };
            self.expire(now, ticket, out);
            dropped = true;
        }
        let in_vain = (0..EXPIRED).take_while(|_| self.drop_in_vain(now, out));
        dropped |= in_vain.count() > 0;
        if self
            .queue
            .expired(now)
            .or(self.queue.in_vain(now))
            .is_some()
        {
            // Nobody is let in before all who are late have gone.
            self.round.again = true;
            out.push(Effect::Again);
        } else if std::mem::take(&mut self.round.unserved) {
            self.judge(now, out);
        } else if dropped || !self.round.unfinished {
            self.start_round(now, out);
        } else {
            self.drain_queue(now, out);
        }
    }

    /// A waiter's deadline has come: it waited for room, or for a backend.
    pub(super) fn expire(&mut self, now: Time, ticket: TicketId, out: &mut Vec<Effect>) {
        let is_served = self.is_served(now, ticket);
        let waiter = self
            .drop_waiter(now, ticket)
            .expect("an expired ticket is in the queue");
        let reject = if is_served {
            self.totals.expired += 1;
            Reject::QueueTimeout {
                waited: now - waiter.since,
                retry_after: self.send_away(now, &waiter),
            }
        } else {
            self.totals.refused += 1;
            no_backend()
        };
        out.push(Effect::Refuse { ticket, reject });
    }
}
