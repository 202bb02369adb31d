//! What floods at the public listener cost a tenant who behaves.
//!
//! Measured: the time of small chats of one tenant, four at a time, through a
//! gateway before the simulated engine: alone; while 5,000 connections send one
//! byte of a request each second; and while 32 clients of others send chats of
//! a megabyte without pause, each of which is counted and refused. Quiet and
//! flooded turns alternate; gateway, engine and flood are processes of their
//! own, the floods come from other addresses of this machine. Baseline: the
//! quiet turn of the same round. We would act on a p99 of more than twice the
//! quiet one, median of the rounds.
//!
//! `cargo bench --bench floods [-- ROUNDS]`

mod flood;

use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tidegate::app;
use tidegate::config::{
    AccessLog, Anonymous, Backend, Config, KeyDigest, Model, Tenant, TokenizerChoice,
};
use tidegate::core::units::Tokens;
use tidegate::sim::engine::{EngineSpec, StepTime};
use tidegate::sim_server::{CHAT_TEMPLATE, SimServer, SimServerSpec};
use tokio::net::TcpSocket;
use tokio::runtime::Builder;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Which part of the set-up a process plays; none is the one that measures.
const ROLE: &str = "TIDEGATE_BENCH_ROLE";
/// Where the gateway finds its engine, and a flood the gateway.
const TARGET: &str = "TIDEGATE_BENCH_TARGET";
/// The key of the tenant who behaves, and its SHA-256 digest.
const KEY: &str = "crowd";
const DIGEST: &str = "5b4535bdd79ff9cd7894fcc2779dc3ee7c819a557555a7289dc286263be589e0";
/// Chats of one turn, side by side and one after the other.
const SIDES: usize = 4;
const CHATS: usize = 100;

fn main() -> Outcome<()> {
    // Every process of this bench holds thousands of connections or may.
    let files = rlimit::increase_nofile_limit(u64::MAX)?;
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let target = || -> Outcome<SocketAddr> { Ok(std::env::var(TARGET)?.parse()?) };
    match std::env::var(ROLE).as_deref() {
        Ok("engine") => runtime.block_on(engine()),
        Ok("gateway") => runtime.block_on(gateway(target()?)),
        Ok("slowloris") => runtime.block_on(flood::slowloris(target()?)),
        Ok("bodies") => runtime.block_on(flood::bodies(target()?)),
        _ => {
            println!("{files} file descriptors");
            let rounds = std::env::args().find_map(|arg| arg.parse().ok());
            runtime.block_on(measure(rounds.unwrap_or(5)))
        }
    }
}

// === the processes ===

async fn engine() -> Outcome<()> {
    let engine = EngineSpec {
        step: StepTime::constant(Duration::from_millis(2)),
        max_num_seqs: 256,
        ..EngineSpec::with_pool(Tokens::new(1 << 18))
    };
    let server = SimServer::start(SimServerSpec::new("m", engine))?;
    println!("{}", server.addr());
    ended().await
}

async fn gateway(engine: SocketAddr) -> Outcome<()> {
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let backend = Backend::new(format!("http://{engine}").parse()?);
    let mut model = Model::new("m", vec![backend]);
    let template = std::env::temp_dir().join(format!("floods-{}.jinja", std::process::id()));
    std::fs::write(&template, CHAT_TEMPLATE)?;
    model.tokenizer = TokenizerChoice::Tiktoken("o200k_base".into());
    model.chat_template_file = Some(template.clone());
    let mut good = Tenant::new("good");
    good.keys = KeyDigest::from_hex(DIGEST).into_iter().collect();
    let mut others = Tenant::new("others");
    others.anonymous = Anonymous::Accepted;
    others.limits.max_in_flight = Some(Tokens::new(1000));
    let mut config = Config {
        models: vec![model],
        tenants: vec![good, others],
        ..Config::default()
    };
    config.server.listen = any_port;
    config.admin.listen = any_port;
    config.log.access = AccessLog::File("/dev/null".into());
    let running = app::start(config).await?;
    running.ready().await;
    std::fs::remove_file(&template)?;
    println!("{}", running.addr());
    ended().await?;
    let crowd = running.gateway().crowd();
    eprintln!("  the gateway cut {} silent connections", crowd.crowded_out);
    Ok(())
}

/// Waits until the parent has gone.
async fn ended() -> Outcome<()> {
    let gone = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    gone.await??;
    Ok(())
}

/// A child process; dropping it closes its standard input, which ends it.
struct Part {
    child: Child,
    /// The line it said when it was there.
    said: String,
}

impl Part {
    fn start(role: &str, target: Option<&str>) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .env(ROLE, role)
            .env(TARGET, target.unwrap_or_default());
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.take().ok_or("a child without output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let said = line.trim().to_owned();
        Ok(Self { child, said })
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

// === the tenant who behaves ===

/// A connection to `to` from this address of the machine.
async fn connect(from: Ipv4Addr, to: SocketAddr) -> Outcome<SendRequest<Full<Bytes>>> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((IpAddr::V4(from), 0).into())?;
    let stream = socket.connect(to).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    drop(tokio::spawn(connection));
    Ok(sender)
}

fn chat(side: usize, number: usize) -> Request<Full<Bytes>> {
    let text = format!("Chat {number} of {side}: when does the tide come in?");
    let body = format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":"{text}"}}],"max_tokens":8}}"#
    );
    Request::post("/v1/chat/completions")
        .header("host", "bench")
        .header("authorization", format!("Bearer {KEY}"))
        .header("content-type", "application/json")
        .body(Full::from(body))
        .expect("a constant request")
}

/// Half of a side's chats on one connection, half on new ones: the door counts.
async fn side(gateway: SocketAddr, side: usize) -> Outcome<Vec<Duration>> {
    let mut times = Vec::with_capacity(CHATS);
    let mut kept = connect(Ipv4Addr::LOCALHOST, gateway).await?;
    for number in 0..CHATS {
        let began = Instant::now();
        if number % 2 == 0 {
            kept = connect(Ipv4Addr::LOCALHOST, gateway).await?;
        }
        kept.ready().await?;
        let answer = kept.send_request(chat(side, number)).await?;
        assert!(answer.status().is_success(), "{}", answer.status());
        answer.into_body().collect().await?;
        times.push(began.elapsed());
    }
    Ok(times)
}

/// One turn: p50 and p99 in milliseconds.
async fn turn(gateway: SocketAddr) -> Outcome<[f64; 2]> {
    let sides: Vec<_> = (0..SIDES)
        .map(|number| tokio::spawn(side(gateway, number)))
        .collect();
    let mut times = Vec::new();
    for side in sides {
        times.extend(side.await??);
    }
    times.sort_unstable();
    let at = |index: usize| times[index].as_secs_f64() * 1e3;
    Ok([at(times.len() / 2), at(times.len() * 99 / 100)])
}

// === the figures ===

async fn measure(rounds: usize) -> Outcome<()> {
    let engine = Part::start("engine", None)?;
    let gateway = Part::start("gateway", Some(&engine.said))?;
    let addr = gateway.said.parse()?;
    turn(addr).await?;
    for (role, what) in [
        ("slowloris", "5,000 slow connections"),
        ("bodies", "bodies of a megabyte"),
    ] {
        let mut ratios = [Vec::new(), Vec::new()];
        for round in 1..=rounds {
            let quiet = turn(addr).await?;
            let flood = Part::start(role, Some(&gateway.said))?;
            let flooded = turn(addr).await?;
            drop(flood);
            println!(
                "{what}, round {round}: p50 {:.1} -> {:.1} ms, p99 {:.1} -> {:.1} ms",
                quiet[0], flooded[0], quiet[1], flooded[1]
            );
            for (which, ratios) in ratios.iter_mut().enumerate() {
                ratios.push(flooded[which] / quiet[which]);
            }
        }
        let [p50, p99] = ratios.map(median);
        println!("{what}: p50 {p50:.2} times, p99 {p99:.2} times the quiet one (median)");
    }
    Ok(())
}

fn median(mut ratios: Vec<f64>) -> f64 {
    ratios.sort_unstable_by(f64::total_cmp);
    ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN)
}
