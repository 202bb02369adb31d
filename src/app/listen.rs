//! Accepts connections and owns their tasks.
//!
//! Decides when to stop accepting and when to give up on what is left. A
//! connection's task never outlives the listener's future.

use std::future::Future;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::drain::Watcher;
use super::places::{Place, Places};

/// Pause after a failed accept: what failed (no file descriptors, no memory)
/// passes once connections end, and the loop must not spin until they have.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves every connection of `listener` that gets one of `places` with `serve`.
/// Without a place it is closed at once.
///
/// Stops accepting when draining begins, returns when the last connection has
/// ended, or at once when what is left is cut.
pub(super) async fn listen<S, F>(listener: TcpListener, watcher: Watcher, places: Places, serve: S)
where
    S: Fn(TcpStream, SocketAddr, Place) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    let mut draining = std::pin::pin!(watcher.clone().draining());
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let Some(place) = places.enter(peer.ip()) else {
                        continue;
                    };
                    connections.spawn(serve(stream, peer, place));
                }
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    let made_room = places.make_room();
                    tracing::warn!(%error, made_room, "cannot accept a connection");
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
