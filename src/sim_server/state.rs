//! What the server shares between its tasks: the engine, the jobs on it, the meters.
//!
//! One lock protects all of it; the longest work under it is [`STEPS_PER_HOLD`] engine
//! steps. Wakers are called after it is let go. Invariant: every live request of the
//! engine belongs to exactly one job, and a job whose handle is dropped has none.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::clock::VirtualClock;
use super::job::{Job, JobHandle, JobId, Progress};
use super::meters::{Arrival, Meters};
use super::{Seen, Shedding, SimServerSpec};
use crate::core::time::Time;
use crate::sim::engine::{
    Engine, EngineSpec, EngineStats, FinishReason, RequestId, SimEvent, SimRequest,
};
use crate::sim::random::Random;

/// Engine steps taken before the lock is let go.
const STEPS_PER_HOLD: u32 = 128;
/// Requests remembered for tests.
const SEEN_AT_MOST: usize = 1024;

pub(super) struct Shared {
    pub(super) spec: SimServerSpec,
    state: Mutex<State>,
    /// Work or a fault has changed when the engine is due.
    pub(super) due: Notify,
    /// `None` once the engine has panicked.
    stats: watch::Sender<Option<EngineStats>>,
}

pub(super) struct State {
    pub(super) engine: Engine,
    clock: VirtualClock,
    pub(super) mode: Mode,
    pub(super) meters: Meters,
    pub(super) shedding: Shedding,
    pub(super) header_delay: Duration,
    pub(super) seen: VecDeque<Seen>,
    pub(super) started: SystemTime,
    pub(super) random: Random,
    jobs: HashMap<JobId, Job>,
    owners: HashMap<RequestId, (JobId, usize)>,
    next_job: JobId,
    /// Readers with news, to be woken after the lock is let go.
    wakers: Vec<Waker>,
}

/// Whether the engine works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Working,
    /// Stands still, and nothing shows it.
    Held,
    Asleep,
    Dead,
}

/// Why a job is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Busy,
    Dead,
}

// === impl Shared ===

impl Shared {
    pub(super) fn new(spec: SimServerSpec) -> Self {
        let state = State::new(&spec);
        Self {
            stats: watch::Sender::new(Some(state.engine.stats())),
            state: Mutex::new(state),
            due: Notify::new(),
            spec,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        match self.state.lock() {
            Ok(state) => state,
            Err(_) => {
                // An engine told to panic on overflow did: whoever watches must not wait on.
                self.stats.send_replace(None);
                panic!("the simulated engine panicked");
            }
        }
    }

    /// Changes the state, then wakes whoever has news and the driver.
    pub(super) fn update<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let _tell = TellOfPanic(self);
        let mut state = self.lock();
        let result = change(&mut state);
        let wakers = state.take_wakers();
        let stats = state.engine.stats();
        drop(state);
        self.stats.send_replace(Some(stats));
        self.due.notify_one();
        wakers.into_iter().for_each(Waker::wake);
        result
    }

    /// Whether the engine has panicked.
    pub(super) fn is_broken(&self) -> bool {
        self.state.is_poisoned()
    }

    /// The engine's figures, each time they change; `None` once it has panicked.
    pub(super) fn watch(&self) -> watch::Receiver<Option<EngineStats>> {
        self.stats.subscribe()
    }

    pub(super) fn submit(
        self: &Arc<Self>,
        requests: Vec<SimRequest>,
    ) -> Result<JobHandle, Refusal> {
        let limit = self.spec.max_num_queued_reqs;
        let id = self.update(|state| state.submit(requests, limit))?;
        Ok(JobHandle {
            shared: Arc::clone(self),
            id,
        })
    }

    pub(super) fn record(&self, seen: Seen) {
        let mut state = self.lock();
        if state.seen.len() == SEEN_AT_MOST {
            state.seen.pop_front();
        }
        state.seen.push_back(seen);
    }

    /// Keeps the engine going. Runs until its task is aborted.
    pub(super) async fn drive(self: Arc<Self>) {
        let _tell = TellOfPanic(&self);
        loop {
            let (next, wakers, stats) = {
                let mut state = self.lock();
                (state.advance(), state.take_wakers(), state.engine.stats())
            };
            self.stats.send_replace(Some(stats));
            wakers.into_iter().for_each(Waker::wake);
            match next {
                Due::Now => tokio::task::yield_now().await,
                Due::At(at) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(at) => {}
                        () = self.due.notified() => {}
                    }
                }
                Due::Never => self.due.notified().await,
            }
        }
    }
}

/// Ends the waiting of those who watch when its task panics.
struct TellOfPanic<'a>(&'a Shared);

impl Drop for TellOfPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stats.send_replace(None);
        }
    }
}

/// When the engine wants to be stepped again.
enum Due {
    Now,
    At(Instant),
    Never,
}

// === impl State ===

impl State {
    fn new(spec: &SimServerSpec) -> Self {
        Self {
            engine: Engine::new(spec.engine.clone()),
            clock: VirtualClock::start(spec.time_scale),
            mode: Mode::Working,
            meters: Meters::new(spec.engine.max_model_len),
            shedding: Shedding::AsConfigured,
            header_delay: Duration::ZERO,
            seen: VecDeque::new(),
            started: SystemTime::now(),
            random: Random::new(spec.seed),
            jobs: HashMap::new(),
            owners: HashMap::new(),
            next_job: 0,
            wakers: Vec::new(),
        }
    }

    /// Starts over with a new engine; what was running is dead.
    pub(super) fn restart(&mut self, engine: EngineSpec) {
        self.kill();
        self.meters = Meters::new(engine.max_model_len);
        self.engine = Engine::new(engine);
        self.clock = self.clock.restarted();
        self.mode = Mode::Working;
        self.started = SystemTime::now();
    }

    /// Stops the clock in `mode`.
    pub(super) fn stop(&mut self, mode: Mode) {
        if self.mode == Mode::Working {
            self.run_due(u32::MAX);
            self.clock.stop();
        }
        self.mode = mode;
    }

    /// Lets the clock go on from `mode`; does nothing in another.
    pub(super) fn go_on_from(&mut self, mode: Mode) {
        if self.mode == mode {
            self.clock.go();
            self.mode = Mode::Working;
        }
    }

    /// Ends the engine and tells every job.
    pub(super) fn kill(&mut self) {
        for job in self.jobs.values_mut() {
            job.dead = true;
            self.wakers.extend(job.waker.take());
        }
        self.vanish();
    }

    /// Ends the engine without a word: jobs wait until their connections are cut.
    pub(super) fn vanish(&mut self) {
        self.clock.stop();
        self.mode = Mode::Dead;
        self.abort_everything();
    }

    pub(super) fn sleep(&mut self) {
        self.stop(Mode::Asleep);
        for job in self.jobs.values_mut() {
            job.abort_open();
            self.wakers.extend(job.waker.take());
        }
        self.abort_everything();
    }

    /// Runs at most `steps` steps of a stopped engine.
    pub(super) fn run_steps(&mut self, steps: u32) {
        for _ in 0..steps {
            let Some(at) = self.engine.next_step() else {
                return;
            };
            self.clock.jump(at);
            self.step(at.max(self.clock.now()));
        }
    }

    fn abort_everything(&mut self) {
        let now = self.clock.now();
        for request in self.owners.drain().map(|(request, _)| request) {
            self.meters.aborted(request);
            self.engine.abort(now, request);
        }
    }

    fn submit(&mut self, requests: Vec<SimRequest>, limit: Option<u32>) -> Result<JobId, Refusal> {
        if self.mode == Mode::Dead {
            return Err(Refusal::Dead);
        }
        let sequences: u32 = requests.iter().map(|request| request.samples).sum();
        let stats = self.engine.stats();
        let full = limit.is_some_and(|most| stats.running + stats.waiting + sequences > most);
        if full || self.shedding == Shedding::All {
            self.meters.rejected();
            return Err(Refusal::Busy);
        }
        // The engine must not be behind the arrival.
        self.run_due(STEPS_PER_HOLD);
        let now = self.clock.now();
        let id = self.next_job;
        self.next_job += 1;
        let mut job = Job::default();
        for request in requests {
            let arrival = Arrival::of(&request, now);
            let first = job.open.len();
            let samples = usize::try_from(request.samples).unwrap_or(usize::MAX);
            let request = self.engine.add(now, request);
            self.meters.arrived(request, arrival);
            self.owners.insert(request, (id, first));
            job.requests.push(request);
            job.open.resize(first + samples, true);
        }
        self.jobs.insert(id, job);
        Ok(id)
    }

    /// Runs the steps that are due and says when the next one is.
    fn advance(&mut self) -> Due {
        if !self.run_due(STEPS_PER_HOLD) {
            return Due::Now;
        }
        let next = self
            .engine
            .next_step()
            .filter(|_| self.mode == Mode::Working);
        match next.and_then(|at| self.clock.instant_of(at)) {
            Some(at) => Due::At(at),
            None => Due::Never,
        }
    }

    /// Runs at most `steps` due steps; whether none is left.
    fn run_due(&mut self, steps: u32) -> bool {
        if self.mode != Mode::Working {
            return true;
        }
        let now = self.clock.now();
        for _ in 0..steps {
            match self.engine.next_step() {
                Some(at) if at <= now => self.step(at),
                _ => return true,
            }
        }
        false
    }

    fn step(&mut self, at: Time) {
        let mut events = Vec::new();
        self.engine.step(at, &mut events);
        self.meters.stepped(&events);
        for event in events {
            match event {
                SimEvent::Tokens {
                    request, sample, ..
                } => self.deliver(request, sample, None),
                SimEvent::Finished {
                    request,
                    sample,
                    reason,
                    ..
                } => self.deliver(request, sample, Some(reason)),
                SimEvent::Ended { request, .. } => {
                    self.owners.remove(&request);
                }
                SimEvent::Started { .. }
                | SimEvent::FirstToken { .. }
                | SimEvent::Preempted { .. } => {}
            }
        }
    }

    fn deliver(&mut self, request: RequestId, sample: u32, finish: Option<FinishReason>) {
        let Some(&(job, first)) = self.owners.get(&request) else {
            return;
        };
        let Some(job) = self.jobs.get_mut(&job) else {
            return;
        };
        let choice = first + usize::try_from(sample).unwrap_or(usize::MAX);
        match finish {
            None => job.push(choice, 1, None),
            Some(reason) => job.finish(choice, reason),
        }
        self.wakers.extend(job.waker.take());
    }

    fn take_wakers(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.wakers)
    }

    pub(super) fn poll_job(&mut self, id: JobId, cx: &Context<'_>) -> Poll<Progress> {
        let job = self.jobs.get_mut(&id);
        job.expect("a job lives as long as its handle").poll(cx)
    }

    pub(super) fn drop_job(&mut self, id: JobId) {
        let Some(job) = self.jobs.remove(&id) else {
            return;
        };
        let now = self.clock.now();
        for request in job.requests {
            // Requests of an engine that was killed are no longer owned.
            if self
                .owners
                .get(&request)
                .is_some_and(|&(owner, _)| owner == id)
            {
                self.owners.remove(&request);
                self.meters.aborted(request);
                self.engine.abort(now, request);
            }
        }
    }
}
