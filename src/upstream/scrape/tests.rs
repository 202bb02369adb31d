use super::*;

const FRESH: &[u8] = include_bytes!("../../../tests/golden/vllm-0.32/metrics-idle-fresh.txt");
const UNDER_LOAD: &[u8] = include_bytes!("../../../tests/golden/vllm-0.32/metrics-underload.txt");

#[test]
fn a_real_scrape_under_load_reads_as_two_running_and_fourteen_waiting() {
    let scrape = read(UNDER_LOAD);
    assert_eq!(scrape.origin, Origin::Engine);
    assert_eq!(scrape.process_start, Some(1_795_964_955.62));
    assert_eq!(scrape.engines.len(), 1);
    let engine = &scrape.engines[&0];
    assert_eq!((engine.running, engine.waiting), (Some(2), Some(14)));
    assert_eq!(engine.kv_usage, Some(0.7109375));
    assert_eq!(engine.wakefulness, Some(Wakefulness::Awake));
    assert_eq!(
        engine.counters,
        Counters {
            generated: Some(9670),
            prompt: Some(7660),
            finished: Some(4),
            stepped: Some(17_234),
            preemptions: Some(0),
        }
    );
}

#[test]
fn a_real_cache_config_reads_with_its_nones_as_unset() {
    let scrape = read(FRESH);
    let cache = scrape.engines[&0].cache.as_ref().expect("shown since 0.6");
    assert_eq!(
        *cache,
        CacheConfig {
            block_size: Label::Value(32),
            num_gpu_blocks: Label::Value(257),
            kv_cache_size_tokens: Label::Value(8224),
            effective_attention_block_size: Label::Value(32),
            sliding_window: Label::Unset,
            mamba_block_size: Label::Unset,
            prefix_caching: Some(PrefixCachingLabel::On),
        }
    );
}

#[test]
fn series_without_an_engine_label_belong_to_engine_0() {
    // Hand-written in the form of 0.6.
    let scrape = read(
        b"vllm:num_requests_running{model_name=\"m\"} 3.0\n\
          vllm:num_requests_swapped{model_name=\"m\"} 0.0\n\
          vllm:gpu_cache_usage_perc{model_name=\"m\"} 0.25\n",
    );
    assert_eq!(scrape.engines[&0].running, Some(3));
    assert_eq!(scrape.engines[&0].kv_usage, Some(0.25));
}

#[test]
fn the_current_usage_gauge_beats_the_old_one_in_either_order() {
    for text in [
        "vllm:gpu_cache_usage_perc{engine=\"0\"} 0.1\nvllm:kv_cache_usage_perc{engine=\"0\"} 0.2\n",
        "vllm:kv_cache_usage_perc{engine=\"0\"} 0.2\nvllm:gpu_cache_usage_perc{engine=\"0\"} 0.1\n",
    ] {
        assert_eq!(read(text.as_bytes()).engines[&0].kv_usage, Some(0.2));
    }
}

#[test]
fn a_router_that_shows_vllm_names_is_no_engine() {
    // Hand-written in the form of a router's exposition.
    let scrape = read(
        b"vllm:num_requests_running{server=\"http://10.0.0.1:8000\"} 3.0\n\
          vllm:num_requests_waiting{server=\"http://10.0.0.1:8000\"} 0.0\n",
    );
    assert_eq!(scrape.origin, Origin::Router);
    assert!(scrape.engines.is_empty());
}

#[test]
fn an_exposition_without_statistics_has_no_engine_but_a_start_time() {
    let scrape = read(b"process_start_time_seconds 1.79596125986e+09\nhttp_requests_total 4\n");
    assert_eq!(scrape.origin, Origin::Nobody);
    assert!(scrape.engines.is_empty());
    assert_eq!(scrape.process_start, Some(1_795_961_259.86));
}

#[test]
fn a_counter_without_the_engine_label_invents_no_engine() {
    let scrape = read(
        b"vllm:admission_rejections_total{model_name=\"m\",reason=\"max_num_queued_reqs\"} 2\n\
          vllm:lora_requests_info{max_lora=\"4\"} 1\n\
          vllm:num_requests_running{engine=\"3\"} 1\n",
    );
    assert_eq!(scrape.engines.keys().copied().collect::<Vec<_>>(), [3]);
}

#[test]
fn figures_no_engine_can_have_read_as_absent() {
    let scrape = read(
        b"vllm:num_requests_running{engine=\"0\"} NaN\n\
          vllm:num_requests_waiting{engine=\"0\"} 1e12\n\
          vllm:kv_cache_usage_perc{engine=\"0\"} 71.5\n\
          vllm:generation_tokens_total{engine=\"0\"} -1\n\
          vllm:cache_config_info{engine=\"0\",block_size=\"0\",num_gpu_blocks=\"18446744073709551615\"} 1\n\
          vllm:num_requests_running{engine=\"x\"} 1\n",
    );
    let engine = &scrape.engines[&0];
    assert_eq!((engine.running, engine.waiting), (None, Some(u32::MAX)));
    assert_eq!((engine.kv_usage, engine.counters.generated), (None, None));
    let cache = engine.cache.as_ref().expect("shown");
    assert_eq!(
        (cache.block_size, cache.num_gpu_blocks),
        (Label::Odd, Label::Odd)
    );
    assert_eq!(scrape.engines.len(), 1);
}

#[test]
fn a_sleeping_engine_is_asleep_whatever_its_level() {
    // Released memory sets all three states to 0.
    for others in ["1.0", "0.0"] {
        let text = format!(
            "vllm:engine_sleep_state{{engine=\"0\",sleep_state=\"awake\"}} 0.0\n\
             vllm:engine_sleep_state{{engine=\"0\",sleep_state=\"discard_all\"}} {others}\n"
        );
        let scrape = read(text.as_bytes());
        assert_eq!(scrape.engines[&0].wakefulness, Some(Wakefulness::Asleep));
    }
}

#[test]
fn draft_positions_are_counted() {
    let scrape = read(
        b"vllm:spec_decode_num_accepted_tokens_per_pos_total{engine=\"0\",position=\"0\"} 5\n\
          vllm:spec_decode_num_accepted_tokens_per_pos_total{engine=\"0\",position=\"1\"} 4\n\
          vllm:spec_decode_num_accepted_tokens_per_pos_total{engine=\"0\",position=\"2\"} 1\n",
    );
    assert_eq!(scrape.engines[&0].draft_positions, 3);
}

#[test]
fn series_that_differ_in_unknown_labels_are_parts_of_one_figure() {
    let scrape = read(
        "vllm:num_requests_waiting{model_name=\"m\",engine=\"0\",reason=\"capacity\"} 3\n\
         vllm:num_requests_waiting{model_name=\"m\",engine=\"0\",reason=\"deferred\"} 4\n\
         vllm:num_requests_running{model_name=\"a\\\"b\\\\c\\n}\",engine=\"0\"} 2\n\
         vllm:num_requests_running{model_name=\"größe\",engine=\"0\"} 5\n\
         vllm:kv_cache_usage_perc{model_name=\"a\",engine=\"0\"} 0.5\n\
         vllm:kv_cache_usage_perc{model_name=\"b\",engine=\"0\"} 0.25\n\
         vllm:generation_tokens_total{engine=\"0\",lora=\"x\"} 10\n\
         vllm:generation_tokens_total{engine=\"0\",lora=\"y\"} 5\n"
            .as_bytes(),
    );
    let engine = &scrape.engines[&0];
    assert_eq!((engine.waiting, engine.running), (Some(7), Some(7)));
    assert_eq!(engine.kv_usage, Some(0.5));
    assert_eq!(engine.counters.generated, Some(15));
}

#[test]
fn usage_reads_by_either_name_and_is_unknown_without_both() {
    let usage = |text: &str| {
        let scrape =
            read(format!("vllm:num_requests_running{{engine=\"0\"}} 1\n{text}").as_bytes());
        scrape.engines[&0].kv_usage
    };
    assert_eq!(usage("vllm:gpu_cache_usage_perc 0.75\n"), Some(0.75));
    assert_eq!(usage("vllm:kv_cache_usage_perc 0.5\n"), Some(0.5));
    let both = "vllm:gpu_cache_usage_perc 0.75\nvllm:kv_cache_usage_perc 0.5\n";
    assert_eq!(usage(both), Some(0.5));
    assert_eq!(usage(""), None);
}

#[test]
fn harmless_variations_of_the_format_are_read_alike() {
    let plain =
        "vllm:num_requests_running{engine=\"0\"} 2\nvllm:generation_tokens_total{engine=\"0\"} 7\n";
    let expected = read(plain.as_bytes());
    assert_eq!(expected.engines[&0].counters.generated, Some(7));
    let open_metrics = "# TYPE vllm:num_requests_running gauge\n\
         # TYPE vllm:num_requests_running gauge\n\
         vllm:num_requests_running{engine=\"0\"} 2 1700000000.5\n\
         # UNIT vllm:generation_tokens tokens\n\
         vllm:generation_tokens_total{engine=\"0\"} 7 # {trace_id=\"x\"} 1.0 1700000000\n\
         vllm:generation_tokens_created{engine=\"0\"} 1.7e9\n# EOF\n";
    for text in [plain.trim_end(), &plain.replace('\n', "\r\n"), open_metrics] {
        assert_eq!(read(text.as_bytes()), expected, "{text}");
    }
}
