//! Why the gateway does not start.

use std::io;
use std::net::SocketAddr;

use thiserror::Error;

use crate::telemetry::DiagnosticsError;
use crate::upstream::client::EndpointError;

/// Why the gateway does not start.
#[derive(Debug, Error)]
pub enum Error {
    /// An address cannot be listened on.
    #[error("cannot listen on {addr}: {source}")]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// A bound listener does not know its address.
    #[error("a listener has no address: {0}")]
    Listener(io::Error),
    /// A backend cannot be addressed.
    #[error("backend {backend}: {source}")]
    Backend {
        /// The backend's name.
        backend: String,
        /// What is wrong.
        source: EndpointError,
    },
    /// The access log cannot be opened.
    #[error("access log: {0}")]
    AccessLog(io::Error),
    /// Diagnostics cannot be set up.
    #[error(transparent)]
    Diagnostics(#[from] DiagnosticsError),
    /// The runtime does not start.
    #[error("no runtime: {0}")]
    Runtime(io::Error),
    /// Signals cannot be waited for.
    #[error("cannot wait for signals: {0}")]
    Signals(io::Error),
}
