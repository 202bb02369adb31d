//! TLS to engines.
//!
//! Decides what a backend must prove and what is shown to it, and tells apart
//! why a handshake failed. Verification is never off. Connections of one
//! [`Profile`] are never used for another: its scheme is part of the pool's key.
//!
//! Invariant: bytes of a request that may have left are told as taken. TLS
//! buffers, so a failed write may have sent part of what it was given: it is
//! then told as taken and the failure with the next call, after which nothing
//! of the buffer can leave any more.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use dashmap::DashMap;
use http::uri::Scheme;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use rustls::{AlertDescription, CertificateError, ClientConfig};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::config::BackendTls;

/// How the connections to one backend are secured.
pub(super) struct Profile {
    /// Stands for this profile in the pool's keys and towards the dial.
    pub(super) scheme: Scheme,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// The profiles in use, by their scheme. A profile goes with its endpoints.
#[derive(Clone, Debug, Default)]
pub(super) struct Profiles(Arc<DashMap<Scheme, Weak<Profile>>>);

/// Why there is no secure connection to a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TlsFailure {
    /// No authority that is trusted here has signed its certificate.
    Untrusted,
    /// Its certificate has expired or is not valid yet.
    Expired,
    /// Its certificate is for another name.
    WrongName,
    /// It wants a client certificate, or another one.
    ClientRefused,
    /// It speaks no TLS, or none that is spoken here.
    Handshake,
}

/// A stream to an engine, secured or not.
pub(super) enum Wire<Io> {
    /// In clear text.
    Plain(Io),
    /// Secured.
    Tls(Box<Secured<Io>>),
}

/// A secured stream that stays failed once a write has failed.
pub(super) struct Secured<Io> {
    stream: TlsStream<Counted<Io>>,
    failed: Option<io::ErrorKind>,
}

/// Counts what the transport below TLS has taken.
pub(super) struct Counted<Io> {
    io: Io,
    written: u64,
}

// === impl Profile ===

impl Profile {
    pub(super) fn new(tls: &BackendTls) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Only different numbers matter, not their order.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let scheme = format!("tls-{number}");
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("ring has cipher suites for both versions")
            .with_root_certificates(tls.roots.store());
        let mut config = match &tls.identity {
            Some(identity) => {
                let shown = SingleCertAndKey::from(Arc::clone(&identity.certified));
                builder.with_client_cert_resolver(Arc::new(shown))
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(Self {
            scheme: scheme
                .parse()
                .expect("letters, a dash and digits make a scheme"),
            config: Arc::new(config),
            name: tls.server_name.clone(),
        })
    }

    /// Secures `io`.
    ///
    /// # Errors
    /// The handshake's, with its cause inside; see [`TlsFailure::of`].
    pub(super) async fn secure<Io>(&self, io: Io) -> io::Result<Wire<Io>>
    where
        Io: AsyncRead + AsyncWrite + Unpin,
    {
        let counted = Counted { io, written: 0 };
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let stream = connector.connect(self.name.clone(), counted).await?;
        Ok(Wire::Tls(Box::new(Secured {
            stream,
            failed: None,
        })))
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Profile({:?})", self.name)
    }
}

// === impl Profiles ===

impl Profiles {
    /// Makes `profile` known to the dial. Cheap where it is known.
    pub(super) fn learn(&self, profile: &Arc<Profile>) {
        if self.0.contains_key(&profile.scheme) {
            return;
        }
        self.0.retain(|_, known| known.strong_count() > 0);
        self.0
            .insert(profile.scheme.clone(), Arc::downgrade(profile));
    }

    /// The profile a scheme stands for, while an endpoint uses it.
    pub(super) fn find(&self, scheme: &Scheme) -> Option<Arc<Profile>> {
        self.0.get(scheme)?.upgrade()
    }
}

// === impl TlsFailure ===

impl TlsFailure {
    /// The failure among the causes of `error`; `None` where it is none of TLS.
    pub(super) fn of(error: &(dyn std::error::Error + 'static)) -> Option<Self> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(tls) = error.downcast_ref::<rustls::Error>() {
                return Some(Self::of_tls(tls));
            }
            // What an I/O error wraps is not among its sources.
            cause = match error
                .downcast_ref::<io::Error>()
                .and_then(io::Error::get_ref)
            {
                Some(inner) => Some(inner),
                None => error.source(),
            };
        }
        None
    }

    fn of_tls(error: &rustls::Error) -> Self {
        use AlertDescription as Alert;
        use CertificateError as Bad;
        match error {
            rustls::Error::InvalidCertificate(bad) => match bad {
                Bad::Expired
                | Bad::ExpiredContext { .. }
                | Bad::NotValidYet
                | Bad::NotValidYetContext { .. } => Self::Expired,
                Bad::NotValidForName | Bad::NotValidForNameContext { .. } => Self::WrongName,
                _ => Self::Untrusted,
            },
            rustls::Error::AlertReceived(
                Alert::CertificateRequired
                | Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::AccessDenied
                // Signed by a namesake of the authority it trusts.
                | Alert::DecryptError,
            ) => Self::ClientRefused,
            _ => Self::Handshake,
        }
    }

    /// The name in logs and `/state`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Untrusted => "untrusted_certificate",
            Self::Expired => "expired_certificate",
            Self::WrongName => "wrong_certificate_name",
            Self::ClientRefused => "client_certificate_refused",
            Self::Handshake => "tls_failed",
        }
    }
}

impl fmt::Display for TlsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Untrusted => "its certificate is not signed by a trusted authority",
            Self::Expired => "its certificate has expired or is not valid yet",
            Self::WrongName => "its certificate is for another name",
            Self::ClientRefused => "it refuses our client certificate, or that there is none",
            Self::Handshake => "no tls connection came about",
        })
    }
}

// === impl Secured ===

impl<Io: AsyncRead + AsyncWrite + Unpin> Secured<Io> {
    fn standing(&mut self) -> io::Result<Pin<&mut TlsStream<Counted<Io>>>> {
        match self.failed {
            Some(kind) => Err(kind.into()),
            None => Ok(Pin::new(&mut self.stream)),
        }
    }

    fn written(&self) -> u64 {
        self.stream.get_ref().0.written
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> AsyncRead for Secured<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.standing()?.poll_read(cx, buf)
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Secured<Io> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let before = self.written();
        let failure = match ready!(self.standing()?.poll_write(cx, bytes)) {
            Ok(taken) => return Poll::Ready(Ok(taken)),
            Err(failure) => failure,
        };
        self.failed = Some(failure.kind());
        let some_left = self.written() > before;
        Poll::Ready(if some_left {
            Ok(bytes.len())
        } else {
            Err(failure)
        })
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.standing()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.standing()?.poll_shutdown(cx)
    }
}

// === impl Counted ===

impl<Io: AsyncRead + Unpin> AsyncRead for Counted<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Counted<Io> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let taken = ready!(Pin::new(&mut self.io).poll_write(cx, bytes))?;
        let more = u64::try_from(taken).unwrap_or(u64::MAX);
        self.written = self.written.saturating_add(more);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

// === impl Wire ===

impl<Io: AsyncRead + AsyncWrite + Unpin> AsyncRead for Wire<Io> {
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

impl<Io: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Wire<Io> {
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
        // Secured bytes are copied anyway.
        matches!(self, Self::Plain(io) if io.is_write_vectored())
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

#[cfg(test)]
mod tests;
