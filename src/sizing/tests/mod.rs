//! The planner against what engines have logged and published of themselves.

mod logged;
mod models;
mod random;
mod refused;
mod wanted;

use serde_json::Value;

use super::bytes::GIB;
use super::engine::{Device, Engine, KvDtype, Parallel, PrefixCaching, Version};
use super::layout::Layout;
use super::memory::Graphs;
use super::model::{Model, Unknown};
use super::plan::Question;
use super::weights::Weights;

const MODELS: &str = include_str!("../../../tests/golden/plan/models.json");

/// A model of tests/golden/plan.
fn model(name: &str) -> Model {
    let models: Value = serde_json::from_str(MODELS).unwrap();
    let config = &models[name]["config"];
    assert!(config.is_object(), "{name} is there");
    Model::read(&config.to_string(), Unknown::Refuse).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// An engine of that version on one card of 80 GB.
fn engine(version: u16) -> Engine {
    Engine {
        version: Version::new(version),
        kv: KvDtype::Half,
        block: None,
        parallel: Parallel::ONE,
        batched: 8_192,
        sequences: 1_024,
        prefix: PrefixCaching::Default,
        device: Device::Gpu,
    }
}

/// An engine with so many tensor parallel ranks.
fn ranks(tensor: u64) -> Engine {
    let mut engine = engine(33);
    engine.parallel.tensor = tensor;
    engine
}

/// A plan for a card of so many GiB.
fn question<'a>(model: &'a Model, engine: Engine, gib: u64) -> Question<'a> {
    Question {
        model,
        engine,
        weights: Weights::estimate(&model.parameters, model.quantization).unwrap(),
        memory: Some(gib * GIB),
        budget: None,
        overhead: None,
        graphs: Graphs::Captured,
        context: None,
        instances: 1,
        others: 0,
    }
}

/// How far a figure is from another, in hundredths of a percent of the other.
fn apart(one: u64, other: u64) -> u64 {
    one.abs_diff(other) * 10_000 / other
}

fn token_bytes(name: &str, engine: &Engine) -> u64 {
    Layout::new(&model(name), engine).token_bytes
}
