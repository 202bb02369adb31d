//! HTTP as bytes in memory: the engine behind the gateway, and where its
//! connections come from.
//!
//! Both ends of the gateway are made of as few instructions as can be, since they
//! are counted with it: whole messages are read and written as they are.

use std::io;

use bytes::BytesMut;
use http::Uri;
use memchr::memmem;
use tidegate::upstream::client::Connector;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;

/// Room of a stream in memory: a whole message fits.
const ROOM: usize = 256 * 1024;

/// One end of a stream, and what was read of it.
pub(crate) struct Wire {
    io: DuplexStream,
    read: BytesMut,
}

/// Opens streams to the engine, whose ends come out at `engine`.
#[derive(Clone)]
pub(crate) struct InMemory(mpsc::UnboundedSender<DuplexStream>);

/// A stream, each end of it.
pub(crate) fn pair() -> (DuplexStream, DuplexStream) {
    tokio::io::duplex(ROOM)
}

// === impl InMemory ===

impl InMemory {
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<DuplexStream>) {
        let (ends, engine) = mpsc::unbounded_channel();
        (Self(ends), engine)
    }
}

impl Connector for InMemory {
    type Io = DuplexStream;

    fn connect(&self, _: Uri) -> impl Future<Output = io::Result<DuplexStream>> + Send + 'static {
        let (near, far) = pair();
        let sent = self.0.send(far);
        let refused = |_| io::Error::from(io::ErrorKind::ConnectionRefused);
        std::future::ready(sent.map(|()| near).map_err(refused))
    }
}

// === impl Wire ===

impl Wire {
    pub(crate) fn new(io: DuplexStream) -> Self {
        let read = BytesMut::with_capacity(ROOM);
        Self { io, read }
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.io.write_all(bytes).await.unwrap();
    }

    /// Reads until `end` has come; the bytes up to it are taken. `None` where the
    /// stream ends first.
    pub(crate) async fn read_to(&mut self, end: &[u8]) -> Option<BytesMut> {
        loop {
            if let Some(at) = memmem::find(&self.read, end) {
                return Some(self.read.split_to(at + end.len()));
            }
            self.read_more().await?;
        }
    }

    /// Reads one message that has a `content-length`, or no body. `None` where the
    /// stream ends first.
    pub(crate) async fn message(&mut self) -> Option<BytesMut> {
        let mut message = self.read_to(b"\r\n\r\n").await?;
        let head = String::from_utf8_lossy(&message).to_ascii_lowercase();
        let length = head.lines().find_map(|line| {
            let value = line.strip_prefix("content-length:")?;
            value.trim().parse::<usize>().ok()
        });
        let length = length.unwrap_or(0);
        while self.read.len() < length {
            self.read_more().await?;
        }
        message.unsplit(self.read.split_to(length));
        Some(message)
    }

    async fn read_more(&mut self) -> Option<()> {
        // Takes the same memory again: what was taken of it is gone by then.
        self.read.reserve(ROOM / 4);
        let read = self.io.read_buf(&mut self.read).await.ok()?;
        (read > 0).then_some(())
    }
}
