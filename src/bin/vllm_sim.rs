//! The `vllm-sim` command: the simulated engine over HTTP.
//!
//! Flags bear vLLM's names where vLLM has them. stdout is the address, one line, once the
//! server listens; it runs until interrupted or terminated.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use tidegate::core::backend::PrefixCaching;
use tidegate::core::units::{BlockSize, Blocks, Tokens};
use tidegate::sim::engine::{EngineSpec, OnOverflow, Scheduling, StepTime};
use tidegate::sim_server::{OutputLength, SimServer, SimServerSpec};
use tokio::signal::unix::{SignalKind, signal};

/// A simulated vLLM server: the scheduler and KV cache of vLLM without a model.
#[derive(Debug, Parser)]
#[command(version)]
struct Flags {
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    host: std::net::IpAddr,
    /// Port to listen on; 0 takes a free one.
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// Names the model answers to; the first labels the metrics.
    #[arg(long, num_args = 1.., default_values_t = [String::from("tiny")])]
    served_model_name: Vec<String>,
    /// Longest context in tokens, prompt plus output.
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u64).range(2..))]
    max_model_len: u64,
    /// Tokens per KV block.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    block_size: u32,
    /// KV blocks, the null block among them; unset, one context of --max-model-len fits.
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..))]
    num_gpu_blocks_override: Option<u32>,
    /// Most sequences running at once.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    max_num_seqs: u32,
    /// Most tokens computed in one step.
    #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u64).range(1..))]
    max_num_batched_tokens: u64,
    /// Sequences running and waiting beyond which requests get 503.
    #[arg(long)]
    max_num_queued_reqs: Option<u32>,
    /// Share of the KV blocks kept free when a request is admitted beside running ones.
    #[arg(long, default_value_t = 0.0)]
    watermark: f64,
    /// Do not keep full blocks for reuse.
    #[arg(long)]
    no_enable_prefix_caching: bool,
    /// Plan each step only after the one before.
    #[arg(long)]
    no_async_scheduling: bool,
    /// Key that /v1 asks for.
    #[arg(long)]
    api_key: Option<String>,
    /// Whose speed to take.
    #[arg(long, value_enum, default_value_t = Profile::RtxPro6000)]
    profile: Profile,
    /// Real seconds per simulated second: 0.1 is ten times faster.
    #[arg(long, default_value_t = 1.0)]
    time_scale: f64,
    /// Tokens each answer has unless the request says; unset, answers run to their limit.
    #[arg(long)]
    output_tokens: Option<u64>,
    /// Seed of ids and drawn lengths.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// A measured step-time profile of an 8-billion-parameter model.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Profile {
    /// One RTX PRO 6000.
    RtxPro6000,
    /// One RTX 4090.
    Rtx4090,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    let spec = match flags.spec() {
        Ok(spec) => spec,
        Err(problem) => {
            eprintln!("vllm-sim: {problem}");
            return ExitCode::from(2);
        }
    };
    match run(spec) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vllm-sim: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(spec: SimServerSpec) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut terminated = signal(SignalKind::terminate())?;
        let server = SimServer::start(spec)?;
        println!("{}", server.url());
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => interrupted,
            _ = terminated.recv() => Ok(()),
        }
    })
}

// === impl Flags ===

impl Flags {
    /// What the flags ask for, or why they cannot be had.
    fn spec(&self) -> Result<SimServerSpec, String> {
        if !(self.time_scale > 0.0 && self.time_scale.is_finite()) {
            return Err(format!(
                "--time-scale is {}, it must be above 0",
                self.time_scale
            ));
        }
        if !(0.0..1.0).contains(&self.watermark) {
            return Err(format!(
                "--watermark is {}, it must be within 0..1",
                self.watermark
            ));
        }
        let mut spec = SimServerSpec::new("", self.engine());
        spec.listen = SocketAddr::new(self.host, self.port);
        spec.models.clone_from(&self.served_model_name);
        spec.time_scale = self.time_scale;
        spec.output = self
            .output_tokens
            .map_or(OutputLength::Limit, OutputLength::Tokens);
        spec.seed = self.seed;
        spec.max_num_queued_reqs = self.max_num_queued_reqs;
        spec.api_key.clone_from(&self.api_key);
        spec.keep_alive = Duration::from_secs(5);
        Ok(spec)
    }

    fn engine(&self) -> EngineSpec {
        let block_size = BlockSize::new(self.block_size).expect("clap keeps it above 0");
        let max_model_len = Tokens::new(self.max_model_len);
        let blocks = match self.num_gpu_blocks_override {
            Some(blocks) => Blocks::new(u64::from(blocks)),
            None => max_model_len.blocks_up(block_size) + Blocks::new(1),
        };
        EngineSpec {
            blocks,
            block_size,
            max_model_len,
            max_num_seqs: self.max_num_seqs,
            max_num_batched_tokens: Tokens::new(self.max_num_batched_tokens),
            prefix_caching: if self.no_enable_prefix_caching {
                PrefixCaching::PerSequence
            } else {
                PrefixCaching::Shared
            },
            lookahead: Tokens::ZERO,
            scheduling: if self.no_async_scheduling {
                Scheduling::Sync
            } else {
                Scheduling::Async
            },
            watermark: self.watermark,
            step: match self.profile {
                Profile::RtxPro6000 => StepTime::rtx_pro_6000_8b(),
                Profile::Rtx4090 => StepTime::rtx_4090_8b(),
            },
            on_overflow: OnOverflow::Preempt,
        }
    }
}
