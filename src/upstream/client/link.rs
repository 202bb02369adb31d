//! One connection to an engine: sends a request, reads the head of its answer.
//!
//! Decides when to write and when to read. Moves only while whoever waits for the
//! answer polls it: no task stands between the engine and the client, so what a slow
//! client does not take is not read, and a drop closes the connection in that call.
//!
//! Invariant: [`Outgoing::sent`] is what the transport has taken of the request,
//! whatever became of it.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::{Method, Request};
use http_body_util::Full;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::head::{self, Head, Unreadable};

/// Room of a read, in bytes, at first. A stream of single events needs no more, and
/// has this in memory however long it is silent.
const LEAST_ROOM: usize = 4 * 1024;
/// The same at most, where an engine sends more than is read at a time.
const MOST_ROOM: usize = 16 * 1024;

/// What a connection goes over.
pub(super) trait Wired: AsyncRead + AsyncWrite + Send + Unpin {}

impl<Io: AsyncRead + AsyncWrite + Send + Unpin> Wired for Io {}

/// One connection. Dropping it closes the connection.
pub(super) struct Link {
    io: Box<dyn Wired>,
    opened: Instant,
    /// What was read and not taken.
    pub(super) input: BytesMut,
    /// Room of the next read.
    room: usize,
}

/// A request on its way out.
pub(super) struct Outgoing {
    method: Method,
    head: Bytes,
    body: Bytes,
    /// Bytes of it that the transport has taken.
    sent: u64,
    /// Whether the transport may hold some of them back.
    is_flushed: bool,
}

/// Why no head of an answer came.
#[derive(Debug)]
pub(super) enum Failure {
    /// What came is none.
    NotHttp,
    /// The connection is lost.
    Lost(io::Error),
}

// === impl Link ===

impl Link {
    pub(super) fn new(io: Box<dyn Wired>) -> Self {
        Self {
            io,
            opened: Instant::now(),
            input: BytesMut::new(),
            room: LEAST_ROOM,
        }
    }

    /// Time since the connection was opened.
    pub(super) fn age(&self) -> Duration {
        self.opened.elapsed()
    }

    /// Whether an idle connection can still be used: its engine has neither ended it
    /// nor said anything.
    pub(super) fn is_quiet(&mut self, cx: &mut Context<'_>) -> bool {
        let mut byte = [0];
        let read = Pin::new(&mut self.io).poll_read(cx, &mut ReadBuf::new(&mut byte));
        read.is_pending() && self.input.is_empty()
    }

    /// Sends `outgoing` and waits for the head of its answer, which may come before all
    /// is sent.
    ///
    /// # Errors
    /// Where none comes; the connection can then carry nothing more.
    pub(super) fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
        outgoing: &mut Outgoing,
    ) -> Poll<Result<Head, Failure>> {
        // An engine that refuses may answer before it closes: what it says is read first.
        let unsent = match self.poll_send(cx, outgoing) {
            Poll::Ready(Err(error)) => Some(error),
            _ => None,
        };
        loop {
            match head::read(&mut self.input, &outgoing.method) {
                Ok(Some(head)) => return Poll::Ready(Ok(head)),
                Ok(None) => {}
                Err(Unreadable) => return Poll::Ready(Err(Failure::NotHttp)),
            }
            let lost = match self.poll_read(cx) {
                Poll::Ready(Ok(1..)) => continue,
                Poll::Ready(Ok(0)) => io::ErrorKind::UnexpectedEof.into(),
                Poll::Ready(Err(error)) => error,
                // What cannot be written to becomes readable, its last words first.
                Poll::Pending => return Poll::Pending,
            };
            return Poll::Ready(Err(Failure::Lost(unsent.unwrap_or(lost))));
        }
    }

    /// Sends what is left of `outgoing`; ready at once where all is sent.
    ///
    /// # Errors
    /// The transport's; nothing more of it can be sent then.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        outgoing: &mut Outgoing,
    ) -> Poll<io::Result<()>> {
        while !outgoing.is_written() {
            let slices = [IoSlice::new(&outgoing.head), IoSlice::new(&outgoing.body)];
            let io = Pin::new(&mut self.io);
            let taken = ready!(match outgoing.head.is_empty() {
                true => io.poll_write(cx, &outgoing.body),
                false => io.poll_write_vectored(cx, &slices),
            })?;
            if taken == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            outgoing.took(taken);
        }
        if !outgoing.is_flushed {
            ready!(Pin::new(&mut self.io).poll_flush(cx))?;
            outgoing.is_flushed = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads more into `input`; zero bytes are the end of the connection.
    ///
    /// # Errors
    /// The transport's.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.input.is_empty() && self.input.capacity() > 2 * self.room {
            // A burst is over: its memory is not kept until the stream ends.
            self.input = BytesMut::new();
        }
        self.input.reserve(self.room);
        let room = self.input.capacity() - self.input.len();
        let read = ready!(pin!(self.io.read_buf(&mut self.input)).poll(cx))?;
        if read == room {
            self.room = (2 * self.room).min(MOST_ROOM);
        } else if read < self.room / 8 {
            self.room = (self.room / 2).max(LEAST_ROOM);
        }
        Poll::Ready(Ok(read))
    }
}

// === impl Outgoing ===

impl Outgoing {
    /// All of `request`.
    pub(super) fn new(request: Request<Full<Bytes>>) -> Self {
        let (parts, body) = request.into_parts();
        let body = body.into_inner().unwrap_or_default();
        Self {
            head: head::write(&parts, body.len()),
            method: parts.method,
            body,
            sent: 0,
            is_flushed: false,
        }
    }

    /// Bytes of it that the transport has taken, its head included.
    pub(super) const fn sent(&self) -> u64 {
        self.sent
    }

    /// Whether all of it is on its way.
    pub(super) fn is_over(&self) -> bool {
        self.is_written() && self.is_flushed
    }

    fn is_written(&self) -> bool {
        self.head.is_empty() && self.body.is_empty()
    }

    fn took(&mut self, bytes: usize) {
        self.sent += u64::try_from(bytes).expect("a length of memory fits 64 bits");
        let of_head = bytes.min(self.head.len());
        self.head.advance(of_head);
        self.body.advance(bytes - of_head);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn reads_grow_with_what_comes_and_a_burst_is_not_kept() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let mut link = Link::new(Box::new(near));
        far.write_all(&[b'x'; 100_000]).await.unwrap();
        let mut sizes = Vec::new();
        let mut left = 100_000;
        while left > 0 {
            let read = poll_fn(|cx| link.poll_read(cx)).await.unwrap();
            left -= read;
            sizes.push(read);
            drop(link.input.split());
        }
        assert!(sizes[0] >= LEAST_ROOM && sizes[0] < MOST_ROOM, "{sizes:?}");
        assert!(sizes.iter().any(|size| *size >= MOST_ROOM), "{sizes:?}");
        for _ in 0..8 {
            far.write_all(b"data: x\n\n").await.unwrap();
            poll_fn(|cx| link.poll_read(cx)).await.unwrap();
            drop(link.input.split());
        }
        assert_eq!(link.room, LEAST_ROOM);
        poll_fn(|cx| Poll::Ready(link.poll_read(cx).is_pending())).await;
        assert!(link.input.capacity() <= 2 * LEAST_ROOM);
    }
}
