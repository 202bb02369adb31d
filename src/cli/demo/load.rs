//! The load: the same bodies at the same instants, at engines or at a gateway.
//!
//! Decides when each request is sent and, where there is no gateway, to which engine.
//! Every request of the load has exactly one record at the end. Times are taken by the
//! real clock and told in engine time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::board::{Board, Piece, Stage};
use super::client::{Answer, Call, Client, TOO_LONG};
use super::fleet::MODEL;
use super::mix::TENANTS;
use crate::sim::workload::{Arrival, Class};

/// One request, ready to be sent.
#[derive(Clone, Debug)]
pub(super) struct Prepared {
    /// When, from the start of the load, in engine time.
    at: Duration,
    class: Class,
    key: &'static str,
    path: &'static str,
    body: Bytes,
}

/// Where the load goes.
#[derive(Debug)]
pub(super) enum Aim {
    /// Straight at the engines.
    Engines(Balancer),
    /// At a gateway: its URL.
    Gateway(String),
}

/// What operators put before several engines of one model: each request goes to the next
/// one. One that an engine refuses as too long is tried on the others, the reserves last.
#[derive(Debug)]
pub(super) struct Balancer {
    /// URLs that take turns.
    pub(super) turns: Vec<String>,
    /// URLs for what the others refuse as too long.
    pub(super) reserves: Vec<String>,
    pub(super) next: AtomicUsize,
}

/// What became of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) class: Class,
    /// From sending to the first content, in engine time.
    pub(super) first: Option<Duration>,
    /// From the start of the load to the end of this request, in engine time.
    pub(super) ended: Duration,
    pub(super) answer: Answer,
}

/// Who sends, and how fast engine time passes.
pub(super) struct Load {
    pub(super) requests: Arc<[Prepared]>,
    pub(super) aim: Arc<Aim>,
    pub(super) board: Arc<Board>,
    /// Real seconds per second of engine time.
    pub(super) scale: f64,
}

// === impl Prepared ===

impl Prepared {
    /// The body of `arrival`: documents as token ids, as a retrieval service has them,
    /// everything else as a chat.
    pub(super) fn new(arrival: &Arrival) -> Self {
        let is_long = matches!(arrival.class, Class::Documents | Class::Impossible);
        let mut body = json!({
            "model": MODEL,
            "max_tokens": arrival.max_tokens.map(crate::core::units::Tokens::get),
            "stream": true,
            "stream_options": {"include_usage": true},
            // Read by the simulated engine alone: how long the answer turns out to be.
            "vllm_xargs": {"sim_output_tokens": arrival.generated().get()},
        });
        let (path, key, value) = if is_long {
            ("/v1/completions", "prompt", json!(arrival.ids()))
        } else {
            let messages = json!([{"role": "user", "content": arrival.text()}]);
            ("/v1/chat/completions", "messages", messages)
        };
        body[key] = value;
        let tenant = usize::try_from(arrival.tenant.0).expect("a tenant's index fits memory");
        Self {
            at: Duration::from_nanos(arrival.at.nanos()),
            class: arrival.class,
            key: TENANTS[tenant],
            path,
            body: Bytes::from(body.to_string()),
        }
    }
}

// === impl Balancer ===

impl Balancer {
    /// Where the next request goes, best first.
    fn order(&self) -> Vec<&str> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let turns = self.turns.len();
        let in_turn = (0..turns).map(|place| &self.turns[(turn + place) % turns]);
        in_turn.chain(&self.reserves).map(String::as_str).collect()
    }
}

// === impl Aim ===

impl Aim {
    fn order(&self) -> Vec<&str> {
        match self {
            Self::Engines(balancer) => balancer.order(),
            Self::Gateway(url) => vec![url],
        }
    }

    /// Engines ask for no key.
    const fn key(&self, key: &'static str) -> Option<&'static str> {
        match self {
            Self::Engines(_) => None,
            Self::Gateway(_) => Some(key),
        }
    }
}

// === impl Load ===

impl Load {
    /// Sends everything and waits for every answer. Dropping the future drops what is
    /// still running.
    pub(super) async fn run(self) -> Vec<Record> {
        let client = Client::new();
        let start = Instant::now();
        let clock = EngineClock {
            start,
            scale: self.scale,
        };
        let mut running = JoinSet::new();
        for place in 0..self.requests.len() {
            tokio::time::sleep_until(clock.instant(self.requests[place].at)).await;
            let one = One {
                requests: Arc::clone(&self.requests),
                place,
                aim: Arc::clone(&self.aim),
                client: client.clone(),
                clock,
                piece: self.board.sent(self.requests[place].class),
            };
            running.spawn(one.run());
        }
        running.join_all().await
    }
}

/// Engine time since the start of the load.
#[derive(Clone, Copy, Debug)]
struct EngineClock {
    start: Instant,
    scale: f64,
}

// === impl EngineClock ===

impl EngineClock {
    fn instant(&self, at: Duration) -> Instant {
        self.start + at.mul_f64(self.scale)
    }

    fn now(&self) -> Duration {
        self.start.elapsed().div_f64(self.scale)
    }
}

/// One request on its way.
struct One {
    requests: Arc<[Prepared]>,
    place: usize,
    aim: Arc<Aim>,
    client: Client,
    clock: EngineClock,
    piece: Piece,
}

// === impl One ===

impl One {
    async fn run(mut self) -> Record {
        let request = &self.requests[self.place];
        let sent = self.clock.now();
        let mut first = None;
        let mut answer = Answer::Not("no_engine".to_owned());
        for base in self.aim.order() {
            let call = Call {
                url: format!("{base}{}", request.path),
                key: self.aim.key(request.key),
                body: request.body.clone(),
            };
            answer = self
                .client
                .ask(call, || {
                    first = Some(self.clock.now().saturating_sub(sent));
                    self.piece.moves_to(Stage::Running);
                })
                .await;
            if answer != Answer::Not(TOO_LONG.to_owned()) {
                break;
            }
        }
        self.piece.moves_to(match answer {
            Answer::Whole { .. } => Stage::Done,
            Answer::Not(_) => Stage::Refused,
        });
        Record {
            class: request.class,
            first,
            ended: self.clock.now(),
            answer,
        }
    }
}
