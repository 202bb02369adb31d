//! Sends requests and watches a proxy meanwhile: so many at a time, or so many a
//! second, for a while; and streams that stay open and idle.
//!
//! Latency runs from the instant at which a request was due, so a proxy that stands
//! still is charged for all that should have been sent meanwhile. Figures are of a
//! window after a run-up; answers are checked over the whole run. Streams of the
//! first turn are cut to different lengths, so that in the window they end evenly.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use serde_json::{Value, json};
use tokio::io::unix::AsyncFd;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::answer::Flaw;
use super::ask::{Ask, Shape, Wanted};
use super::link::{Link, Taken};
use super::proc;
use super::tally::Tally;

/// No answer takes longer from a proxy that works.
const PATIENCE: Duration = Duration::from_secs(60);
/// After an error, so that a proxy that is down is not hammered.
const PAUSE: Duration = Duration::from_millis(20);
/// Connections of an open loop at most; what is due beyond them waits, and its
/// clock runs.
const MOST_LINKS: usize = 1024;
/// Streams that are opened at the same time.
const OPENING: usize = 64;

/// How requests follow each other.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Drive {
    /// So many at a time, each followed by the next.
    Closed(usize),
    /// So many a second, whatever comes back.
    Open(f64),
}

/// One load.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// What to send.
    pub(crate) wanted: Wanted,
    /// How fast.
    pub(crate) drive: Drive,
    /// Time before the window.
    pub(crate) run_up: Duration,
    /// Time that figures are of.
    pub(crate) window: Duration,
    /// Process whose tree's processor time is read.
    pub(crate) watched: Option<u32>,
}

/// What every task of a load holds.
struct Shared {
    to: SocketAddr,
    asks: Vec<Ask>,
    tally: Tally,
    links: Mutex<Vec<Link>>,
}

// === impl Load ===

impl Load {
    /// Runs it.
    ///
    /// # Errors
    /// When the system gives no timer.
    pub(crate) async fn run(&self) -> std::io::Result<Value> {
        let shared = Arc::new(Shared {
            to: self.wanted.to,
            asks: self.wanted.asks(),
            tally: Tally::default(),
            links: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        match self.drive {
            Drive::Closed(count) => {
                for number in 0..count {
                    let first = self.first(number, count);
                    tasks.spawn(Arc::clone(&shared).repeat(number, first));
                }
            }
            Drive::Open(rate) => {
                tasks.spawn(pace(Arc::clone(&shared), Ticker::new(rate)?));
            }
        }
        tokio::time::sleep(self.run_up).await;
        let from = shared.tally.moment(self.watched);
        tokio::time::sleep(self.window).await;
        let to = shared.tally.moment(self.watched);
        if let Drive::Open(_) = self.drive {
            // The slowest answers are those that are still due.
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        tasks.shutdown().await;
        Ok(shared.tally.report(&from, &to))
    }

    /// The first request of one of `count` that repeat: of a part of the length.
    fn first(&self, number: usize, count: usize) -> Ask {
        let mut wanted = self.wanted.clone();
        if let Shape::Stream { pieces, .. } = &mut wanted.shape {
            let share = (number + 1) as f64 / count as f64;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "between 1 and the pieces asked for"
            )]
            let part = (f64::from(*pieces) * share).ceil() as u32;
            *pieces = part.max(1);
        }
        wanted.first_ask(number)
    }
}

// === impl Shared ===

impl Shared {
    /// Sends one request after the other, until it is dropped.
    async fn repeat(self: Arc<Self>, number: usize, first: Ask) {
        let mut link = None;
        self.ask(&mut link, &first, Instant::now()).await;
        for turn in number.. {
            let ask = &self.asks[turn % self.asks.len()];
            self.ask(&mut link, ask, Instant::now()).await;
        }
    }

    /// Sends one request and notes what came of it.
    async fn ask(&self, link: &mut Option<Link>, ask: &Ask, due: Instant) {
        let result = tokio::time::timeout(PATIENCE, self.exchange(link, ask)).await;
        match result.unwrap_or(Err(Flaw::Late)) {
            Ok(taken) => self.tally.answered(due, taken),
            Err(flaw) => {
                *link = None;
                self.tally.failed(flaw);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    async fn exchange(&self, link: &mut Option<Link>, ask: &Ask) -> Result<Taken, Flaw> {
        loop {
            let mut open = match link.take().filter(Link::is_kept) {
                Some(open) => open,
                None => Link::open(self.to, PATIENCE).await?,
            };
            match open.exchange(ask, |pieces| self.tally.saw(pieces)).await {
                Ok(taken) => {
                    *link = Some(open);
                    return Ok(taken);
                }
                Err(failed) if failed.was_idle => self.tally.reopened(),
                Err(failed) => return Err(failed.flaw),
            }
        }
    }

    /// Sends the request that was due then, over whichever connection is idle.
    async fn ask_once(self: Arc<Self>, turn: usize, due: Instant) {
        let mut link = self.links.lock().expect("no holder panics").pop();
        let ask = &self.asks[turn % self.asks.len()];
        self.ask(&mut link, ask, due).await;
        let mut links = self.links.lock().expect("no holder panics");
        links.extend(link);
    }
}

/// Sends at each tick, until it is dropped.
async fn pace(shared: Arc<Shared>, ticker: Ticker) {
    let mut tasks = JoinSet::new();
    let places = Arc::new(Semaphore::new(MOST_LINKS));
    let mut sent = 0;
    loop {
        let Ok(due) = ticker.ticks().await else {
            return;
        };
        for _ in 0..due {
            sent += 1;
            let due = ticker.instant(sent);
            let shared = Arc::clone(&shared);
            let places = Arc::clone(&places);
            let turn = usize::try_from(sent).unwrap_or(0);
            tasks.spawn(async move {
                let place = places.acquire().await;
                shared.ask_once(turn, due).await;
                drop(place);
            });
        }
        while tasks.try_join_next().is_some() {}
    }
}

/// A timer that ticks at a rate: tokio's own knows whole milliseconds only.
struct Ticker {
    timer: AsyncFd<OwnedFd>,
    began: Instant,
    period: Duration,
}

// === impl Ticker ===

impl Ticker {
    fn new(rate: f64) -> std::io::Result<Self> {
        let period = Duration::from_secs_f64(1.0 / rate.max(0.001));
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK)?;
        let spec = Timespec {
            tv_sec: i64::try_from(period.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(period.subsec_nanos()),
        };
        let every = Itimerspec {
            it_interval: spec,
            it_value: spec,
        };
        let began = Instant::now();
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &every)?;
        #[expect(deprecated, reason = "its successor is unsafe code")]
        let timer = AsyncFd::new(timer)?;
        Ok(Self {
            timer,
            began,
            period,
        })
    }

    /// Ticks since the last call, at least one.
    async fn ticks(&self) -> std::io::Result<u64> {
        loop {
            let mut ready = self.timer.readable().await?;
            let read = ready.try_io(|timer| {
                let mut count = [0; 8];
                rustix::io::read(timer, &mut count)?;
                Ok(u64::from_ne_bytes(count))
            });
            if let Ok(count) = read {
                return count;
            }
        }
    }

    /// When a tick was due; the first is number 1.
    fn instant(&self, number: u64) -> Instant {
        self.began + Duration::from_secs_f64(self.period.as_secs_f64() * number as f64)
    }
}

// === idle streams ===

/// Opens `count` streams that send nothing after their beginning, and tells what each
/// adds to the memory of the watched process. Those that are not open by `limit` are
/// given up: they are no error, but do not count.
pub(crate) async fn idle(wanted: &Wanted, count: usize, limit: Duration, watched: u32) -> Value {
    let before = proc::resident(watched);
    let places = Arc::new(Semaphore::new(OPENING));
    let mut tasks = JoinSet::new();
    let began = Instant::now();
    let end = tokio::time::Instant::from_std(began + limit);
    for number in 0..count {
        let place = tokio::time::timeout_at(end, Arc::clone(&places).acquire_owned()).await;
        let Ok(place) = place else {
            break;
        };
        let (ask, to) = (wanted.first_ask(number), wanted.to);
        tasks.spawn(async move {
            let opening = tokio::time::timeout_at(end, open(to, ask));
            let opened = opening.await.ok();
            drop(place);
            opened
        });
    }
    let mut links = Vec::new();
    let mut flaws = Vec::new();
    while let Some(result) = tasks.join_next().await {
        match result.expect("no opening panics") {
            Some(Ok(link)) => links.push(link),
            Some(Err(flaw)) => flaws.push(flaw),
            None => {}
        }
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let after = proc::resident(watched);
    json!({
        "streams": links.len(),
        "errors": flaws.len(),
        "first_error": flaws.first().map(Flaw::to_string),
        "before_bytes": before,
        "after_bytes": after,
        "seconds": began.elapsed().as_secs_f64(),
    })
}

/// Opens one stream up to its first piece.
async fn open(to: SocketAddr, ask: Ask) -> Result<Link, Flaw> {
    let mut link = Link::open(to, PATIENCE).await?;
    match link.hold(&ask).await {
        Ok(()) => Ok(link),
        Err(failed) => Err(failed.flaw),
    }
}
