//! A body that says what a test tells it to, when the test tells it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame};

/// The test's end.
#[derive(Clone)]
pub(crate) struct Script(Arc<Mutex<State>>);

/// The body's end.
pub(crate) struct Scripted(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    steps: VecDeque<Step>,
    /// No more steps: an end that is known before it is polled for.
    length_known: bool,
    waker: Option<Waker>,
    dropped: bool,
}

enum Step {
    Data(Bytes),
    End,
    Break,
}

impl Script {
    pub(crate) fn new() -> (Self, Scripted) {
        let state = Arc::default();
        (Self(Arc::clone(&state)), Scripted(state))
    }

    /// A chunk comes.
    pub(crate) fn data(&self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// A chunk comes that need not be text.
    pub(crate) fn bytes(&self, bytes: &[u8]) {
        self.step(Step::Data(Bytes::copy_from_slice(bytes)));
    }

    /// The last chunk comes, and is known to be the last.
    pub(crate) fn last(&self, text: &str) {
        self.0.lock().unwrap().length_known = true;
        self.data(text);
    }

    /// The body is known to be empty.
    pub(crate) fn nothing(&self) {
        self.0.lock().unwrap().length_known = true;
    }

    /// The body ends.
    pub(crate) fn end(&self) {
        self.step(Step::End);
    }

    /// The connection breaks.
    pub(crate) fn break_off(&self) {
        self.step(Step::Break);
    }

    /// Whether the body was dropped.
    pub(crate) fn is_dropped(&self) -> bool {
        self.0.lock().unwrap().dropped
    }

    fn step(&self, step: Step) {
        let mut state = self.0.lock().unwrap();
        state.steps.push_back(step);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }
}

impl Body for Scripted {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let mut state = self.0.lock().unwrap();
        match state.steps.pop_front() {
            Some(Step::Data(bytes)) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Some(Step::End) => Poll::Ready(None),
            Some(Step::Break) => Poll::Ready(Some(Err(std::io::ErrorKind::ConnectionReset.into()))),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let state = self.0.lock().unwrap();
        state.length_known && state.steps.is_empty()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.0.lock().unwrap().dropped = true;
    }
}
