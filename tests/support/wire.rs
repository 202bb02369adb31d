//! HTTP/1.1 as bytes: enough to read what the other side sent, and to see how
//! its connection ended.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::net::TcpStream;

/// One end of a connection.
pub(crate) trait Io: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Makes its end a reset (RST), where the transport knows one.
    fn reset_at_end(&self);
}

impl Io for TcpStream {
    fn reset_at_end(&self) {
        self.set_zero_linger().unwrap();
    }
}

/// In memory there is no reset: both ends see a close.
impl Io for DuplexStream {
    fn reset_at_end(&self) {}
}

/// A start line and headers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
}

/// How a connection ended, or that it did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The message was complete; the connection is open.
    Whole,
    /// The peer closed (FIN) before the end of the message.
    Closed,
    /// The peer reset the connection (RST) before the end of the message.
    Reset,
}

/// A connection and what was read from it but not yet asked for.
pub(crate) struct Wire<I> {
    io: I,
    buffer: Vec<u8>,
    /// What was asked for, as it came, where that is kept.
    taken: Option<Vec<u8>>,
}

// === impl Head ===

impl Head {
    fn parse(text: &str) -> Self {
        let mut lines = text.split("\r\n");
        let line = lines.next().unwrap().to_owned();
        let header = |line: &str| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        let headers = lines.filter(|line| !line.is_empty()).map(header).collect();
        Self { line, headers }
    }

    /// The first header of this (lower-case) name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find_map(|(key, value)| (key == name).then_some(value.as_str()))
    }

    /// The second word of the start line: a request's target, an answer's status.
    pub(crate) fn second_word(&self) -> &str {
        self.line.split(' ').nth(1).unwrap()
    }

    fn is_chunked(&self) -> bool {
        self.get("transfer-encoding") == Some("chunked")
    }

    fn length(&self) -> Option<usize> {
        self.get("content-length").map(|text| text.parse().unwrap())
    }
}

// === impl Wire ===

impl<I: Io> Wire<I> {
    pub(crate) fn new(io: I) -> Self {
        Self {
            io,
            buffer: Vec::new(),
            taken: None,
        }
    }

    /// One that keeps what was read; see [`Wire::taken`].
    pub(crate) fn keeping(io: I) -> Self {
        Self {
            taken: Some(Vec::new()),
            ..Self::new(io)
        }
    }

    /// What was read since the last call, byte by byte as it came.
    pub(crate) fn taken(&mut self) -> Vec<u8> {
        self.taken.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The first `size` bytes of the buffer.
    fn take(&mut self, size: usize) -> Vec<u8> {
        let rest = self.buffer.split_off(size);
        let took = std::mem::replace(&mut self.buffer, rest);
        if let Some(taken) = &mut self.taken {
            taken.extend_from_slice(&took);
        }
        took
    }

    /// Sends all of `bytes`.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.io.write_all(bytes).await?;
        self.io.flush().await
    }

    /// Sends what of `bytes` the transport takes at once; returns how much.
    pub(crate) async fn send_some(&mut self, bytes: &[u8]) -> usize {
        let once = poll_fn(|cx| match Pin::new(&mut self.io).poll_write(cx, bytes) {
            Poll::Ready(taken) => Poll::Ready(taken.unwrap()),
            Poll::Pending => Poll::Ready(0),
        });
        once.await
    }

    /// Waits for one more read; says how the connection ended where it did.
    async fn fill(&mut self) -> Result<(), Ending> {
        match self.io.read_buf(&mut self.buffer).await {
            Ok(0) => Err(Ending::Closed),
            Ok(_) => Ok(()),
            Err(error) => {
                let ends = [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
                assert!(ends.contains(&error.kind()), "odd end: {error}");
                Err(Ending::Reset)
            }
        }
    }

    async fn until(&mut self, end: &[u8]) -> Result<Vec<u8>, Ending> {
        loop {
            let found = self.buffer.windows(end.len()).position(|part| part == end);
            if let Some(at) = found {
                return Ok(self.take(at + end.len()));
            }
            self.fill().await?;
        }
    }

    /// Exactly `size` bytes.
    pub(crate) async fn exactly(&mut self, size: usize) -> Result<Vec<u8>, Ending> {
        while self.buffer.len() < size {
            self.fill().await?;
        }
        Ok(self.take(size))
    }

    /// The next head.
    pub(crate) async fn head(&mut self) -> Result<Head, Ending> {
        let bytes = self.until(b"\r\n\r\n").await?;
        Ok(Head::parse(std::str::from_utf8(&bytes).unwrap()))
    }

    /// The next chunk of a chunked body, `None` at its end.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Vec<u8>>, Ending> {
        let line = self.until(b"\r\n").await?;
        let line = std::str::from_utf8(&line).unwrap().trim_end();
        let size = usize::from_str_radix(line, 16).unwrap();
        let mut chunk = self.exactly(size + 2).await?;
        assert_eq!(chunk.split_off(size), b"\r\n");
        Ok((size > 0).then_some(chunk))
    }

    /// The body that follows `head`, as far as it comes, and how it ended.
    pub(crate) async fn body(&mut self, head: &Head) -> (Vec<u8>, Ending) {
        let mut body = Vec::new();
        if head.is_chunked() {
            loop {
                match self.chunk().await {
                    Ok(Some(chunk)) => body.extend(chunk),
                    Ok(None) => return (body, Ending::Whole),
                    Err(ending) => return (body, ending),
                }
            }
        }
        match self.exactly(head.length().unwrap_or(0)).await {
            Ok(body) => (body, Ending::Whole),
            Err(ending) => (std::mem::take(&mut self.buffer), ending),
        }
    }

    /// Everything until the peer ends the connection, and how it does.
    pub(crate) async fn rest(&mut self) -> (Vec<u8>, Ending) {
        loop {
            if let Err(ending) = self.fill().await {
                return (std::mem::take(&mut self.buffer), ending);
            }
        }
    }

    /// Says that nothing more will be sent, and stays.
    pub(crate) async fn shut(&mut self) {
        self.io.shutdown().await.unwrap();
    }

    /// Closes with a reset.
    pub(crate) fn reset(self) {
        self.reset_at_end();
    }

    /// Dropping it will reset the connection.
    pub(crate) fn reset_at_end(&self) {
        self.io.reset_at_end();
    }
}
