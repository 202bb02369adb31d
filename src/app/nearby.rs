//! Whether a request to a loopback address was meant for it.
//!
//! Decides by the name it asks for. A web page can make a browser on this
//! machine ask for a name of the page's own that leads to 127.0.0.1, and then
//! read the answer as one of its own: where no token is asked for, that name is
//! all there is to tell.

use std::net::IpAddr;

use http::header::HOST;
use http::{Request, uri::Authority};

/// Whether `request` names this machine: `localhost`, a name below it, or a
/// loopback address. One that names nothing (HTTP/1.0) comes from no browser.
pub(super) fn is_meant<B>(request: &Request<B>) -> bool {
    let named = request.headers().get_all(HOST).iter();
    let named = named.map(|host| Authority::try_from(host.as_bytes()).ok());
    let asked = request.uri().authority().cloned().map(Some);
    asked
        .into_iter()
        .chain(named)
        .all(|authority| authority.is_some_and(|authority| is_here(authority.host())))
}

fn is_here(host: &str) -> bool {
    let host = host.trim_end_matches('.');
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => {
            let last = host.rsplit('.').next().unwrap_or_default();
            last.eq_ignore_ascii_case("localhost")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_names_this_machine_is_meant_for_it() {
        let meant = |uri: &str, hosts: &[&str]| {
            let mut request = Request::get(uri);
            for host in hosts {
                request = request.header(HOST, *host);
            }
            is_meant(&request.body(()).unwrap())
        };
        for host in [
            "127.0.0.1:8081",
            "127.9.9.9",
            "[::1]:8081",
            "[::ffff:127.0.0.1]",
            "localhost:1",
            "LocalHost",
            "localhost.",
            "a.localhost:80",
        ] {
            assert!(meant("/state", &[host]), "{host}");
        }
        for host in [
            "tidegate.example:8081",
            "10.0.0.1",
            "0.0.0.0",
            "localhost.example",
            "127.0.0.1.example",
            "notlocalhost",
            "",
            "a b",
        ] {
            assert!(!meant("/state", &[host]), "{host}");
        }
        assert!(meant("/state", &[]));
        assert!(meant("http://127.0.0.1:8081/state", &[]));
        assert!(!meant("http://tidegate.example/state", &[]));
        assert!(!meant("/state", &["localhost", "tidegate.example"]));
    }
}
