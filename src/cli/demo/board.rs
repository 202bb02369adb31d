//! Where every request of the load stands, by class, for whoever watches.

use std::sync::{Arc, Mutex, PoisonError};

use crate::sim::workload::Class;

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Sent, no token yet.
    Waiting,
    /// Its first token has come.
    Running,
    /// Answered to the end.
    Done,
    /// Turned away, or failed.
    Refused,
}

/// Requests of one class by stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally([u32; 4]);

/// The tallies of a run. The lock is held for one addition or one copy.
#[derive(Debug, Default)]
pub(super) struct Board(Mutex<[Tally; CLASSES.len()]>);

/// One request on the board.
pub(super) struct Piece {
    board: Arc<Board>,
    class: Class,
    stage: Stage,
}

/// The classes, in the order of reports.
pub(super) const CLASSES: [Class; 4] = [
    Class::Chat,
    Class::Documents,
    Class::Greedy,
    Class::Impossible,
];

// === impl Tally ===

impl Tally {
    /// Requests that stand at `stage`.
    pub(super) const fn at(&self, stage: Stage) -> u32 {
        self.0[stage as usize]
    }
}

// === impl Board ===

impl Board {
    /// The tallies now, in the order of [`CLASSES`].
    pub(super) fn tallies(&self) -> [Tally; CLASSES.len()] {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a request on the board that was just sent.
    pub(super) fn sent(self: &Arc<Self>, class: Class) -> Piece {
        self.count(class, |tally| tally.0[Stage::Waiting as usize] += 1);
        Piece {
            board: Arc::clone(self),
            class,
            stage: Stage::Waiting,
        }
    }

    fn count(&self, class: Class, change: impl FnOnce(&mut Tally)) {
        let mut tallies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut tallies[place(class)]);
    }
}

const fn place(class: Class) -> usize {
    match class {
        Class::Chat => 0,
        Class::Documents => 1,
        Class::Greedy => 2,
        Class::Impossible => 3,
    }
}

/// The name of a class in reports.
pub(super) const fn name(class: Class) -> &'static str {
    match class {
        Class::Chat => "chat",
        Class::Documents => "documents",
        Class::Greedy => "greedy",
        Class::Impossible => "impossible",
    }
}

// === impl Piece ===

impl Piece {
    /// Moves the request on.
    pub(super) fn moves_to(&mut self, stage: Stage) {
        let from = std::mem::replace(&mut self.stage, stage);
        self.board.count(self.class, |tally| {
            tally.0[from as usize] -= 1;
            tally.0[stage as usize] += 1;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_stands_in_one_place_at_a_time() {
        let board = Arc::new(Board::default());
        let mut one = board.sent(Class::Greedy);
        let _other = board.sent(Class::Greedy);
        one.moves_to(Stage::Running);
        one.moves_to(Stage::Done);
        let tallies = board.tallies();
        assert_eq!(tallies[2], Tally([1, 0, 1, 0]));
        assert_eq!(tallies[0], Tally::default());
        assert_eq!(CLASSES.map(place), [0, 1, 2, 3]);
    }
}
