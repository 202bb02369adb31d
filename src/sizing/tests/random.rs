//! Configurations and engines of random numbers: a plan or an error, no panic.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::super::engine::{Device, Engine, KvDtype, Parallel, PrefixCaching, Version};
use super::super::load::{Instance, Lengths, Load, Speed};
use super::super::memory::{Budget, Graphs};
use super::super::model::{Model, Unknown};
use super::super::plan::Question;
use super::super::weights::Weights;

/// One architecture of each family.
const TYPES: [&str; 14] = [
    "llama",
    "gemma3_text",
    "gpt2",
    "deepseek_v32",
    "longcat_flash",
    "llama4_text",
    "gemma4_text",
    "qwen3_next",
    "kimi_linear",
    "nemotron_h",
    "bamba",
    "jamba",
    "falcon_h1",
    "lfm2",
];

/// Keys that hold numbers, over all families.
const KEYS: &str = "hidden_size intermediate_size num_hidden_layers num_attention_heads \
    num_key_value_heads head_dim vocab_size max_position_embeddings sliding_window kv_lora_rank \
    q_lora_rank qk_rope_head_dim qk_nope_head_dim v_head_dim index_head_dim attention_chunk_size \
    num_kv_shared_layers global_head_dim num_global_key_value_heads linear_num_key_heads \
    linear_num_value_heads linear_key_head_dim linear_value_head_dim linear_conv_kernel_dim \
    full_attention_interval mamba_n_heads mamba_d_head mamba_n_groups mamba_d_state mamba_d_conv \
    mamba_expand attn_layer_period attn_layer_offset conv_L_cache num_experts num_experts_per_tok \
    moe_intermediate_size n_shared_experts first_k_dense_replace decoder_sparse_step \
    interleave_moe_layer_step num_local_experts ffn_hidden_size";

/// Small numbers and the largest that are believed, and now and then none.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        100 => 1_u64..=64,
        10 => Just(1_024),
        10 => Just(4_096),
        5 => Just(65_536),
        2 => Just(1 << 22),
        1 => Just(0),
    ]
}

prop_compose! {
    fn configuration()(kind in 0..TYPES.len(), numbers in proptest::collection::vec(number(), 48))
        -> Value {
        let keys = KEYS.split_whitespace().zip(numbers);
        let mut config: Map<String, Value> =
            keys.map(|(key, number)| (key.to_owned(), number.into())).collect();
        config.insert("model_type".into(), TYPES[kind].into());
        config.insert("hybrid_override_pattern".into(), "M*-E".into());
        config.insert("attn_layer_indices".into(), json!([0, 2]));
        config.insert("linear_attn_config".into(), json!({"full_attn_layers": [1], "num_heads": 65_536,
            "head_dim": 65_536, "short_conv_kernel_size": 1_024}));
        Value::Object(config)
    }
}

prop_compose! {
    fn engines()(version in 6_u16..=33, block in prop_oneof![Just(None), Just(Some(1)), Just(Some(65_536))],
        tensor in 1_u64..=1_024, pipeline in 1_u64..=1_024, context in 1_u64..=1_024,
        kv in 0_usize..8, batched in prop_oneof![Just(1_u64), Just(1 << 24)]) -> Engine {
        let kinds = [KvDtype::Auto, KvDtype::Half, KvDtype::Single, KvDtype::Fp8,
            KvDtype::ByteScaled, KvDtype::NibbleScaled, KvDtype::Nvfp4, KvDtype::Fp8DsMla];
        Engine {
            version: Version::new(version),
            kv: kinds[kv],
            block,
            parallel: Parallel { tensor, pipeline, data: 1_024, context },
            batched,
            sequences: 1 << 20,
            prefix: PrefixCaching::On,
            device: Device::Gpu,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn no_numbers_of_any_family_make_a_plan_panic(config in configuration(), engine in engines(),
        budget in prop_oneof![Just(None), Just(Some(Budget::KvBytes(1 << 50))),
            Just(Some(Budget::Blocks(1 << 40))), Just(Some(Budget::Utilization(10_000)))]) {
        let Ok(model) = Model::read(&config.to_string(), Unknown::Refuse) else {
            return Ok(());
        };
        let weights = Weights::estimate(&model.parameters, model.quantization);
        let question = Question {
            model: &model,
            engine,
            weights: weights.unwrap_or_default(),
            memory: Some(1 << 50),
            budget,
            overhead: None,
            graphs: Graphs::Captured,
            context: None,
            instances: 64,
            others: 10_000,
        };
        let plan = question.answer();
        prop_assert!(plan.longest <= model.context.unwrap_or(1 << 20));
        prop_assert!(plan.concurrency.is_finite());
        let needed = plan.layout.blocks_of(plan.longest);
        prop_assert!(plan.longest == 0 || needed <= plan.blocks);
        let lengths = Lengths { p50: 1 << 30, p99: 1 << 30 };
        let load = Load::lognormal(1e9, lengths, lengths);
        let instance = Instance {
            layout: &plan.layout,
            blocks: plan.blocks,
            engines: 1_024,
            sequences: 1,
        };
        let wanted = load.wants(&model, instance, Speed { prefill: 1e-6, decode: 1e-6 });
        prop_assert!(wanted.peak_blocks >= wanted.mean_blocks);
    }
}
