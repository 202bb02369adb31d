//! A client that takes nothing of its answer is given up.
//!
//! An answer's body owns the lease, and is asked for more only while the client
//! takes what there is. Its own limits are looked at only when it is asked, so
//! they end nothing that is not read: this does. Decides when a client has had
//! enough time, never what becomes of the answer: whoever drives it drops it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::Instant;

use super::arriving::Asking;

/// How long a client may take nothing while a part of its answer waits. That is
/// reached only once every buffer on the way is full.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

tokio::task_local! {
    /// What the answer of an HTTP/2 stream, a task of its own, reports to.
    pub(super) static STREAM: Taking;
}

/// Since when a part of an answer was given out and no more asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Taking(Arc<Mutex<Option<Instant>>>);

pin_project! {
    /// A body that says when it is asked for more.
    pub(super) struct Given<B> {
        #[pin]
        body: B,
        taking: Taking,
        // Held until the answer is over.
        asking: Asking,
    }

    impl<B> PinnedDrop for Given<B> {
        fn drop(this: Pin<&mut Self>) {
            this.taking.set(None);
        }
    }
}

// === impl Taking ===

impl Taking {
    /// `body`, reporting here; the answer to `asking`.
    pub(super) fn watch<B>(&self, body: B, asking: Asking) -> Given<B> {
        let taking = self.clone();
        Given {
            body,
            taking,
            asking,
        }
    }

    /// Ends when the client has taken nothing for [`PATIENCE`].
    pub(super) async fn given_up(&self) {
        loop {
            let since = self.since();
            let end = since.unwrap_or_else(Instant::now) + PATIENCE;
            tokio::time::sleep_until(end).await;
            if since.is_some() && self.since() == since {
                tracing::debug!("a client takes nothing of its answer");
                return;
            }
        }
    }

    fn since(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, since: Option<Instant>) {
        // Held for this one write; nothing can be left half done.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }
}

// === impl Given ===

impl<B: Body<Data = Bytes>> Body for Given<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        this.taking.set(None);
        let frame = ready!(this.body.poll_frame(cx));
        if frame.is_some() {
            this.taking.set(Some(Instant::now()));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
