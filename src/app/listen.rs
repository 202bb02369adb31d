//! Accepts connections and owns their tasks.
//!
//! Decides when to stop accepting and when to give up on what is left. A
//! connection's task never outlives the listener's future.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::drain::Watcher;

/// Pause after a failed accept: what failed (no file descriptors, no memory)
/// does not pass at once, and the loop must not spin until it does.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves every connection of `listener` with `serve`.
///
/// Stops accepting when draining begins, returns when the last connection has
/// ended, or at once when what is left is cut.
pub(super) async fn listen<S, F>(listener: TcpListener, watcher: Watcher, serve: S)
where
    S: Fn(TcpStream, SocketAddr) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    let mut draining = std::pin::pin!(watcher.clone().draining());
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    // Events are small and each one matters now.
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%error, "no TCP_NODELAY");
                    }
                    connections.spawn(serve(stream, peer));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(ended) = connections.join_next() => note(ended),
            () = &mut draining => break,
        }
    }
    drop(listener);
    let finish = async {
        while let Some(ended) = connections.join_next().await {
            note(ended);
        }
    };
    tokio::select! {
        () = finish => {}
        () = watcher.cut() => {}
    }
    connections.shutdown().await;
}

fn note(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a connection's task panicked");
    }
}
