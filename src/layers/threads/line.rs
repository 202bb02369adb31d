//! Whose work is done next: a line that is fair between tenants.
//!
//! Start-time fair queueing: each tenant has a clock of the work done for it,
//! and the tenant whose clock is furthest behind is next. Decides the order and
//! nothing else; runs nothing and knows no time but what it is told. Invariant: a
//! tenant that had nothing in line stands behind no more than what already runs
//! and the tenants that are no further ahead than itself.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::core::demand::TenantId;
use crate::tenants::TenantRef;

/// Places a tenant may have in line. Too few refuse a burst of long prompts, more
/// would wait longer than any client does.
pub(super) const PLACES: usize = 256;

/// What one byte is taken for until its work is done, in nanoseconds: what
/// counting costs with a vocabulary nobody has tuned. Corrected afterwards.
const BYTE_COST: u64 = 20;

/// A piece of work to be, for whom, and about how much it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errand {
    /// Who asks for it.
    pub tenant: TenantId,
    /// The tenant's share while others wait too; at least 1.
    pub weight: u32,
    /// Bytes to be worked on: a first guess at its cost.
    pub bytes: usize,
}

/// A place in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    tenant: TenantId,
    number: u64,
}

/// A tenant's places are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// The line. `J` is the work.
#[derive(Debug)]
pub(super) struct Line<J> {
    flows: BTreeMap<TenantId, Flow<J>>,
    /// The clock of the tenant last served, in nanoseconds of work per weight.
    clock: u64,
    numbers: u64,
}

/// The work of one tenant, oldest first.
#[derive(Debug)]
struct Flow<J> {
    /// Its clock: the work done for it, per weight.
    clock: u64,
    running: u32,
    waiting: VecDeque<Waiting<J>>,
}

#[derive(Debug)]
struct Waiting<J> {
    number: u64,
    errand: Errand,
    job: J,
}

// === impl Line ===

impl<J> Line<J> {
    pub(super) const fn new() -> Self {
        Self {
            flows: BTreeMap::new(),
            clock: 0,
            numbers: 0,
        }
    }

    /// Takes the last place of the errand's tenant. O(log tenants).
    pub(super) fn join(&mut self, errand: Errand, job: J) -> Result<Place, Full> {
        let clock = self.clock;
        let flow = self.flows.entry(errand.tenant).or_insert_with(|| Flow {
            clock,
            running: 0,
            waiting: VecDeque::new(),
        });
        if flow.waiting.len() >= PLACES {
            return Err(Full);
        }
        if flow.waiting.is_empty() {
            // Time spent idle is not saved up.
            flow.clock = flow.clock.max(clock);
        }
        self.numbers += 1;
        let number = self.numbers;
        flow.waiting.push_back(Waiting {
            number,
            errand,
            job,
        });
        Ok(Place {
            tenant: errand.tenant,
            number,
        })
    }

    /// Gives a place back; the work that was not begun, if it was not.
    pub(super) fn leave(&mut self, place: Place) -> Option<J> {
        let waiting = &mut self.flows.get_mut(&place.tenant)?.waiting;
        let at = waiting
            .binary_search_by_key(&place.number, |waiting| waiting.number)
            .ok()?;
        let left = waiting.remove(at)?;
        self.forget_idle(place.tenant);
        Some(left.job)
    }

    /// The work to begin now. O(tenants in line). [`Self::done`] must follow.
    pub(super) fn next(&mut self) -> Option<(Errand, J)> {
        let in_line = self.flows.values_mut().filter_map(|flow| {
            let oldest = flow.waiting.front()?.number;
            Some((flow.clock, oldest, flow))
        });
        let (clock, _, flow) = in_line.min_by_key(|(clock, oldest, _)| (*clock, *oldest))?;
        self.clock = clock;
        let Waiting { errand, job, .. } = flow.waiting.pop_front()?;
        flow.running += 1;
        flow.clock = flow.clock.saturating_add(errand.guess());
        Some((errand, job))
    }

    /// The work begun for `errand` is done and took so long.
    pub(super) fn done(&mut self, errand: Errand, took: Duration) {
        let Some(flow) = self.flows.get_mut(&errand.tenant) else {
            return;
        };
        flow.running = flow.running.saturating_sub(1);
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let corrected = flow.clock.saturating_sub(errand.guess());
        flow.clock = corrected.saturating_add(took / errand.weight());
        self.forget_idle(errand.tenant);
    }

    /// Tenants with work in line or under way; others are remembered no longer
    /// than they are ahead.
    fn forget_idle(&mut self, tenant: TenantId) {
        let now = self.clock;
        let idle = |flow: &Flow<J>| flow.waiting.is_empty() && flow.running == 0;
        if self.flows.get(&tenant).is_some_and(idle) {
            let busy = self.flows.values().any(|flow| !idle(flow));
            self.flows
                .retain(|_, flow| !idle(flow) || (busy && flow.clock > now));
        }
    }
}

// === impl Errand ===

impl Errand {
    /// `bytes` to be worked on for `tenant`.
    pub fn of(tenant: &TenantRef, bytes: usize) -> Self {
        Self {
            tenant: tenant.id,
            weight: tenant.tenant.weight,
            bytes,
        }
    }

    fn weight(self) -> u64 {
        u64::from(self.weight.max(1))
    }

    fn guess(self) -> u64 {
        let bytes = u64::try_from(self.bytes).unwrap_or(u64::MAX);
        bytes.saturating_mul(BYTE_COST) / self.weight()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEGABYTE: usize = 1 << 20;

    fn errand(tenant: u32, bytes: usize) -> Errand {
        Errand {
            tenant: TenantId(tenant),
            weight: 1,
            bytes,
        }
    }

    /// Serves `count` pieces, each taking what was guessed; whose they were.
    fn serve(line: &mut Line<()>, count: usize) -> Vec<u32> {
        let serve = |_| {
            let (errand, ()) = line.next().unwrap();
            line.done(
                errand,
                Duration::from_nanos(errand.guess() * errand.weight()),
            );
            errand.tenant.0
        };
        (0..count).map(serve).collect()
    }

    #[test]
    fn a_newcomer_is_next_however_much_of_others_waits() {
        let mut line = Line::new();
        for _ in 0..PLACES {
            line.join(errand(1, MEGABYTE), ()).unwrap();
        }
        assert_eq!(serve(&mut line, 3), [1, 1, 1]);
        let running = line.next().unwrap().0;
        line.join(errand(2, MEGABYTE), ()).unwrap();
        line.join(errand(3, 10), ()).unwrap();
        line.done(running, Duration::from_millis(20));
        assert_eq!(serve(&mut line, 4), [2, 3, 1, 1]);
    }

    #[test]
    fn tenants_share_the_work_by_their_weights_and_not_by_their_pieces() {
        let mut line = Line::new();
        for _ in 0..200 {
            line.join(errand(1, 10_000), ()).unwrap();
        }
        for _ in 0..40 {
            line.join(errand(2, 100_000), ()).unwrap();
            let heavy = Errand {
                weight: 2,
                ..errand(3, 100_000)
            };
            line.join(heavy, ()).unwrap();
        }
        let served = serve(&mut line, 130);
        let of = |tenant| served.iter().filter(|served| **served == tenant).count();
        assert_eq!((of(1), of(2), of(3)), (100, 10, 20));
    }

    #[test]
    fn work_that_took_longer_than_its_bytes_say_is_charged_for_what_it_took() {
        let mut line = Line::new();
        for _ in 0..10 {
            line.join(errand(1, 1_000), ()).unwrap();
            line.join(errand(2, 1_000), ()).unwrap();
        }
        let hostile = line.next().unwrap().0;
        line.done(hostile, Duration::from_nanos(5 * hostile.guess()));
        assert_eq!(serve(&mut line, 7), [2, 2, 2, 2, 2, 1, 2]);
    }

    #[test]
    fn who_leaves_leaves_nothing_behind() {
        let mut line = Line::new();
        let place = line.join(errand(1, 10), "first").unwrap();
        let second = line.join(errand(1, 10), "second").unwrap();
        assert_eq!(line.leave(place), Some("first"));
        assert_eq!(line.leave(place), None);
        let (running, job) = line.next().unwrap();
        assert_eq!(job, "second");
        assert_eq!(line.leave(second), None);
        line.done(running, Duration::from_secs(1));
        assert!(line.flows.is_empty());
        assert!(line.next().is_none());
    }

    #[test]
    fn a_tenants_line_is_bounded_and_others_still_find_a_place() {
        let mut line = Line::new();
        for _ in 0..PLACES {
            line.join(errand(1, 10), ()).unwrap();
        }
        assert_eq!(line.join(errand(1, 10), ()), Err(Full));
        assert!(line.join(errand(2, 10), ()).is_ok());
    }
}
