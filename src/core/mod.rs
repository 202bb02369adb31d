//! Floor 0: the books and the decisions, pure and deterministic.
//!
//! Nothing here reads a clock, sleeps, locks, logs or knows HTTP. Callers pass
//! `now` in and get data out, so the same code runs behind a mutex in the
//! gateway and in virtual time in the simulation.

// The lists of what is banned here stand in .clippy.toml.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod admission;
mod ahead;
pub mod backend;
mod choice;
pub mod demand;
pub mod dispatch;
mod failures;
pub mod fairness;
mod fit;
#[cfg(test)]
pub(crate) mod fixtures;
pub mod footprint;
pub mod gates;
pub mod ledger;
pub mod lengths;
mod outlook;
mod overlap;
mod pace;
pub mod placement;
pub mod prefix;
pub mod queue;
pub mod rate;
pub mod reject;
mod roster;
pub mod stats;
mod table;
pub mod time;
mod trunk;
pub mod units;
pub mod waits;
