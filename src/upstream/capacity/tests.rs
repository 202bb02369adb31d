//! Figures from the captured 0.32 server come from `tests/golden/vllm-0.32`;
//! those of other releases are hand-written in the form those releases write.

use super::*;
use crate::upstream::scrape;

const FRESH: &[u8] = include_bytes!("../../../tests/golden/vllm-0.32/metrics-idle-fresh.txt");
const UNDER_LOAD: &[u8] = include_bytes!("../../../tests/golden/vllm-0.32/metrics-underload.txt");

fn operator() -> Operator {
    Operator {
        overrides: KvOverrides::default(),
        layout: None,
        assumed: Tokens::new(8192),
    }
}

fn seen(text: &[u8], version: &str) -> Evidence {
    Evidence {
        scrape: scrape::read(text),
        max_model_len: Some(Tokens::new(131_072)),
        version: Version::parse(version),
    }
}

fn info(labels: &str) -> Evidence {
    let text = format!("vllm:cache_config_info{{engine=\"0\",{labels}}} 1.0\n");
    seen(text.as_bytes(), "0.32.0")
}

fn pool_of(evidence: &Evidence, operator: &Operator) -> (u64, CapacitySource) {
    let capacity = capacity(0, evidence, operator);
    (capacity.pool().get(), capacity.source)
}

#[test]
fn the_real_server_advertises_8224_tokens_and_can_use_8192() {
    let evidence = Evidence {
        max_model_len: Some(Tokens::new(8192)),
        ..seen(FRESH, "0.32.0")
    };
    assert_eq!(
        capacity(0, &evidence, &operator()),
        Capacity {
            blocks: Blocks::new(256),
            block_size: BlockSize::new(32).expect("not zero"),
            max_model_len: Tokens::new(8192),
            max_num_seqs: None,
            lookahead: Tokens::new(1),
            prefix_caching: PrefixCaching::Shared,
            source: CapacitySource::AdvertisedTokens,
        }
    );
}

#[test]
fn the_real_server_under_load_uses_182_of_its_256_blocks() {
    let evidence = seen(UNDER_LOAD, "0.32.0");
    let capacity = capacity(0, &evidence, &operator());
    let used = used_blocks(0, &evidence, &operator(), &capacity);
    assert_eq!(used, Some(Blocks::new(182)));
}

#[test]
fn one_block_is_kept_back_from_13_blocks_of_8192() {
    let evidence = info(
        r#"block_size="8192",num_gpu_blocks="13",sliding_window="None",mamba_block_size="None",effective_attention_block_size="8192""#,
    );
    assert_eq!(
        pool_of(&evidence, &operator()),
        (98_304, CapacitySource::AdvertisedBlocks)
    );
}

#[test]
fn a_hybrid_model_takes_the_token_label_less_one_block_and_never_400_000() {
    let labels = r#"block_size="4",num_gpu_blocks="100000",sliding_window="128""#;
    let with_label = info(&format!(r#"{labels},kv_cache_size_tokens="1450000""#));
    assert_eq!(
        pool_of(&with_label, &operator()),
        (1_449_996, CapacitySource::AdvertisedTokens)
    );
    assert_eq!(
        pool_of(&info(labels), &operator()),
        (8192, CapacitySource::Assumed)
    );
}

#[test]
fn blocks_without_the_labels_that_rule_out_a_hybrid_model_are_not_believed() {
    // 0.6, 0.8 and 0.12 show no effective_attention_block_size.
    for labels in [
        r#"block_size="16",num_gpu_blocks="2049",sliding_window="None""#,
        r#"block_size="16",num_gpu_blocks="2049",sliding_window="None",mamba_block_size="None""#,
        r#"block_size="16",num_gpu_blocks="2049",sliding_window="None",mamba_block_size="528",effective_attention_block_size="16""#,
        r#"block_size="528",num_gpu_blocks="2049",sliding_window="None",mamba_block_size="None",effective_attention_block_size="16""#,
    ] {
        assert_eq!(
            pool_of(&info(labels), &operator()).1,
            CapacitySource::Assumed,
            "{labels}"
        );
    }
}

#[test]
fn the_operators_word_that_a_model_is_uniform_makes_old_block_counts_count() {
    let evidence = info(r#"block_size="16",num_gpu_blocks="2049",sliding_window="None""#);
    let uniform = Operator {
        layout: Some(KvLayout::Uniform),
        ..operator()
    };
    assert_eq!(
        pool_of(&evidence, &uniform),
        (32_768, CapacitySource::AdvertisedBlocks)
    );
    let hybrid = Operator {
        layout: Some(KvLayout::Hybrid),
        ..operator()
    };
    assert_eq!(pool_of(&evidence, &hybrid), (8192, CapacitySource::Assumed));
}

#[test]
fn the_sum_of_four_engines_is_divided_by_four() {
    let text: String = (0..4)
        .map(|rank| {
            format!(
                "vllm:cache_config_info{{engine=\"{rank}\",block_size=\"16\",num_gpu_blocks=\"4004\"}} 1\n\
                 vllm:kv_cache_usage_perc{{engine=\"{rank}\"}} 0.5\n"
            )
        })
        .collect();
    let uniform = Operator {
        layout: Some(KvLayout::Uniform),
        ..operator()
    };
    let evidence = seen(text.as_bytes(), "0.20.1");
    for rank in 0..4 {
        let capacity = capacity(rank, &evidence, &uniform);
        assert_eq!(capacity.blocks, Blocks::new(1000));
        let used = used_blocks(rank, &evidence, &uniform, &capacity);
        assert_eq!(used, Some(Blocks::new(500)));
    }
}

#[test]
fn the_token_label_of_four_engines_is_not_divided() {
    let text: String = (0..4)
        .map(|rank| {
            format!(
                "vllm:cache_config_info{{engine=\"{rank}\",block_size=\"16\",num_gpu_blocks=\"4004\",kv_cache_size_tokens=\"16016\"}} 1\n"
            )
        })
        .collect();
    let evidence = seen(text.as_bytes(), "0.32.0");
    assert_eq!(
        pool_of(&evidence, &operator()),
        (16_000, CapacitySource::AdvertisedTokens)
    );
}

#[test]
fn a_token_label_rounded_down_to_whole_requests_still_loses_one_block_only() {
    // 257 blocks of 32 with max_model_len 8190: ⌊257 / 256 × 8190⌋ = 8221.
    let evidence = info(r#"block_size="32",num_gpu_blocks="257",kv_cache_size_tokens="8221""#);
    assert_eq!(pool_of(&evidence, &operator()).0, 8192);
}

#[test]
fn an_override_beats_every_label_and_is_used_as_given() {
    let evidence = seen(FRESH, "0.32.0");
    let by = |overrides| Operator {
        overrides,
        ..operator()
    };
    let tokens = by(KvOverrides {
        tokens: Some(Tokens::new(4100)),
        ..KvOverrides::default()
    });
    assert_eq!(
        pool_of(&evidence, &tokens),
        (4096, CapacitySource::Configured)
    );
    let blocks = by(KvOverrides {
        blocks: Some(Blocks::new(100)),
        block_size: BlockSize::new(64),
        max_model_len: Some(Tokens::new(2048)),
        max_num_seqs: Some(8),
        lookahead: Some(Tokens::new(5)),
        ..KvOverrides::default()
    });
    let capacity = capacity(0, &evidence, &blocks);
    assert_eq!(capacity.pool(), Tokens::new(6400));
    assert_eq!(capacity.max_model_len, Tokens::new(2048));
    assert_eq!(capacity.max_num_seqs, Some(8));
    assert_eq!(capacity.lookahead, Tokens::new(5));
}

#[test]
fn usage_counts_against_the_engines_own_pool_and_not_the_override() {
    let evidence = seen(UNDER_LOAD, "0.32.0");
    let smaller = Operator {
        overrides: KvOverrides {
            blocks: Some(Blocks::new(100)),
            ..KvOverrides::default()
        },
        ..operator()
    };
    let capacity = capacity(0, &evidence, &smaller);
    let used = used_blocks(0, &evidence, &smaller, &capacity);
    assert_eq!(used, Some(Blocks::new(182)));
}

#[test]
fn a_front_end_without_cache_labels_has_an_assumed_pool_scaled_by_its_usage() {
    // The form of the Rust front end: gauges, no vllm:cache_config_info.
    let text = b"vllm:num_requests_running{model_name=\"m\",engine=\"0\"} 1\n\
                 vllm:kv_cache_usage_perc{model_name=\"m\",engine=\"0\"} 0.25\n";
    let evidence = seen(text, "0.33.0");
    let capacity = capacity(0, &evidence, &operator());
    assert_eq!(capacity.source, CapacitySource::Assumed);
    assert_eq!(capacity.block_size.get(), 16);
    assert_eq!(capacity.blocks, Blocks::new(512));
    assert_eq!(capacity.prefix_caching, PrefixCaching::PerSequence);
    let used = used_blocks(0, &evidence, &operator(), &capacity);
    assert_eq!(used, Some(Blocks::new(128)));
}

#[test]
fn an_engine_without_statistics_has_an_assumed_pool_and_no_usage() {
    let evidence = seen(b"process_start_time_seconds 1\n", "0.32.0");
    let capacity = capacity(0, &evidence, &operator());
    assert_eq!(
        (capacity.pool().get(), capacity.source),
        (8192, CapacitySource::Assumed)
    );
    assert_eq!(used_blocks(0, &evidence, &operator(), &capacity), None);
}

#[test]
fn an_assumed_pool_is_never_zero_and_never_endless() {
    let evidence = Evidence {
        max_model_len: None,
        ..info(r#"block_size="16384",sliding_window="128""#)
    };
    let capacity = capacity(0, &evidence, &operator());
    assert_eq!(capacity.blocks, Blocks::new(1));
    assert_eq!(capacity.max_model_len, Tokens::new(16_384));
}

#[test]
fn the_old_gauge_counts_the_null_block_and_the_new_one_does_not() {
    let uniform = Operator {
        layout: Some(KvLayout::Uniform),
        ..operator()
    };
    // 0.9: 100 blocks, 1 of them the null block, 24 in use: 25 / 100.
    let old = seen(
        b"vllm:cache_config_info{engine=\"0\",block_size=\"16\",num_gpu_blocks=\"100\"} 1\n\
          vllm:gpu_cache_usage_perc{engine=\"0\"} 0.25\n",
        "0.9.2",
    );
    let of_old = capacity(0, &old, &uniform);
    assert_eq!(
        used_blocks(0, &old, &uniform, &of_old),
        Some(Blocks::new(24))
    );
    // 0.12: 24 of 99.
    let new = seen(
        b"vllm:cache_config_info{engine=\"0\",block_size=\"16\",num_gpu_blocks=\"100\"} 1\n\
          vllm:kv_cache_usage_perc{engine=\"0\"} 0.24242424242424243\n",
        "0.12.0",
    );
    let of_new = capacity(0, &new, &uniform);
    assert_eq!(
        used_blocks(0, &new, &uniform, &of_new),
        Some(Blocks::new(24))
    );
}

#[test]
fn an_idle_engine_uses_nothing_before_and_after_the_gauge_changed() {
    let uniform = Operator {
        layout: Some(KvLayout::Uniform),
        ..operator()
    };
    for (version, usage) in [("0.10.2", "0.01"), ("0.12.0", "0.0")] {
        let text = format!(
            "vllm:cache_config_info{{engine=\"0\",block_size=\"16\",num_gpu_blocks=\"100\"}} 1\n\
             vllm:kv_cache_usage_perc{{engine=\"0\"}} {usage}\n"
        );
        let evidence = seen(text.as_bytes(), version);
        let capacity = capacity(0, &evidence, &uniform);
        let used = used_blocks(0, &evidence, &uniform, &capacity);
        assert_eq!(used, Some(Blocks::ZERO), "{version}");
    }
}

#[test]
fn context_parallel_blocks_hold_more_tokens_than_their_block_size() {
    let evidence = info(
        r#"block_size="16",effective_attention_block_size="64",num_gpu_blocks="100",kv_cache_size_tokens="6400""#,
    );
    let capacity = capacity(0, &evidence, &operator());
    assert_eq!(capacity.block_size.get(), 64);
    assert_eq!(capacity.blocks, Blocks::new(99));
}

#[test]
fn lookahead_is_one_from_0_14_on_and_one_more_for_each_draft_token() {
    for (version, slots) in [("0.12.0", 0), ("0.14.0", 1), ("0.32.0", 1), ("dev", 1)] {
        let evidence = seen(FRESH, version);
        let found = capacity(0, &evidence, &operator()).lookahead;
        assert_eq!(found, Tokens::new(slots), "{version}");
    }
    let drafting = seen(
        b"vllm:spec_decode_num_accepted_tokens_per_pos_total{engine=\"0\",position=\"0\"} 5\n\
          vllm:spec_decode_num_accepted_tokens_per_pos_total{engine=\"0\",position=\"1\"} 5\n",
        "0.32.0",
    );
    assert_eq!(
        capacity(0, &drafting, &operator()).lookahead,
        Tokens::new(3)
    );
}

#[test]
fn ranks_are_booked_apart_only_where_the_release_can_pin_them() {
    let two =
        b"vllm:num_requests_running{engine=\"1\"} 0\nvllm:num_requests_running{engine=\"0\"} 0\n";
    assert_eq!(ranks(&seen(two, "0.12.0"), 2), 2);
    assert_eq!(ranks(&seen(two, "0.12.0"), 4), 2);
    assert_eq!(ranks(&seen(two, "0.12.0"), 1), 1);
    assert_eq!(ranks(&seen(two, "0.11.0"), 2), 1);
    assert_eq!(ranks(&seen(two, "dev"), 2), 1);
    assert_eq!(ranks(&seen(b"", "0.33.0"), 3), 3);
    assert_eq!(ranks(&seen(b"", "dev"), 3), 1);
}

#[test]
fn no_label_makes_a_capacity_that_cannot_be_counted() {
    let absurd = [
        "0",
        "-1",
        "1",
        "1048576",
        "4294967295",
        "1099511627776",
        "1e30",
        "NaN",
    ];
    for (size, blocks) in absurd.iter().flat_map(|a| absurd.map(|b| (a, b))) {
        for tokens in ["None", "1099511627776"] {
            let evidence = info(&format!(
                r#"block_size="{size}",num_gpu_blocks="{blocks}",kv_cache_size_tokens="{tokens}",sliding_window="None",mamba_block_size="None",effective_attention_block_size="{size}""#
            ));
            let capacity = capacity(0, &evidence, &operator());
            assert!(capacity.pool() <= Tokens::new(1 << 60), "{size} × {blocks}");
            assert!(!capacity.blocks.is_zero(), "{size} × {blocks}");
            used_blocks(0, &evidence, &operator(), &capacity);
        }
    }
}
