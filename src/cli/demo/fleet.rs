//! The demo's engines: an 8-billion-parameter model on three kinds of machine.
//!
//! Decides their sizes and speeds and nothing of the load. KV of the model is 128 KiB a
//! token, which gives the pools. Invariant: no engine is promised a longer context than
//! its pool holds, so none ever stands before a request it can never run.

use std::io;

use crate::core::backend::Tier;
use crate::core::units::Tokens;
use crate::sim::engine::{EngineSpec, EngineStats, StepTime};
use crate::sim_server::{SimServer, SimServerSpec};

/// The model's name, in requests and in the configuration.
pub(super) const MODEL: &str = "demo-8b";

/// One engine and its place in the fleet.
pub(super) struct Engine {
    pub(super) name: &'static str,
    pub(super) tier: Tier,
    pub(super) server: SimServer,
}

/// What an engine is to be.
#[derive(Clone, Debug)]
pub(super) struct EnginePlan {
    pub(super) name: &'static str,
    pub(super) tier: Tier,
    pub(super) spec: EngineSpec,
}

/// The engines of one run, each on a loopback port of its own.
pub(super) struct Fleet {
    pub(super) engines: Vec<Engine>,
}

/// Three engines of one model:
///
/// | tier | machine | KV pool | longest context |
/// |---|---|---|---|
/// | standard | 24 GB card | 40,960 tokens | 16,384 |
/// | large | 48 GB card | 163,840 tokens | 49,152 |
/// | offload | 24 GB card, weights streamed from CPU memory: four times slower | 131,072 tokens | 131,072 |
pub(super) fn engines() -> Vec<EnginePlan> {
    let plan = |name, tier, pool, context, step| EnginePlan {
        name,
        tier,
        spec: EngineSpec {
            max_model_len: Tokens::new(context),
            step,
            ..EngineSpec::with_pool(Tokens::new(pool))
        },
    };
    vec![
        plan(
            "standard",
            Tier::Standard,
            40_960,
            16_384,
            StepTime::rtx_4090_8b(),
        ),
        plan(
            "large",
            Tier::Large,
            163_840,
            49_152,
            StepTime::rtx_pro_6000_8b(),
        ),
        plan(
            "offload",
            Tier::Offload,
            131_072,
            131_072,
            StepTime::rtx_4090_8b().compressed(0.25),
        ),
    ]
}

// === impl Fleet ===

impl Fleet {
    /// Starts `plans` with one simulated second lasting `scale` real ones.
    ///
    /// # Errors
    /// A loopback port cannot be had.
    pub(super) fn start(plans: &[EnginePlan], scale: f64) -> io::Result<Self> {
        let start = |plan: &EnginePlan| {
            let spec = SimServerSpec {
                time_scale: scale,
                ..SimServerSpec::new(MODEL, plan.spec.clone())
            };
            Ok(Engine {
                name: plan.name,
                tier: plan.tier,
                server: SimServer::start(spec)?,
            })
        };
        let engines = plans.iter().map(start).collect::<io::Result<_>>()?;
        Ok(Self { engines })
    }

    /// Levels and counters of each engine now.
    pub(super) fn stats(&self) -> Vec<EngineStats> {
        self.engines
            .iter()
            .map(|engine| engine.server.stats())
            .collect()
    }
}
