//! What a request and a chunk cost in tidegate and in other proxies, beside them.
//!
//! Measured, each proxy alone on one core, the mock engine and the load generator
//! on another: requests a second at saturation, latency added at fixed rates,
//! processor time per request, per chunk of a stream and per prompt of 100,000
//! tokens, memory per idle stream. Baseline: the same requests straight at the
//! engine, and nginx. We would act on twice nginx's processor time per request, or
//! on more than nginx's per paced chunk.
//!
//! `benches/peers/run` installs and starts the proxies and calls this; by itself
//! this is the engine, the load and the drawing.

mod answer;
mod ask;
mod engine;
mod goals;
mod link;
mod load;
#[expect(
    clippy::unwrap_used,
    dead_code,
    reason = "written for tests, which need more of it"
)]
#[path = "../../tests/families/models.rs"]
mod models;
mod plot;
mod proc;
mod prose;
mod report;
mod script;
mod tally;
mod wire;

use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ask::{Shape, Wanted};
use clap::{Args, Parser, Subcommand, ValueEnum};
use load::{Drive, Load};
use report::Results;
use script::Pace;
use tokio::net::TcpListener;
use tokio::runtime::Builder;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Mock engine, load generator and drawing of `benches/peers/run`.
#[derive(Debug, Parser)]
struct Flags {
    /// Given by `cargo bench`; without meaning here.
    #[arg(long, hide = true, global = true)]
    bench: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer as vLLM does, until ended.
    Engine {
        /// Where to listen.
        #[arg(long)]
        listen: SocketAddr,
    },
    /// Send requests for a while; figures as JSON.
    Load(LoadFlags),
    /// Open streams that stay idle; memory of the watched process as JSON.
    Idle {
        #[command(flatten)]
        request: RequestFlags,
        /// Streams to open.
        #[arg(long)]
        streams: usize,
        /// Seconds after which no more are opened.
        #[arg(long, default_value_t = 20.0)]
        limit: f64,
        /// Process whose tree is watched.
        #[arg(long)]
        watch: u32,
    },
    /// Print the body that a load would send first.
    Body(RequestFlags),
    /// Print prompts of English, one a line, each of these words in another order.
    Prose {
        /// How many.
        #[arg(long)]
        count: u32,
        /// Words of each.
        #[arg(long)]
        words: usize,
    },
    /// Unpack the vocabulary and template of Qwen 3 into a directory.
    Vocabulary {
        /// The directory, which must not be there.
        into: PathBuf,
    },
    /// Print the figures of a `results.json` as a table in Markdown.
    Table {
        /// What `run` has written.
        results: PathBuf,
    },
    /// Print them as bars in SVG.
    Plot {
        /// What `run` has written.
        results: PathBuf,
    },
}

#[derive(Debug, Args)]
struct LoadFlags {
    #[command(flatten)]
    request: RequestFlags,
    /// Requests at one time.
    #[arg(long, conflicts_with = "rate", required_unless_present = "rate")]
    closed: Option<usize>,
    /// Requests a second, whatever comes back.
    #[arg(long)]
    rate: Option<f64>,
    /// Seconds before the window.
    #[arg(long, default_value_t = 0.5)]
    run_up: f64,
    /// Seconds of the window.
    #[arg(long)]
    seconds: f64,
    /// Process whose tree's processor time is told.
    #[arg(long)]
    watch: Option<u32>,
}

#[derive(Debug, Args)]
struct RequestFlags {
    /// Where to send requests.
    #[arg(long, default_value = "127.0.0.1:1")]
    to: SocketAddr,
    /// Further headers, as "name: value".
    #[arg(long)]
    header: Vec<String>,
    /// Ask for a stream of so many pieces.
    #[arg(long, value_name = "PIECES")]
    stream: Option<u32>,
    /// How its pieces follow each other.
    #[arg(long, value_enum, default_value = "fast")]
    pace: PaceFlag,
    /// Bytes of the prompt.
    #[arg(long, default_value_t = 64)]
    prompt_bytes: usize,
    /// Tokens that the engine's usage tells.
    #[arg(long, default_value_t = 0)]
    prompt_tokens: u32,
    /// File of prompts to send in turn, one a line.
    #[arg(long)]
    prompts: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PaceFlag {
    /// One write after the other.
    Fast,
    /// One each 10 ms.
    Paced,
    /// None after the beginning.
    Hold,
}

fn main() -> Outcome<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    match Flags::parse().command {
        Command::Engine { listen } => runtime.block_on(async {
            let listener = TcpListener::bind(listen).await?;
            engine::serve(listener).await?;
            Ok(())
        }),
        Command::Load(flags) => {
            println!("{}", runtime.block_on(flags.load()?.run())?);
            Ok(())
        }
        Command::Idle {
            request,
            streams,
            limit,
            watch,
        } => {
            let limit = Duration::from_secs_f64(limit);
            let wanted = request.wanted()?;
            let idle = load::idle(&wanted, streams, limit, watch);
            println!("{}", runtime.block_on(idle));
            Ok(())
        }
        command => print(command),
    }
}

/// The commands that need no network.
fn print(command: Command) -> Outcome<()> {
    match command {
        Command::Body(request) => println!("{}", request.wanted()?.first_body()),
        Command::Prose { count, words } => {
            for seed in 0..count {
                println!("{}", prose::text(seed, words));
            }
        }
        Command::Vocabulary { into } => std::fs::rename(models::committed("qwen3"), into)?,
        Command::Table { results } => {
            let results = read(&results)?;
            println!("{}\n{}", results.table(), goals::table(&results));
        }
        Command::Plot { results } => print!("{}", plot::svg(&read(&results)?)?),
        Command::Engine { .. } | Command::Load(_) | Command::Idle { .. } => {}
    }
    Ok(())
}

fn read(results: &Path) -> Outcome<Results> {
    Ok(serde_json::from_str(&std::fs::read_to_string(results)?)?)
}

// === impl LoadFlags ===

impl LoadFlags {
    fn load(&self) -> Outcome<Load> {
        let drive = match (self.rate, self.closed) {
            (Some(rate), _) => Drive::Open(rate),
            (None, count) => Drive::Closed(count.unwrap_or(1)),
        };
        Ok(Load {
            wanted: self.request.wanted()?,
            drive,
            run_up: Duration::from_secs_f64(self.run_up),
            window: Duration::from_secs_f64(self.seconds),
            watched: self.watch,
        })
    }
}

// === impl RequestFlags ===

impl RequestFlags {
    fn wanted(&self) -> Outcome<Wanted> {
        let pace = match self.pace {
            PaceFlag::Fast => Pace::Fast,
            PaceFlag::Paced => Pace::Every(Duration::from_millis(10)),
            PaceFlag::Hold => Pace::Hold,
        };
        let text = self.prompts.as_ref().map(std::fs::read_to_string);
        let text = text.transpose()?.unwrap_or_default();
        Ok(Wanted {
            to: self.to,
            headers: self.header.clone(),
            shape: self
                .stream
                .map_or(Shape::Plain, |pieces| Shape::Stream { pieces, pace }),
            prompt_bytes: self.prompt_bytes,
            prompt_tokens: self.prompt_tokens,
            prompts: text.lines().map(str::to_owned).collect(),
        })
    }
}
