//! Bytes per token, groups and parameters of published models.

use super::super::engine::{KvDtype, PrefixCaching};
use super::super::layout::{Layout, Need};
use super::{apart, engine, model, ranks, token_bytes};

#[test]
fn bytes_per_token_are_layers_times_heads_times_widths() {
    let plain = engine(33);
    let known = [
        // MHA: 32 layers, 32 heads of 128.
        ("codellama-7b", 524_288),
        // GQA.
        ("llama-3.1-8b", 131_072),
        ("qwen2.5-7b", 57_344),
        // MQA: one head of 64.
        ("falcon-7b", 8_192),
        // MLA: 61 layers of 512 + 64.
        ("deepseek-v3", 70_272),
        ("deepseek-v2-lite", 31_104),
        // Windows count while a token is within them.
        ("gpt-oss-20b", 49_152),
        ("gemma-3-27b", 507_904),
        // States do not count.
        ("qwen3-next-80b-a3b", 24_576),
        ("nemotron-3-nano-30b-a3b", 6_144),
        // Wrapped.
        ("qwen3-vl-8b", 147_456),
        ("mistral-small-3.2-24b", 163_840),
        ("llama-4-scout", 196_608),
    ];
    for (name, bytes) in known {
        assert_eq!(token_bytes(name, &plain), bytes, "{name}");
    }
}

#[test]
fn tensor_parallelism_divides_heads_until_there_is_one_each() {
    for (tensor, bytes) in [(1, 131_072), (2, 65_536), (8, 16_384), (16, 16_384)] {
        assert_eq!(
            token_bytes("llama-3.1-8b", &ranks(tensor)),
            bytes,
            "{tensor}"
        );
    }
    // Latent vectors are on every rank.
    assert_eq!(token_bytes("deepseek-v3", &ranks(8)), 70_272);
}

#[test]
fn decode_context_parallelism_spreads_tokens_over_ranks() {
    let mut engine = ranks(8);
    engine.parallel.context = 8;
    let layout = Layout::new(&model("deepseek-v3"), &engine);
    assert_eq!(layout.token_bytes, 70_272 / 8);
    assert_eq!(layout.block_size, 512);
    assert_eq!(layout.block_bytes, 64 * 70_272);
    assert_eq!(layout.blocks_of(513), 2);
}

#[test]
fn pipeline_stages_hold_their_layers_and_the_fullest_counts() {
    let mut engine = engine(33);
    engine.parallel.pipeline = 4;
    assert_eq!(token_bytes("llama-3.1-8b", &engine), 32_768);
    // 61 layers over 4: 15, 16, 15, 15.
    assert_eq!(token_bytes("deepseek-v3", &engine), 16 * 1_152);
    engine.parallel.pipeline = 61;
    assert_eq!(token_bytes("deepseek-v3", &engine), 1_152);
}

#[test]
fn kv_dtypes_cost_what_their_layouts_hold() {
    let known = [
        (KvDtype::Half, "llama-3.1-8b", 131_072),
        (KvDtype::Single, "llama-3.1-8b", 262_144),
        (KvDtype::Fp8, "llama-3.1-8b", 65_536),
        // Two scales of 4 bytes per token and head.
        (KvDtype::ByteScaled, "llama-3.1-8b", 65_536 + 32 * 8 * 8),
        // 4 bits and an 8-bit scale per 16.
        (KvDtype::Nvfp4, "llama-3.1-8b", 36_864),
        (KvDtype::Fp8, "deepseek-v3", 35_136),
        (KvDtype::Fp8DsMla, "deepseek-v3", 61 * 656),
    ];
    for (kv, name, bytes) in known {
        let mut engine = engine(33);
        engine.kv = kv;
        assert_eq!(token_bytes(name, &engine), bytes, "{kv:?} {name}");
    }
}

#[test]
fn windows_are_grouped_from_0_10_on_and_kept_whole_before() {
    let gemma = model("gemma-3-27b");
    let layout = Layout::new(&gemma, &engine(33));
    // 10 global layers and 52 local ones: groups of 10.
    assert_eq!(layout.groups.len(), 7);
    assert_eq!(layout.block_bytes, 10 * 16 * 16 * 256 * 2);
    assert_eq!(layout.growing_bytes, 81_920);
    let short = layout.blocks_of(1_000);
    assert_eq!(short, 63 + 6 * 64);
    // From here on only the one global group grows.
    assert_eq!(layout.blocks_of(100_016) - layout.blocks_of(100_000), 1);
    let before = Layout::new(&gemma, &engine(9));
    assert_eq!(before.groups.len(), 1);
    assert_eq!(before.growing_bytes, before.token_bytes);
}

#[test]
fn one_window_over_all_layers_is_one_group_that_stops_growing() {
    let layout = Layout::new(&model("mistral-7b-v0.1"), &engine(20));
    assert_eq!(layout.groups.len(), 1);
    assert_eq!(layout.growing_bytes, 0);
    // The window less one, and a step of 8,192 in flight, and one more block.
    assert_eq!(layout.blocks_of(32_768), 12_287_u64.div_ceil(16) + 1);
}

#[test]
fn chunks_of_llama_4_stop_growing_but_in_every_fourth_layer() {
    let layout = Layout::new(&model("llama-4-scout"), &engine(20));
    assert_eq!(layout.groups.len(), 4);
    let full = layout
        .groups
        .iter()
        .filter(|group| matches!(group.need, Need::Full { .. }));
    assert_eq!(full.count(), 1);
    assert_eq!(layout.blocks_of(1 << 20), 65_536 + 3 * 1_024);
}

#[test]
fn states_are_padded_to_pages_and_held_twice_where_prefixes_are_cached() {
    let next = model("qwen3-next-80b-a3b");
    let mut engine = engine(33);
    let both = [
        (PrefixCaching::Off, 1),
        (PrefixCaching::On, 2),
        (PrefixCaching::Default, 2),
    ];
    for (prefix, states) in both {
        engine.prefix = prefix;
        let layout = Layout::new(&next, &engine);
        // 12 full layers, 36 linear ones in three groups.
        assert_eq!(layout.groups.len(), 4);
        assert_eq!(layout.blocks_of(1), 1 + 3 * states);
        // conv: 3 steps of 8,192 channels; cells: 32 heads of 128 x 128; 16 bits.
        assert_eq!(layout.state_bytes, 36 * (49_152 + 1_048_576) * states);
    }
    // 1,097,728 bytes of state in pages of 2,048 bytes a token.
    assert_eq!(Layout::new(&next, &engine).block_size, 544);
}

#[test]
fn latent_hybrids_align_to_128_tokens() {
    let layout = Layout::new(&model("kimi-linear-48b-a3b"), &engine(33));
    assert_eq!(layout.block_size % 128, 0);
    assert_eq!(layout.token_bytes, 7 * 1_152);
    // 20 linear layers and 7 latent ones: groups of 7, three of them states.
    assert_eq!(layout.groups.len(), 4);
}

#[test]
fn parameters_are_within_2_percent_of_what_their_makers_say() {
    let known: [(&str, u128); 11] = [
        ("llama-3.1-8b", 8_030_000_000),
        ("llama-3.2-3b", 3_210_000_000),
        ("qwen3-30b-a3b", 30_530_000_000),
        ("qwen3-235b-a22b-fp8", 235_090_000_000),
        ("mixtral-8x7b", 46_700_000_000),
        ("deepseek-v2-lite", 15_700_000_000),
        ("deepseek-v3", 671_000_000_000),
        ("gpt-oss-20b", 20_910_000_000),
        ("gpt-oss-120b", 116_830_000_000),
        ("llama-4-scout", 108_640_000_000),
        ("qwen3-next-80b-a3b", 79_670_000_000),
    ];
    for (name, said) in known {
        let counted = u64::try_from(model(name).parameters.all()).unwrap();
        let off = apart(counted, u64::try_from(said).unwrap());
        assert!(off <= 200, "{name}: {counted} for {said}");
    }
}

#[test]
fn contexts_are_those_the_models_were_made_for() {
    let known = [
        ("llama-3.1-8b", 131_072),
        ("gpt-oss-20b", 131_072),
        ("gemma-3-27b", 131_072),
        ("deepseek-v3", 163_840),
        ("qwen3-8b", 40_960),
    ];
    for (name, context) in known {
        assert_eq!(model(name).context, Some(context), "{name}");
    }
}
