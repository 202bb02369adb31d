//! The server over real sockets, against the captures of a real one.

mod apis;
mod client;
mod faults;
mod generation;
mod shapes;

use std::time::Duration;

use super::{SimServer, SimServerSpec};
use crate::core::units::{BlockSize, Blocks, Tokens};
use crate::sim::engine::{EngineSpec, StepTime};

/// The engine of the captures, at a pace no test waits for.
fn spec() -> SimServerSpec {
    let engine = EngineSpec {
        blocks: Blocks::new(257),
        block_size: BlockSize::new(32).unwrap(),
        step: StepTime::constant(Duration::from_micros(10)),
        ..EngineSpec::with_pool(Tokens::new(8192))
    };
    SimServerSpec::new("tiny", engine)
}

fn server() -> SimServer {
    SimServer::start(spec()).unwrap()
}
