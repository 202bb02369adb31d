//! Floor 2: a trace played against a simulated fleet under a policy, in virtual time.
//!
//! [`setup`] is what is played, [`policy`] who decides, [`record`] what came of it;
//! [`Run::play`] plays. The engines are [`sim::engine`](crate::sim::engine); "ours" is the
//! shipped [`core`](crate::core) and nothing else; the rivals are emulations of published
//! rules and see what such products see. Never reads a clock, a file or an environment:
//! equal input gives an equal record on every machine.

pub mod cells;
pub mod fleet;
mod gateway;
pub mod metrics;
mod ours;
mod place;
pub mod plot;
pub mod policy;
pub mod record;
pub mod report;
mod rivals;
pub mod setup;
#[cfg(test)]
mod tests;
pub mod traces;
mod world;

use crate::core::time::Time;
use ours::OurGateway;
use world::World;

pub use policy::{Policy, PolicyKind};
pub use record::{NodeRecord, Outcome, Promise, Record, Return};
pub use setup::{Call, Conditions, Crash, Fleet, Node, Slo};

/// One run: what is played, against what, and by which seed.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// In order of arrival.
    pub calls: &'a [Call],
    /// The engines.
    pub fleet: &'a Fleet,
    /// Who decides.
    pub policy: &'a Policy,
    /// What is not as the gateway believes.
    pub conditions: &'a Conditions,
    /// Of every draw: equal runs give equal records.
    pub seed: u64,
}

impl Run<'_> {
    /// Plays the run to its end. `progress` is told the time whenever it has moved on by a
    /// second. Cost: about as many steps as the engines make.
    pub fn play(self, progress: &mut dyn FnMut(Time)) -> Record {
        let gateway = match self.policy {
            Policy::Ours(ours) => Box::new(OurGateway::new(self, ours)),
            _ => rivals::gateway(self).expect("what is not ours is a rival's"),
        };
        World::new(self, gateway).play(progress)
    }
}
