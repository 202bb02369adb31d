//! What the state of an endpoint is, given what was seen of it.
//!
//! Pure: events and the time go in, health comes out. Decides when an endpoint
//! counts as up, degraded, asleep or down, whether its engine is lost with
//! everything it was doing, and whether it has restarted. Never does I/O and
//! never reads a clock.
//!
//! Invariant: what a client did wrong changes nothing here.

use std::time::Duration;

use crate::core::backend::{Health, ServedId, Trust};
use crate::core::time::Time;
use crate::upstream::client::TlsFailure;
use crate::upstream::scrape::{Scrape, Wakefulness};

use super::progress::Progress;

/// Slow answers in a row after which an endpoint is degraded.
const SLOW_AFTER: u32 = 3;
/// Failed requests in a row after which an endpoint is ejected: it gets nothing
/// as long as another could serve it.
const EJECT_AFTER: u32 = 5;
/// First ejection; one request is tried at its end, and each one after a failed
/// trial is twice as long.
const EJECT_FOR: Duration = Duration::from_secs(10);
/// Longest ejection.
const EJECT_AT_MOST: Duration = Duration::from_secs(60);
/// How long an endpoint counts as full after it shed a request.
const SHED_FOR: Duration = Duration::from_secs(5);

/// Bounds the operator sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Failed probes in a row after which an endpoint is down; at least 1.
    pub down_after: u32,
    /// An answer to a probe that takes this long is slow.
    pub slow: Duration,
}

/// How a request went, as whoever forwarded it saw it. An answer that blames
/// the client is no outcome: it says nothing about the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It was answered.
    Served,
    /// The engine turned it away for want of room.
    Shed,
    /// Nothing listens at its address.
    Refused,
    /// No connection for another reason, or none that took a byte.
    Unreachable,
    /// The engine says that it does not serve this model.
    UnknownModel(ServedId),
    /// The engine does not accept the key it was sent with, which is ours.
    Unauthorized,
    /// It was taken and failed: reset, timed out, or an error of the engine.
    Failed,
}

/// Why a probe got no good answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// Nothing listens: normal while weights load, later the process is gone.
    Refused,
    /// No connection, no answer in time, or an error that may be anybody's.
    Unresponsive,
    /// The server says that its engine is dead.
    EngineDead,
    /// The backend's key is wrong or missing.
    Unauthorized,
    /// No secure connection.
    Tls(TlsFailure),
    /// The engine is changing its number of ranks; transient.
    Scaling,
    /// A server that is no engine, or not yet.
    NotAnEngine,
    /// An engine, of another model.
    WrongModel,
}

/// What the operator wants of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Duty {
    /// It takes requests.
    Serve,
    /// It finishes what it has.
    Drain,
}

/// Something that was seen of an endpoint.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A probe was answered.
    Answered {
        /// Time until the slowest of its answers.
        latency: Duration,
        /// Its metrics, where they were readable.
        scrape: Option<&'a Scrape>,
    },
    /// A probe was not answered well.
    Failed(Failure),
    /// A request went this way.
    Passive(Outcome),
    /// The operator has spoken.
    Duty(Duty),
}

/// What an event means for the books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The same engine as before, or none yet.
    Same,
    /// Another engine process than before: its KV is empty.
    Restarted,
}

/// Why an endpoint is not simply up; shown to the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Problem {
    /// The last probe failed so.
    Probe(Failure),
    /// A request could not be connected.
    Unreachable,
    /// Requests in a row failed though probes are answered.
    Failing,
    /// The engine shed a request a moment ago.
    Shedding,
    /// Probes are answered slowly.
    Slow,
    /// The engine makes no progress by its own metrics.
    NoProgress,
    /// The engine sleeps.
    Asleep,
    /// The operator drains it.
    Draining,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Starting,
    Serving,
    Down(Problem),
}

/// The state of one endpoint.
#[derive(Clone, Debug)]
pub struct Machine {
    thresholds: Thresholds,
    phase: Phase,
    duty: Duty,
    /// Why the last probe failed; `None` after a good one.
    last_failure: Option<Failure>,
    failures: u32,
    slow_answers: u32,
    requests: Requests,
    wakefulness: Wakefulness,
    progress: Progress,
    process_start: Option<f64>,
}

/// What requests say.
#[derive(Clone, Copy, Debug)]
struct Requests {
    failures: u32,
    /// Ejected until then; on trial afterwards, until one is served.
    ejected_until: Option<Time>,
    next_ejection: Duration,
    shed_until: Time,
    /// One found no connection since the last good probe.
    unreachable: bool,
}

// === impl Machine ===

impl Machine {
    /// An endpoint of which nothing is known.
    pub fn new(thresholds: Thresholds) -> Self {
        Self {
            thresholds,
            phase: Phase::Starting,
            duty: Duty::Serve,
            last_failure: None,
            failures: 0,
            slow_answers: 0,
            requests: Requests::new(),
            wakefulness: Wakefulness::Awake,
            progress: Progress::default(),
            process_start: None,
        }
    }

    /// Judges by other bounds from the next event on.
    pub fn set_thresholds(&mut self, thresholds: Thresholds) {
        self.thresholds = thresholds;
    }

    /// Takes an event. `now` must not precede that of the last one.
    pub fn on_event(&mut self, now: Time, event: Event<'_>) -> Step {
        match event {
            Event::Answered { latency, scrape } => return self.on_answer(now, latency, scrape),
            Event::Failed(failure) => self.on_failure(failure),
            Event::Passive(outcome) => self.on_outcome(now, outcome),
            Event::Duty(duty) => self.duty = duty,
        }
        Step::Same
    }

    /// Whether the static facts (release, models, capacity) must be read before
    /// the answer with this scrape is taken: at the start, after an outage, and
    /// where the scrape is another process's.
    pub fn wants_facts(&self, scrape: Option<&Scrape>) -> bool {
        self.phase != Phase::Serving || scrape.is_some_and(|scrape| self.is_another(scrape))
    }

    /// The health the pool is told.
    pub fn health(&self, now: Time) -> Health {
        match self.phase {
            Phase::Starting => Health::Starting,
            Phase::Down(_) => Health::Down,
            Phase::Serving if self.duty == Duty::Drain => Health::Draining,
            Phase::Serving if self.wakefulness == Wakefulness::Asleep => Health::Sleeping,
            Phase::Serving if self.problem(now).is_some() => Health::Degraded,
            Phase::Serving => Health::Up,
        }
    }

    /// What the operator wants of it.
    pub const fn duty(&self) -> Duty {
        self.duty
    }

    /// How much the pool is told to send. Never decides whether the endpoint is
    /// used at all: what requests say must not leave a model without a backend.
    pub fn trust(&self, now: Time) -> Trust {
        let withheld = self.requests.ejected(now)
            || self.requests.unreachable
            || self.progress.is_stalled(now);
        match self.requests.ejected_until {
            _ if withheld => Trust::Withheld,
            Some(_) => Trust::Trial,
            None => Trust::Whole,
        }
    }

    /// The health that running requests are told: down only where the engine is
    /// gone with them. One that merely does not answer probes may still stream.
    pub fn health_of_running(&self, now: Time) -> Health {
        let gone = [Failure::Refused, Failure::EngineDead].map(Problem::Probe);
        match self.phase {
            Phase::Down(problem) if gone.contains(&problem) => Health::Down,
            _ => match self.health(now) {
                Health::Down => Health::Degraded,
                health => health,
            },
        }
    }

    /// Why the endpoint is not simply up.
    pub fn problem(&self, now: Time) -> Option<Problem> {
        match self.phase {
            Phase::Starting => return self.last_failure.map(Problem::Probe),
            Phase::Down(problem) => return Some(problem),
            Phase::Serving => {}
        }
        let found = [
            (self.duty == Duty::Drain, Problem::Draining),
            (self.wakefulness == Wakefulness::Asleep, Problem::Asleep),
            (self.requests.unreachable, Problem::Unreachable),
            (self.requests.ejected_until.is_some(), Problem::Failing),
            (
                self.last_failure == Some(Failure::Scaling),
                Problem::Probe(Failure::Scaling),
            ),
            (self.progress.is_stalled(now), Problem::NoProgress),
            (now < self.requests.shed_until, Problem::Shedding),
            (self.slow_answers >= SLOW_AFTER, Problem::Slow),
        ];
        found
            .into_iter()
            .find_map(|(holds, problem)| holds.then_some(problem))
    }

    /// Since when no counter or KV gauge has moved; `None` before the first scrape.
    pub fn unmoved_since(&self) -> Option<Time> {
        self.progress.unmoved_since()
    }

    fn on_answer(&mut self, now: Time, latency: Duration, scrape: Option<&Scrape>) -> Step {
        let gone = matches!(
            self.phase,
            Phase::Down(Problem::Probe(Failure::Refused | Failure::EngineDead))
        );
        let known_process = self.process_start.is_some()
            && scrape.is_some_and(|scrape| scrape.process_start.is_some());
        // A process that was gone and does not say when it started is a new one.
        let another = scrape.is_some_and(|scrape| self.is_another(scrape));
        let restarted = another || gone && !known_process;
        if restarted {
            self.requests = Requests::new();
            self.progress = Progress::default();
        }
        self.phase = Phase::Serving;
        self.last_failure = None;
        self.failures = 0;
        self.requests.unreachable = false;
        self.slow_answers = if latency >= self.thresholds.slow {
            self.slow_answers.saturating_add(1)
        } else {
            0
        };
        if let Some(scrape) = scrape {
            self.on_scrape(now, scrape);
        }
        if restarted {
            Step::Restarted
        } else {
            Step::Same
        }
    }

    fn on_scrape(&mut self, now: Time, scrape: &Scrape) {
        self.process_start = scrape.process_start.or(self.process_start);
        let asleep = scrape
            .engines
            .values()
            .any(|engine| engine.wakefulness == Some(Wakefulness::Asleep));
        self.wakefulness = if asleep {
            Wakefulness::Asleep
        } else {
            Wakefulness::Awake
        };
        self.progress.on_scrape(now, scrape);
    }

    /// Whether a scrape is of another process than the last.
    fn is_another(&self, scrape: &Scrape) -> bool {
        match (self.process_start, scrape.process_start) {
            #[expect(clippy::float_cmp, reason = "the same process writes the same text")]
            (Some(before), Some(now)) => before != now,
            _ => self.progress.went_backwards(scrape),
        }
    }

    fn on_failure(&mut self, failure: Failure) {
        self.last_failure = Some(failure);
        if self.phase == Phase::Starting || failure == Failure::Scaling {
            return;
        }
        self.failures = self.failures.saturating_add(1);
        let at_once = matches!(
            failure,
            Failure::Refused
                | Failure::EngineDead
                | Failure::Unauthorized
                | Failure::Tls(_)
                | Failure::WrongModel
        );
        if at_once || self.failures >= self.thresholds.down_after {
            // An engine once known to be gone stays so until it answers.
            let gone = self.phase == Phase::Down(Problem::Probe(Failure::Refused))
                || self.phase == Phase::Down(Problem::Probe(Failure::EngineDead));
            if !gone || at_once {
                self.phase = Phase::Down(Problem::Probe(failure));
            }
        }
    }

    fn on_outcome(&mut self, now: Time, outcome: Outcome) {
        match outcome {
            Outcome::Served => {
                self.requests = Requests {
                    shed_until: self.requests.shed_until,
                    ..Requests::new()
                };
            }
            Outcome::Shed => self.requests.shed_until = now + SHED_FOR,
            // The probe that follows at once says whether the engine is gone, or
            // wants another key.
            Outcome::Unreachable | Outcome::Unauthorized => self.requests.unreachable = true,
            Outcome::Refused if self.phase == Phase::Serving => {
                self.phase = Phase::Down(Problem::Unreachable);
            }
            Outcome::Refused | Outcome::UnknownModel(_) => {}
            Outcome::Failed => self.requests.on_failure(now),
        }
    }
}

// === impl Requests ===

impl Requests {
    fn new() -> Self {
        Self {
            failures: 0,
            ejected_until: None,
            next_ejection: EJECT_FOR,
            shed_until: Time::ZERO,
            unreachable: false,
        }
    }

    fn ejected(&self, now: Time) -> bool {
        self.ejected_until.is_some_and(|until| now < until)
    }

    fn on_failure(&mut self, now: Time) {
        if self.ejected(now) {
            return;
        }
        self.failures = self.failures.saturating_add(1);
        let failed_trial = self.ejected_until.is_some();
        if failed_trial || self.failures >= EJECT_AFTER {
            self.ejected_until = Some(now + self.next_ejection);
            self.next_ejection = (self.next_ejection * 2).min(EJECT_AT_MOST);
        }
    }
}

// === impl Duty ===

impl Duty {
    /// The name in logs and `/state`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::Drain => "drain",
        }
    }
}

// === impl Failure ===

impl Failure {
    /// The name in logs and `/state`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Unresponsive => "unresponsive",
            Self::EngineDead => "engine_dead",
            Self::Unauthorized => "unauthorized",
            Self::Tls(failure) => failure.name(),
            Self::Scaling => "scaling",
            Self::NotAnEngine => "not_an_engine",
            Self::WrongModel => "wrong_model",
        }
    }
}

// === impl Problem ===

impl Problem {
    /// The name in logs and `/state`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Probe(failure) => failure.name(),
            Self::Unreachable => "unreachable",
            Self::Failing => "failing",
            Self::Shedding => "shedding",
            Self::Slow => "slow",
            Self::NoProgress => "no_progress",
            Self::Asleep => "asleep",
            Self::Draining => "draining",
        }
    }
}

#[cfg(test)]
mod tests;
