//! Reads the first bytes of a connection to tell HTTP/2 from HTTP/1.
//!
//! Decides only the version; every byte read is handed on. A connection that
//! sends nothing within the header limit is dropped, which the protocol code
//! behind it could not do: its own limit starts once the version is known.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// What an HTTP/2 client with prior knowledge sends first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The protocol a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// HTTP/1.0 or 1.1.
    Http1,
    /// HTTP/2 in clear text.
    Http2,
}

/// A stream that first gives back what was read ahead of it.
#[derive(Debug)]
pub(super) struct Rewound<I> {
    ahead: Bytes,
    inner: I,
}

/// Reads until the version is certain: at most the 24 bytes of the preface.
///
/// # Errors
/// The stream's own, and `UnexpectedEof` if it ends before its first byte.
pub(super) async fn sniff<I>(mut io: I) -> io::Result<(Version, Rewound<I>)>
where
    I: AsyncRead + Unpin,
{
    let mut ahead = BytesMut::with_capacity(PREFACE.len());
    let version = loop {
        let mut chunk = [0; PREFACE.len()];
        let room = PREFACE.len() - ahead.len();
        let read = io.read(&mut chunk[..room]).await?;
        ahead.extend_from_slice(&chunk[..read]);
        if read == 0 && ahead.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if read == 0 || !PREFACE.starts_with(&ahead) {
            break Version::Http1;
        }
        if ahead.len() == PREFACE.len() {
            break Version::Http2;
        }
    };
    let ahead = ahead.freeze();
    Ok((version, Rewound { ahead, inner: io }))
}

// === impl Rewound ===

impl<I> Rewound<I> {
    /// A stream of which nothing was read.
    pub(super) const fn untouched(inner: I) -> Self {
        Self {
            ahead: Bytes::new(),
            inner,
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Rewound<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.inner).poll_read(cx, buf);
        }
        let part = self.ahead.len().min(buf.remaining());
        buf.put_slice(&self.ahead[..part]);
        self.ahead.advance(part);
        // What follows comes with it: a head in two pieces is parsed twice, and makes
        // the connection code double its buffer. An error is met again by the next read.
        if buf.remaining() > 0 {
            drop(Pin::new(&mut self.inner).poll_read(cx, buf));
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Rewound<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    async fn sniffed(pieces: &'static [&'static [u8]]) -> (Version, Vec<u8>) {
        let (mut near, far) = tokio::io::duplex(64);
        let writer = async move {
            for piece in pieces {
                near.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        let reader = async {
            let (version, mut io) = sniff(far).await.unwrap();
            let mut all = Vec::new();
            io.read_to_end(&mut all).await.unwrap();
            (version, all)
        };
        tokio::join!(writer, reader).1
    }

    #[tokio::test]
    async fn a_preface_in_pieces_is_http2_and_nothing_is_lost() {
        let (version, bytes) = sniffed(&[b"PRI * HT", b"TP/2.0\r\n\r\nSM\r\n\r\n", b"rest"]).await;
        assert_eq!(version, Version::Http2);
        assert_eq!(bytes, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nrest");
    }

    #[tokio::test]
    async fn a_request_that_begins_like_the_preface_is_http1() {
        let (version, bytes) = sniffed(&[b"P", b"OST / HTTP/1.1\r\n"]).await;
        assert_eq!(version, Version::Http1);
        assert_eq!(bytes, b"POST / HTTP/1.1\r\n");
    }

    #[tokio::test]
    async fn what_was_looked_at_and_what_follows_are_one_read() {
        let head = b"POST /v1/chat/completions HTTP/1.1\r\n";
        let (mut near, far) = tokio::io::duplex(64);
        near.write_all(head).await.unwrap();
        let (_, mut io) = sniff(far).await.unwrap();
        let mut buffer = [0; 64];
        let read = io.read(&mut buffer).await.unwrap();
        assert_eq!(buffer[..read], head[..]);
    }
}
