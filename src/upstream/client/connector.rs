//! Opens connections to engines.
//!
//! Decides how long a connect may take and how it is found out that the other side
//! is gone. Never sends anything.

use std::future::Future;
use std::io;
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
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

/// A connector as the pool wants it: bounded in time, secured where the scheme
/// stands for a TLS profile.
#[derive(Clone, Debug)]
pub(super) struct Dial<C> {
    pub(super) connector: C,
    pub(super) limit: Duration,
    pub(super) profiles: Profiles,
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

// === impl Dial ===

impl<C: Connector> Dial<C> {
    /// A stream to the authority of `to`.
    pub(super) async fn connect(&self, to: Uri) -> io::Result<Wire<C::Io>> {
        let opened = tokio::time::timeout(self.limit, self.open(to)).await;
        opened.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
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
