//! Whether requests are taken, and whether those that were are still answered.
//!
//! Decides nothing; the process opens and shuts it. Goes one way only: open,
//! closed (nothing new), over (what is left is told so and cut).

use std::sync::Arc;

use tokio::sync::watch;

use super::BoxFuture;

/// Whether requests are taken and answered; clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Door(Arc<watch::Sender<State>>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    #[default]
    Open,
    Closed,
    Over,
}

// === impl Door ===

impl Door {
    /// Takes no new requests from now on.
    pub fn close(&self) {
        self.advance(State::Closed);
    }

    /// Answers no request any further: those without an answer are refused,
    /// streams end with an error event.
    pub fn end(&self) {
        self.advance(State::Over);
    }

    /// Whether no new requests are taken.
    pub fn is_closed(&self) -> bool {
        *self.0.borrow() >= State::Closed
    }

    /// Resolves once nothing is answered any further; never where that does not
    /// come. Wakes without the lock of any books.
    pub fn over(&self) -> BoxFuture<()> {
        let mut state = self.0.subscribe();
        Box::pin(async move {
            let ended = state.wait_for(|state| *state == State::Over).await.is_ok();
            if !ended {
                std::future::pending::<()>().await;
            }
        })
    }

    fn advance(&self, to: State) {
        self.0.send_if_modified(|state| {
            let moves = to > *state;
            if moves {
                *state = to;
            }
            moves
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_test::{assert_pending, assert_ready, task};

    #[test]
    fn a_door_goes_one_way_and_wakes_those_inside_at_the_end() {
        let door = Door::default();
        let mut inside = task::spawn(door.over());
        assert_pending!(inside.poll());
        assert!(!door.is_closed());
        door.close();
        assert!(door.is_closed());
        assert_pending!(inside.poll());
        door.end();
        assert!(inside.is_woken());
        assert_ready!(inside.poll());
        door.close();
        assert_ready!(task::spawn(door.over()).poll());
    }
}
