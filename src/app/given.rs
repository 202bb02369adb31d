//! Sockets that were opened before this process began.
//!
//! Decides which of them clients and operators come to: those named `public` and
//! `admin`, as systemd names them (`FileDescriptorName=`); one alone that bears no
//! name is for clients. What is given takes the place of the configured address,
//! and outlives this process: who connects while it restarts waits instead of
//! being refused. Anything else is a mistake, and told. Never opens a socket.

use std::env;
use std::io;
use std::net::TcpListener as Opened;

use listenfd::ListenFd;
use tokio::net::TcpListener;

use super::error::Error;

/// The names by which sockets are told apart, one after another with a `:` between.
const NAMES: &str = "LISTEN_FDNAMES";

/// What this process was given; nothing, where it was started by hand.
#[derive(Debug, Default)]
pub struct Given {
    /// Where clients connect.
    pub(super) public: Option<Opened>,
    /// Where operators connect.
    pub(super) admin: Option<Opened>,
}

// === impl Given ===

impl Given {
    /// Takes what the environment tells of, once in the life of a process and
    /// before it has threads.
    ///
    /// # Errors
    /// One is no TCP socket, or is not named as one of the two.
    pub fn from_environment() -> Result<Self, Error> {
        // Looked at before it is taken, which forgets the names.
        let names = env::var(NAMES).unwrap_or_default();
        let mut sockets = ListenFd::from_env();
        let mut given = Self::default();
        for (place, name) in roles(&names, sockets.len()).into_iter().enumerate() {
            let socket = sockets.take_tcp_listener(place).map_err(Error::Given)?;
            let slot = match name.as_str() {
                "public" => &mut given.public,
                "admin" => &mut given.admin,
                _ => return Err(Error::GivenName { name }),
            };
            if slot.is_some() {
                return Err(Error::GivenTwice { name });
            }
            *slot = socket;
        }
        Ok(given)
    }
}

/// What each of `count` sockets is for, in order.
fn roles(names: &str, count: usize) -> Vec<String> {
    let mut names = names.split(':').map(str::to_owned);
    let nameless = |name: &String| name.is_empty() || name == "unknown" || name == "connection";
    let mut roles: Vec<String> = (0..count)
        .map(|_| names.next().unwrap_or_default())
        .collect();
    if let [only] = &mut roles[..]
        && nameless(only)
    {
        *only = "public".to_owned();
    }
    roles
}

/// A given socket as the runtime takes it; needs one around it.
pub(super) fn adopt(socket: Opened) -> io::Result<TcpListener> {
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_told_apart_by_name_and_one_alone_is_for_clients() {
        assert_eq!(roles("", 0), Vec::<String>::new());
        assert_eq!(roles("", 1), ["public"]);
        assert_eq!(roles("unknown", 1), ["public"]);
        assert_eq!(roles("admin", 1), ["admin"]);
        assert_eq!(roles("admin:public", 2), ["admin", "public"]);
        // Nobody knows which is which: told, not guessed.
        assert_eq!(roles("", 2), ["", ""]);
        assert_eq!(roles("tidegate.socket", 1), ["tidegate.socket"]);
    }
}
