//! What the system is asked to do for clients' connections.
//!
//! Decides how many may come at one moment, and how a client is noticed whose
//! machine has vanished: nothing is closed then, and nobody says so. Never reads
//! or writes.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Connections that the system makes while none is accepted; it may hold this to
/// fewer (`net.core.somaxconn`). One that comes when there are so many is made
/// by half, and reset as soon as its client sends more than one packet: HTTP/2
/// always does. The usual 128 is less than what a crowd sends in the
/// milliseconds in which this process is not running.
const BACKLOG: u32 = 4096;

/// Questions that go unanswered before a quiet connection is given up.
const QUESTIONS: u32 = 4;

/// Listens on `addr`.
///
/// # Errors
/// The system's own.
pub(super) fn bind(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = match addr {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A restart finds its address still in use by what its predecessor closed.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

/// Sends small writes at once, and gives a client up that is silent to the
/// system's own questions, or acknowledges nothing, for `dead_after`. Best effort:
/// a socket that refuses is served all the same.
pub(super) fn prepare(stream: &TcpStream, dead_after: Duration) {
    // Events are small and each one matters now.
    let prepared = stream
        .set_nodelay(true)
        .and_then(|()| watch(stream, dead_after));
    if let Err(error) = prepared {
        tracing::debug!(%error, "a client's socket takes no options");
    }
}

/// Half of the time passes in quiet, the other half in questions.
fn watch(stream: &TcpStream, dead_after: Duration) -> io::Result<()> {
    let quiet = dead_after / 2;
    let between = (quiet / QUESTIONS).max(Duration::from_secs(1));
    let questions = TcpKeepalive::new()
        .with_time(quiet)
        .with_interval(between)
        .with_retries(QUESTIONS);
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&questions)?;
    // Questions are asked only where nothing is on its way; this is for the rest.
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(dead_after))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_crowd_that_comes_while_none_is_accepted_is_connected() {
        let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        let crowd = most.trim().parse().unwrap_or(128).min(300);
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = listener.local_addr().unwrap();
        let mut connected = Vec::new();
        for _ in 0..crowd {
            // Without room the second try of the system's own would hang here.
            let limit = Duration::from_secs(30);
            connected.push(std::net::TcpStream::connect_timeout(&addr, limit).unwrap());
        }
        for mut stream in connected {
            // Two packets: whoever is connected by half is reset at the second.
            for part in [b"PRI", b"SM\r"] {
                std::io::Write::write_all(&mut stream, part).unwrap();
            }
            let (accepted, _) = listener.accept().await.unwrap();
            assert_eq!(accepted.peer_addr().unwrap(), stream.local_addr().unwrap());
        }
    }

    #[tokio::test]
    async fn a_client_that_vanishes_is_asked_after_and_given_up_in_time() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap());
        let (near, far) = tokio::join!(near, listener.accept());
        let (_near, (stream, _)) = (near.unwrap(), far.unwrap());
        for seconds in [4, 60, 3600] {
            let limit = Duration::from_secs(seconds);
            prepare(&stream, limit);
            let socket = SockRef::from(&stream);
            assert!(socket.keepalive().unwrap() && stream.nodelay().unwrap());
            let quiet = socket.tcp_keepalive_time().unwrap();
            let questions =
                socket.tcp_keepalive_interval().unwrap() * socket.tcp_keepalive_retries().unwrap();
            assert_eq!(quiet, limit / 2);
            // Whole seconds: the smallest limit is passed by two.
            assert!(quiet + questions <= limit.max(Duration::from_secs(6)));
            #[cfg(target_os = "linux")]
            assert_eq!(socket.tcp_user_timeout().unwrap(), Some(limit));
        }
    }
}
