//! Long computations off the async threads: a few threads of their own.
//!
//! Decides when a piece of work begins: in an order that is fair between
//! tenants, on as many threads as there are cores to spare. The threads live as
//! long as the gateway, since a tokenizer keeps caches for each thread that uses
//! it. A client that leaves the line takes its work along; one that leaves while
//! its work runs sets a flag the work looks at. Invariant: never more pieces at
//! one time than threads, and never a piece without a thread to end it.

mod line;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use thiserror::Error;
use tokio::sync::oneshot;

pub use line::Errand;
use line::{Line, PLACES, Place};

/// Threads for long computations. A clone is the same threads; they end with
/// the last clone.
#[derive(Clone)]
pub struct Threads(Arc<Owner>);

/// Why there is no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Undone {
    /// The tenant has as much work in line as it may.
    #[error("{waiting} pieces of work of this tenant wait")]
    LineFull {
        /// Its work in line, which is the limit.
        waiting: u32,
    },
    /// The work panicked, or the process ends.
    #[error("the work broke off")]
    Broken,
}

/// A piece of work, ready to run.
type Job = Box<dyn FnOnce() + Send>;

/// Ends the threads when dropped.
struct Owner {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    /// Held to look at the line, never while work runs or is dropped.
    state: Mutex<State>,
    /// Signalled once for each piece of work, and to all at the end.
    news: Condvar,
}

struct State {
    line: Line<Job>,
    /// Work nobody waits for, begun only where the line is empty.
    aside: Option<Job>,
    over: bool,
}

/// The client's side of a piece of work; dropping it gives the work up.
struct Waiter<'t> {
    shared: &'t Shared,
    place: Place,
    abandoned: Arc<AtomicBool>,
}

// === impl Threads ===

impl Threads {
    /// This many threads; at least one.
    ///
    /// # Panics
    /// Where the system gives no thread.
    pub fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                line: Line::new(),
                aside: None,
                over: false,
            }),
            news: Condvar::new(),
        });
        let start = |number: usize| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name(format!("count-{number}"))
                .spawn(move || shared.work())
                .expect("the system has a thread to give")
        };
        let threads = (0..threads.max(1)).map(start).collect();
        Self(Arc::new(Owner { shared, threads }))
    }

    /// Runs `work` once its turn comes. Dropping the future before that leaves
    /// the line; afterwards it sets the flag that `work` is given, and whatever
    /// `work` makes is dropped.
    ///
    /// # Errors
    /// Where the tenant's line is full, the work panicked, or the process ends.
    pub async fn run<T, F>(&self, errand: Errand, work: F) -> Result<T, Undone>
    where
        T: Send + 'static,
        F: FnOnce(&AtomicBool) -> T + Send + 'static,
    {
        let (give, take) = oneshot::channel();
        let abandoned = Arc::new(AtomicBool::new(false));
        let watched = Arc::clone(&abandoned);
        let job = Box::new(move || {
            // Nobody may be left to take it.
            drop(give.send(work(&watched)));
        });
        let shared = &*self.0.shared;
        let place = shared.join(errand, job)?;
        let _waiter = Waiter {
            shared,
            place,
            abandoned,
        };
        take.await.map_err(|_| Undone::Broken)
    }

    /// Runs `work` some time, when no client's work waits; not at all where
    /// other such work still waits for its turn.
    pub fn run_aside(&self, work: impl FnOnce() + Send + 'static) {
        let shared = &self.0.shared;
        shared.state().aside.get_or_insert_with(|| Box::new(work));
        shared.news.notify_one();
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Threads")
            .field(&self.0.threads.len())
            .finish()
    }
}

// === impl Owner ===

impl Drop for Owner {
    /// Waits for the pieces of work that run: their clients are gone, so they
    /// stop at the next place where they can.
    fn drop(&mut self) {
        self.shared.state().over = true;
        self.shared.news.notify_all();
        for thread in self.threads.drain(..) {
            // The last handle may be dropped by work itself.
            if thread.thread().id() != std::thread::current().id() {
                thread
                    .join()
                    .expect("a thread catches what its work panics");
            }
        }
    }
}

// === impl Shared ===

impl Shared {
    /// Nothing under this lock panics half way.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(&self, errand: Errand, job: Job) -> Result<Place, Undone> {
        let joined = self.state().line.join(errand, job);
        let place = joined.map_err(|line::Full| Undone::LineFull {
            waiting: u32::try_from(PLACES).unwrap_or(u32::MAX),
        })?;
        self.news.notify_one();
        Ok(place)
    }

    /// What a thread does until the end.
    fn work(&self) {
        let mut state = self.state();
        while !state.over {
            let Some((errand, job)) = state.next() else {
                state = self
                    .news
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            let began = Instant::now();
            // A panic drops the sender of the result, which tells the client.
            drop(catch_unwind(AssertUnwindSafe(job)));
            state = self.state();
            if let Some(errand) = errand {
                state.line.done(errand, began.elapsed());
            }
        }
    }
}

// === impl State ===

impl State {
    /// The work to begin now, and whose it is; nobody's comes last.
    fn next(&mut self) -> Option<(Option<Errand>, Job)> {
        if let Some((errand, job)) = self.line.next() {
            return Some((Some(errand), job));
        }
        Some((None, self.aside.take()?))
    }
}

// === impl Waiter ===

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        // Relaxed: the flag only saves work, nothing is published through it.
        self.abandoned.store(true, Ordering::Relaxed);
        let left = self.shared.state().line.leave(self.place);
        // A prompt is freed here, without the lock.
        drop(left);
    }
}

#[cfg(test)]
mod tests;
