//! The processes under test: one gateway and its engines.
//!
//! Engines keep their ports over deaths, below the range the system hands out
//! by itself, so that one that comes back finds its address free.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tidegate::sim::random::Random;

use crate::options::Options;
use crate::process::{Process, Weight};
use crate::settings::Settings;

/// Real time after which something that must happen has not: no assertion, only
/// the end of a run that hangs.
pub(crate) const HANG: Duration = Duration::from_secs(180);
/// Ports tried: below those the system hands out, above those of services.
const PORTS: (u64, u64) = (21_000, 31_999);
/// KV blocks of an engine; one that comes back may have down to three quarters.
const BLOCKS: u64 = 80_000;
/// Tokens per block.
pub(crate) const BLOCK_SIZE: u64 = 16;
/// Longest context, prompt plus output.
pub(crate) const CONTEXT: u64 = 8192;
/// Sequences an engine runs.
pub(crate) const SEQUENCES: u64 = 1024;

/// A gateway, as `tidegate serve` runs it.
pub(crate) struct Gateway {
    pub(crate) process: Process,
    admin: String,
}

/// An engine: alive, stopped or dead.
pub(crate) struct Engine {
    port: u16,
    process: Option<Process>,
    /// When it goes on, or comes back.
    pub(crate) due: Option<Instant>,
    stopped: bool,
}

/// Free ports, none twice.
pub(crate) fn free_ports(number: u64, random: &mut Random) -> Vec<u16> {
    let mut held = Vec::new();
    let mut ports = Vec::new();
    while u64::try_from(ports.len()).is_ok_and(|len| len < number) {
        let port = u16::try_from(random.between(PORTS.0, PORTS.1)).expect("a port");
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            held.push(listener);
            ports.push(port);
        }
    }
    ports
}

// === impl Gateway ===

impl Gateway {
    /// Starts it and waits until it is ready.
    pub(crate) fn start(settings: &Settings) -> Self {
        let log = File::create(settings.directory.join("gateway.log")).expect("a log file");
        let process = Process::spawn(
            Command::new(env!("CARGO_BIN_EXE_tidegate"))
                .args(["serve", "--config"])
                .arg(settings.file())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log),
        );
        let gateway = Self {
            process: process.expect("the gateway's binary starts"),
            admin: format!("http://127.0.0.1:{}", settings.admin),
        };
        until("the gateway is ready", || gateway.get("/readyz").is_some());
        gateway
    }

    /// Reads a page of the admin listener; `None` where it does not answer 200.
    pub(crate) fn get(&self, path: &str) -> Option<String> {
        let url = format!("{}{path}", self.admin);
        let limit = Some(Duration::from_secs(30));
        let call = ureq::get(&url)
            .config()
            .timeout_global(limit)
            .build()
            .call();
        call.ok()?.body_mut().read_to_string().ok()
    }

    /// `/state`, or null where it does not answer.
    pub(crate) fn state(&self) -> Value {
        let text = self.get("/state");
        text.and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default()
    }

    pub(crate) fn weigh(&self) -> Weight {
        self.process.weigh()
    }

    /// Tells it to read its configuration again.
    pub(crate) fn reload(&self) {
        self.process.signal(Signal::HUP);
    }
}

// === impl Engine ===

impl Engine {
    pub(crate) const fn new(port: u16) -> Self {
        Self {
            port,
            process: None,
            due: None,
            stopped: false,
        }
    }

    /// Starts it with this many KV blocks and waits until it listens. `false`
    /// where it could not.
    pub(crate) fn start(&mut self, options: &Options, random: &mut Random) -> bool {
        let blocks = random.between(BLOCKS * 3 / 4, BLOCKS);
        let mut command = Command::new(env!("CARGO_BIN_EXE_vllm-sim"));
        command
            .args([
                "--served-model-name",
                "sim",
                "--port",
                &self.port.to_string(),
            ])
            .args(["--num-gpu-blocks-override", &blocks.to_string()])
            .args(["--block-size", &BLOCK_SIZE.to_string()])
            .args(["--max-model-len", &CONTEXT.to_string()])
            .args(["--max-num-seqs", &SEQUENCES.to_string()])
            .args(["--time-scale", &options.time_scale.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut process = Process::spawn(&mut command).expect("the engine's binary starts");
        let stdout = process.0.stdout.take().expect("it is piped");
        let mut line = String::new();
        let listens = BufReader::new(stdout)
            .read_line(&mut line)
            .is_ok_and(|read| read > 0);
        self.due = None;
        self.stopped = false;
        self.process = listens.then_some(process);
        listens
    }

    /// Nothing of it is left but its address.
    pub(crate) fn kill(&mut self, back: Instant) {
        self.process = None;
        self.stopped = false;
        self.due = Some(back);
    }

    /// It stands still: connections stay, nothing moves.
    pub(crate) fn stop(&mut self, on: Instant) {
        if let Some(process) = &self.process {
            process.signal(Signal::STOP);
            self.stopped = true;
            self.due = Some(on);
        }
    }

    pub(crate) fn go_on(&mut self) {
        if let Some(process) = self.process.as_ref().filter(|_| self.stopped) {
            process.signal(Signal::CONT);
        }
        self.stopped = false;
        self.due = None;
    }

    pub(crate) const fn is_dead(&self) -> bool {
        self.process.is_none()
    }

    /// Alive and moving.
    pub(crate) const fn is_well(&self) -> bool {
        self.process.is_some() && !self.stopped
    }

    /// Levels of its own metrics that must be zero when nothing runs, where it lives.
    pub(crate) fn levels(&self) -> Vec<String> {
        if self.is_dead() {
            return Vec::new();
        }
        let url = format!("http://127.0.0.1:{}/metrics", self.port);
        let page = ureq::get(&url).call().ok();
        let page = page.and_then(|mut page| page.body_mut().read_to_string().ok());
        let level = |line: &&str| {
            [
                "vllm:num_requests_running",
                "vllm:num_requests_waiting{",
                "vllm:kv_cache_usage_perc",
            ]
            .iter()
            .any(|name| line.starts_with(name))
                && !line.ends_with(" 0.0")
        };
        let page =
            page.unwrap_or_else(|| format!("vllm:num_requests_running: {url} does not answer"));
        page.lines().filter(level).map(str::to_owned).collect()
    }
}

/// Polls until `reached`, and ends the run where that never comes.
pub(crate) fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let started = Instant::now();
    while !reached() {
        assert!(started.elapsed() < HANG, "{what}: it never comes to that");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A directory of the run's own, removed at its end.
pub(crate) fn directory(seed: u64) -> std::path::PathBuf {
    let name = format!("chaos-{}-{seed}", std::process::id());
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).expect("the target directory is writable");
    let template = directory.join("chat.jinja");
    std::fs::write(template, tidegate::sim_server::CHAT_TEMPLATE).expect("it is writable");
    directory
}
