//! A connection that is kept, and one request and its answer over it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::answer::{Flaw, Reader};
use super::ask::Ask;
use super::wire::{self, Body, Malformed};

/// Bytes asked of the connection at one time.
const READ: usize = 64 * 1024;

/// An open connection without a request on it.
pub(crate) struct Link {
    stream: TcpStream,
    buffer: Vec<u8>,
    reader: Reader,
    /// Whether a request was answered on it before.
    used: bool,
    closes: bool,
}

/// What one exchange took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// When the first piece of content was there.
    pub(crate) first: Instant,
    /// When the answer was complete.
    pub(crate) last: Instant,
}

/// A flaw, and whether it says only that the other side had closed an idle
/// connection, which HTTP lets it do at any moment.
pub(crate) struct Failed {
    pub(crate) flaw: Flaw,
    pub(crate) was_idle: bool,
}

// === impl Link ===

impl Link {
    /// Connects.
    pub(crate) async fn open(to: SocketAddr, patience: Duration) -> Result<Self, Flaw> {
        let opened = tokio::time::timeout(patience, TcpStream::connect(to)).await;
        let stream = opened
            .map_err(|_| Flaw::Late)?
            .and_then(|stream| stream.set_nodelay(true).map(|()| stream))
            .map_err(|error| Flaw::Unreachable(error.to_string()))?;
        Ok(Self {
            stream,
            buffer: Vec::new(),
            reader: Reader::new(),
            used: false,
            closes: false,
        })
    }

    /// Whether another request may follow.
    pub(crate) fn is_kept(&self) -> bool {
        !self.closes
    }

    /// Sends a request and reads its answer to the end; `seen` hears of each piece as
    /// it comes.
    ///
    /// # Errors
    /// Whatever makes the answer another one than was asked for. The connection is
    /// of no use afterwards.
    pub(crate) async fn exchange(
        &mut self,
        ask: &Ask,
        seen: impl Fn(u32),
    ) -> Result<Taken, Failed> {
        let flawed = |flaw| Failed {
            flaw,
            was_idle: false,
        };
        self.begin(ask).await?;
        let mut body = self.head().await?;
        let mut first = None;
        loop {
            let mut input = self.buffer.as_slice();
            while let Some(piece) = body
                .next(&mut input)
                .map_err(|error| flawed(error.into()))?
            {
                let pieces = self.reader.read(piece);
                if pieces > 0 {
                    seen(pieces);
                    first.get_or_insert_with(Instant::now);
                }
            }
            let left = input.len();
            if body.is_done() {
                let extra = if left > 0 {
                    Some(Flaw::Malformed)
                } else {
                    None
                };
                return match extra.map_or_else(|| self.reader.judge(ask.expected), Err) {
                    Ok(()) => Ok(self.taken(first)),
                    Err(flaw) => Err(flawed(flaw)),
                };
            }
            self.buffer.clear();
            if self.more().await == 0 {
                return Err(flawed(Flaw::Cut));
            }
        }
    }

    /// Sends a request and reads its answer up to the first piece of content.
    pub(crate) async fn hold(&mut self, ask: &Ask) -> Result<(), Failed> {
        self.begin(ask).await?;
        self.head().await?;
        while self.reader.read(&self.buffer) == 0 {
            self.buffer.clear();
            if self.more().await == 0 {
                return Err(Flaw::Cut.into());
            }
        }
        // An idle connection needs no buffer.
        self.buffer = Vec::new();
        Ok(())
    }

    fn taken(&mut self, first: Option<Instant>) -> Taken {
        self.used = true;
        self.buffer.clear();
        let last = Instant::now();
        Taken {
            first: first.unwrap_or(last),
            last,
        }
    }

    async fn begin(&mut self, ask: &Ask) -> Result<(), Failed> {
        self.reader.restart();
        self.buffer.clear();
        let sent = self.stream.write_all(&ask.bytes).await;
        sent.map_err(|_| Failed {
            flaw: Flaw::Cut,
            was_idle: self.used,
        })
    }

    /// Reads the head and leaves what follows it in the buffer.
    async fn head(&mut self) -> Result<Body, Failed> {
        loop {
            let found = wire::head(&self.buffer).map_err(Failed::from)?;
            if let Some(head) = found {
                let status = wire::status(&self.buffer).map_err(Failed::from)?;
                if status != 200 {
                    return Err(Flaw::Status(status).into());
                }
                self.closes = head.closes;
                self.buffer.drain(..head.bytes);
                let framing = head.framing.ok_or(Flaw::Malformed)?;
                return Ok(Body::new(framing));
            }
            let was_empty = self.buffer.is_empty();
            if self.more().await == 0 {
                return Err(Failed {
                    flaw: Flaw::Cut,
                    was_idle: was_empty && self.used,
                });
            }
        }
    }

    /// Reads on; 0 at the end, however it came.
    async fn more(&mut self) -> usize {
        self.buffer.reserve(READ);
        self.stream.read_buf(&mut self.buffer).await.unwrap_or(0)
    }
}

// === conversions ===

impl From<Malformed> for Flaw {
    fn from(Malformed: Malformed) -> Self {
        Self::Malformed
    }
}

impl From<Flaw> for Failed {
    fn from(flaw: Flaw) -> Self {
        Self {
            flaw,
            was_idle: false,
        }
    }
}

impl From<Malformed> for Failed {
    fn from(malformed: Malformed) -> Self {
        Flaw::from(malformed).into()
    }
}
