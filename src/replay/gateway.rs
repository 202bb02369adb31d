//! The part a gateway plays: it is told facts and says what is to be done.
//!
//! Calls and engines are named by their place in the run. A gateway knows of an engine
//! what it was told when the run began, what scrapes say and what became of its own
//! calls; it never sees an answer's length before the answer has ended.

use std::time::Duration;

use crate::core::admission::End;
use crate::core::reject::Reject;
use crate::core::time::Time;
use crate::core::units::Tokens;
use crate::sim::engine::EngineStats;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Order {
    /// Send the call to the engine.
    Send {
        call: usize,
        node: usize,
        /// The `max_tokens` to write into it, if any.
        bound: Option<Tokens>,
    },
    /// Refuse the call.
    Refuse { call: usize, reject: Reject },
    /// The call waits, and this was predicted of its wait.
    Expect {
        call: usize,
        q50: Option<Duration>,
        q80: Option<Duration>,
    },
}

/// One scrape of an engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scrape {
    pub(super) node: usize,
    /// The moment it speaks of.
    pub(super) at: Time,
    pub(super) stats: EngineStats,
}

/// Whether an engine can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    Up,
    Down,
}

/// Decides for the calls of one run.
pub(super) trait Gateway {
    /// Between two scrapes of one engine; `None` for never.
    fn scrapes(&self) -> Option<Duration>;

    /// A call arrives, or comes back from an engine that died before its first token.
    fn on_call(&mut self, now: Time, call: usize, out: &mut Vec<Order>);

    /// A call that was refused comes back, with as long for its first token as at first.
    fn on_return(&mut self, now: Time, call: usize, out: &mut Vec<Order>);

    /// A call has `generated` tokens: said at the first and once a KV block.
    fn on_tokens(&mut self, now: Time, call: usize, generated: Tokens, out: &mut Vec<Order>);

    /// A call that was sent has ended.
    fn on_end(&mut self, now: Time, call: usize, end: End, out: &mut Vec<Order>);

    /// A scrape has come in.
    fn on_scrape(&mut self, now: Time, scrape: Scrape, out: &mut Vec<Order>);

    /// An engine has died or is back, empty. Calls it had end by [`Gateway::on_end`].
    fn on_reach(&mut self, now: Time, node: usize, reach: Reach, out: &mut Vec<Order>);

    /// When [`Gateway::handle_timeout`] has something to do.
    fn poll_timeout(&self, now: Time) -> Option<Time>;

    /// Does what is due.
    fn handle_timeout(&mut self, now: Time, out: &mut Vec<Order>);
}
