//! A stream whose end is noticed while nobody reads it.
//!
//! The connection code looks for a client that leaves only as long as nothing
//! unread has come: one byte sent ahead, as little as the line break that old
//! clients put behind a body, and a client that left would wait in the queue to
//! its deadline and be served then. So what comes ahead is read aside here, and
//! handed on when it is asked for. Never reads while the connection code does.

use std::future::Future;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Most bytes read aside; a client that sends more ahead is noticed late.
const MOST: usize = 16 * 1024;

/// The stream as the connection code sees it.
pub(super) struct Stream<I>(Shared<I>);

/// Ends when the client has left while nobody was reading. To be polled after
/// the connection, in the same task.
pub(super) struct Left<I>(Shared<I>);

/// Only ever locked by the one task of a connection, for one poll.
type Shared<I> = Arc<Mutex<State<I>>>;

struct State<I> {
    io: I,
    aside: BytesMut,
    reading: Reading,
}

/// Whether the connection code waits for bytes by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    Itself,
    NotNow,
}

/// `io` in two halves.
pub(super) fn split<I>(io: I) -> (Stream<I>, Left<I>) {
    let shared = Arc::new(Mutex::new(State {
        io,
        aside: BytesMut::new(),
        reading: Reading::NotNow,
    }));
    (Stream(Arc::clone(&shared)), Left(shared))
}

fn lock<I>(shared: &Shared<I>) -> MutexGuard<'_, State<I>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl State ===

impl<I: AsyncRead + Unpin> State<I> {
    /// Reads aside until there is nothing to read, too much, or the end.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.aside.len() < MOST {
            let mut chunk = [MaybeUninit::uninit(); 1024];
            let mut part = ReadBuf::uninit(&mut chunk);
            let read = ready!(Pin::new(&mut self.io).poll_read(cx, &mut part));
            if read.is_err() || part.filled().is_empty() {
                return Poll::Ready(());
            }
            self.aside.extend_from_slice(part.filled());
        }
        Poll::Pending
    }
}

// === impl Left ===

impl<I: AsyncRead + Unpin> Future for Left<I> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = lock(&self.0);
        match std::mem::replace(&mut state.reading, Reading::NotNow) {
            Reading::Itself => Poll::Pending,
            Reading::NotNow => state.poll_end(cx),
        }
    }
}

// === impl Stream ===

impl<I: AsyncRead + Unpin> AsyncRead for Stream<I> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = lock(&self.0);
        if state.aside.is_empty() {
            let read = Pin::new(&mut state.io).poll_read(cx, buf);
            if read.is_pending() {
                state.reading = Reading::Itself;
            }
            return read;
        }
        let part = state.aside.len().min(buf.remaining());
        buf.put_slice(&state.aside[..part]);
        state.aside.advance(part);
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Stream<I> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut lock(&self.0).io).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut lock(&self.0).io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut lock(&self.0).io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut lock(&self.0).io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        lock(&self.0).io.is_write_vectored()
    }
}
