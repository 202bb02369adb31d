//! The threads on which tokenizers are loaded.
//!
//! They live as long as the gateway: a tokenizer keeps caches for each thread
//! that has used it, tens of megabytes with some patterns, and threads that come
//! and go with each load would leave theirs behind. Few, because parsing takes a
//! core and, for a large vocabulary, a gigabyte, and requests need some of both.
//! Decides nothing about what is loaded. Invariant: never more loads at one time
//! than threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use tokio::sync::oneshot;

/// Most threads, however many cores there are.
const MOST: usize = 4;

type Job = Box<dyn FnOnce() + Send>;

/// Threads for loading; a clone is the same threads. They end with the last
/// clone, each after the load it is at.
#[derive(Clone)]
pub(super) struct Loader(mpsc::Sender<Job>);

// === impl Loader ===

impl Loader {
    /// Threads for a machine with `cores` cores: half of them at most.
    ///
    /// # Panics
    /// Where the system gives no thread.
    pub(super) fn new(cores: usize) -> Self {
        let (give, take) = mpsc::channel::<Job>();
        // Held while a thread waits for the next load, never while it loads.
        let take = Arc::new(Mutex::new(take));
        for number in 0..cores.div_ceil(2).clamp(1, MOST) {
            let take = Arc::clone(&take);
            std::thread::Builder::new()
                .name(format!("load-{number}"))
                .spawn(move || work(&take))
                .expect("the system has a thread to give");
        }
        Self(give)
    }

    /// Runs `load` in its turn. Dropping the future does not stop it; what it
    /// makes is dropped then. `None` where it panicked.
    pub(super) async fn run<T, F>(&self, load: F) -> Option<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (give, take) = oneshot::channel();
        // Nobody may be left to take it.
        let job = Box::new(move || drop(give.send(load())));
        self.0.send(job).ok()?;
        take.await.ok()
    }
}

/// Runs what comes until nobody is left who could ask.
fn work(jobs: &Mutex<mpsc::Receiver<Job>>) {
    loop {
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = next else { return };
        // The one who waits is told by the channel that closes.
        drop(catch_unwind(AssertUnwindSafe(job)));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[tokio::test]
    async fn every_load_runs_on_one_of_the_same_few_threads() {
        let loader = Loader::new(4);
        let mut seen = BTreeSet::new();
        for _ in 0..50 {
            let name = loader.run(|| std::thread::current().name().map(str::to_owned));
            seen.insert(name.await.flatten().expect("a thread with a name"));
        }
        assert!(seen.iter().all(|name| name == "load-0" || name == "load-1"));
    }

    #[tokio::test]
    async fn a_load_that_panics_is_told_and_the_next_one_runs() {
        let loader = Loader::new(1);
        assert_eq!(
            loader.run(|| -> u32 { panic!("a broken file") }).await,
            None
        );
        assert_eq!(loader.run(|| 7).await, Some(7));
    }
}
