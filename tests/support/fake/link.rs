//! The connections of an engine, and how each one ended.

use std::sync::Arc;

use tokio::time::Instant;

use super::Shared;
use crate::support::wire::{Ending, Io, Wire};

/// One connection to an engine, from its beginning to its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) opened: Instant,
    /// Requests that came on it.
    pub(crate) requests: u32,
    pub(crate) ended: Option<(Instant, LinkEnd)>,
}

/// Who ended a connection, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkEnd {
    /// The gateway, by a FIN.
    Closed,
    /// The gateway, by a reset.
    Reset,
    /// The engine, in whatever way.
    Ours,
}

/// A connection in use; dropping it is the engine's end of it.
pub(super) struct Line<I: Io> {
    pub(super) wire: Wire<I>,
    at: usize,
    shared: Arc<Shared<I>>,
}

// === impl Line ===

impl<I: Io> Line<I> {
    pub(super) fn new(wire: Wire<I>, shared: &Arc<Shared<I>>) -> Self {
        let mut facts = shared.lock();
        let at = facts.links.len();
        facts.links.push(Link {
            opened: Instant::now(),
            requests: 0,
            ended: None,
        });
        drop(facts);
        Self {
            wire,
            at,
            shared: Arc::clone(shared),
        }
    }

    pub(super) fn asked(&self) {
        self.shared.lock().links[self.at].requests += 1;
    }

    pub(super) fn peer_ended(&self, how: Ending) {
        self.ended(match how {
            Ending::Reset => LinkEnd::Reset,
            Ending::Whole | Ending::Closed => LinkEnd::Closed,
        });
    }

    /// The first end that is told counts.
    fn ended(&self, how: LinkEnd) {
        let link = &mut self.shared.lock().links[self.at];
        link.ended.get_or_insert((Instant::now(), how));
        self.shared.news.notify_waiters();
    }

    /// The connection will end with a reset.
    pub(super) fn reset(&mut self) {
        self.wire.reset_at_end();
    }
}

impl<I: Io> Drop for Line<I> {
    fn drop(&mut self) {
        self.ended(LinkEnd::Ours);
    }
}
