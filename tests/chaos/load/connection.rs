//! A client's connection: HTTP/1.1 or HTTP/2, gone as soon as it is dropped.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;

/// Bytes the socket of a slow reader takes before its sender has to wait.
const NARROW: u32 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Http1,
    Http2,
}

/// How much the socket takes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    Usual,
    Narrow,
}

/// An open connection; dropping it closes the socket at once.
pub(crate) struct Connection {
    sender: Sender,
    task: JoinHandle<()>,
    /// Requests sent before.
    pub(crate) used: u64,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

pub(crate) async fn dial(addr: SocketAddr, width: Width) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    if width == Width::Narrow {
        socket.set_recv_buffer_size(NARROW)?;
    }
    let stream = socket.connect(addr).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

// === impl Connection ===

impl Connection {
    pub(crate) async fn open(stream: TcpStream, version: Version) -> hyper::Result<Self> {
        let io = TokioIo::new(stream);
        let (sender, task) = match version {
            Version::Http1 => {
                let (sender, connection) = http1::handshake(io).await?;
                (
                    Sender::Http1(sender),
                    tokio::spawn(async { drop(connection.await) }),
                )
            }
            Version::Http2 => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
                (
                    Sender::Http2(sender),
                    tokio::spawn(async { drop(connection.await) }),
                )
            }
        };
        Ok(Self {
            sender,
            task,
            used: 0,
        })
    }

    pub(crate) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> hyper::Result<Response<Incoming>> {
        self.used += 1;
        match &mut self.sender {
            Sender::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Sender::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }

    /// Whether one that is left in the middle of an answer can be used again.
    pub(crate) const fn outlives_a_stream(&self) -> bool {
        matches!(self.sender, Sender::Http2(_))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}
