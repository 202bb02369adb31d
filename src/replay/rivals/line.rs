//! The line of a rival: in order of arrival, left when it is too late.

use std::collections::{BTreeMap, BTreeSet};

use crate::core::time::Time;

/// Calls that wait.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Since when and until when, by place among the calls, which is the order of arrival.
    waiting: BTreeMap<usize, (Time, Time)>,
    /// The same by the instant from which on it is too late.
    late: BTreeSet<(Time, usize)>,
}

// === impl Line ===

impl Line {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn join(&mut self, call: usize, now: Time, by: Time) {
        self.waiting.insert(call, (now, by));
        if by < Time::NEVER {
            self.late.insert((by, call));
        }
    }

    pub(super) fn leave(&mut self, call: usize) {
        if let Some((_, by)) = self.waiting.remove(&call) {
            self.late.remove(&(by, call));
        }
    }

    /// Everybody in it, the head first, as it is now.
    pub(super) fn calls(&self) -> Vec<usize> {
        self.waiting.keys().copied().collect()
    }

    /// One for whom it is too late, with the time it has waited since; it leaves.
    pub(super) fn pop_late(&mut self, now: Time) -> Option<(usize, Time)> {
        let &(by, call) = self.late.first().filter(|&&(by, _)| by <= now)?;
        self.late.remove(&(by, call));
        let (since, _) = self.waiting.remove(&call)?;
        Some((call, since))
    }

    /// When it becomes too late for somebody.
    pub(super) fn next_late(&self) -> Option<Time> {
        self.late.first().map(|&(by, _)| by)
    }
}
