//! Simulated engines behind HTTP that check their own memory.

use std::time::Duration;

use tidegate::core::units::{BlockSize, Blocks, Tokens};
use tidegate::sim::engine::{EngineSpec, OnOverflow, StepTime};
use tidegate::sim_server::{SimServer, SimServerSpec};

/// A simulated engine that panics rather than preempt.
pub(crate) struct Engine(SimServer);

/// An engine of `blocks` usable blocks.
pub(crate) fn spec(blocks: u64, max_model_len: u64) -> EngineSpec {
    EngineSpec {
        blocks: Blocks::new(blocks + 1),
        block_size: BlockSize::new(16).unwrap(),
        max_model_len: Tokens::new(max_model_len),
        step: StepTime::constant(Duration::from_micros(100)),
        on_overflow: OnOverflow::Panic,
        ..EngineSpec::with_pool(Tokens::new(blocks * 16))
    }
}

impl Engine {
    /// `blocks` usable blocks of 16 tokens for `tiny`, a tenth of a millisecond
    /// a step.
    pub(crate) fn start(blocks: u64, max_model_len: u64) -> Self {
        let mut spec = SimServerSpec::new("tiny", spec(blocks, max_model_len));
        // A machine that stands still for a second must not look like a lost engine.
        spec.keep_alive = Duration::from_secs(600);
        Self(SimServer::start(spec).unwrap())
    }

    pub(crate) fn server(&self) -> &SimServer {
        &self.0
    }

    /// Bodies of the generation requests it got.
    pub(crate) fn bodies(&self) -> Vec<String> {
        let seen = self.0.seen();
        seen.iter()
            .filter(|seen| seen.path.starts_with("/v1/c"))
            .map(|seen| String::from_utf8(seen.body.to_vec()).unwrap())
            .collect()
    }

    /// It never preempted, never passed its pool, and nothing is left on it.
    pub(crate) async fn check(&self) {
        self.0
            .wait_until(|now| now.running + now.waiting == 0)
            .await;
        let stats = self.0.stats();
        assert_eq!(stats.preemptions, 0);
        assert!(stats.peak_used <= stats.usable, "{stats:?}");
        assert_eq!(stats.used, Blocks::ZERO);
        for seen in self.0.seen() {
            assert!(seen.headers.get("authorization").is_none(), "{seen:?}");
        }
    }
}
