//! Every wording of the engines' start-up lines and failures, by version.

use super::read;
use tidegate::sizing::log::{Field, Kind};

/// Versions, a failure's line, its kind.
const FAILURES: [(&str, &str, Kind); 38] = [
    (
        "all",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 350.00 MiB. GPU 0 has a total capacity of 23.68 GiB of which 212.81 MiB is free.",
        Kind::WeightsDoNotFit,
    ),
    (
        "to 2.5 of torch",
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 23.69 GiB total capacity; 22.50 GiB already allocated; 10.69 MiB free; 22.90 GiB reserved in total by PyTorch)",
        Kind::WeightsDoNotFit,
    ),
    (
        ">= 0.12",
        "ERROR 11-05 12:19:32 [gpu_model_runner.py:1] Failed to load model - not enough GPU memory. Try lowering --gpu-memory-utilization to free memory for weights, increasing --tensor-parallel-size, or using --quantization. See https://docs.vllm.ai",
        Kind::WeightsDoNotFit,
    ),
    (
        "0.10 to 0.14",
        "ValueError: Free memory on device (59.32/79.15 GiB) on startup is less than desired GPU memory utilization (0.9, 71.24 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
        Kind::MemoryInUse,
    ),
    (
        ">= 0.16",
        "ValueError: Free memory on device cuda:0 (16.9/79.18 GiB) on startup is less than desired GPU memory utilization (0.825, 65.32 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
        Kind::MemoryInUse,
    ),
    (
        "0.3 to 0.8",
        "AssertionError: Error in memory profiling. Initial free memory 84396867584, current free memory 84541571072. This happens when the GPU memory was not properly cleaned up before initializing the vLLM instance.",
        Kind::MemoryNotReleased,
    ),
    (
        ">= 0.9",
        "AssertionError: Error in memory profiling. Initial free memory 30.3 GiB, current free memory 30.4 GiB. This happens when other processes sharing the same container release GPU memory while vLLM is profiling during initialization.",
        Kind::MemoryNotReleased,
    ),
    (
        "all",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.",
        Kind::NoCacheBlocks,
    ),
    (
        "V0",
        "ValueError: The model's max seq len (4096) is larger than the maximum number of tokens that can be stored in KV cache (3664). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.",
        Kind::MaxModelLenExceedsKv,
    ),
    (
        "V1 <= 0.20",
        "ValueError: To serve at least one request with the models's max seq len (262144), (24.0 GiB KV cache is needed, which is larger than the available KV cache memory (3.18 GiB). Based on the available memory, the estimated maximum model length is 34736. Try increasing `gpu_memory_utilization`",
        Kind::MaxModelLenExceedsKv,
    ),
    (
        "V1 > 0.20",
        "ValueError: To serve at least one request with the model's max seq len (32768), (0.02 GiB KV cache is needed, which is larger than the available KV cache memory (0.0 GiB). Based on the available memory, the estimated maximum model length is 8192. Try increasing",
        Kind::MaxModelLenExceedsKv,
    ),
    (
        "0.8.5, cut by a bug",
        "ValueError: To serve at least one request with the models's max seq len (1048576), (24.00 GiB KV cache is needed, which is larger than the available KV cache memory (9.97 GiB). Based on the available memory, Try increasing",
        Kind::MaxModelLenExceedsKv,
    ),
    (
        ">= 0.14",
        "ValueError: Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token.",
        Kind::NoCacheBlocks,
    ),
    (
        ">= 0.8",
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 256 dummy requests. Please try lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine.",
        Kind::ActivationPeak,
    ),
    (
        ">= 0.10",
        "RuntimeError: CUDA out of memory occurred when warming up pooler (task='embed') with 256 dummy requests. Please try lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine.",
        Kind::ActivationPeak,
    ),
    (
        "all",
        "ValueError: max_num_batched_tokens (2048) is smaller than max_model_len (8192). This effectively limits the maximum sequence length to max_num_batched_tokens",
        Kind::ConfigError,
    ),
    (
        ">= 0.9",
        "  Value error, max_num_batched_tokens (2048) is smaller than max_model_len (8192). This effectively limits the maximum sequence length",
        Kind::ConfigError,
    ),
    (
        ">= 0.8, alone",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        Kind::NotRecognised,
    ),
    (
        ">= 0.8, alone",
        "ERROR 11-29 14:06:16 [core.py:1510] EngineCore failed to start.",
        Kind::NotRecognised,
    ),
    (
        ">= 0.9",
        "ERROR 11-29 14:06:16 [dump_input.py:72] Dumping input data for V1 LLM engine (v0.22.0) with config: model='x'",
        Kind::EngineDied,
    ),
    (
        ">= 0.9",
        "ERROR 07-21 13:02:07 [core.py:588] EngineCore encountered a fatal error.",
        Kind::EngineDied,
    ),
    (
        ">= 0.8",
        "ERROR 11-29 14:51:00 [async_llm.py:906] AsyncLLM output_handler failed.",
        Kind::EngineDied,
    ),
    (
        ">= 0.8",
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.",
        Kind::EngineDied,
    ),
    (
        ">= 0.8",
        "ERROR 11-29 14:06:18 [multiproc_executor.py:315] Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting down executor.",
        Kind::EngineDied,
    ),
    (">= 0.9", "RuntimeError: Executor failed.", Kind::EngineDied),
    (
        ">= 0.18",
        "WARNING 11-29 14:37:04 [core_client.py:817] [shutdown] MPClient: engine core exited unexpectedly; starting cleanup",
        Kind::EngineDied,
    ),
    (
        "0.32 CPU",
        "ValueError: Available memory on node 0 (13.74/16.84 GiB) on startup is less than desired CPU memory utilization (0.92, 15.49 GiB). On the CPU backend",
        Kind::MemoryInUse,
    ),
    (
        "0.32 CPU",
        "ValueError: Available memory on node 0 (3.51/16.84 GiB) on kv cache allocation is less than requested memory for kv (8.00/8.17 GiB). Reduce CPU memory used by other processes.",
        Kind::MemoryInUse,
    ),
    (
        "0.32 CPU",
        "ValueError: Available memory on node 0 (13.51/16.84 GiB) on kv cache allocation is less than requested memory for kv (-0.84/0.17 GiB). Reduce CPU memory used by other processes.",
        Kind::NoCacheBlocks,
    ),
    (
        "V0",
        "RuntimeError: Aborted due to the lack of CPU swap space. Please increase the swap space to avoid this error.",
        Kind::EngineDied,
    ),
    (
        "all",
        "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
        Kind::EngineDied,
    ),
    (
        "all",
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        Kind::EngineDied,
    ),
    (
        "all",
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        Kind::Unsupported,
    ),
    (
        "all",
        "NotImplementedError: Speculative decoding with pipeline parallelism",
        Kind::Unsupported,
    ),
    (
        "all",
        "ValueError: FP8 KV cache is not supported with this attention backend",
        Kind::Unsupported,
    ),
    (
        ">= 0.7",
        "ValueError: XForCausalLM has no vLLM implementation and the Transformers implementation is not compatible with vLLM.",
        Kind::Unsupported,
    ),
    (
        "all",
        "OSError: [Errno 98] Address already in use",
        Kind::ConfigError,
    ),
    (
        "V0",
        "vllm.engine.async_llm_engine.AsyncEngineDeadError: Background loop has errored already.",
        Kind::EngineDied,
    ),
];

/// Fields and their values.
type Told = &'static [(Field, f64)];

/// Versions, a line of a start, what it tells.
const FIGURES: [(&str, &str, Told); 26] = [
    (
        "V0",
        "INFO 04-23 10:00:00 executor_base.py:110] # GPU blocks: 7877, # CPU blocks: 512",
        &[(Field::KvBlocks, 7877.0)],
    ),
    (
        "V0 of 0.8",
        "INFO 03-21 20:15:46 [executor_base.py:111] # cuda blocks: 7191, # CPU blocks: 512",
        &[(Field::KvBlocks, 7191.0)],
    ),
    (
        "0.6 to 0.26",
        "INFO 05-26 21:34:12 [kv_cache_utils.py:1711] Maximum concurrency for 131,072 tokens per request: 3.03x",
        &[
            (Field::MaxModelLen, 131_072.0),
            (Field::MaxConcurrency, 3.03),
        ],
    ),
    (
        "0.8 to 0.26",
        "INFO 05-26 21:34:12 [kv_cache_utils.py:1710] GPU KV cache size: 396,928 tokens",
        &[(Field::KvTokens, 396_928.0)],
    ),
    (
        ">= 0.28",
        "INFO 11-29 14:08:28 [kv_cache_utils.py:2327] CPU KV cache size: 8,224 tokens, Maximum concurrency for 8,192 tokens per request: 1.00x",
        &[
            (Field::KvTokens, 8224.0),
            (Field::MaxModelLen, 8192.0),
            (Field::MaxConcurrency, 1.0),
        ],
    ),
    (
        ">= 0.28, host",
        "INFO 11-29 14:08:28 [kv_cache_utils.py:2327] GPU + host KV cache size: 8,224 tokens, Maximum concurrency for 8,192 tokens per request: 1.00x",
        &[(Field::KvTokens, 8224.0)],
    ),
    (
        "0.11",
        "INFO 10-01 10:00:00 [kv_cache_utils.py:1] Multiplying the GPU KV cache size by the dcp_world_size 4.",
        &[(Field::ContextParallel, 4.0)],
    ),
    (
        "0.12 to 0.20",
        "INFO 12-01 10:00:00 [kv_cache_utils.py:1] Multiplying the GPU KV cache size by the cp_world_size 8 (pcp_world_size 2 * dcp_world_size 4).",
        &[(Field::ContextParallel, 8.0)],
    ),
    (
        ">= 0.9",
        "INFO 01-28 16:08:46 [gpu_worker.py:358] Available KV cache memory: 18.78 GiB",
        &[(Field::KvCache, 18.78)],
    ),
    (
        "V0",
        "the current vLLM instance can use total_gpu_memory (79.19GiB) x gpu_memory_utilization (0.90) = 71.27GiB",
        &[
            (Field::Total, 79.19),
            (Field::Utilization, 0.9),
            (Field::Requested, 71.27),
        ],
    ),
    (
        "V0",
        "model weights take 12.55GiB; non_torch_memory takes 0.16GiB; PyTorch activation peak memory takes 2.38GiB; the rest of the memory reserved for KV Cache is 56.18GiB.",
        &[
            (Field::Weights, 12.55),
            (Field::NonTorch, 0.16),
            (Field::ActivationPeak, 2.38),
            (Field::KvCache, 56.18),
        ],
    ),
    (
        "0.6",
        "INFO 10-23 19:55:16 model_runner.py:1067] Loading model weights took 19.8557 GB",
        &[(Field::Weights, 19.86)],
    ),
    (
        "0.5",
        "INFO 08-07 07:11:28 model_runner.py:736] Loading model weights took 14737.2578 MB",
        &[(Field::Weights, 14.39)],
    ),
    (
        "0.8 to 0.10",
        "INFO 05-23 09:31:24 [gpu_model_runner.py:1347] Model loading took 18.1450 GiB and 40.766484 seconds",
        &[(Field::Weights, 18.15)],
    ),
    (
        ">= 0.12",
        "INFO 05-06 20:59:59 [gpu_model_runner.py:4879] Model loading took 12.66 GiB memory and 31.657031 seconds",
        &[(Field::Weights, 12.66)],
    ),
    (
        "all",
        "INFO 10-21 09:12:04 [gpu_model_runner.py:3480] Graph capturing finished in 7 secs, took 0.95 GiB",
        &[(Field::CudaGraphs, 0.95)],
    ),
    (
        ">= 0.18",
        "INFO 05-26 21:34:14 [gpu_worker.py:621] CUDA graph pool memory: 0.11 GiB (actual), 0.14 GiB (estimated), difference: 0.03 GiB (25.0%).",
        &[
            (Field::CudaGraphs, 0.11),
            (Field::CudaGraphsEstimated, 0.14),
        ],
    ),
    (
        "all",
        "INFO 11-29 14:08:28 [kv_cache_utils.py:2619] Overriding num_gpu_blocks=65536 with num_gpu_blocks_override=257",
        &[(Field::ProfiledBlocks, 65_536.0), (Field::KvBlocks, 257.0)],
    ),
    (
        ">= 0.9",
        "INFO 11-29 14:07:57 [model.py:2152] Using max model len 8192",
        &[(Field::MaxModelLen, 8192.0)],
    ),
    (
        ">= 0.14",
        "INFO 11-29 14:08:28 [kv_cache_utils.py:1] Auto-fit max_model_len: reduced from 32768 to 8192 to fit in available KV cache memory (0.0 GiB CPU)",
        &[
            (Field::AskedMaxModelLen, 32_768.0),
            (Field::MaxModelLen, 8192.0),
        ],
    ),
    (
        ">= 0.11",
        "INFO 11-29 14:08:28 [gpu_worker.py:1] Initial free memory 78.5 GiB, reserved 20.0 GiB memory for KV Cache as specified by kv_cache_memory_bytes config and skipped memory profiling.",
        &[(Field::FreeAtStart, 78.5), (Field::KvCache, 20.0)],
    ),
    (
        ">= 0.11",
        "Free memory on device (23.08/23.53 GiB) on startup. Desired GPU memory utilization is (0.8, 18.82 GiB). Actual usage is 8.8 GiB for weight, 1.4 GiB for peak activation, 0.02 GiB for non-torch memory, and 0.68 GiB for CUDAGraph memory. Replace gpu_memory_utilization config with `--kv-cache-memory=8347223347` (7.77 GiB) to fit into requested memory, or `--kv-cache-memory=12923195904` (12.04 GiB) to fully utilize gpu memory. Current kv cache memory in use is 8.6 GiB.",
        &[
            (Field::FreeAtStart, 23.08),
            (Field::Total, 23.53),
            (Field::Weights, 8.8),
            (Field::CudaGraphs, 0.68),
            (Field::KvCache, 8.6),
        ],
    ),
    (
        "DEBUG",
        "DEBUG 09-28 21:12:43 [v1/worker/gpu_worker.py:284] Initial free memory: 23.08 GiB; Requested memory: 0.80 (util), 18.82 GiB",
        &[
            (Field::FreeAtStart, 23.08),
            (Field::Utilization, 0.8),
            (Field::Requested, 18.82),
        ],
    ),
    (
        "all",
        "INFO 02-27 10:00:00 [scheduler.py:222] Chunked prefill is enabled with max_num_batched_tokens=2048.",
        &[(Field::MaxNumBatchedTokens, 2048.0)],
    ),
    (
        "0.32 CPU",
        "INFO 11-29 14:08:28 [cpu_worker.py:260] Explicitly set (1.0/16.09) GiB for KV cache on node 0.",
        &[(Field::KvCache, 1.0), (Field::Total, 16.09)],
    ),
    (
        ">= 0.8",
        "INFO 11-29 15:00:00 [loggers.py:273] Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: 5.0 tokens/s, Running: 4 reqs, Waiting: 12 reqs, GPU KV cache usage: 98.4%, Prefix cache hit rate: 0.0%",
        &[(Field::KvUsagePercent, 98.4)],
    ),
];

#[test]
fn every_failure_text_of_every_version_is_named() {
    for (versions, line, kind) in FAILURES {
        let told = read(&format!("{line}\n"));
        assert_eq!(told.kind, kind, "{versions}: {line}");
    }
}

#[test]
fn every_failure_text_is_named_below_its_wrappers_and_in_every_spelling_of_a_head() {
    for (versions, line, kind) in FAILURES {
        let bare = line.split_once("] ").map_or(line, |(_, text)| text);
        if kind == Kind::NotRecognised || line.starts_with("WARNING") {
            continue;
        }
        for head in [
            "(EngineCore_DP0 pid=7) ERROR 11-29 14:06:16 [v1/engine/core.py:9] ",
            "ERROR 11-29 14:06:16 core.py:9] ",
            "[rank0]: ",
        ] {
            let log = format!(
                "{head}Traceback (most recent call last):\n{head}{bare}\n\
                 (APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}\n"
            );
            assert_eq!(read(&log).kind, kind, "{versions}: {log}");
        }
    }
}

#[test]
fn every_line_of_a_start_tells_its_figures_in_every_version() {
    for (versions, line, figures) in FIGURES {
        let told = read(&format!("{line}\n"));
        for (field, value) in figures {
            let number = told.facts.number(*field);
            assert_eq!(
                number,
                Some(*value),
                "{versions}: {} in {line}",
                field.name()
            );
        }
    }
}

#[test]
fn every_version_says_its_version() {
    for (line, version) in [
        (
            "INFO 06-28 23:40:03 api_server.py:206] vLLM API server version 0.5.0.post1",
            "0.5.0.post1",
        ),
        (
            "INFO 09-03 16:28:10 [api_server.py:1882] vLLM API server version 0.10.2.dev378+g4d7fe40fc",
            "0.10.2.dev378+g4d7fe40fc",
        ),
        (
            "(APIServer pid=1) INFO 03-06 01:34:23 [utils.py:287]  \u{2580}\u{2584}\u{2580} \u{2588}  version 0.16.0",
            "0.16.0",
        ),
        (
            "INFO 06-26 07:48:15 llm_engine.py:164] Initializing an LLM engine (v0.6.4) with config: model='x'",
            "0.6.4",
        ),
        (
            "INFO 07-05 14:58:21 [llm_engine.py:240] Initializing a V0 LLM engine (v0.8.5.post1) with config: model='x'",
            "0.8.5.post1",
        ),
        (
            "INFO 11-29 14:08:12 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='x'",
            "0.32.0",
        ),
    ] {
        assert_eq!(
            read(line).engine_version.as_deref(),
            Some(version),
            "{line}"
        );
    }
}
