//! The beginning of a client connection: the handshake, where one is asked for.
//!
//! Decides the version of HTTP by what the handshake agreed on, and by the first
//! bytes where it agreed on nothing. A handshake is limited in time like the
//! headers that would come in clear text. Never answers in clear text on a
//! secured port. A connection keeps the certificates it began with.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::config::ListenerTls;
use crate::telemetry::{HandshakeFailure, Metrics};
use crate::tenants::ClientCertificate;

use super::sniff::{Rewound, Version, sniff};

/// A client's stream, secured or not.
pub(super) enum Wire<I> {
    /// In clear text.
    Plain(I),
    /// Secured.
    Tls(Box<TlsStream<I>>),
}

/// A connection of which it is known what it speaks.
pub(super) struct Opened<I> {
    pub(super) version: Version,
    pub(super) io: Rewound<Wire<I>>,
    /// What the client has proved.
    pub(super) certificate: Option<Arc<ClientCertificate>>,
}

/// The handshakes of a listener.
pub struct Handshakes {
    config: Arc<ServerConfig>,
    /// Its name in metrics.
    listener: &'static str,
    metrics: Arc<Metrics>,
}

/// Why a connection did not open.
#[derive(Debug)]
pub(super) enum NotOpened {
    /// Nothing was said, or nothing that goes on: nobody's fault.
    Left,
    /// The handshake failed.
    Handshake(HandshakeFailure),
}

/// Opens a connection, each step of it within `limit`; `None` where it ends
/// before it is known what it speaks. A failed handshake is counted.
pub(super) async fn open<I>(
    io: I,
    secured: Option<&Handshakes>,
    limit: Duration,
) -> Option<Opened<I>>
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    let Some(handshakes) = secured else {
        return sniffed(Wire::Plain(io), limit).await.ok();
    };
    match secure(io, &handshakes.config, limit).await {
        Ok(opened) => Some(opened),
        Err(NotOpened::Left) => None,
        Err(NotOpened::Handshake(failure)) => {
            handshakes
                .metrics
                .handshake_failed(handshakes.listener, failure);
            tracing::debug!(reason = failure.label(), "no secure connection to a client");
            None
        }
    }
}

async fn secure<I>(
    io: I,
    config: &Arc<ServerConfig>,
    limit: Duration,
) -> Result<Opened<I>, NotOpened>
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    let accepting = TlsAcceptor::from(Arc::clone(config)).accept(io);
    let stream = match tokio::time::timeout(limit, accepting).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(failed(&error)),
        Err(_) => return Err(NotOpened::Handshake(HandshakeFailure::Timeout)),
    };
    let session = stream.get_ref().1;
    let shown = session.peer_certificates().and_then(<[_]>::first);
    let certificate = shown
        .and_then(|leaf| ClientCertificate::of(leaf))
        .map(Arc::new);
    let version = match session.alpn_protocol() {
        Some(b"h2") => Some(Version::Http2),
        Some(_) => Some(Version::Http1),
        None => None,
    };
    let io = Wire::Tls(Box::new(stream));
    let opened = match version {
        Some(version) => Opened {
            version,
            io: Rewound::untouched(io),
            certificate: None,
        },
        None => sniffed(io, limit).await?,
    };
    Ok(Opened {
        certificate,
        ..opened
    })
}

async fn sniffed<I>(io: Wire<I>, limit: Duration) -> Result<Opened<I>, NotOpened>
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    let sniffed = tokio::time::timeout(limit, sniff(io)).await;
    let Ok(Ok((version, io))) = sniffed else {
        return Err(NotOpened::Left);
    };
    Ok(Opened {
        version,
        io,
        certificate: None,
    })
}

/// A port scan or a balancer's check that closes at once is no failure.
fn failed(error: &io::Error) -> NotOpened {
    let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref()) else {
        return NotOpened::Left;
    };
    NotOpened::Handshake(match tls {
        rustls::Error::NoCertificatesPresented => HandshakeFailure::NoCertificate,
        rustls::Error::InvalidCertificate(_) => HandshakeFailure::BadCertificate,
        rustls::Error::AlertReceived(_) => HandshakeFailure::RefusedByClient,
        rustls::Error::InvalidMessage(_) => HandshakeFailure::NotTls,
        _ => HandshakeFailure::NothingInCommon,
    })
}

// === impl Handshakes ===

impl Handshakes {
    /// Those of `listener`, where it is secured; failed ones are counted in `metrics`.
    pub(super) fn of(
        tls: Option<&ListenerTls>,
        listener: &'static str,
        metrics: &Arc<Metrics>,
    ) -> Option<Self> {
        tls.map(|tls| Self {
            config: Arc::clone(&tls.handshake),
            listener,
            metrics: Arc::clone(metrics),
        })
    }
}

impl fmt::Debug for Handshakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handshakes({})", self.listener)
    }
}

// === impl Wire ===

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncRead for Wire<I> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_read(cx, buf),
            Self::Tls(io) => Pin::new(io).poll_read(cx, buf),
        }
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Wire<I> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_write(cx, bytes),
            Self::Tls(io) => Pin::new(io).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_write_vectored(cx, slices),
            Self::Tls(io) => Pin::new(io).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(io) => io.is_write_vectored(),
            Self::Tls(io) => io.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_flush(cx),
            Self::Tls(io) => Pin::new(io).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_shutdown(cx),
            Self::Tls(io) => Pin::new(io).poll_shutdown(cx),
        }
    }
}
