//! A place in line, as a future.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::{Gate, Lease, Outcome};
use crate::core::queue::TicketId;
use crate::core::reject::Reject;
use crate::core::stats::Hold;
use crate::core::waits::Predicted;

/// Resolves to a lease when its turn comes, or to the reason why it never will.
///
/// Dropping it leaves the queue at once and may let others in; a lease that
/// was granted in the same instant is given back.
pub struct Ticket {
    gate: Gate,
    id: TicketId,
    outcome: oneshot::Receiver<Outcome>,
    foreseen: Option<Foreseen>,
    answered: Answered,
}

/// What could be told of a wait when it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreseen {
    /// How long it will be.
    pub predicted: Predicted,
    /// What it is for.
    pub hold: Hold,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Answered {
    NotYet,
    Done,
}

// === impl Ticket ===

impl Ticket {
    pub(super) fn new(
        gate: Gate,
        id: TicketId,
        outcome: oneshot::Receiver<Outcome>,
        foreseen: Option<Foreseen>,
    ) -> Self {
        Self {
            gate,
            id,
            outcome,
            foreseen,
            answered: Answered::NotYet,
        }
    }

    /// What could be told of its wait when it joined the line.
    pub const fn foreseen(&self) -> Option<Foreseen> {
        self.foreseen
    }
}

impl Future for Ticket {
    type Output = Result<Lease, Reject>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.outcome).poll(cx).map(|received| {
            self.answered = Answered::Done;
            received.expect("a waiter's channel is kept until it is answered")
        })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.answered == Answered::Done {
            return;
        }
        // The order matters: a grant between the two lines finds the channel
        // closed and comes back by the lease's own drop.
        self.outcome.close();
        self.gate.leave(self.id);
    }
}
