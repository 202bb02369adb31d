//! `tidegate demo`: the same load at two simulated fleets, without and with the gateway.
//!
//! Decides the load, the fleet and what is said about them. The gateway is the production
//! one, from configuration text to the relayed stream; the engines answer on loopback.
//! Nothing in the table is written here: every figure comes from the run.

mod board;
mod client;
mod fleet;
mod gateway;
mod live;
mod load;
mod mix;
mod report;
mod run;
#[cfg(test)]
mod tests;

use std::io::Write;

use clap::Args;
use tokio::runtime::Builder;

use super::Failure;
use super::plain::say;
use live::Show;
use run::{Compared, DemoError, Plan};

/// Engine time is this many times as fast as real time.
const COMPRESSION: u32 = 10;

/// Flags of `tidegate demo`.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// End after the table instead of staying up for requests of your own.
    #[arg(long)]
    once: bool,
    /// Print the figures as one JSON object and nothing else.
    #[arg(long, requires = "once")]
    json: bool,
    /// Seed of the load: the same seed is the same load.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the demo. Blocks; makes its own runtime.
pub(super) fn demo(flags: &Flags, out: &mut impl Write) -> Result<(), Failure> {
    // A request through the gateway takes six descriptors of this one process, and the usual
    // soft limit is 1024. Where it cannot be raised the load tells by failing.
    let _raised = rlimit::increase_nofile_limit(u64::MAX);
    let runtime = Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Run(format!("no runtime: {error}")))?;
    runtime.block_on(run(flags, out))
}

async fn run(flags: &Flags, out: &mut impl Write) -> Result<(), Failure> {
    let plan = Plan {
        engines: fleet::engines(),
        workload: mix::workload(flags.seed),
        scale: 1.0 / f64::from(COMPRESSION),
        show: Show::on_stderr(),
    };
    say(format_args!("{}", introduction(&plan, flags.seed)));
    let compared = plan.compare().await?;
    if flags.json {
        compared.comparison.write_json(out)?;
    } else {
        compared.comparison.write_table(out)?;
        writeln!(out, "\n{}", footnote())?;
    }
    out.flush()?;
    if !flags.once {
        stay(&compared).await?;
    }
    compared.gateway.shutdown().await;
    Ok(())
}

/// What is about to be run, for people.
fn introduction(plan: &Plan, seed: u64) -> String {
    let mut text = format!(
        "{} requests (seed {seed}) at an 8B model on three simulated engines:\n",
        plan.workload.arrivals().len()
    );
    for engine in &plan.engines {
        let spec = &engine.spec;
        let pool = spec.usable().tokens(spec.block_size);
        let (name, context) = (engine.name, spec.max_model_len);
        text.push_str(&format!(
            "  {name:<11}{pool:>7} tokens of KV, contexts up to {context}\n"
        ));
    }
    text.push_str(&format!("{}\n{}", footnote(), live::LEGEND));
    text
}

/// What the columns are; nobody should have to guess how the baseline was run.
fn footnote() -> String {
    format!(
        "without: round robin over standard and large; what an engine refuses as too long is\n\
         tried on the other and then on offload; clients wait as long as it takes.\n\
         with: the same requests at the same instants through tidegate.\n\
         All times are engine time, {COMPRESSION} times as fast as real time in both runs."
    )
}

/// Keeps the gateway up until interrupted.
async fn stay(compared: &Compared) -> Result<(), Failure> {
    let (addr, admin) = (compared.gateway.addr(), compared.gateway.admin_addr());
    let model = fleet::MODEL;
    say(format_args!(
        "\nThe gateway and its {} engines stay up until Ctrl-C; its dashboard is at\n\n  \
         http://{admin}/\n\nTry:\n\n  \
         curl -iN http://{addr}/v1/chat/completions -H 'content-type: application/json' \\\n    \
         -d '{{\"model\":\"{model}\",\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}],\"max_tokens\":64,\"stream\":true}}'\n\n  \
         curl http://{addr}/v1/models\n  \
         curl http://{admin}/state\n  \
         curl http://{admin}/metrics\n  \
         curl http://{admin}/readyz",
        compared.fleet.engines.len(),
    ));
    let ended = tokio::signal::ctrl_c().await;
    ended.map_err(|error| Failure::Run(format!("cannot wait for Ctrl-C: {error}")))
}

impl From<DemoError> for Failure {
    fn from(error: DemoError) -> Self {
        Self::Run(error.to_string())
    }
}
