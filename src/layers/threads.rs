//! Long computations off the async threads, a bounded number at one time.
//!
//! Decides when a piece of work may begin. A client that leaves while it waits
//! for a thread leaves the line; work once begun runs to its end, with its
//! permit, since a tokenizer cannot be stopped half way.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinError;

/// Permits for long computations.
#[derive(Clone, Debug)]
pub struct Threads(Arc<Semaphore>);

// === impl Threads ===

impl Threads {
    /// At most `permits` pieces of work at one time; at least one.
    pub fn new(permits: usize) -> Self {
        Self(Arc::new(Semaphore::new(permits.max(1))))
    }

    /// Runs `work` once a permit is free. Dropping the future before that leaves
    /// the line; afterwards the work goes on and its result is dropped.
    ///
    /// # Errors
    /// Where the work panicked, or the runtime is going away.
    pub async fn run<T, F>(&self, work: F) -> Result<T, JoinError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let permit = Arc::clone(&self.0)
            .acquire_owned()
            .await
            .expect("the semaphore is never closed");
        tokio::task::spawn_blocking(move || {
            let result = work();
            drop(permit);
            result
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use tokio_test::{assert_pending, task};

    #[tokio::test]
    async fn leaving_the_line_leaves_no_permit_behind() {
        let threads = Threads::new(1);
        let (go, wait) = mpsc::channel::<()>();
        let long = threads.run(move || wait.recv().is_ok());
        let mut long = task::spawn(long);
        assert_pending!(long.poll());
        let mut gone = task::spawn(threads.run(|| 1));
        assert_pending!(gone.poll());
        drop(gone);
        let next = task::spawn(threads.run(|| 2));
        go.send(()).unwrap();
        assert!(long.await.unwrap());
        assert_eq!(next.await.unwrap(), 2);
        assert_eq!(threads.0.available_permits(), 1);
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_gives_the_permit_back() {
        let threads = Threads::new(1);
        let failed = threads.run(|| panic!("a tokenizer bug")).await;
        assert!(failed.unwrap_err().is_panic());
        assert_eq!(threads.run(|| 3).await.unwrap(), 3);
    }
}
