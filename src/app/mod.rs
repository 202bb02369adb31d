//! Floor 5: the process: listeners, wiring, start and end.
//!
//! Decides what runs and who owns it: every task belongs to a set that is
//! joined or aborted with its owner. Never looks into a request. [`serve`] is
//! the whole process; [`start`] runs a gateway inside another program (tests,
//! the demo) and [`Gateway`] one without sockets.

mod admin;
mod ahead;
mod arriving;
mod checkup;
mod collector;
mod compare;
mod conduct;
mod connection;
mod counters;
mod dashboard;
mod discovery;
mod drain;
mod error;
mod explain;
mod follow;
mod gateway;
mod given;
mod listen;
mod loader;
mod loading;
mod manager;
mod nearby;
mod orders;
mod places;
mod pools;
mod probes;
mod process;
mod reload;
mod running;
mod sniff;
mod sockets;
mod state;
mod strict;
mod taking;
mod tls;

pub use arriving::Arriving;
pub use connection::{ConnectionLimits, Terms, serve_connection};
pub use counters::{CounterError, load_counter};
pub use discovery::{Resolver, SystemResolver};
pub use drain::{Drain, Phase, Watcher};
pub use error::Error;
pub use gateway::{Gateway, timing};
pub use given::Given;
pub use places::Place;
pub use process::serve;
pub use reload::Status as ReloadStatus;
pub use running::{Running, start, start_on};

#[cfg(test)]
mod tests;
