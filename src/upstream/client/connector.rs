//! Opens connections to engines and meters what goes over them.
//!
//! Decides how long a connect may take and whether any byte of a request was
//! accepted by the transport. Never half-closes: shutting down the sending side
//! of a request makes an engine abort it.
//!
//! Invariant: on a connection that has sent nothing of its current request, all
//! bytes written belong to answered ones, as HTTP/1.1 without pipelining is all
//! it carries.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tower::ServiceExt;

use super::names::Names;
use super::tls::{Profiles, Wire};

/// Idle time after which TCP asks whether the other side still lives: a host
/// that vanished without a packet is found by this alone.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);
/// Time between two such questions.
const TCP_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Unanswered questions after which the connection is given up.
const TCP_KEEPALIVE_RETRIES: u32 = 3;

/// Opens a byte stream to the authority of a URI; in memory under test.
pub trait Connector: Clone + Send + Sync + 'static {
    /// The stream it opens.
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Connects. Dropping the future gives the attempt up.
    ///
    /// # Errors
    /// Whatever the transport says; its `ErrorKind` decides how the backend is judged.
    fn connect(&self, to: Uri) -> impl Future<Output = io::Result<Self::Io>> + Send + 'static;
}

/// Plain TCP with Nagle's delay off and keep-alive on.
#[derive(Clone, Debug)]
pub struct Tcp(HttpConnector<Names>);

/// Bytes written to a connection, and how many of them belong to answered requests.
#[derive(Clone, Debug)]
pub(super) struct Meter(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    /// When the connection was opened.
    opened: Instant,
    written: AtomicU64,
    /// `written` as of the last byte read.
    written_at_read: AtomicU64,
    /// `written_at_read` as of the last head of an answer.
    answered: AtomicU64,
}

/// A connector as the pool wants it: bounded in time, secured where the scheme
/// stands for a TLS profile, its streams metered.
#[derive(Clone, Debug)]
pub(super) struct Dial<C> {
    pub(super) connector: C,
    pub(super) limit: Duration,
    pub(super) profiles: Profiles,
}

/// A stream as the connection code wants it.
pub(super) type Stream<C> = TokioIo<Metered<Wire<<C as Connector>::Io>>>;

/// A stream that counts.
pub(super) struct Metered<Io> {
    io: Io,
    meter: Meter,
}

// === impl Tcp ===

impl Tcp {
    /// A connector that gives each address of a name its part of `limit`.
    pub fn new(limit: Duration) -> Self {
        let mut http = HttpConnector::new_with_resolver(Names::default());
        http.set_nodelay(true);
        http.set_keepalive(Some(TCP_KEEPALIVE));
        http.set_keepalive_interval(Some(TCP_KEEPALIVE_INTERVAL));
        http.set_keepalive_retries(Some(TCP_KEEPALIVE_RETRIES));
        http.set_connect_timeout(Some(limit));
        Self(http)
    }
}

impl Connector for Tcp {
    type Io = TcpStream;

    fn connect(&self, to: Uri) -> impl Future<Output = io::Result<TcpStream>> + Send + 'static {
        let connecting = self.0.clone().oneshot(to);
        async move {
            match connecting.await {
                Ok(stream) => Ok(stream.into_inner()),
                Err(error) => Err(io::Error::new(kind_of(&error), error.to_string())),
            }
        }
    }
}

/// The first kind of I/O error among the causes of `error`.
pub(super) fn kind_of(error: &(dyn std::error::Error + 'static)) -> io::ErrorKind {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return io.kind();
        }
        cause = error.source();
    }
    io::ErrorKind::Other
}

// === impl Meter ===

impl Meter {
    fn start() -> Self {
        Self(Arc::new(Counts {
            opened: Instant::now(),
            written: AtomicU64::new(0),
            written_at_read: AtomicU64::new(0),
            answered: AtomicU64::new(0),
        }))
    }

    /// Time since the connection was opened.
    pub(super) fn age(&self) -> Duration {
        self.0.opened.elapsed()
    }

    /// Bytes of the current request that the transport has taken.
    pub(super) fn unanswered(&self) -> u64 {
        // One task reads and writes the connection, and whoever looks was woken
        // by it, which orders these loads.
        let written = self.0.written.load(Ordering::Relaxed);
        written.saturating_sub(self.0.answered.load(Ordering::Relaxed))
    }

    /// The head of an answer has come: what was written before it is settled.
    ///
    /// Takes the count of the last read, not the current one: the connection may
    /// be in other hands already, which write their own request.
    pub(super) fn answered(&self) {
        let settled = self.0.written_at_read.load(Ordering::Relaxed);
        self.0.answered.store(settled, Ordering::Relaxed);
    }

    fn wrote(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.0.written.fetch_add(bytes, Ordering::Relaxed);
    }

    fn read_some(&self) {
        let written = self.0.written.load(Ordering::Relaxed);
        self.0.written_at_read.store(written, Ordering::Relaxed);
    }
}

// === impl Dial ===

impl<C: Connector> Dial<C> {
    /// A stream to the authority of `to`, and what counts its bytes.
    pub(super) async fn connect(&self, to: Uri) -> io::Result<(Stream<C>, Meter)> {
        let opened = tokio::time::timeout(self.limit, self.open(to)).await;
        let io = opened.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        let meter = Meter::start();
        let io = Metered {
            io,
            meter: meter.clone(),
        };
        Ok((TokioIo::new(io), meter))
    }

    async fn open(&self, to: Uri) -> io::Result<Wire<C::Io>> {
        let Some(scheme) = to.scheme().filter(|scheme| **scheme != Scheme::HTTP) else {
            return self.connector.connect(to).await.map(Wire::Plain);
        };
        // Gone with its endpoint, by a reload: nobody waits for the connection.
        let profile = self
            .profiles
            .find(scheme)
            .ok_or(io::ErrorKind::NotConnected)?;
        let io = self.connector.connect(clear(&to)).await?;
        profile.secure(io).await
    }
}

/// The address of a secured endpoint as a connector takes it.
fn clear(to: &Uri) -> Uri {
    let host = to.host().unwrap_or_default();
    let port = to.port_u16().unwrap_or(443);
    Uri::builder()
        .scheme(Scheme::HTTP)
        .authority(format!("{host}:{port}"))
        .path_and_query("/")
        .build()
        .expect("the host of a URI and a port make one")
}

// === impl Metered ===

impl<Io: AsyncRead + Unpin> AsyncRead for Metered<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.meter.read_some();
        }
        Poll::Ready(Ok(()))
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Metered<Io> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let taken = ready!(Pin::new(&mut self.io).poll_write(cx, bytes))?;
        self.meter.wrote(taken);
        Poll::Ready(Ok(taken))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let taken = ready!(Pin::new(&mut self.io).poll_write_vectored(cx, slices))?;
        self.meter.wrote(taken);
        Poll::Ready(Ok(taken))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
