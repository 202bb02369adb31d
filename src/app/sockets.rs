//! What the system is asked to do for a client's connection.
//!
//! Decides how a client is noticed whose machine has vanished: nothing is
//! closed then, and nobody says so. Never reads or writes.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// Questions that go unanswered before a quiet connection is given up.
const QUESTIONS: u32 = 4;

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
fn watch(stream: &TcpStream, dead_after: Duration) -> std::io::Result<()> {
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
    use tokio::net::TcpListener;

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
