//! The listening socket: open, shut, and open again on the same port.
//!
//! While shut, the port stays bound to a socket that does not listen, so connections are
//! refused and nobody else gets the port: what a vLLM server does while it loads.

use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::task::Poll;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, watch};

/// How the connections that are open go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    /// As they are.
    Keep,
    /// Each closes after the answer it is giving.
    Graceful,
    /// Each is reset.
    Reset,
}

pub(super) struct Door {
    pub(super) addr: SocketAddr,
    /// Keeps the port while nobody listens.
    _reserved: TcpSocket,
    /// Held for one poll or one swap.
    listener: Mutex<Option<TcpListener>>,
    reopened: Notify,
    closing: watch::Sender<Closing>,
}

// === impl Door ===

impl Door {
    /// # Errors
    /// Where `addr` cannot be bound.
    pub(super) fn open(addr: SocketAddr) -> io::Result<Self> {
        let reserved = bound(addr)?;
        let addr = reserved.local_addr()?;
        Ok(Self {
            addr,
            _reserved: reserved,
            listener: Mutex::new(Some(bound(addr)?.listen(BACKLOG)?)),
            reopened: Notify::new(),
            closing: watch::Sender::new(Closing::Keep),
        })
    }

    /// Refuses from now on; connections go on as `closing` says.
    pub(super) fn shut(&self, closing: Closing) {
        let mut listener = self.listener();
        *listener = None;
        // Under the lock, so that a connection either is refused or sees the change.
        self.closing.send_replace(closing);
    }

    /// Listens again; does nothing where it listens already.
    ///
    /// # Errors
    /// Where the port cannot be listened on.
    pub(super) fn reopen(&self) -> io::Result<()> {
        let mut listener = self.listener();
        if listener.is_none() {
            *listener = Some(bound(self.addr)?.listen(BACKLOG)?);
        }
        drop(listener);
        self.reopened.notify_one();
        Ok(())
    }

    /// The next connection, and how it is told to close. Waits while the door is shut.
    pub(super) async fn accept(&self) -> (TcpStream, watch::Receiver<Closing>) {
        loop {
            tokio::select! {
                accepted = self.accept_now() => return accepted,
                () = self.reopened.notified() => {}
            }
        }
    }

    async fn accept_now(&self) -> (TcpStream, watch::Receiver<Closing>) {
        std::future::poll_fn(|cx| {
            let guard = self.listener();
            let Some(listener) = guard.as_ref() else {
                return Poll::Pending;
            };
            match listener.poll_accept(cx) {
                Poll::Ready(Ok((stream, _))) => Poll::Ready((stream, self.closing.subscribe())),
                Poll::Ready(Err(_)) => {
                    // A connection that died in the backlog; look again.
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    fn listener(&self) -> std::sync::MutexGuard<'_, Option<TcpListener>> {
        self.listener
            .lock()
            .expect("nothing panics while the listener is swapped")
    }
}

const BACKLOG: u32 = 1024;

fn bound(addr: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if addr.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    Ok(socket)
}
