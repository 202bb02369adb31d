//! A load generator: a process of its own with many clients.
//!
//! It is told what to do on its command line and stdin, and tells a line of
//! JSON a second: what became of the requests so far. It ends when its stdin
//! does and every client has its answer.

mod ask;
mod client;
mod connection;
mod judge;

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate::sim::random::Random;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::process::Process;
use crate::tally::Tally;
use client::{Client, Orders};

/// What a generator is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Duty {
    /// The gateway's port.
    pub(crate) port: u16,
    pub(crate) clients: u64,
    /// Number of its first client, among all generators.
    pub(crate) first: u64,
    pub(crate) seed: u64,
    pub(crate) longest_answer: u64,
    pub(crate) temper: Temper,
}

/// How clients are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Temper {
    /// Of every kind there is.
    Mixed,
    /// Each asks for streams and reads them to their end, so that all must be full.
    Calm,
}

/// A generator, seen from the process that started it.
pub(crate) struct Generator {
    process: Process,
    stdin: Option<ChildStdin>,
    latest: Arc<Mutex<Tally>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

/// A generator's whole life, in its own process.
pub(crate) fn generate(duty: &Duty) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime starts");
    runtime.block_on(serve(duty));
}

async fn serve(duty: &Duty) {
    let tally = Arc::new(Mutex::new(Tally::default()));
    let orders = watch::Sender::new(Orders::default());
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, duty.port));
    let mut clients = JoinSet::new();
    for number in duty.first..duty.first + duty.clients {
        let client = Client::new(addr, Random::new(duty.seed).fork(number));
        let tally = Arc::clone(&tally);
        let told = move |verdict| {
            tally
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .add(verdict)
        };
        clients.spawn(client.run(duty.clone(), orders.subscribe(), told));
    }
    std::thread::spawn(move || listen(&orders));
    let mut second = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            ended = clients.join_next() => match ended {
                None => break,
                Some(ended) => ended.expect("a client does not panic"),
            },
            _ = second.tick() => tell(&tally),
        }
    }
    tell(&tally);
}

/// A line on stdin is a storm; its end is the end.
fn listen(orders: &watch::Sender<Orders>) {
    for _line in std::io::stdin().lines().map_while(Result::ok) {
        orders.send_modify(|orders| orders.storms += 1);
    }
    orders.send_modify(|orders| orders.enough = true);
    // Clients that wait for a storm wait on; the sender stays until they are done.
    loop {
        std::thread::park();
    }
}

fn tell(tally: &Mutex<Tally>) {
    let text = serde_json::to_string(&*tally.lock().unwrap_or_else(PoisonError::into_inner));
    println!("{}", text.expect("names and numbers have a JSON form"));
}

// === impl Generator ===

impl Generator {
    pub(crate) fn start(duty: &Duty) -> Self {
        let own = std::env::current_exe().expect("the tool has a path");
        let duty = serde_json::to_string(duty).expect("numbers have a JSON form");
        let mut command = Command::new(own);
        command
            .args(["--generate", &duty])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = Process::spawn(&mut command).expect("the tool starts itself");
        let stdin = process.0.stdin.take();
        let stdout = process.0.stdout.take().expect("it is piped");
        let latest = Arc::new(Mutex::new(Tally::default()));
        let writes = Arc::clone(&latest);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Ok(tally) = serde_json::from_str(&line) {
                    *writes.lock().unwrap_or_else(PoisonError::into_inner) = tally;
                }
            }
        });
        Self {
            process,
            stdin,
            latest,
            reader: Some(reader),
        }
    }

    /// What became of its requests up to the last second.
    pub(crate) fn tally(&self) -> Tally {
        self.latest
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Makes many of its clients leave at once.
    pub(crate) fn storm(&mut self) {
        let stdin = self.stdin.as_mut().expect("it has not been told to finish");
        stdin.write_all(b"storm\n").expect("the generator lives");
    }

    /// No more requests; those that run go on to their end.
    pub(crate) fn finish(&mut self) {
        self.stdin = None;
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.has_ended()
    }

    /// Its last word, after it has ended by itself.
    pub(crate) fn last(mut self) -> Tally {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("reading lines does not panic");
        }
        let status = self.process.0.wait().expect("it can be waited for");
        assert!(status.success(), "a load generator failed: {status}");
        self.tally()
    }
}
