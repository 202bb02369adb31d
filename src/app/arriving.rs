//! The body of a request as the connection watches it come.
//!
//! Decides nothing: passes on what comes, and notes when the request has come
//! to its end, which is when its connection stops being silent, and whether a
//! body was left unread, so that its client may still be sending it.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::places::Asked;

/// The body of a request.
#[derive(Debug)]
pub struct Arriving {
    body: Incoming,
    asking: Asking,
}

/// A request on a connection, until the last clone is dropped.
#[derive(Clone, Debug)]
pub(super) struct Asking(Arc<Inner>);

/// Whether a body of a connection was left unread.
#[derive(Clone, Debug, Default)]
pub(super) struct Unread(Arc<AtomicBool>);

#[derive(Debug)]
struct Inner {
    /// Locked for one call at a time.
    asked: Mutex<Asked>,
    unread: Unread,
}

// === impl Asking ===

impl Asking {
    pub(super) fn new(asked: Asked, unread: &Unread) -> Self {
        Self(Arc::new(Inner {
            asked: Mutex::new(asked),
            unread: unread.clone(),
        }))
    }

    /// The request's body.
    pub(super) fn body(&self, body: Incoming) -> Arriving {
        let asking = self.clone();
        if body.is_end_stream() {
            asking.was_read();
        }
        Arriving { body, asking }
    }

    /// It had a good answer.
    pub(super) fn went_well(&self) {
        self.with(|asked| asked.went_well());
    }

    fn was_read(&self) {
        self.with(Asked::was_read);
    }

    fn with(&self, act: impl FnOnce(&mut Asked)) {
        act(&mut self.0.asked.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

// === impl Unread ===

impl Unread {
    pub(super) fn is_so(&self) -> bool {
        // Relaxed: set and read by tasks of one connection, the reader last.
        self.0.load(Ordering::Relaxed)
    }
}

// === impl Arriving ===

impl Body for Arriving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() {
            self.asking.was_read();
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

impl Drop for Arriving {
    fn drop(&mut self) {
        if !self.body.is_end_stream() {
            self.asking.0.unread.0.store(true, Ordering::Relaxed);
        }
    }
}
