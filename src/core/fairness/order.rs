//! The order of service: bands, then tenants, then requests.
//!
//! A band of smaller number goes first. Every band behind that has work waiting is
//! owed a twentieth of what is granted, and goes first while it has not got it:
//! priority does not starve. Within a band the tenants whose clocks are at most
//! [`SLACK`] ahead of the slowest are one line, in the order of their requests;
//! the others follow, the slower clock first.

use std::cmp::Reverse;
use std::collections::btree_set::Range;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::cost::Cost;
use super::{Flow, VirtualTime};
use crate::core::demand::TenantId;
use crate::core::queue::{Place, TicketId};

/// How far a clock may be ahead of the slowest and its requests still stand in
/// line with that one's: who comes first is then what serves most in time.
pub(super) const SLACK: Cost = Cost::from_millis(1000);

/// Tenants whose lines are merged; those behind them follow by their clocks.
const MERGED: usize = 64;

/// A band behind others is owed one part for this many of theirs: a twentieth.
const FLOOR: i64 = 19;

/// Most that a band is owed, in nanoseconds of the pool: what it could not use is
/// not saved up.
const MOST_OWED: i64 = 1_000_000_000;

/// Tenants of one priority.
#[derive(Clone, Debug, Default)]
pub(super) struct Band {
    /// Those with something waiting, slowest clock first.
    backlogged: BTreeSet<(VirtualTime, TenantId)>,
    /// Nanoseconds of the pool; negative where it has had more.
    owed: i64,
}

/// All bands in which something waits, most urgent first.
#[derive(Clone, Debug, Default)]
pub(super) struct Bands(BTreeMap<i32, Band>);

/// One place in the order of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) struct Turn {
    band: i32,
    /// `None` where it stands in the merged line.
    clock: Option<VirtualTime>,
    pub(in crate::core) tenant: TenantId,
    place: Place,
}

/// Several lines as one.
struct Merged<'a> {
    band: i32,
    lines: Vec<(TenantId, Range<'a, Place>)>,
    heads: BinaryHeap<Reverse<(Place, usize)>>,
}

// === impl Turn ===

impl Turn {
    pub(in crate::core) const fn ticket(self) -> TicketId {
        self.place.ticket
    }

    pub(in crate::core) const fn place(self) -> Place {
        self.place
    }
}

// === impl Bands ===

impl Bands {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The slowest clock of a band, if anybody waits there.
    pub(super) fn slowest(&self, band: i32) -> Option<VirtualTime> {
        let first = self.0.get(&band)?.backlogged.first();
        first.map(|&(clock, _)| clock)
    }

    pub(super) fn insert(&mut self, band: i32, clock: VirtualTime, tenant: TenantId) {
        let entry = self.0.entry(band).or_default();
        entry.backlogged.insert((clock, tenant));
    }

    /// Whether it was there.
    pub(super) fn remove(&mut self, band: i32, clock: VirtualTime, tenant: TenantId) -> bool {
        let Some(entry) = self.0.get_mut(&band) else {
            return false;
        };
        let was_there = entry.backlogged.remove(&(clock, tenant));
        if entry.backlogged.is_empty() {
            self.0.remove(&band);
        }
        was_there
    }

    /// The clock of a tenant has moved; if it waits, so does its place.
    pub(super) fn shift(
        &mut self,
        band: i32,
        (from, to): (VirtualTime, VirtualTime),
        tenant: TenantId,
    ) {
        if let Some(entry) = self.0.get_mut(&band)
            && entry.backlogged.remove(&(from, tenant))
        {
            entry.backlogged.insert((to, tenant));
        }
    }

    /// Something of `band` was granted: the bands behind are owed their part.
    pub(super) fn on_granted(&mut self, band: i32, cost: Cost) {
        let cost = i64::try_from(cost.nanos()).unwrap_or(i64::MAX);
        let most_urgent = self.0.first_key_value().map(|(&first, _)| first);
        for (&number, entry) in &mut self.0 {
            entry.owed = match number {
                _ if Some(number) == most_urgent => 0,
                _ if number == band => entry.owed.saturating_sub(cost),
                _ => entry.owed.saturating_add(cost / FLOOR).min(MOST_OWED),
            };
        }
    }

    /// Tenants that wait and may be served before `turn` in `band`: all of more urgent
    /// bands, whose clocks do not matter, then those of its own with a slower clock.
    pub(super) fn before(
        &self,
        band: i32,
        turn: VirtualTime,
    ) -> impl Iterator<Item = (Option<VirtualTime>, TenantId)> + '_ {
        let urgent = self.0.range(..band).flat_map(|(_, band)| &band.backlogged);
        let urgent = urgent.map(|&(_, tenant)| (None, tenant));
        let own = self.0.get(&band).into_iter();
        let slower = own.flat_map(move |band| band.backlogged.range(..(turn, TenantId(0))));
        urgent.chain(slower.map(|&(clock, tenant)| (Some(clock), tenant)))
    }

    /// Tenants that wait, the more urgent band first, then the slower clock.
    pub(super) fn tenants(&self) -> impl Iterator<Item = TenantId> + '_ {
        let lines = self.0.values().flat_map(|band| &band.backlogged);
        lines.map(|&(_, tenant)| tenant)
    }

    /// The waiting tickets in the order they should be served, from `from` on.
    pub(super) fn in_order<'a>(
        &'a self,
        flows: &'a BTreeMap<TenantId, Flow>,
        from: Option<Turn>,
    ) -> impl Iterator<Item = Turn> + 'a {
        let owed = self.0.iter().filter(|(_, band)| band.owed > 0);
        let paid = self.0.iter().filter(|(_, band)| band.owed <= 0);
        let bands = owed.chain(paid);
        // A band that has emptied is no place to go on from.
        let from = from.filter(|turn| self.0.contains_key(&turn.band));
        bands
            .skip_while(move |&(&number, _)| from.is_some_and(|turn| turn.band != number))
            .flat_map(move |(&number, band)| {
                let from = from.filter(|turn| turn.band == number);
                band.in_order(flows, (number, from))
            })
    }
}

// === impl Band ===

impl Band {
    fn in_order<'a>(
        &'a self,
        flows: &'a BTreeMap<TenantId, Flow>,
        (number, from): (i32, Option<Turn>),
    ) -> impl Iterator<Item = Turn> + 'a {
        let line = |tenant| {
            let flow: Option<&Flow> = flows.get(&tenant);
            &flow.expect("a backlogged tenant has a line").waiting
        };
        let slowest = self.backlogged.first().map(|&(clock, _)| clock);
        let last = (slowest.unwrap_or_default().after(SLACK), TenantId(u32::MAX));
        let together = self.backlogged.range(..=last).take(MERGED).count();
        let (start, follows) = match from {
            None => (Some(Place::FIRST), None),
            Some(turn) if turn.clock.is_none() => (Some(turn.place), None),
            Some(turn) => (None, Some(turn)),
        };
        let merged = start.map(|start| {
            let near = self.backlogged.iter().take(together);
            Merged::new(
                number,
                near.map(|&(_, tenant)| (tenant, line(tenant).range(start..))),
            )
        });
        let resumed = follows.and_then(|turn| Some((turn.clock?, turn.tenant)));
        let edge = self.backlogged.iter().nth(together).copied();
        let edge = edge.map(|edge| resumed.map_or(edge, |turn| turn.max(edge)));
        let behind = edge
            .into_iter()
            .flat_map(|edge| self.backlogged.range(edge..));
        let behind = behind.flat_map(move |&(clock, tenant)| {
            let start = match follows {
                Some(turn) if turn.tenant == tenant && turn.clock == Some(clock) => turn.place,
                _ => Place::FIRST,
            };
            line(tenant).range(start..).map(move |&place| Turn {
                band: number,
                clock: Some(clock),
                tenant,
                place,
            })
        });
        merged.into_iter().flatten().chain(behind)
    }
}

// === impl Merged ===

impl<'a> Merged<'a> {
    fn new(band: i32, lines: impl Iterator<Item = (TenantId, Range<'a, Place>)>) -> Self {
        let mut merged = Self {
            band,
            lines: lines.collect(),
            heads: BinaryHeap::new(),
        };
        for index in 0..merged.lines.len() {
            merged.pull(index);
        }
        merged
    }

    fn pull(&mut self, index: usize) {
        if let Some(&place) = self.lines[index].1.next() {
            self.heads.push(Reverse((place, index)));
        }
    }
}

impl Iterator for Merged<'_> {
    type Item = Turn;

    fn next(&mut self) -> Option<Turn> {
        let Reverse((place, index)) = self.heads.pop()?;
        self.pull(index);
        Some(Turn {
            band: self.band,
            clock: None,
            tenant: self.lines[index].0,
            place,
        })
    }
}
