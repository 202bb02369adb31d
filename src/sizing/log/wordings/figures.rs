//! Wordings of a start that goes well: figures and steps.

use super::super::facts::Field as F;
use super::Says::{Arguments, Engine, Exception, Figures, Reached, Server, Traceback, Within};
use super::{Phase, Place, Wording};

const fn row(needle: &'static str, from: &'static str) -> Wording {
    Wording::new(Figures, needle, from)
}

const fn step(phase: Phase, needle: &'static str, from: &'static str) -> Wording {
    Wording::new(Reached(phase), needle, from)
}

const fn frame(place: Place, needle: &'static str, from: &'static str) -> Wording {
    Wording::new(Within(place), needle, from)
}

const LINE_OF_SIZE: &[F] = &[F::Device, F::KvTokens];
const HINT: &str = "v1/worker/gpu_worker.py, 0.10.2 and later; DEBUG in the latest";
const TORCH: &str = "torch, c10/cuda/CUDACachingAllocator.cpp";

/// Read top to bottom.
pub(super) const FIGURES: &[Wording] = &[
    // Who runs.
    Wording::new(Server, "vLLM API server version ", "entrypoints/openai/api_server.py, to 0.28"),
    Wording::new(Server, "\u{2588}  version ", "entrypoints/utils, api_utils.py, 0.16 and later"),
    Wording::new(Arguments, "non-default args: ", "entrypoints/openai, 0.10 and later"),
    Wording::new(Arguments, "args: Namespace(", "entrypoints/openai/api_server.py, to 0.9"),
    Wording::new(Engine, "Initializing an LLM engine ", "engine/llm_engine.py, to 0.7"),
    Wording::new(Engine, "Initializing a V0 LLM engine ", "engine/llm_engine.py, 0.8 and 0.9"),
    Wording::new(Engine, "Initializing a V1 LLM engine ", "v1/engine/core.py, 0.7 and later"),
    // What the device is.
    row("use total_gpu_memory (", "worker/worker.py, V0 of 0.6.4 to 0.10").reads(
        r"total_gpu_memory \(([\d.]+)GiB\) x gpu_memory_utilization \(([\d.]+)\) = ([\d.]+)GiB",
        &[F::Total, F::Utilization, F::Requested],
    ),
    row("model weights take ", "worker/worker.py, V0 of 0.6.4 to 0.10").reads(
        r"model weights take ([\d.]+)GiB; non_torch_memory takes (-?[\d.]+)GiB; PyTorch activation peak memory takes ([\d.]+)GiB; the rest of the memory reserved for KV Cache is (-?[\d.]+)GiB",
        &[F::Weights, F::NonTorch, F::ActivationPeak, F::KvCache],
    ),
    row("Initial free memory", "v1/worker/gpu_worker.py, 0.11 and later").reads(
        r"Initial free memory:? ([\d.]+) GiB, reserved ([\d.]+) GiB memory for KV Cache as specified by kv_cache_memory_bytes",
        &[F::FreeAtStart, F::KvCache],
    ),
    row("Initial free memory: ", "v1/worker/gpu_worker.py, DEBUG, 0.9 and later").reads(
        r"Initial free memory: ([\d.]+) GiB; Requested memory: ([\d.]+) \(util\), ([\d.]+) GiB",
        &[F::FreeAtStart, F::Utilization, F::Requested],
    ),
    row("Total non KV cache memory: ", "v1/worker/gpu_worker.py, DEBUG, 0.9 and later").reads(
        r"torch peak memory increase: ([\d.]+) ?GiB; non-torch forward increase memory: (-?[\d.]+) ?GiB; weights memory: ([\d.]+) ?GiB",
        &[F::ActivationPeak, F::NonTorch, F::Weights],
    ),
    row("Free memory on device (", HINT).reads(
        r"Free memory on device (?:\S+ )?\(([\d.]+)/([\d.]+) GiB\) on startup\. Desired GPU memory utilization is \(([\d.]+), ([\d.]+) GiB\)\.",
        &[F::FreeAtStart, F::Total, F::Utilization, F::Requested],
    ),
    row("GiB for peak activation", HINT).reads(
        r"Actual usage is ([\d.]+) GiB for weights?, ([\d.]+) GiB for peak activation, (-?[\d.]+) GiB for non-torch memory, and (-?[\d.]+) GiB for CUDAGraph",
        &[F::Weights, F::ActivationPeak, F::NonTorch, F::CudaGraphs],
    ),
    row("`--kv-cache-memory", HINT).reads(
        r"`--kv-cache-memory(?:-bytes)?=(\d+)` .*to fit into requested memory, or `--kv-cache-memory(?:-bytes)?=(\d+)`",
        &[F::KvBytesWithinRequest, F::KvBytesWithinDevice],
    ),
    row("Current kv cache memory in use is ", HINT).reads(
        r"Current kv cache memory in use is ([\d.]+ (?:GiB|bytes))",
        &[F::KvCache],
    ),
    row("Explicitly set (", "v1/worker/cpu_worker.py, 0.32").reads(
        r"Explicitly set \(([\d.]+)/([\d.]+)\) GiB for KV cache on node",
        &[F::KvCache, F::Total],
    ),
    row("Auto set (", "v1/worker/cpu_worker.py, 0.32").reads(
        r"Auto set \(([\d.]+)/([\d.]+)\) GiB for KV cache on node",
        &[F::KvCache, F::Total],
    ),
    row("current free memory", "worker.py, gpu_worker.py, 0.3 and later").reads(
        r"Initial free memory:? ([\d.]+(?: GiB)?),? current free memory:? ([\d.]+(?: GiB)?)",
        &[F::FreeAtStart, F::FreeThen],
    ),
    // Weights.
    step(Phase::Loading, "Starting to load model ", "worker/model_runner.py, v1/worker/*_model_runner.py, all"),
    step(Phase::Loading, "Loading safetensors checkpoint shards", "model_executor/model_loader, all"),
    row("Checkpoint size: ", "model_executor/model_loader/weight_utils.py, 0.20 and later")
        .reads(r"Checkpoint size: ([\d.]+ GiB)", &[F::Checkpoint]),
    step(Phase::Loaded, "Loading model weights took ", "worker/model_runner.py, to 0.8")
        .reads(r"Loading model weights took ([\d.]+ [GM]i?B)", &[F::Weights]),
    step(Phase::Loaded, "Model loading took ", "v1/worker/gpu_model_runner.py, 0.8 and later")
        .reads(r"Model loading took ([\d.]+ Gi?B)", &[F::Weights]),
    step(Phase::Loaded, "Memory profiling takes ", "worker/worker.py, v1/worker/gpu_worker.py"),
    // The cache.
    row("Available KV cache memory: ", "v1/worker/gpu_worker.py, 0.9 and later")
        .reads(r"Available KV cache memory: (-?[\d.]+) GiB", &[F::KvCache]),
    step(Phase::Cached, " blocks: ", "executor, V0; V1 of 0.7: # GPU blocks, # cuda blocks")
        .reads(r"# (?:\w+) blocks: (\d+)(?:,|$)", &[F::KvBlocks]),
    step(Phase::Cached, "KV cache size: ", "v1/core/kv_cache_utils.py, 0.8 and later; device names from 0.28")
        .reads(r"(\w+)(?: \+ host)? KV cache size: ([\d,]+) tokens", LINE_OF_SIZE),
    step(Phase::Cached, "Maximum concurrency for ", "executor_base.py, kv_cache_utils.py, 0.6 and later").reads(
        r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x",
        &[F::MaxModelLen, F::MaxConcurrency],
    ),
    row("Multiplying the GPU KV cache size by the ", "v1/core/kv_cache_utils.py, 0.11 to 0.20")
        .reads(r"by the (?:dcp|cp)_world_size (\d+)", &[F::ContextParallel]),
    row("Overriding num_gpu_blocks=", "v1/core/kv_cache_utils.py, worker.py, all").reads(
        r"Overriding num_gpu_blocks=(\d+) with num_gpu_blocks_override=(\d+)",
        &[F::ProfiledBlocks, F::KvBlocks],
    ),
    row("Using max model len ", "config/model.py, 0.9 and later")
        .reads(r"Using max model len (\d+)", &[F::MaxModelLen]),
    row("Auto-fit max_model_len: reduced from ", "v1/core/kv_cache_utils.py, 0.14 and later").reads(
        r"Auto-fit max_model_len: reduced from (\d+) to (\d+)",
        &[F::AskedMaxModelLen, F::MaxModelLen],
    ),
    row("Chunked prefill is enabled with max_num_batched_tokens=", "config/scheduler.py, 0.5 and later")
        .reads(r"max_num_batched_tokens=(\d+)", &[F::MaxNumBatchedTokens]),
    row("Setting attention block size to ", "model_executor/models/config.py, 0.11 and later")
        .reads(r"Setting attention block size to (\d+) tokens", &[F::BlockSize]),
    // Figures of a length that does not fit: a terminal may have broken the line.
    row("max seq len (", "worker.py, v1/core/kv_cache_utils.py, all")
        .reads(r"max seq len \(([\d,]+)\)", &[F::MaxModelLen]),
    row("that can be stored in KV cache (", "worker/worker.py, V0")
        .reads(r"that can be stored in KV cache \(([\d,]+)\)", &[F::KvTokens]),
    row(" GiB KV cache is needed", "v1/core/kv_cache_utils.py, 0.7 and later")
        .reads(r"([\d.]+) GiB KV cache is needed", &[F::KvNeeded]),
    row("the available KV cache memory (", "v1/core/kv_cache_utils.py, 0.7 and later")
        .reads(r"available KV cache memory \((-?[\d.]+) GiB\)", &[F::KvCache]),
    row("the estimated maximum model length is ", "v1/core/kv_cache_utils.py, 0.9 and later")
        .reads(r"the estimated maximum model length is (\d+)", &[F::EstimatedMaxModelLen]),
    // Graphs.
    row("Estimated CUDA graph memory: ", "v1/worker/gpu_model_runner.py, 0.18 and later")
        .reads(r"Estimated CUDA graph memory: ([\d.]+) GiB", &[F::CudaGraphsEstimated]),
    step(Phase::Cached, "Graph capturing finished in ", "model_runner.py, gpu_model_runner.py, all")
        .reads(r"took (-?[\d.]+) GiB", &[F::CudaGraphs]),
    row("CUDA graph pool memory: ", "v1/worker/gpu_worker.py, 0.18 and later").reads(
        r"CUDA graph pool memory: ([\d.]+) GiB \(actual\), ([\d.]+) GiB \(estimated\)",
        &[F::CudaGraphs, F::CudaGraphsEstimated],
    ),
    step(Phase::Cached, "init engine (profile, create kv cache, warmup model) took", "v1/engine/core.py, 0.8 and later"),
    // Serving.
    step(Phase::Cached, "Supported tasks: [", "entrypoints/openai, 0.9 and later"),
    step(Phase::Serving, "Starting vLLM server on http", "entrypoints/openai, 0.20 and later"),
    step(Phase::Serving, "Starting vLLM API server", "entrypoints/openai/api_server.py, 0.8 and later"),
    step(Phase::Serving, "Application startup complete.", "uvicorn"),
    step(Phase::Serving, "Avg prompt throughput: ", "v1/metrics/loggers.py, engine/metrics.py, all").reads(
        r"(?:KV cache usage: |KV cache usage=)([\d.]+)%",
        &[F::KvUsagePercent],
    ),
    step(Phase::Stopping, "API server: shutdown triggered", "entrypoints/launcher.py, 0.18 and later"),
    step(Phase::Stopping, "Gracefully stopping http server", "entrypoints/launcher.py, to 0.6"),
    step(Phase::Stopping, "Waiting for application shutdown.", "uvicorn"),
    // Where a traceback stands.
    Wording::new(Traceback, "Traceback (most recent call last)", "Python"),
    frame(Place::Running, "in forward", "models, all"),
    frame(Place::Running, "/v1/attention/", "v1/attention, all"),
    frame(Place::Loading, "in load_model", "worker.py, gpu_worker.py, all"),
    frame(Place::Loading, "in create_weights", "model_executor/layers/linear.py, all"),
    frame(Place::Loading, "in get_model", "model_executor/model_loader, all"),
    frame(Place::Profiling, "in determine_available_memory", "v1/worker/gpu_worker.py, all"),
    frame(Place::Profiling, "in determine_num_available_blocks", "worker/worker.py, V0"),
    frame(Place::Profiling, "in profile_run", "model_runner.py, gpu_model_runner.py, all"),
    frame(Place::Caching, "in _allocate_kv_cache", "worker/cache_engine.py, v1/worker/gpu_model_runner.py"),
    frame(Place::Caching, "in initialize_kv_cache", "v1/worker/gpu_model_runner.py"),
    frame(Place::Sampling, "in _dummy_sampler_run", "v1/worker/gpu_model_runner.py, 0.8 and later"),
    frame(Place::Capturing, "capture_model", "model_runner.py, gpu_model_runner.py, all"),
    frame(Place::Capturing, "in compile_or_warm_up_model", "v1/worker/gpu_worker.py, 0.7 and later"),
    frame(Place::Capturing, "in capture_end", "torch/cuda/graphs.py"),
    frame(Place::Stepping, "in execute_model", "worker.py, gpu_worker.py, all"),
    frame(Place::Stepping, "in run_busy_loop", "v1/engine/core.py, all"),
    frame(Place::Stepping, "run_engine_loop()", "engine/multiprocessing/engine.py, 0.6 to 0.10"),
    frame(Place::Loading, "while processing method load_model", "executor/multiproc_worker_utils.py, V0"),
    frame(Place::Profiling, "while processing method determine_num", "executor/multiproc_worker_utils.py, V0"),
    frame(Place::Stepping, "in engine_step", "engine/async_llm_engine.py, V0"),
    // Figures of an allocation that failed.
    row("Tried to allocate ", TORCH).reads(r"Tried to allocate ([\d.]+ \w+)", &[F::Tried]),
    row(" has a total capac", TORCH).reads(
        r"has a total capaci?ty of ([\d.]+ \w+) of which ([\d.]+ \w+) is free",
        &[F::Total, F::FreeThen],
    ),
    row(" total capacity; ", TORCH).reads(
        r"; ([\d.]+ \w+) total capacity; ([\d.]+ \w+) already allocated; ([\d.]+ \w+) free; ([\d.]+ \w+) reserved",
        &[F::Total, F::Allocated, F::FreeThen, F::HeldByEngine],
    ),
    row(" is allocated by PyTorch", TORCH)
        .reads(r"Of the allocated memory ([\d.]+ \w+) is allocated by PyTorch", &[F::Allocated]),
    row(" is reserved by PyTorch but unallocated", TORCH)
        .reads(r"([\d.]+ \w+) is reserved by PyTorch but unallocated", &[F::Fragments]),
    // Perhaps an exception.
    Wording::new(Exception, "Error", "Python"),
    Wording::new(Exception, "Exception", "Python"),
    Wording::new(Exception, "Failed:", "Python"),
    Wording::new(Exception, "OutOfResources:", "triton"),
    Wording::new(Exception, "Value error, ", "pydantic"),
    Wording::new(Exception, "Assertion failed, ", "pydantic"),
];
