//! In-memory engines for the tests of this floor.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Uri;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;

use super::client::{Connector, Timing};

/// Limits of the tests' clients.
pub(super) const TIMING: Timing = Timing {
    connect: Duration::from_secs(5),
    first_byte: Some(Duration::from_secs(60)),
    pool_idle: Duration::from_secs(4),
    max_age: Duration::from_secs(30),
};

/// Hands out one end of a pipe per connect; the other end goes to the test.
#[derive(Clone)]
pub(super) struct Pipes {
    opened: mpsc::UnboundedSender<DuplexStream>,
    mode: Arc<Mutex<Mode>>,
}

/// What a connect does.
#[derive(Clone, Copy, Default)]
pub(super) enum Mode {
    #[default]
    Open,
    /// Opens a pipe whose far end is gone.
    Gone,
    /// Never ends.
    Hang,
    Fail(io::ErrorKind),
}

impl Pipes {
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<DuplexStream>) {
        let (opened, far_ends) = mpsc::unbounded_channel();
        let mode = Arc::default();
        (Self { opened, mode }, far_ends)
    }

    pub(super) fn set(&self, mode: Mode) {
        *self.mode.lock().unwrap() = mode;
    }
}

impl Connector for Pipes {
    type Io = DuplexStream;

    fn connect(&self, _: Uri) -> impl Future<Output = io::Result<DuplexStream>> + Send + 'static {
        let mode = *self.mode.lock().unwrap();
        let (near, far) = tokio::io::duplex(64 * 1024);
        if let Mode::Open = mode {
            self.opened.send(far).unwrap();
        }
        async move {
            match mode {
                Mode::Open | Mode::Gone => Ok(near),
                Mode::Hang => std::future::pending().await,
                Mode::Fail(kind) => Err(kind.into()),
            }
        }
    }
}

/// Reads one request, body included; `None` at the end of the connection.
pub(super) async fn read_request(io: &mut DuplexStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .map_or(0, |length| length.parse().unwrap());
            if body.len() >= length {
                return Some(text);
            }
        }
        let mut part = [0; 4096];
        match io.read(&mut part).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&part[..count]),
        }
    }
}

/// Writes one answer of known length.
pub(super) async fn answer(io: &mut DuplexStream, status: &str, body: &str) {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    // The other side may have given up waiting.
    drop(io.write_all(format!("{head}{body}").as_bytes()).await);
}
