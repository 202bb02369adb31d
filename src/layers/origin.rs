//! Who the client is where proxies stand between it and us.
//!
//! Decides whose address limits and logs go by. What a request says of its way
//! is believed only as far as trusted proxies have written it: from the right,
//! up to the first hop that is not one of them. Anybody else's word is ignored,
//! and none of it is passed on. Invariant: without trusted proxies the answer is
//! the peer's address.

use std::net::{IpAddr, SocketAddr};

use http::header::{FORWARDED, HeaderMap, HeaderName};
use ipnet::IpNet;

use crate::config::{ForwardedHeader, Server};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Most hops that are looked at: more trusted ones in a row there are not.
const MOST_HOPS: usize = 32;

/// The client's address, of a request that came from `peer`; the last hop known
/// where there are too many. O(bytes of the header).
pub fn client(peer: IpAddr, headers: &HeaderMap, server: &Server) -> IpAddr {
    let proxies = &server.trusted_proxies;
    let mut client = peer.to_canonical();
    if !is_trusted(client, proxies) {
        return client;
    }
    let (name, hop): (_, fn(&str) -> Option<IpAddr>) = match server.forwarded_header {
        ForwardedHeader::XForwardedFor => (X_FORWARDED_FOR, address),
        ForwardedHeader::Forwarded => (FORWARDED, forwarded_for),
    };
    let lines = headers.get_all(name);
    let lines: Vec<_> = lines.iter().map(|line| line.to_str().ok()).collect();
    let mut hops = 0;
    for line in lines.into_iter().rev() {
        // A line that is no text was not written by a proxy: nothing left of it counts.
        let Some(line) = line else {
            return client;
        };
        for said in line.rsplit(',') {
            hops += 1;
            // What is no address hides who was there: the last known hop counts.
            let known = hop(said.trim()).filter(|_| hops <= MOST_HOPS);
            let Some(address) = known else {
                return client;
            };
            client = address.to_canonical();
            if !is_trusted(client, proxies) {
                return client;
            }
        }
    }
    client
}

fn is_trusted(address: IpAddr, proxies: &[IpNet]) -> bool {
    proxies.iter().any(|network| network.contains(&address))
}

/// An address, with or without a port; of IPv6 in brackets then.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    bare.unwrap_or(text).parse().ok().or_else(|| {
        let with_port: SocketAddr = text.parse().ok()?;
        Some(with_port.ip())
    })
}

/// The `for` of one element of `Forwarded` (RFC 7239 §4).
fn forwarded_for(element: &str) -> Option<IpAddr> {
    let mut pairs = element.split(';').filter_map(|pair| pair.split_once('='));
    let (_, node) = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("for"))?;
    address(node.trim().trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn of(peer: &str, header: ForwardedHeader, lines: &[&str]) -> String {
        let server = Server {
            trusted_proxies: vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()],
            forwarded_header: header,
            ..Server::default()
        };
        let mut headers = HeaderMap::new();
        let (name, other) = match header {
            ForwardedHeader::XForwardedFor => (X_FORWARDED_FOR, FORWARDED),
            ForwardedHeader::Forwarded => (FORWARDED, X_FORWARDED_FOR),
        };
        for line in lines {
            headers.append(&name, HeaderValue::from_str(line).unwrap());
        }
        headers.insert(other, HeaderValue::from_static("for=6.6.6.6, 6.6.6.6"));
        client(peer.parse().unwrap(), &headers, &server).to_string()
    }

    #[test]
    fn only_what_trusted_proxies_wrote_is_believed() {
        let plain = |peer, lines: &[&str]| of(peer, ForwardedHeader::XForwardedFor, lines);
        assert_eq!(plain("192.0.2.7", &["1.1.1.1"]), "192.0.2.7");
        assert_eq!(plain("10.0.0.1", &["1.1.1.1"]), "1.1.1.1");
        assert_eq!(plain("::ffff:10.0.0.1", &["1.1.1.1"]), "1.1.1.1");
        assert_eq!(plain("10.0.0.1", &["6.6.6.6, 1.1.1.1"]), "1.1.1.1");
        assert_eq!(
            plain("10.0.0.1", &["6.6.6.6", "1.1.1.1, 10.0.0.2"]),
            "1.1.1.1"
        );
        assert_eq!(
            plain("10.0.0.1", &["6.6.6.6, unknown, 10.0.0.2"]),
            "10.0.0.2"
        );
        assert_eq!(plain("10.0.0.1", &["10.0.0.3,10.0.0.2"]), "10.0.0.3");
        assert_eq!(plain("10.0.0.1", &["1.1.1.1:4711"]), "1.1.1.1");
        assert_eq!(plain("10.0.0.1", &["[2001:db8::1]:4711"]), "2001:db8::1");
        assert_eq!(plain("fd00::1", &["[2001:db8::1]"]), "2001:db8::1");
        assert_eq!(plain("10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(plain("10.0.0.1", &["", "\""]), "10.0.0.1");
    }

    #[test]
    fn more_hops_than_are_looked_at_bring_nobody_else_into_it() {
        let way = ["6.6.6.6, 1.1.1.1", &["10.0.0.2"; 40].join(",")];
        assert_eq!(
            of("10.0.0.1", ForwardedHeader::XForwardedFor, &way),
            "10.0.0.2"
        );
    }

    #[test]
    fn forwarded_is_read_where_the_operator_says_so() {
        let one = |lines: &[&str]| of("10.0.0.1", ForwardedHeader::Forwarded, lines);
        assert_eq!(one(&["for=1.1.1.1;proto=https;by=10.0.0.1"]), "1.1.1.1");
        assert_eq!(
            one(&["for=6.6.6.6, proto=http;For=\"[2001:db8::1]:80\""]),
            "2001:db8::1"
        );
        assert_eq!(one(&["for=\"6.6.6.6, for=1.1.1.1"]), "1.1.1.1");
        assert_eq!(one(&["for=6.6.6.6, for=_hidden, for=10.0.0.2"]), "10.0.0.2");
        assert_eq!(one(&["proto=https"]), "10.0.0.1");
    }
}
