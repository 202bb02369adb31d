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
    #[error("cannot listen on {addr}: {source}{}", way_out(source))]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// A socket that was given cannot be listened on.
    #[error(
        "a socket of the service manager cannot be used: {0}; give it TCP sockets that listen (ListenStream=)"
    )]
    Given(io::Error),
    /// Nobody knows what a socket that was given is for.
    #[error(
        "a socket of the service manager is named {name:?}; name it public or admin (FileDescriptorName=)"
    )]
    GivenName {
        /// Its name.
        name: String,
    },
    /// Two sockets were given for one purpose.
    #[error("two sockets of the service manager are named {name:?}; give one of each")]
    GivenTwice {
        /// Their name.
        name: String,
    },
    /// A bound listener does not know its address.
    #[error("a listener has no address: {0}")]
    Listener(io::Error),
    /// The collector of spans cannot be addressed.
    #[error("traces.endpoint: {0}")]
    Traces(EndpointError),
    /// A backend cannot be addressed.
    #[error("backend {backend}: {source}")]
    Backend {
        /// The backend's name.
        backend: String,
        /// What is wrong.
        source: EndpointError,
    },
    /// The access log cannot be opened.
    #[error(
        "{0}; log.access_log must be in a folder that is there and that this user may write to"
    )]
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

/// What an operator does about an address that cannot be had.
fn way_out(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; end what listens there (ss -ltnp shows it), or set server.listen or admin.listen to another port"
        }
        io::ErrorKind::PermissionDenied => {
            "; ports below 1024 need CAP_NET_BIND_SERVICE, or a socket of the service manager"
        }
        io::ErrorKind::AddrNotAvailable => {
            "; no interface of this machine has the address: 0.0.0.0 or [::] listens on all"
        }
        _ => "",
    }
}
