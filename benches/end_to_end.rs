//! What the gateway adds to a request and to a chunk of a stream.
//!
//! Measured: latency and processor time of the same requests sent straight to
//! the simulated engine and through a gateway before it, alternating in one run
//! so that whatever else the machine does meets both. Engine and gateway are
//! processes of their own; their processor time is read from `/proc`.
//! Baseline: the direct way. We would act on more than 300 µs of added median
//! latency, 300 µs of processor time per request or 15 µs per chunk.
//!
//! Then small chats are sent through the gateway while another tenant sends
//! prompts of a megabyte without pause, each counted in full and refused, so that
//! none reaches the engine. Quiet and crowded turns alternate. Baseline: the quiet
//! turns. We would act on more than 2 ms of added p99.
//!
//! `cargo bench --bench end_to_end [-- ROUNDS]`

#[path = "end_to_end/crowd.rs"]
mod crowd;

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tidegate::app;
use tidegate::config::{AccessLog, Backend, Config, Model, Tenant, TokenizerChoice};
use tidegate::core::units::Tokens;
use tidegate::sim::engine::{EngineSpec, StepTime};
use tidegate::sim_server::{CHAT_TEMPLATE, SimServer, SimServerSpec};
use tokio::net::TcpStream;
use tokio::runtime::Builder;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Which part of the set-up a process plays; none is the one that measures.
const ROLE: &str = "TIDEGATE_BENCH_ROLE";
/// Where the gateway finds its engine.
const ENGINE: &str = "TIDEGATE_BENCH_ENGINE";
/// Plain requests of one turn.
const REQUESTS: usize = 100;
/// Streams at one time, and chunks of each.
const STREAMS: usize = 16;
const CHUNKS: usize = 400;
/// The unit of processor time in `/proc`: a hundredth of a second on Linux.
const TICK: Duration = Duration::from_millis(10);

fn main() -> Outcome<()> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    match std::env::var(ROLE).as_deref() {
        Ok("engine") => runtime.block_on(engine()),
        Ok("gateway") => runtime.block_on(gateway()),
        _ => {
            let rounds = std::env::args().find_map(|arg| arg.parse().ok());
            runtime.block_on(measure(rounds.unwrap_or(30)))
        }
    }
}

// === the processes ===

async fn engine() -> Outcome<()> {
    let engine = EngineSpec {
        step: StepTime::constant(Duration::from_micros(500)),
        max_num_seqs: 256,
        ..EngineSpec::with_pool(Tokens::new(1 << 20))
    };
    let server = SimServer::start(SimServerSpec::new("m", engine))?;
    announce(server.addr()).await
}

async fn gateway() -> Outcome<()> {
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut model = Model::new("m", vec![Backend::new(std::env::var(ENGINE)?.parse()?)]);
    let template = std::env::temp_dir().join(format!("bench-{}.jinja", std::process::id()));
    std::fs::write(&template, CHAT_TEMPLATE)?;
    model.tokenizer = TokenizerChoice::Tiktoken("o200k_base".into());
    model.chat_template_file = Some(template.clone());
    let mut config = Config {
        models: vec![model],
        tenants: vec![Tenant::open(), crowd::tenant()],
        ..Config::default()
    };
    config.server.listen = any_port;
    config.admin.listen = any_port;
    config.log.access = AccessLog::File("/dev/null".into());
    let running = app::start(config).await?;
    running.ready().await;
    std::fs::remove_file(&template)?;
    announce(running.addr()).await
}

/// Says where a process listens and lives until its parent has gone.
async fn announce(addr: SocketAddr) -> Outcome<()> {
    println!("{addr}");
    let gone = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    gone.await??;
    Ok(())
}

/// A child process; dropping it closes its standard input, which ends it.
struct Part {
    child: Child,
    addr: SocketAddr,
}

impl Part {
    fn start(role: &str, engine: Option<SocketAddr>) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.env(ROLE, role);
        if let Some(addr) = engine {
            command.env(ENGINE, format!("http://{addr}"));
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.take().ok_or("a child without output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let addr = line.trim().parse()?;
        Ok(Self { child, addr })
    }

    /// Processor time used since its start, user and system.
    fn processor_time(&self) -> Outcome<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let fields = stat.rsplit_once(')').ok_or("an odd stat file")?.1;
        let ticks = fields.split_whitespace().skip(11).take(2);
        let ticks: Vec<u32> = ticks.map(str::parse).collect::<Result<_, _>>()?;
        Ok(TICK * ticks.iter().sum())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        if let Err(error) = self.child.wait() {
            eprintln!("a child was not waited for: {error}");
        }
    }
}

// === the load ===

async fn connect(addr: SocketAddr) -> Outcome<SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(addr).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    drop(tokio::spawn(connection));
    Ok(sender)
}

fn request(max_tokens: usize, stream: &str) -> Request<Full<Bytes>> {
    let prompt = "The tide comes in twice a day and nobody has to ask. ".repeat(20);
    let body = format!(
        r#"{{"model":"m","prompt":"{prompt}","max_tokens":{max_tokens},"stream":{stream}}}"#
    );
    Request::post("/v1/completions")
        .header("host", "bench")
        .header("content-type", "application/json")
        .body(Full::from(body))
        .expect("a constant request")
}

/// Sends plain requests one after the other; the time of each.
async fn plain(addr: SocketAddr) -> Outcome<Vec<Duration>> {
    let mut sender = connect(addr).await?;
    let mut times = Vec::with_capacity(REQUESTS);
    for _ in 0..REQUESTS {
        sender.ready().await?;
        let began = Instant::now();
        let answer = sender.send_request(request(1, "false")).await?;
        assert!(answer.status().is_success(), "{}", answer.status());
        answer.into_body().collect().await?;
        times.push(began.elapsed());
    }
    Ok(times)
}

/// Runs streams side by side; the time to the first data of each.
async fn streams(addr: SocketAddr) -> Outcome<Vec<Duration>> {
    let streams: Vec<_> = (0..STREAMS).map(|_| tokio::spawn(stream(addr))).collect();
    let mut firsts = Vec::with_capacity(STREAMS);
    for stream in streams {
        firsts.push(stream.await??);
    }
    Ok(firsts)
}

async fn stream(addr: SocketAddr) -> Outcome<Duration> {
    let mut sender = connect(addr).await?;
    let began = Instant::now();
    let answer = sender.send_request(request(CHUNKS, "true")).await?;
    assert!(answer.status().is_success(), "{}", answer.status());
    let mut body = answer.into_body();
    let mut first = None;
    while let Some(frame) = body.frame().await {
        frame?;
        first.get_or_insert_with(|| began.elapsed());
    }
    first.ok_or_else(|| "a stream without data".into())
}

// === the figures ===

/// One way of sending, over all rounds.
#[derive(Default)]
struct Way {
    times: Vec<Duration>,
    wall: Duration,
}

impl Way {
    fn quantile(&mut self, share: f64) -> f64 {
        self.times.sort_unstable();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an index into some thousand samples"
        )]
        let index = ((self.times.len() - 1) as f64 * share) as usize;
        self.times[index].as_secs_f64() * 1e6
    }
}

async fn measure(rounds: usize) -> Outcome<()> {
    let engine = Part::start("engine", None)?;
    let gateway = Part::start("gateway", Some(engine.addr))?;
    for addr in [engine.addr, gateway.addr] {
        plain(addr).await?;
        streams(addr).await?;
    }
    let requests = rounds * REQUESTS;
    let before = gateway.processor_time()?;
    let (mut direct, mut through) = (Way::default(), Way::default());
    for _ in 0..rounds {
        for (way, addr) in [(&mut direct, engine.addr), (&mut through, gateway.addr)] {
            let began = Instant::now();
            way.times.extend(plain(addr).await?);
            way.wall += began.elapsed();
        }
    }
    println!("plain requests, one after the other: {requests} each way");
    compare("latency p50", direct.quantile(0.5), through.quantile(0.5));
    compare("latency p99", direct.quantile(0.99), through.quantile(0.99));
    per("request", gateway.processor_time()? - before, requests);

    let chunks = rounds * STREAMS * CHUNKS;
    let before = gateway.processor_time()?;
    let (mut direct, mut through) = (Way::default(), Way::default());
    for _ in 0..rounds {
        for (way, addr) in [(&mut direct, engine.addr), (&mut through, gateway.addr)] {
            let began = Instant::now();
            way.times.extend(streams(addr).await?);
            way.wall += began.elapsed();
        }
    }
    println!("streams, {STREAMS} at a time: {chunks} chunks each way");
    compare(
        "first data p50",
        direct.quantile(0.5),
        through.quantile(0.5),
    );
    compare(
        "first data p99",
        direct.quantile(0.99),
        through.quantile(0.99),
    );
    let each = |way: &Way| way.wall.as_secs_f64() * 1e6 / (rounds * CHUNKS).max(1) as f64;
    compare("time per chunk of a stream", each(&direct), each(&through));
    per("chunk", gateway.processor_time()? - before, chunks);
    crowd::measure(&gateway, rounds).await?;
    std::io::stdout().flush()?;
    Ok(())
}

fn compare(what: &str, direct: f64, through: f64) {
    println!(
        "  {what}: direct {direct:.0} µs, through the gateway {through:.0} µs, \
         added {:.0} µs, ratio {:.2}",
        through - direct,
        through / direct
    );
}

fn per(what: &str, spent: Duration, count: usize) {
    let each = spent.as_secs_f64() * 1e6 / count.max(1) as f64;
    println!("  processor time of the gateway per {what}: {each:.1} µs");
}
