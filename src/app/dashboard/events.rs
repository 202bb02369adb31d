//! `/events`: a whole state each second, to at most [`MOST_WATCHERS`].
//!
//! A state is made once a second for all who watch, and only while somebody does.
//! Who reads slowly gets the newest when it is ready for one, never a backlog; who
//! reads nothing at all is cut by its connection.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::app::drain::{Phase, Watcher};
use crate::app::gateway::Gateway;
use crate::app::state;

/// Who may watch at one time.
const MOST_WATCHERS: usize = 32;

/// Between two states.
const EVERY: Duration = Duration::from_secs(1);

/// What is sent where no state came for that long, so that both sides know that
/// the other is there.
const HEARTBEAT: (Duration, &[u8]) = (Duration::from_secs(5), b": still here\n\n");

/// The states of a gateway as they pass.
#[derive(Clone)]
pub(in crate::app) struct Feed {
    gateway: Arc<Gateway>,
    phase: Watcher,
    newest: Arc<watch::Sender<Bytes>>,
    places: Arc<Semaphore>,
}

/// The states as one watcher gets them: a body that ends with the process.
pub(in crate::app) struct Stream {
    next: Next,
}

type Next = Pin<Box<dyn Future<Output = Option<(Bytes, Reader)>> + Send>>;

/// What one watcher waits for.
struct Reader {
    newest: watch::Receiver<Bytes>,
    phase: Watcher,
    _place: OwnedSemaphorePermit,
}

// === impl Feed ===

impl Feed {
    /// Of `gateway`, whose process is at `phase`.
    pub(in crate::app) fn new(gateway: Arc<Gateway>, phase: Watcher) -> Self {
        Self {
            gateway,
            phase,
            newest: Arc::new(watch::Sender::new(Bytes::new())),
            places: Arc::new(Semaphore::new(MOST_WATCHERS)),
        }
    }

    /// Makes states while somebody watches. Ends when dropped.
    pub(in crate::app) async fn run(self) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut number = 0_u64;
        loop {
            ticks.tick().await;
            number = number.wrapping_add(1);
            if self.newest.receiver_count() > 0 {
                let event = self.event(number);
                self.newest.send_replace(event);
            }
        }
    }

    /// The state of this moment, then one each second; `None` where too many watch.
    pub(in crate::app) fn watch(&self) -> Option<Stream> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        let first = self.event(0);
        let reader = Reader {
            newest: self.newest.subscribe(),
            phase: self.phase.clone(),
            _place: place,
        };
        Some(Stream {
            next: Box::pin(async move { Some((first, reader)) }),
        })
    }

    fn event(&self, number: u64) -> Bytes {
        let state = state::snapshot(&self.gateway, self.phase.phase());
        // JSON on one line: an event's data ends with its line.
        format!("event: state\nid: {number}\ndata: {state}\n\n").into()
    }
}

// === impl Reader ===

impl Reader {
    async fn next(mut self) -> Option<(Bytes, Self)> {
        if self.phase.phase() == Phase::Cut {
            return None;
        }
        let (after, heartbeat) = HEARTBEAT;
        let changed = tokio::select! {
            changed = timeout(after, self.newest.changed()) => changed,
            () = self.phase.clone().cut() => return None,
        };
        let bytes = match changed {
            Ok(Ok(())) => self.newest.borrow_and_update().clone(),
            // The feed is gone, and the process with it.
            Ok(Err(_)) => return None,
            Err(_) => Bytes::from_static(heartbeat),
        };
        Some((bytes, self))
    }
}

// === impl Stream ===

impl Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some((bytes, reader)) = ready!(self.next.as_mut().poll(cx)) else {
            self.next = Box::pin(std::future::pending());
            return Poll::Ready(None);
        };
        self.next = Box::pin(reader.next());
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }
}
