//! A future that is looked at only when it has something to say.
//!
//! A task that waits for several things looks at all of them whenever one wakes it.
//! Most are never heard of: a stream of a thousand chunks would ask a thousand times
//! whether the process ends, its backend is lost, or its client gives up. Behind
//! this, a look is one load. Decides nothing; a wake-up is never lost: it is noted
//! before the task is woken, and a task that moves is noted before that is looked at.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use pin_project_lite::pin_project;

pin_project! {
    /// A future that is polled when it was woken, and not when its task was.
    #[derive(Debug)]
    pub struct Woken<F> {
        #[pin]
        future: F,
        bell: Option<Bell>,
    }
}

/// What the future wakes, and what that wakes.
#[derive(Debug)]
struct Bell {
    rung: Arc<Rung>,
    /// `rung`, as it is given to the future.
    waker: Waker,
    /// The task that was told of last.
    task: Waker,
}

#[derive(Debug)]
struct Rung {
    is_so: AtomicBool,
    /// Held for a clone or an assignment.
    task: Mutex<Waker>,
}

// === impl Woken ===

impl<F> Woken<F> {
    /// Looks at `future` at the first poll, and then whenever it was woken.
    pub const fn new(future: F) -> Self {
        Self { future, bell: None }
    }

    /// The future itself.
    pub fn get_pin_mut(self: Pin<&mut Self>) -> Pin<&mut F> {
        self.project().future
    }

    /// The future itself.
    pub const fn get_ref(&self) -> &F {
        &self.future
    }
}

impl<F: Future> Future for Woken<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let bell = this.bell.get_or_insert_with(|| Bell::new(cx.waker()));
        if !bell.has_rung(cx.waker()) {
            return Poll::Pending;
        }
        let polled = this.future.poll(&mut Context::from_waker(&bell.waker));
        if polled.is_ready() {
            // Some futures may be asked again, and nothing wakes for that.
            bell.rung.is_so.store(true, Ordering::Relaxed);
        }
        polled
    }
}

// === impl Bell ===

impl Bell {
    /// One that has rung: the future was never looked at.
    fn new(task: &Waker) -> Self {
        let rung = Arc::new(Rung {
            is_so: AtomicBool::new(true),
            task: Mutex::new(task.clone()),
        });
        Self {
            waker: Waker::from(Arc::clone(&rung)),
            rung,
            task: task.clone(),
        }
    }

    /// Whether it rang since the last call; from now on it wakes `task`.
    fn has_rung(&mut self, task: &Waker) -> bool {
        if !self.task.will_wake(task) {
            self.task.clone_from(task);
            self.rung.lock().clone_from(task);
        }
        // Acquire and release: what came before the wake-up is seen by the look. The
        // load alone is what a quiet future costs.
        self.rung.is_so.load(Ordering::Acquire) && self.rung.is_so.swap(false, Ordering::AcqRel)
    }
}

// === impl Rung ===

impl Rung {
    fn lock(&self) -> std::sync::MutexGuard<'_, Waker> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Rung {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Noted first: whoever moved its task and then found it not rung is the one
        // that is woken, as the lock comes after the note here and before it there.
        self.is_so.store(true, Ordering::SeqCst);
        let task = self.lock().clone();
        task.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use tokio::sync::oneshot;
    use tokio_test::{assert_pending, assert_ready_eq, task};

    /// Counts the looks at `future`.
    async fn counted<F: Future>(looks: &Cell<u32>, future: F) -> F::Output {
        let mut future = std::pin::pin!(future);
        std::future::poll_fn(|cx| {
            looks.set(looks.get() + 1);
            future.as_mut().poll(cx)
        })
        .await
    }

    #[test]
    fn a_future_is_looked_at_once_and_then_when_it_was_woken() {
        let (looks, (sender, receiver)) = (Cell::new(0), oneshot::channel());
        let mut waiting = task::spawn(Woken::new(counted(&looks, receiver)));
        for _ in 0..1000 {
            assert_pending!(waiting.poll());
        }
        assert_eq!(looks.get(), 1);
        assert!(!waiting.is_woken());
        sender.send(7).unwrap();
        assert!(waiting.is_woken());
        assert_ready_eq!(waiting.poll(), Ok(7));
        assert_eq!(looks.get(), 2);
    }

    #[test]
    fn a_future_that_moves_to_another_task_wakes_that_one() {
        let (sender, receiver) = oneshot::channel();
        let mut woken = Box::pin(Woken::new(receiver));
        let (mut first, mut second) = (task::spawn(()), task::spawn(()));
        first.enter(|cx, _| assert_pending!(woken.as_mut().poll(cx)));
        second.enter(|cx, _| assert_pending!(woken.as_mut().poll(cx)));
        sender.send(7).unwrap();
        assert!(second.is_woken());
        assert!(!first.is_woken());
        let polled = second.enter(|cx, _| woken.as_mut().poll(cx));
        assert_ready_eq!(polled, Ok(7));
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_that_is_set_anew_rings_again() {
        use std::time::Duration;
        let second = Duration::from_secs(1);
        let mut timer = Box::pin(Woken::new(tokio::time::sleep(second)));
        let mut waiting = task::spawn(());
        for _ in 0..3 {
            waiting.enter(|cx, _| assert_pending!(timer.as_mut().poll(cx)));
            tokio::time::advance(second).await;
            assert!(waiting.is_woken());
            let polled = waiting.enter(|cx, _| timer.as_mut().poll(cx));
            assert_ready_eq!(polled, ());
            let next = tokio::time::Instant::now() + second;
            timer.as_mut().get_pin_mut().reset(next);
        }
    }
}
