//! The body of an answer: a small one of our own, or a relayed one.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::relay::{Cut, Relay};

/// The body of an answer; `U` is the body of the backend's answer.
pub enum AnswerBody<U> {
    /// Bytes we made; `None` once sent.
    Whole(Option<Bytes>),
    /// The backend's answer, with the lease it runs on.
    Relayed(Pin<Box<Relay<U>>>),
}

// === impl AnswerBody ===

impl<U> AnswerBody<U> {
    /// A body we made.
    pub fn whole(bytes: Bytes) -> Self {
        Self::Whole(Some(bytes))
    }

    /// The backend's answer.
    pub fn relayed(relay: Relay<U>) -> Self {
        Self::Relayed(Box::pin(relay))
    }
}

impl<U> Body for AnswerBody<U>
where
    U: Body<Data = Bytes>,
{
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|all| Ok(Frame::data(all)))),
            Self::Relayed(relay) => relay.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Relayed(relay) => relay.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                let left = bytes.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(left).unwrap_or(u64::MAX))
            }
            Self::Relayed(relay) => relay.size_hint(),
        }
    }
}
