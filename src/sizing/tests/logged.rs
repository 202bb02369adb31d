//! Figures of real engines: tests/golden/plan says of each where it is from.

use serde_json::Value;

use super::super::bytes;
use super::super::engine::{Device, KvDtype, PrefixCaching, Version};
use super::super::layout::Layout;
use super::super::memory::{Budget, Graphs, Overhead};
use super::super::weights::Weights;
use super::{apart, engine, model, question};

fn rows(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap()
}

fn number(row: &Value, key: &str) -> Option<u64> {
    row.get(key)?.as_u64()
}

/// GiB with two decimals, as text or number.
fn gib(row: &Value) -> u64 {
    let text = match &row["gib"] {
        Value::String(text) => text.clone(),
        number => number.to_string(),
    };
    bytes::parse(&format!("{text}GiB")).unwrap()
}

fn engine_of(row: &Value) -> super::Engine {
    let version = row["vllm"]
        .as_str()
        .map_or(Version::NEWEST, |text| Version::parse(text).unwrap());
    let mut engine = engine(version.minor);
    engine.parallel.tensor = number(row, "tp").unwrap_or(1);
    engine.parallel.pipeline = number(row, "pp").unwrap_or(1);
    engine.block = number(row, "block");
    engine.batched = number(row, "batched").unwrap_or(8_192);
    if let Some(kv) = row["kv"].as_str() {
        engine.kv = KvDtype::parse(kv).unwrap();
    }
    if row["prefix"].as_bool() == Some(true) {
        engine.prefix = PrefixCaching::On;
    }
    engine
}

#[test]
fn kv_tokens_and_concurrency_are_within_2_percent_of_every_published_log() {
    let logged = rows(include_str!("../../../tests/golden/plan/logged.json"));
    assert!(logged.len() >= 16, "{}", logged.len());
    for row in logged {
        let model = model(row["model"].as_str().unwrap());
        let layout = Layout::new(&model, &engine_of(&row));
        let context = number(&row, "context").unwrap();
        let blocks = layout.blocks(gib(&row));
        let tokens = layout.tokens(blocks, context);
        let logged = number(&row, "tokens").unwrap();
        assert!(apart(tokens, logged) <= 200, "{tokens} tokens for {row}");
        if let Some(logged) = number(&row, "blocks") {
            assert!(apart(blocks, logged) <= 200, "{blocks} blocks for {row}");
        }
        if let Some(logged) = row["concurrency"].as_f64() {
            let concurrency = layout.concurrency(blocks, context);
            let off = (concurrency - logged).abs();
            assert!(off <= logged * 0.02, "{concurrency} for {row}");
        }
    }
}

#[test]
fn weights_are_within_4_percent_of_what_engines_loaded() {
    for row in rows(include_str!("../../../tests/golden/plan/weights.json")) {
        let model = model(row["model"].as_str().unwrap());
        let weights = Weights::estimate(&model.parameters, model.quantization).unwrap();
        let weights = weights.per_gpu(&model, engine_of(&row).parallel);
        let off = apart(weights, gib(&row));
        let percent = number(&row, "percent").unwrap_or(4);
        assert!(off <= percent * 100, "{} for {row}", bytes::gib(weights));
    }
}

#[test]
fn pools_are_within_3_percent_or_1_gib_of_what_engines_found_on_a_card() {
    for row in rows(include_str!("../../../tests/golden/plan/pools.json")) {
        let model = model(row["model"].as_str().unwrap());
        let mut asked = question(&model, engine_of(&row), 80);
        asked.memory = bytes::parse("79.19GiB");
        asked.budget = number(&row, "util").map(Budget::Utilization);
        let pool = u64::try_from(asked.answer().available).unwrap_or(0);
        let logged = gib(&row);
        let near = pool.abs_diff(logged) <= bytes::GIB || apart(pool, logged) <= 300;
        assert!(near, "{} for {row}", bytes::gib(pool));
    }
}

#[test]
fn a_logged_overhead_takes_the_place_of_the_estimate() {
    let model = model("llama-3.1-8b");
    let mut asked = question(&model, engine(19), 80);
    asked.memory = bytes::parse("79.19GiB");
    asked.budget = Some(Budget::Utilization(9_500));
    asked.weights = Weights::default().scaled(bytes::parse("14.99GiB").unwrap());
    asked.overhead = bytes::parse("2.14GiB");
    let plan = asked.answer();
    assert_eq!(plan.overhead.total(), bytes::parse("2.14GiB").unwrap());
    assert_eq!(
        bytes::gib(u64::try_from(plan.available).unwrap()),
        "58.10 GiB"
    );
    let estimate = Overhead::estimate(&model, &engine(19), Graphs::Captured);
    assert_eq!(bytes::gib(estimate.activation), "1.96 GiB");
    assert_eq!(estimate.graphs, 0);
}

#[test]
fn the_longest_context_is_what_engines_reduced_it_to() {
    // vLLM 0.32 on CPUs: 2 layers, 2 KV heads of 32, 257 blocks of 32 tokens.
    let config = r#"{"model_type":"llama","hidden_size":128,"intermediate_size":384,
        "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":32,
        "vocab_size":4096,"max_position_embeddings":32768}"#;
    let model = super::Model::read(config, super::Unknown::Refuse).unwrap();
    let mut engine = engine(32);
    engine.block = Some(32);
    let layout = Layout::new(&model, &engine);
    assert_eq!((layout.token_bytes, layout.block_bytes), (512, 16_384));
    assert_eq!(layout.blocks(bytes::GIB), 65_536);
    // "--max-model-len auto": reduced from 32768 to 8192.
    assert_eq!(layout.longest(257, 32_768), 8_192);
    // 512 blocks of 16 for 8192: "the estimated maximum model length is 8176".
    engine.block = Some(16);
    let layout = Layout::new(&model, &engine);
    assert_eq!(layout.longest(512, 8_192), 8_176);
    engine.version = Version::new(28);
    assert_eq!(Layout::new(&model, &engine).longest(512, 8_192), 8_192);
}

#[test]
fn a_hybrid_s_block_is_as_large_as_its_engine_made_it() {
    // vllm-project/vllm#40691, 0.19: 290,864 tokens and 33.04x for 32,768.
    let layout = Layout::new(&model("qwen3.5-27b"), &engine(19));
    assert_eq!(layout.block_size, 784);
    assert_eq!(layout.groups.len(), 4);
    assert_eq!(layout.tokens(1_487, 32_768), 290_864);
    assert_eq!(format!("{:.2}", layout.concurrency(1_487, 32_768)), "33.04");
}

#[test]
fn a_latent_model_needs_what_its_engine_said() {
    // vllm-project/vllm#15871: 32768 tokens of DeepSeek-V2-Lite need 0.95 GiB.
    let layout = Layout::new(&model("deepseek-v2-lite"), &engine(8));
    let needed = layout.blocks_of(32_768) * layout.block_bytes;
    assert_eq!(bytes::gib(needed), "0.95 GiB");
}

#[test]
fn tiny_models_have_the_sizes_that_real_engines_of_0_32_logged() {
    let text = include_str!("../../../tests/golden/plan/tiny.json");
    for row in rows(text) {
        let config = row["config"].to_string();
        let model = super::Model::read(&config, super::Unknown::Refuse).unwrap();
        let mut engine = engine(32);
        engine.device = Device::Cpu;
        engine.batched = 2_048;
        engine.block = number(&row, "block");
        let layout = Layout::new(&model, &engine);
        let blocks = number(&row, "override").unwrap_or_else(|| layout.blocks(gib(&row)));
        let context = number(&row, "context").unwrap();
        let tokens = layout.tokens(blocks, context);
        assert_eq!(Some(tokens), number(&row, "tokens"), "{row}");
        let concurrency = format!("{:.2}", layout.concurrency(blocks, context));
        assert_eq!(Some(concurrency.as_str()), row["concurrency"].as_str());
        let groups = layout.groups.len() as u64;
        assert_eq!(Some(groups), number(&row, "groups"), "{row}");
        if let Some(size) = number(&row, "block_size") {
            assert_eq!(layout.block_size, size, "{row}");
        }
    }
}
