//! Wordings of what goes wrong, the most telling first.

use super::super::Kind::{
    self, ConfigError, MaxModelLenExceedsKv, MemoryInUse, MemoryNotReleased, NoCacheBlocks,
    Unsupported, WeightsDoNotFit,
};
use super::super::facts::Field as F;
use super::Says::{Crash, Death, Failure, Halt, OutOfMemory};
use super::Wording;

const fn fails(kind: Kind, needle: &'static str, from: &'static str) -> Wording {
    Wording::new(Failure(kind), needle, from)
}

const fn config(needle: &'static str, from: &'static str) -> Wording {
    fails(ConfigError, needle, from)
}

const fn lacks(needle: &'static str, from: &'static str) -> Wording {
    fails(Unsupported, needle, from)
}

const fn memory(needle: &'static str, from: &'static str) -> Wording {
    Wording::new(OutOfMemory, needle, from)
}

const fn crash(needle: &'static str, from: &'static str) -> Wording {
    Wording::new(Crash, needle, from)
}

const fn death(needle: &'static str, from: &'static str) -> Wording {
    Wording::new(Death, needle, from)
}

const fn halt(needle: &'static str, from: &'static str) -> Wording {
    Wording::new(Halt, needle, from)
}

/// An exception that says, in whatever words, that something is not there.
const NOT_THERE: &str = r"^(?:[A-Za-z_]\w*\.)*\w*(?:Error|Exception)(?:: |\().*(?:not (?:yet |currently )*support|n't (?:yet )?support|only support|[Uu]nsupported)|^(?:\w+\.)*NotImplementedError\b";

const GPU_WORKER: &str = "v1/worker/gpu_worker.py, worker/utils.py";
const HUB: &str = "transformers, huggingface_hub";
const ARGPARSE: &str = "argparse";
const PARALLEL: &str = "config/parallel.py, executor, all";
const CUDA: &str = "torch, CUDA runtime";
const DRIVER: &str =
    "the engine finds no usable device: driver, container runtime or build do not fit the card";

/// Read top to bottom: the upper row names the cause where several match.
pub(super) const FAILURES: &[Wording] = &[
    // Memory that others hold, or held a moment ago.
    fails(MemoryNotReleased, "Error in memory profiling", "worker.py, gpu_worker.py, 0.3 and later")
        .means("memory of another process became free while the engine measured its own, so the measure is worthless"),
    fails(MemoryInUse, "is less than desired GPU memory utilization (", GPU_WORKER).reads(
        r"\(([\d.]+)/([\d.]+) GiB\) on startup is less than desired GPU memory utilization \(([\d.]+), ([\d.]+) GiB\)",
        &[F::FreeAtStart, F::Total, F::Utilization, F::Requested],
    ),
    fails(MemoryInUse, "is less than desired CPU memory utilization (", "v1/worker/cpu_worker.py, 0.32").reads(
        r"\(([\d.]+)/([\d.]+) GiB\) on startup is less than desired (CPU) memory utilization \(([\d.]+), ([\d.]+) GiB\)",
        &[F::FreeAtStart, F::Total, F::Device, F::Utilization, F::Requested],
    ),
    fails(NoCacheBlocks, "is less than requested memory for kv (-", "v1/worker/cpu_worker.py, 0.32")
        .reads(
            r"\(([\d.]+)/([\d.]+) GiB\) on kv cache allocation is less than requested memory for kv \((-[\d.]+)/[\d.]+ GiB\)",
            &[F::FreeAtStart, F::Total, F::KvCache],
        )
        .means("the share of memory asked for is smaller than what the process holds already"),
    fails(MemoryInUse, "is less than requested memory for kv (", "v1/worker/cpu_worker.py, 0.32").reads(
        r"\(([\d.]+)/([\d.]+) GiB\) on kv cache allocation is less than requested memory for kv \(([\d.]+)/[\d.]+ GiB\)",
        &[F::FreeAtStart, F::Total, F::KvNeeded],
    ),
    // The cache.
    fails(MaxModelLenExceedsKv, "is larger than the maximum number of tokens that can be stored in KV cache", "worker/worker.py, V0"),
    fails(MaxModelLenExceedsKv, "To serve at least one request with the model", "v1/core/kv_cache_utils.py, 0.7 and later"),
    fails(NoCacheBlocks, "Cannot auto-fit max_model_len", "v1/core/kv_cache_utils.py, 0.14 and later"),
    fails(NoCacheBlocks, "No available memory for the cache blocks", "worker/worker.py, v1/core/kv_cache_utils.py, all"),
    fails(NoCacheBlocks, "blocks of KV cache", "plugins of other devices")
        .reads(r"[Nn]ot enough memory for \d+ blocks of KV cache", &[]),
    // Peaks, and memory that ran out.
    fails(Kind::ActivationPeak, "CUDA out of memory occurred when warming up ", "v1/worker/gpu_model_runner.py, 0.8 and later")
        .reads(r"when warming up sampler with (\d+) dummy requests", &[F::SamplerRequests])
        .means("the cache took the room that the sampler needs for a full batch"),
    fails(Kind::ActivationPeak, "out of memory occurred when warming up pooler", "v1/worker/gpu_model_runner.py, 0.10 and later")
        .means("the cache took the room that the pooler needs for a full batch"),
    fails(WeightsDoNotFit, "Failed to load model - not enough GPU memory", "v1/worker/gpu_model_runner.py, 0.12 and later"),
    memory("out of memory. Tried to allocate", CUDA),
    memory("CUDA error: out of memory", CUDA),
    memory("HIP error: out of memory", "torch, ROCm"),
    memory("CUBLAS_STATUS_ALLOC_FAILED", CUDA),
    memory("DefaultCPUAllocator: can't allocate memory", "torch, c10/core"),
    fails(WeightsDoNotFit, "unable to mmap ", "torch, c10: the host's memory is what ran out"),
    // Flags that contradict each other or the model.
    config("error: unrecognized arguments: ", ARGPARSE).means("this version has no such flag"),
    config("invalid choice: ", ARGPARSE).means("this version has no such value for the flag"),
    config("error: argument ", ARGPARSE),
    config("error: the following arguments are required", ARGPARSE),
    config("is smaller than max_model_len (", "config/scheduler.py, all").reads(
        r"max_num_batched_tokens \((\d+)\) is smaller than max_model_len \((\d+)\)",
        &[F::MaxNumBatchedTokens, F::MaxModelLen],
    ),
    config("must be greater than or equal to max_num_seqs (", "config/scheduler.py, all").reads(
        r"max_num_batched_tokens \((\d+)\) must be greater than or equal to max_num_seqs \((\d+)\)",
        &[F::MaxNumBatchedTokens, F::MaxNumSeqs],
    ),
    config("is greater than the derived max_model_len", "config/model.py, all").reads(
        r"max_model_len \((\d+)\) is greater than the derived max_model_len \((?:[^)=]*=)?(\d+)",
        &[F::MaxModelLen, F::DerivedMaxModelLen],
    ),
    config("must be divisible by tensor parallel size (", "config/model.py, all").reads(
        r"attention heads \((\d+)\) must be divisible by tensor parallel size \((\d+)\)",
        &[F::Heads, F::TensorParallel],
    ),
    config("is not divisible by the number of tensor parallelism", PARALLEL),
    config("No common block size for ", "v1/worker/utils.py, 0.14 and later")
        .reads(r"No common block size for (\d+)", &[F::BlockSize])
        .means("the attention backend has no kernel for this block size"),
    config("Not enough allowed NUMA nodes", "utils/ompmultiprocessing.py, 0.32").means("more ranks than NUMA nodes"),
    config("is larger than the number of available GPUs", PARALLEL).means("more ranks than cards"),
    config("exceeds the total number of available GPUs", PARALLEL).means("more ranks than cards"),
    config("please ensure that world_size (", "executor/multiproc_gpu_executor.py, 0.5 to 0.8").means("more ranks than cards"),
    config("CUDA error: invalid device ordinal", CUDA).means("more ranks than cards, or a card that CUDA_VISIBLE_DEVICES hides"),
    config("Repo id must be ", HUB).means("the model is no path that exists and no name of a hub"),
    config("is not a local folder and is not a valid model identifier", HUB),
    config("Invalid repository ID or local directory specified", HUB),
    config("Incorrect path_or_model_id", HUB),
    config("Cannot access gated repo", HUB).means("the hub wants a token that may read this model").advice("HF_TOKEN", "a token that may read it"),
    config("You are trying to access a gated repo", HUB).means("the hub wants a token that may read this model").advice("HF_TOKEN", "a token that may read it"),
    config("RepositoryNotFoundError", HUB),
    config("Can't load tokenizer for", HUB),
    config("does not appear to have a file named", HUB),
    config("Cannot find any model weights with", "model_executor/model_loader, all"),
    config("`trust_remote_code=True`", HUB).advice("--trust-remote-code", "set").means("the model brings its own code"),
    config("ddress already in use", "asyncio, uvicorn, torch.distributed").means("another server holds the port"),
    config("does not match the quantization method specified", "config/model.py, all").advice("--quantization", "remove"),
    config("requires --tool-call-parser", "entrypoints/openai/cli_args.py, all"),
    config("invalid tool call parser:", "entrypoints/openai/cli_args.py, all"),
    config("is greater than max_lora_rank", "lora, all").means("--max-lora-rank is smaller than the adapter's rank"),
    config("GPU memory utilization must be ", "config/cache.py, all"),
    config("The supplied chat template ", "entrypoints/chat_utils.py, all"),
    // What this build, this card or this model cannot do.
    lacks("is only supported on GPUs with compute capability", "worker/worker.py, all").advice("--dtype", "half"),
    lacks("are not supported for now", "model_executor/models/registry.py, all").means("this version does not know the model's architecture, or could not load its code"),
    lacks("failed to be inspected", "model_executor/models/registry.py, 0.7 and later").means("the model's code could not be loaded: an import of this build fails"),
    lacks("has no vLLM implementation", "model_executor/models/registry.py, 0.7 and later"),
    lacks("does not recognize this architecture", HUB).means("the transformers of this build is older than the model"),
    lacks("is not supported for the current GPU", "config/model.py, quantization, all"),
    lacks("no kernel image is available for execution", CUDA).means("this build has no kernels for the card's compute capability"),
    lacks("does not support .target sm_", "ptxas").means("the CUDA toolkit of this build is older than the card"),
    lacks("GPUs with compute capability below", "worker/worker.py, to 0.3"),
    lacks("Failed to infer device type", "config/device.py, all").means(DRIVER),
    lacks("No CUDA GPUs are available", CUDA).means(DRIVER),
    lacks("Found no NVIDIA driver on your system", CUDA).means(DRIVER),
    lacks("The NVIDIA driver on your system is too old", CUDA).means(DRIVER),
    lacks("CUDA driver version is insufficient", CUDA).means(DRIVER),
    lacks("forward compatibility was attempted on non supported HW", CUDA).means(DRIVER),
    lacks("cannot open shared object file", "the loader").reads(r"^(?:ImportError|OSError|RuntimeError): .*cannot open shared object file", &[]).means(DRIVER),
    lacks("undefined symbol: ", "the loader").reads(r"^(?:ImportError|OSError): .*undefined symbol: ", &[]).means("packages of different builds are mixed"),
    lacks("Torch not compiled with CUDA enabled", CUDA).means(DRIVER),
    lacks("Unknown quantization method", "config/model.py, all"),
    lacks("CPU Offloading is currently only supported on", "v1/kv_offload, 0.11 and later").means("KV offload needs a GPU").advice("--kv-offloading-size", "remove"),
    lacks("'_StreamPlaceholder'", "v1/simple_kv_offload on a CPU engine, 0.32").means("KV offload needs a GPU; this engine runs on the CPU").advice("--kv-transfer-config", "remove"),
    lacks("FlashAttention only supports", "flash_attn"),
    lacks("Invalid attention backend for", "platforms/cuda.py, 0.7 to 0.10"),
    lacks("No valid attention backend found", "platforms/cuda.py, 0.11 and later"),
    // Crashes with a cause.
    crash("an illegal memory access was encountered", CUDA).means("a kernel read or wrote where it must not: a bug of a kernel, or a card that fails"),
    crash("CUDA error: device-side assert triggered", CUDA).means("a kernel found an index out of range"),
    crash("CUDA error: OS call failed", CUDA).means("the driver could not serve a call: pinned memory, limits of the container or of WSL"),
    crash("CUDA error: unspecified launch failure", CUDA),
    crash("CUDA error: uncorrectable ECC error", CUDA).means("the card's memory fails"),
    crash("CUDA error: unknown error", CUDA),
    crash("NCCL error", "distributed/device_communicators/pynccl_wrapper.py, all").means("the ranks could not talk to each other (NCCL); NCCL_DEBUG=INFO names the call"),
    crash("NCCL WARN Error", "NCCL").means("the ranks could not talk to each other (NCCL)"),
    crash("Watchdog caught collective operation timeout", "torch, ProcessGroupNCCL.cpp").means("a rank did not answer the others in time (NCCL)"),
    crash("RPC call to ", "v1/executor/multiproc_executor.py, 0.8 and later").reads(r"RPC call to \w+ timed out", &[]).means("a worker did not answer in time"),
    crash("Aborted due to the lack of CPU swap space", "core/scheduler.py, V0").means("the cache was full and the swap space in host memory too").advice("--swap-space", "8"),
    crash("CPU Generator does not use offset", "v1/worker/cpu_model_runner.py, 0.32").means("a request with a seed took a CPU engine down"),
    // What says in general words that something cannot be done.
    lacks("not support", "any").reads(NOT_THERE, &[]),
    lacks("only support", "any").reads(NOT_THERE, &[]),
    lacks("nsupported", "any").reads(NOT_THERE, &[]),
    lacks("NotImplementedError", "any").reads(NOT_THERE, &[]),
    config("validation error for ", "pydantic, 0.9 and later"),
    config("validation errors for ", "pydantic, 0.9 and later"),
    // The engine is gone, or never came.
    death("EngineCore encountered a fatal error", "v1/engine/core.py, 0.9 and later"),
    death("EngineCore hit an exception: Traceback", "v1/engine/core.py, 0.7 and 0.8"),
    death("Dumping input data for V1 LLM engine", "v1/engine, logging_utils/dump_input.py, 0.9 and later"),
    death("AsyncLLM output_handler failed", "v1/engine/async_llm.py, 0.8 and later"),
    death("EngineDeadError", "v1/engine/exceptions.py; V0: AsyncEngineDeadError, MQEngineDeadError"),
    death("engine core exited unexpectedly", "v1/engine/core_client.py, 0.18 and later"),
    death(" died unexpectedly", "v1/executor/multiproc_executor.py, v1/engine/core_client.py, 0.8 and later"),
    death("RuntimeError: Executor failed", "v1/engine/core.py, 0.9 and later"),
    death("Got fatal signal from worker processes", "v1/engine/core_client.py, 0.7 and 0.8"),
    death("Engine process (pid ", "engine/multiprocessing, 0.6 to 0.10"),
    death("Engine loop has died", "engine/multiprocessing, 0.6 to 0.10"),
    death("Engine background task failed", "engine/async_llm_engine.py, V0"),
    death("Background loop has errored already", "engine/async_llm_engine.py, V0"),
    death("MQLLMEngine is already dead", "entrypoints/launcher.py, 0.6 to 0.10"),
    death(" died, exit code: ", "executor/multiproc_worker_utils.py, V0"),
    death("The actor is dead because its worker process has died", "ray"),
    death("Killed", "the shell: the kernel's out-of-memory killer").reads(r"^Killed$", &[]),
    death("exited with ", "supervisors").reads(r"exited with (?:exit )?code:? (?:13[4-9]|143|-\d+)", &[]),
    death("Fatal Python error: ", "Python"),
    halt("Engine core initialization failed", "v1/engine/utils.py, 0.8 and later"),
    halt("EngineCore failed to start", "v1/engine/core.py, 0.8 and later"),
    halt("Engine process failed to start", "entrypoints/openai/api_server.py, 0.6 to 0.10"),
];
