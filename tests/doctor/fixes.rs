//! Values of the changes: from the log's own figures.

use super::{captured, read};
use tidegate::sizing::log::{Diagnosis, Field, Fix, Kind, Value};

fn fix<'a>(told: &'a Diagnosis, flag: &str) -> &'a Fix {
    let found = told.fixes.iter().find(|fix| fix.flag == Some(flag));
    found.unwrap_or_else(|| panic!("{flag}: {:?}", told.fixes))
}

fn change(told: &Diagnosis, flag: &str) -> (Option<Value>, Option<Value>) {
    let fix = fix(told, flag);
    (fix.from.clone(), fix.to.clone())
}

fn whole(from: u64, to: u64) -> (Option<Value>, Option<Value>) {
    (Some(Value::Whole(from)), Some(Value::Whole(to)))
}

fn flags(told: &Diagnosis) -> Vec<&str> {
    let flags = told.fixes.iter().map(|fix| fix.flag.unwrap_or("-"));
    flags.collect()
}

const START: &str = "\
INFO 02-10 12:00:00 [core.py:61] Initializing a V1 LLM engine (v0.19.0) with config: model='org/x', dtype=torch.bfloat16, max_seq_len=131072, tensor_parallel_size=1, kv_cache_dtype=auto, device_config=cuda
non-default args: {'gpu_memory_utilization': 0.8, 'max_num_seqs': 256, 'max_num_batched_tokens': 8192}
DEBUG 02-10 12:00:01 [gpu_worker.py:1] Initial free memory: 79.0 GiB; Requested memory: 0.80 (util), 63.34 GiB
INFO 02-10 12:00:30 [gpu_model_runner.py:1] Model loading took 60.0 GiB memory and 20.0 seconds
";

#[test]
fn a_length_that_does_not_fit_is_met_in_the_order_of_the_guides() {
    let log = START.to_owned()
        + "ValueError: To serve at least one request with the model's max seq len (131072), (16.0 GiB KV cache is needed, which is larger than the available KV cache memory (2.5 GiB). Based on the available memory, the estimated maximum model length is 20480. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.\n";
    let told = read(&log);
    assert_eq!(told.kind, Kind::MaxModelLenExceedsKv);
    assert_eq!(
        flags(&told),
        [
            "--max-model-len",
            "--max-num-seqs",
            "--max-num-batched-tokens",
            "--gpu-memory-utilization",
            "--kv-cache-dtype",
            "--kv-cache-memory-bytes",
            "--cpu-offload-gb"
        ]
    );
    let length = change(&told, "--max-model-len");
    assert_eq!(
        length,
        whole(131_072, 16_384),
        "80 % of 20480, whole blocks of 16"
    );
    let why = &fix(&told, "--max-model-len").why;
    assert!(why.contains("12288-16384"), "60 to 80 %: {why}");
    assert_eq!(change(&told, "--max-num-seqs"), whole(256, 128));
    assert_eq!(change(&told, "--max-num-batched-tokens"), whole(8192, 4096));
    let why = &fix(&told, "--kv-cache-dtype").why;
    assert!(why.contains("40960 tokens"), "twice the estimate: {why}");
    let offload = fix(&told, "--cpu-offload-gb");
    assert_eq!(
        offload.to,
        Some(Value::Whole(14)),
        "16 - 2.5, up to whole GiB"
    );
}

#[test]
fn the_share_is_raised_by_what_is_missing_and_no_further_than_is_safe() {
    let log = |needed: &str, there: &str| {
        read(&format!(
            "Free memory on device (79.0/80.0 GiB) on startup. Desired GPU memory utilization is (0.8, 64.0 GiB). \n\
             ValueError: To serve at least one request with the model's max seq len (8192), ({needed} GiB KV cache is needed, which is larger than the available KV cache memory ({there} GiB).\n"
        ))
    };
    let little = log("10.0", "6.0");
    let share = fix(&little, "--gpu-memory-utilization");
    assert_eq!(share.from, Some(Value::Real(0.8)));
    assert_eq!(share.to, Some(Value::Real(0.85)), "4 of 80 GiB");
    let length = change(&little, "--max-model-len");
    assert_eq!(
        length,
        whole(8192, 3920),
        "80 % of 6/10 of 8192, whole blocks"
    );
    let much = log("40.0", "6.0");
    assert_eq!(
        fix(&much, "--gpu-memory-utilization").to,
        Some(Value::Real(0.95))
    );
}

#[test]
fn a_fixed_budget_is_raised_itself_for_the_share_has_no_say() {
    let told = read(
        "non-default args: {'max_model_len': 32768, 'kv_cache_memory_bytes': 1073741824}\n\
         ValueError: To serve at least one request with the model's max seq len (32768), (4.0 GiB KV cache is needed, which is larger than the available KV cache memory (1.0 GiB). Based on the available memory, the estimated maximum model length is 8192.\n",
    );
    let bytes = change(&told, "--kv-cache-memory-bytes");
    assert_eq!(bytes, whole(1_073_741_824, 4_305_704_714), "4.01 GiB");
    assert!(!flags(&told).contains(&"--gpu-memory-utilization"));
}

#[test]
fn an_old_engine_tells_tokens_and_is_offered_no_flag_it_does_not_know() {
    let told = read(
        "INFO 06-28 23:40:03 llm_engine.py:164] Initializing an LLM engine (v0.5.4) with config: model='x', max_seq_len=32768\n\
         ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV cache (7344). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.\n",
    );
    assert_eq!(
        change(&told, "--max-model-len"),
        whole(32_768, 5872),
        "80 % of 7344"
    );
    let share = fix(&told, "--gpu-memory-utilization");
    assert_eq!(
        share.from,
        Some(Value::Real(0.9)),
        "the default of that time"
    );
    assert!(
        !flags(&told).contains(&"--kv-cache-memory-bytes"),
        "known from 0.11 on"
    );
}

#[test]
fn a_card_in_use_is_shared_by_what_is_free() {
    let told = read(
        "ValueError: Free memory on device cuda:0 (59.32/79.15 GiB) on startup is less than desired GPU memory utilization (0.9, 71.24 GiB). Decrease\n",
    );
    assert_eq!(told.fixes[0].flag, None, "first end what holds it");
    let share = change(&told, "--gpu-memory-utilization");
    assert_eq!(share, (Some(Value::Real(0.9)), Some(Value::Real(0.74))));
    assert_eq!(told.facts.number(Field::FreeAtStart), Some(59.32));
}

#[test]
fn a_sampler_that_does_not_fit_halves_its_requests_and_leaves_more_room() {
    let told = read(
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine.\n",
    );
    assert_eq!(told.kind, Kind::ActivationPeak);
    assert_eq!(change(&told, "--max-num-seqs"), whole(1024, 512));
    let share = fix(&told, "--gpu-memory-utilization");
    assert_eq!(share.to, Some(Value::Real(0.88)));
}

#[test]
fn a_failed_allocation_says_how_much_more_to_leave() {
    let told = read(
        "Model loading took 14.0 GiB memory\n\
         non-default args: {'gpu_memory_utilization': 0.9}\n\
         torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 50.00 GiB of which 0.50 GiB is free.\n",
    );
    let share = fix(&told, "--gpu-memory-utilization");
    assert_eq!(
        share.to,
        Some(Value::Real(0.86)),
        "2.0 of 50 GiB less: {}",
        share.why
    );
}

#[test]
fn contradictions_are_solved_by_the_numbers_they_name() {
    for (log, flag, from, to) in [
        (
            "ValueError: Total number of attention heads (52) must be divisible by tensor parallel size (8).",
            "--tensor-parallel-size",
            8,
            4,
        ),
        (
            "ValueError: User-specified max_model_len (131072) is greater than the derived max_model_len (None=8192 in model's config.json).",
            "--max-model-len",
            131_072,
            8192,
        ),
        (
            "  Value error, User-specified max_model_len (65536) is greater than the derived max_model_len (max_position_embeddings=32768.0 or model_max_length=None in model's config.json).",
            "--max-model-len",
            65_536,
            32_768,
        ),
        (
            "ValueError: max_num_batched_tokens (2048) is smaller than max_model_len (8192).",
            "--max-num-batched-tokens",
            2048,
            8192,
        ),
        (
            "ValueError: max_num_batched_tokens (128) must be greater than or equal to max_num_seqs (256).",
            "--max-num-seqs",
            256,
            128,
        ),
        (
            "ValueError: No common block size for 48 (CPU_ATTN: [MultipleOf(32)]).",
            "--block-size",
            48,
            64,
        ),
    ] {
        let told = read(log);
        assert_eq!(told.kind, Kind::ConfigError, "{log}");
        assert_eq!(change(&told, flag), whole(from, to), "{log}");
    }
}

#[test]
fn a_cpu_engine_is_told_its_own_flags() {
    let tiny = captured("gpu-mem-util-tiny.log");
    assert_eq!(
        flags(&tiny),
        ["--gpu-memory-utilization", "VLLM_CPU_KVCACHE_SPACE"]
    );
    assert_eq!(
        tiny.fixes[0].to,
        Some(Value::Real(0.12)),
        "0.01 + (1 + 0.84) / 16.84"
    );
    let cut = captured("misconfig-512blocks-maxlen8192.log");
    let blocks = fix(&cut, "--num-gpu-blocks-override");
    assert_eq!(blocks.from, Some(Value::Whole(512)));
}

#[test]
fn a_healthy_start_tells_free_before_and_after_and_what_is_wasted() {
    let told = read(
        "INFO 09-28 21:12:30 [gpu_model_runner.py:1] Model loading took 8.80 GiB memory and 3.0 seconds\n\
         INFO 09-28 21:12:40 [kv_cache_utils.py:1] GPU KV cache size: 62,608 tokens\n\
         INFO 09-28 21:12:40 [kv_cache_utils.py:1] Maximum concurrency for 1,024 tokens per request: 61.14x\n\
         (EngineCore_DP0 pid=2) INFO 09-28 21:12:51 [v1/worker/gpu_worker.py:391] Free memory on device (23.08/23.53 GiB) on startup. Desired GPU memory utilization is (0.8, 18.82 GiB). Actual usage is 8.8 GiB for weight, 1.4 GiB for peak activation, 0.02 GiB for non-torch memory, and 0.68 GiB for CUDAGraph memory. Replace gpu_memory_utilization config with `--kv-cache-memory=8347223347` to fit into requested memory, or `--kv-cache-memory=12923195904` to fully utilize gpu memory. Current kv cache memory in use is 9232221491 bytes.\n\
         INFO:     Application startup complete.\n",
    );
    assert_eq!(told.kind, Kind::Healthy);
    let expected = [
        (Field::FreeAtStart, 23.08),
        (Field::FreeAfterStart, 3.58), // 23.08 - 8.8 - 1.4 - 0.02 - 0.68 - 8.6
        (Field::Weights, 8.8),
        (Field::KvCache, 8.6),
        (Field::KvTokens, 62_608.0),
        (Field::MaxConcurrency, 61.14),
        (Field::Waste, 3.44), // 12.04 - 8.6
    ];
    for (field, value) in expected {
        assert_eq!(told.facts.number(field), Some(value), "{}", field.name());
    }
    let budget = fix(&told, "--kv-cache-memory-bytes");
    assert_eq!(budget.to, Some(Value::Whole(12_923_195_904)));
}
