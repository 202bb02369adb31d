//! `tidegate plan`: what a model on a card can hold, and the flags to start it with.
//!
//! Decides where the model's files are and what is asked of [`crate::sizing`];
//! the arithmetic is there. stdout is the plan, stderr what stands against it.

mod ask;
mod load;
mod told;

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use super::Failure;
use super::plain::say;
use crate::sizing::bytes::{self, GIB};
use crate::sizing::engine::{KvDtype, Version};
use crate::sizing::memory::{CARDS, Card};
use crate::sizing::model::Quantization;

/// Flags of `tidegate plan`.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// A model directory, or its config.json. With the directory, weights are read
    /// from its safetensors.
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    #[command(flatten)]
    card: CardFlags,
    #[command(flatten)]
    spread: SpreadFlags,
    #[command(flatten)]
    engine: EngineFlags,
    #[command(flatten)]
    load: load::LoadFlags,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// The memory that is there.
#[derive(Debug, Args)]
struct CardFlags {
    /// The card, such as h100-80g; its memory is what engines' logs say of it.
    #[arg(long, value_name = "NAME", value_parser = read_card, conflicts_with = "gpu_memory")]
    gpu: Option<Card>,
    /// Memory of one GPU as the engine sees it, such as 79.1GiB; a bare number up to
    /// 4096 is GiB.
    #[arg(long, value_name = "SIZE", value_parser = read_memory)]
    gpu_memory: Option<u64>,
    /// Share of a GPU for one instance [default: 0.90 up to vLLM 0.18, then 0.92].
    #[arg(long, value_name = "SHARE", value_parser = read_utilization)]
    gpu_memory_utilization: Option<u64>,
    /// The pool itself, per GPU. It overrides the utilisation and is never added to it.
    #[arg(long, value_name = "SIZE", value_parser = read_size, conflicts_with = "gpu_memory_utilization")]
    kv_cache_memory_bytes: Option<u64>,
    /// What an engine's log says: "Available KV cache memory".
    #[arg(long, value_name = "SIZE", value_parser = read_size,
        conflicts_with_all = ["gpu_memory_utilization", "kv_cache_memory_bytes"])]
    available_kv: Option<u64>,
    /// Blocks of the pool, whatever the memory.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 40),
        conflicts_with_all = ["gpu_memory_utilization", "kv_cache_memory_bytes", "available_kv"])]
    num_gpu_blocks_override: Option<u64>,
    /// What one GPU needs beside weights and pool, from an engine's log, in place of
    /// the estimate.
    #[arg(long, value_name = "SIZE", value_parser = read_size)]
    overhead: Option<u64>,
    /// Instances of this model on each GPU.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    instances_per_gpu: u64,
    /// Share of each GPU that other engines were given.
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = read_share)]
    others: u64,
}

/// How the model is spread.
#[derive(Debug, Args)]
struct SpreadFlags {
    /// GPUs of one instance: tensor parallel as far as the heads divide, then pipeline
    /// stages.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096),
        conflicts_with_all = ["tensor_parallel_size", "pipeline_parallel_size"])]
    gpus: Option<u64>,
    /// Tensor parallel ranks.
    #[arg(long, visible_alias = "tp", value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=1024))]
    tensor_parallel_size: u64,
    /// Pipeline stages.
    #[arg(long, visible_alias = "pp", value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=1024))]
    pipeline_parallel_size: u64,
    /// Data parallel engines.
    #[arg(long, visible_alias = "dp", value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=1024))]
    data_parallel_size: u64,
    /// Tensor parallel ranks that share a sequence's tokens.
    #[arg(long, visible_alias = "dcp", value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=1024))]
    decode_context_parallel_size: u64,
}

/// How the engine is started.
#[derive(Debug, Args)]
struct EngineFlags {
    /// The version of vLLM.
    #[arg(long, value_name = "VERSION", default_value_t = Version::NEWEST, value_parser = read_version)]
    vllm: Version,
    /// The context that is wanted, such as 32768 or 32K [default: the longest that fits].
    #[arg(long, value_name = "TOKENS", value_parser = read_tokens)]
    max_model_len: Option<u64>,
    /// Type of keys and values: auto, fp8, fp8_ds_mla, nvfp4, int8_per_token_head, …
    #[arg(long, value_name = "TYPE", default_value = "auto", value_parser = read_dtype)]
    kv_cache_dtype: (KvDtype, String),
    /// Quantise while loading, or say what a checkpoint is stored in: fp8, int8, awq,
    /// gptq, bitsandbytes, mxfp4, nvfp4.
    #[arg(long, value_name = "NAME", value_parser = read_quantization)]
    quantization: Option<Quantization>,
    /// Bytes of all weights, in place of what the files say.
    #[arg(long, value_name = "SIZE", value_parser = read_size)]
    weights: Option<u64>,
    /// Bits the model runs in.
    #[arg(long, value_name = "TYPE", default_value = "auto",
        value_parser = ["auto", "bfloat16", "float16", "half", "float32"])]
    dtype: String,
    /// Tokens of a block: a multiple of 16, or 1 or 8 [default: 16; 64 for latent
    /// attention; 128 on CPUs].
    #[arg(long, value_name = "TOKENS", value_parser = read_block)]
    block_size: Option<u64>,
    /// Tokens of a step [default: as the card's memory makes vLLM choose].
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    max_num_batched_tokens: Option<u64>,
    /// Sequences at one time [default: as the card's memory makes vLLM choose].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    max_num_seqs: Option<u64>,
    /// No CUDA graphs.
    #[arg(long)]
    enforce_eager: bool,
    /// Prefixes are cached; sequences of hybrids then hold two states.
    #[arg(long, conflicts_with = "no_enable_prefix_caching")]
    enable_prefix_caching: bool,
    /// Prefixes are not cached.
    #[arg(long)]
    no_enable_prefix_caching: bool,
    /// It runs on processors.
    #[arg(long)]
    cpu: bool,
    /// Take an architecture that is not known for one with keys and values by head in
    /// every layer.
    #[arg(long)]
    assume_attention: bool,
}

/// Plans and prints.
pub(super) fn plan(flags: &Flags, out: &mut impl Write) -> Result<(), Failure> {
    let asked = ask::Asked::read(flags)?;
    let question = asked.question(flags)?;
    if let Some(objection) = question.engine.parallel.objection(question.model) {
        return Err(Failure::Configuration(format!(
            "vLLM will not start: {objection}"
        )));
    }
    let mut plan = question.answer();
    asked.add_flags(flags, &question, &mut plan);
    let load = flags.load.read()?;
    let wanted = load.map(|load| load::Answer::of(&load, &question, &plan, &flags.load));
    if let Some(wanted) = &wanted {
        wanted.add_flags(flags, &mut plan);
    }
    let told = told::Told {
        asked: &asked,
        question: &question,
        plan: &plan,
        load: wanted.as_ref(),
    };
    if flags.json {
        let text = serde_json::to_string_pretty(&told.json()).expect("figures have a JSON form");
        writeln!(out, "{text}")?;
    } else {
        told.table(out)?;
    }
    for warning in &plan.warnings {
        say(format_args!("warning: {warning}"));
    }
    match plan.short() {
        Some(short) => Err(Failure::Run(match question.more_ranks() {
            Some(ranks) => format!("{short}. It fits with --tp {ranks}"),
            None => short.to_string(),
        })),
        None => Ok(()),
    }
}

fn read_card(name: &str) -> Result<Card, String> {
    let names = || {
        let names = CARDS.iter().map(|card| card.name);
        names.collect::<Vec<_>>().join(", ")
    };
    Card::named(name).ok_or_else(|| {
        format!(
            "no card of that name; known are {}, or give --gpu-memory",
            names()
        )
    })
}

fn read_size(text: &str) -> Result<u64, String> {
    match bytes::parse(text) {
        Some(0) => Err("it must be more than 0".to_owned()),
        Some(bytes) if bytes < bytes::MIB => Err(format!(
            "{bytes} bytes are too few to be meant; with its unit it is {bytes}GiB"
        )),
        Some(bytes) if bytes <= 1 << 50 => Ok(bytes),
        Some(_) => Err("no memory is so large".to_owned()),
        None => Err("a size such as 80GiB, 24GB or 8589934592 is wanted".to_owned()),
    }
}

fn read_memory(text: &str) -> Result<u64, String> {
    match text.trim().parse::<u64>() {
        Ok(gib) if (1..=4_096).contains(&gib) => Ok(gib * GIB),
        _ => read_size(text),
    }
}

/// A share from 0 to 1, in ten-thousandths.
fn read_share(text: &str) -> Result<u64, String> {
    let wrong = || "a share from 0 to 1 is wanted, such as 0.92".to_owned();
    let share: f64 = text.parse().map_err(|_| wrong())?;
    if !(0.0..=1.0).contains(&share) {
        return Err(wrong());
    }
    format!("{:.0}", share * 10_000.0)
        .parse()
        .map_err(|_| wrong())
}

/// A share of which something is left once it is rounded.
fn read_utilization(text: &str) -> Result<u64, String> {
    match read_share(text)? {
        0 => Err("a share above 0 is wanted, such as 0.92: of nothing there is no pool".to_owned()),
        share => Ok(share),
    }
}

/// A size of blocks that some engine takes.
fn read_block(text: &str) -> Result<u64, String> {
    let size = text.parse::<u64>().ok();
    let taken = |size: &u64| matches!(size, 1 | 8) || size.is_multiple_of(16);
    let size = size.filter(|size| (1..=65_536).contains(size) && taken(size));
    size.ok_or_else(|| "vLLM takes 1, 8 or a multiple of 16, such as 16, 64 or 128".to_owned())
}

fn read_version(text: &str) -> Result<Version, String> {
    Version::parse(text).ok_or_else(|| "a version such as 0.20.1 is wanted".to_owned())
}

/// Tokens as vLLM takes them: `k` is 1000, `K` is 1024, and so for millions.
fn read_tokens(text: &str) -> Result<u64, String> {
    let scales = [("k", 1_000), ("K", 1_024), ("m", 1_000_000), ("M", 1 << 20)];
    let scaled = scales
        .iter()
        .find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, *scale)));
    let (digits, scale) = scaled.unwrap_or((text, 1));
    let tokens = digits
        .parse::<u64>()
        .ok()
        .and_then(|count| count.checked_mul(scale));
    let within = tokens.filter(|tokens| (1..=1 << 36).contains(tokens));
    within.ok_or_else(|| "tokens such as 32768, 32K or 128k are wanted".to_owned())
}

fn read_dtype(name: &str) -> Result<(KvDtype, String), String> {
    let wrong = || {
        "known are auto, bfloat16, float16, float32, fp8, fp8_e4m3, fp8_e5m2, fp8_ds_mla, nvfp4, \
         int8_per_token_head, fp8_per_token_head, int4_per_token_head"
            .to_owned()
    };
    let dtype = KvDtype::parse(name).ok_or_else(wrong)?;
    Ok((dtype, name.to_owned()))
}

fn read_quantization(name: &str) -> Result<Quantization, String> {
    let wrong = || "known are fp8, int8, awq, gptq, bitsandbytes, mxfp4, nvfp4".to_owned();
    Quantization::named(name).ok_or_else(wrong)
}
