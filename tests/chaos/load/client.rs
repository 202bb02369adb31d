//! One client: a request after another, each told apart to its last byte.

use std::net::SocketAddr;
use std::time::Duration;

use http::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;
use tidegate::sim::random::Random;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::Duty;
use super::ask::{Ask, Manner};
use super::connection::{Connection, Version, Width, dial};
use super::judge::{Ending, Reader};
use crate::tally::Verdict;

/// Real time after which a request hangs.
const PATIENCE: Duration = Duration::from_secs(600);

/// What the generator tells its clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Orders {
    /// Storms so far; at each, many leave.
    pub(crate) storms: u64,
    /// No more requests.
    pub(crate) enough: bool,
}

/// One client and the connection it keeps.
pub(crate) struct Client {
    addr: SocketAddr,
    version: Version,
    random: Random,
    kept: Option<Connection>,
}

// === impl Client ===

impl Client {
    pub(crate) fn new(addr: SocketAddr, mut random: Random) -> Self {
        let http2 = random.between(0, 9) < 2;
        let version = if http2 {
            Version::Http2
        } else {
            Version::Http1
        };
        Self {
            addr,
            version,
            random,
            kept: None,
        }
    }

    /// Asks until told that it is enough.
    pub(crate) async fn run(
        mut self,
        duty: Duty,
        mut orders: watch::Receiver<Orders>,
        told: impl Fn(Verdict),
    ) {
        // Not all at the same moment.
        sleep(Duration::from_millis(self.random.between(0, 3000))).await;
        while !orders.borrow_and_update().enough {
            let ask = Ask::draw(&mut self.random, &duty);
            let leaves = self.random.between(0, 9) < 3;
            let verdict = tokio::select! {
                verdict = self.ask(&ask) => verdict,
                () = storm(&mut orders), if leaves => Verdict::Left("in a storm"),
            };
            if verdict != Verdict::Full {
                // Whatever was in the middle ends with its connection.
                let keep = self.kept.take().filter(Connection::outlives_a_stream);
                self.kept = keep.filter(|_| self.random.between(0, 1) == 0);
            }
            let pause = match &verdict {
                Verdict::Visible(_) => self.random.between(200, 1500),
                _ => self.random.between(0, 50),
            };
            told(verdict);
            sleep(Duration::from_millis(pause)).await;
        }
    }

    async fn ask(&mut self, ask: &Ask) -> Verdict {
        let attempt = async {
            match ask.manner {
                Manner::LeavesAsking(hundredths) => self.part(ask, hundredths).await,
                Manner::Noise => self.noise().await,
                Manner::LeavesAfter(after) => {
                    let after = Duration::from_millis(after);
                    let verdict = timeout(after, self.whole(ask)).await;
                    verdict.unwrap_or(Verdict::Left("after a time"))
                }
                _ => self.whole(ask).await,
            }
        };
        let verdict = timeout(PATIENCE, attempt).await;
        verdict.unwrap_or_else(|_| Verdict::Violation(format!("no end after {PATIENCE:?}")))
    }

    /// A request and its whole answer.
    async fn whole(&mut self, ask: &Ask) -> Verdict {
        let width = match ask.manner {
            Manner::Slow(_) => Width::Narrow,
            _ => Width::Usual,
        };
        let kept = self.kept.take().filter(|_| width == Width::Usual);
        let mut connection = match kept {
            Some(connection) => connection,
            None => match self.open(width).await {
                Ok(connection) => connection,
                Err(what) => return Verdict::Visible(what),
            },
        };
        let asked = Instant::now();
        let verdict = match connection.send(ask.request()).await {
            Ok(answer) => read(answer, ask).await,
            // It was closed for its idleness as the request went out.
            Err(_) if connection.used > 1 => {
                return Verdict::Visible("closed before the request".to_owned());
            }
            Err(error) => {
                let (cause, after) = (innermost(&error), asked.elapsed().as_secs());
                // Nobody can use it again.
                return Verdict::Visible(format!("cut {after} s after the request: {cause}"));
            }
        };
        self.kept = Some(connection);
        verdict
    }

    async fn open(&self, width: Width) -> Result<Connection, String> {
        let stream = dial(self.addr, width).await;
        let stream = stream.map_err(|error| format!("connect: {}", error.kind()))?;
        let connection = Connection::open(stream, self.version).await;
        connection.map_err(|_| "no handshake".to_owned())
    }

    /// A part of a request, and gone.
    async fn part(&self, ask: &Ask, hundredths: u64) -> Verdict {
        let bytes = ask.bytes();
        let share = usize::try_from(hundredths).expect("at most a hundred");
        let Ok(mut stream) = dial(self.addr, Width::Usual).await else {
            return Verdict::Visible("connect".to_owned());
        };
        // Whether it got there is the same to one who leaves.
        drop(stream.write_all(&bytes[..bytes.len() * share / 100]).await);
        Verdict::Left("asking")
    }

    /// Bytes that are no HTTP: the gateway says so or closes.
    async fn noise(&mut self) -> Verdict {
        let Ok(mut stream) = dial(self.addr, Width::Usual).await else {
            return Verdict::Visible("connect".to_owned());
        };
        let mut noise: Vec<u8> = (0..64)
            .map(|_| self.random.next_u64().to_le_bytes()[0])
            .collect();
        noise.extend_from_slice(b"\r\n\r\n");
        drop(stream.write_all(&noise).await);
        let mut answer = Vec::new();
        // An end by reset is an end.
        drop(stream.read_to_end(&mut answer).await);
        if answer.is_empty() || answer.starts_with(b"HTTP/1.1 400") {
            return Verdict::Visible("noise turned away".to_owned());
        }
        Verdict::Violation(format!("{} bytes in answer to noise", answer.len()))
    }
}

/// The next storm.
async fn storm(orders: &mut watch::Receiver<Orders>) {
    let before = orders.borrow().storms;
    let ended = orders
        .wait_for(|orders| orders.storms != before)
        .await
        .is_err();
    if ended {
        std::future::pending::<()>().await;
    }
}

/// What an error comes from.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

async fn read(answer: Response<Incoming>, ask: &Ask) -> Verdict {
    let status = answer.status().as_u16();
    let (head, mut body) = answer.into_parts();
    if status != 200 {
        let body = body
            .collect()
            .await
            .map(http_body_util::Collected::to_bytes);
        return match body {
            Ok(body) => refused(status, &body, ask),
            Err(_) => Verdict::Visible("cut".to_owned()),
        };
    }
    if !ask.wanted.statuses.is_empty() {
        return Verdict::Violation(format!("200 for a request to {} that is wrong", ask.path));
    }
    let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    let counted = header("x-tidegate-prompt-tokens").and_then(|value| value.strip_suffix(";exact"));
    let counted = counted.and_then(|count| count.parse().ok());
    let mut wanted = ask.wanted.clone();
    let bound = header("x-tidegate-max-tokens").and_then(|value| value.parse().ok());
    wanted.tokens = bound.unwrap_or(wanted.tokens);
    let mut reader = Reader::default();
    let ending = loop {
        if let Manner::Slow(pause) = ask.manner {
            sleep(Duration::from_millis(pause)).await;
        }
        match body.frame().await {
            None => break Ending::Clean,
            Some(Err(_)) => break Ending::Cut,
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    reader.push(&data, wanted.form);
                }
            }
        }
        if matches!(ask.manner, Manner::LeavesAt(events) if reader.events >= events) {
            return Verdict::Left("in the answer");
        }
    };
    reader.judge(&wanted, ending, counted)
}

/// An answer other than 200: in the shape clients know, with a status that fits.
fn refused(status: u16, body: &[u8], ask: &Ask) -> Verdict {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    let Some(code) = answer["error"]["code"].as_str() else {
        return Verdict::Violation(format!(
            "{status} without a code: {}",
            String::from_utf8_lossy(body)
        ));
    };
    if ask.may_be(status) {
        return Verdict::Visible(format!("{status} {code}"));
    }
    Verdict::Violation(format!(
        "{status} {code} for {}: {}",
        ask.path, answer["error"]["message"]
    ))
}
