//! Keeps the table of what decides of each backend with what it is read from.
//!
//! Whatever changes a backend or its books reads its row anew, and what changes the
//! pool reads all of them. Decides nothing.

use super::Admission;
use crate::core::backend::BackendId;
use crate::core::roster::Backend;
use crate::core::table::{Row, Table, Terms};
use crate::core::time::Time;

// === impl Admission ===

impl Admission {
    /// Reads every row anew. O(backends).
    pub(super) fn survey(&mut self, now: Time) {
        let accounts = self.backends.iter().map(|backend| {
            let account = self.ledger.account(backend.id);
            (backend, account)
        });
        self.table = Table::of(accounts, self.terms(now));
    }

    /// Something of `id` has changed: reads its row anew.
    pub(super) fn note(&mut self, now: Time, id: BackendId) {
        if let Some(place) = self.place_of(id) {
            self.note_at(now, place);
        }
    }

    /// The same of the backend at `place`.
    pub(super) fn note_at(&mut self, now: Time, place: usize) {
        let backend = &self.backends[place];
        let account = self.ledger.account(backend.id);
        let kind = self.table.rows[place].kind;
        let row = Row::of((backend, account), kind, self.terms(now));
        self.overlap.keep(backend.id, row.unused());
        self.table.rows[place] = row;
    }

    /// Where a backend stands in the pool: they are in the order of their generations.
    pub(super) fn place_of(&self, id: BackendId) -> Option<usize> {
        let generation = |backend: &Backend| backend.id.generation;
        let place = self
            .backends
            .binary_search_by_key(&id.generation, generation);
        place.ok()
    }

    /// Whether every row is what would be read anew.
    pub(super) fn rows_are_right(&self) -> bool {
        let accounts = self.backends.iter().map(|backend| {
            let account = self.ledger.account(backend.id);
            (backend, account)
        });
        let fresh = Table::of(accounts, self.terms(Time::ZERO));
        let is_right = |(place, row): (usize, &Row)| {
            let backend = &self.backends[place];
            let account = self.ledger.account(backend.id);
            *row == Row::of((backend, account), row.kind, self.terms(row.since()))
        };
        fresh.kinds == self.table.kinds
            && fresh.rows.len() == self.table.rows.len()
            && self.table.rows.iter().enumerate().all(is_right)
    }

    fn terms(&self, now: Time) -> Terms<'_> {
        Terms {
            now,
            dispatch: &self.policy.dispatch,
            reservation: &self.policy.reservation,
            observed_for: self.policy.observed_for,
        }
    }
}
