//! A link, read so that no engine could read another.
//!
//! Decides scheme and host. Readers of links differ in what they forgive
//! (backslashes, white space, user names, numbers for addresses), and each
//! difference is a way past a policy: what two of them could read in two ways
//! is an error here. Invariant: a host that any of them takes for an address is
//! [`Host::Address`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thiserror::Error;

/// A link whose parts are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// The scheme in lower case.
    pub scheme: String,
    /// The host of an `http` or `https` link; `None` for other schemes.
    pub host: Option<Host>,
}

/// Where a link goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// A name in lower case, without the dot at its end.
    Name(String),
    /// An address, however it was spelled.
    Address(IpAddr),
}

/// Why a link has no single reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum UrlError {
    /// It names no scheme.
    #[error("it has no scheme")]
    NoScheme,
    /// A scheme that is none.
    #[error("its scheme cannot be read")]
    Scheme,
    /// White space, a control character, a backslash.
    #[error("it holds a character that must be escaped")]
    Character,
    /// A user name or password before the host.
    #[error("it holds a user name")]
    User,
    /// A host that is neither a name nor an address.
    #[error("its host cannot be read")]
    Host,
}

// === impl Url ===

impl Url {
    /// Reads a link. O(length up to the path).
    ///
    /// # Errors
    /// Where readers could differ.
    pub fn parse(link: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = link.split_once(':').ok_or(UrlError::NoScheme)?;
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) || !scheme.bytes().all(letter) {
            return Err(UrlError::Scheme);
        }
        let scheme = scheme.to_ascii_lowercase();
        if !scheme.starts_with("http") {
            return Ok(Self { scheme, host: None });
        }
        let odd = |byte: u8| byte <= b' ' || byte == b'\\' || byte == 0x7f;
        if rest.bytes().any(odd) {
            return Err(UrlError::Character);
        }
        let rest = rest.strip_prefix("//").ok_or(UrlError::Host)?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let authority = &rest[..end];
        if authority.contains('@') {
            return Err(UrlError::User);
        }
        let host = Some(Host::parse(authority)?);
        Ok(Self { scheme, host })
    }
}

// === impl Host ===

impl Host {
    /// Reads the host of `host`, `host:port` or `[address]:port`.
    fn parse(authority: &str) -> Result<Self, UrlError> {
        if let Some(bracketed) = authority.strip_prefix('[') {
            let (address, port) = bracketed.split_once(']').ok_or(UrlError::Host)?;
            let port = port.strip_prefix(':').unwrap_or(port);
            let address: Ipv6Addr = address.parse().map_err(|_| UrlError::Host)?;
            return match is_port(port) {
                true => Ok(Self::Address(IpAddr::V6(address))),
                false => Err(UrlError::Host),
            };
        }
        let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let plain = host.bytes().all(letter) && !host.split('.').any(str::is_empty);
        if !is_port(port) || !plain {
            return Err(UrlError::Host);
        }
        let last = host.rsplit('.').next().unwrap_or_default();
        if number(last).is_some() || last.bytes().all(|byte| byte.is_ascii_digit()) {
            let address = ipv4(&host).ok_or(UrlError::Host)?;
            return Ok(Self::Address(IpAddr::V4(address)));
        }
        Ok(Self::Name(host))
    }

    /// Whether it is on this machine or in a private network, as far as its
    /// spelling tells: such an address in any form, or a name that no public
    /// server has.
    pub fn is_private(&self) -> bool {
        match self {
            Self::Address(IpAddr::V4(address)) => is_private_v4(*address),
            Self::Address(IpAddr::V6(address)) => is_private_v6(*address),
            Self::Name(name) => is_private_name(name),
        }
    }
}

fn is_port(text: &str) -> bool {
    text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A number as `inet_aton` reads one: decimal, octal after `0`, hexadecimal
/// after `0x`. `None` for anything else.
fn number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some("") => return Some(0),
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    // No sign, which `from_str_radix` would take.
    let digit = |c: char| c.is_digit(radix);
    digits
        .chars()
        .all(digit)
        .then(|| u64::from_str_radix(digits, radix).ok())?
}

/// One to four numbers, the last of which fills what the others leave.
fn ipv4(host: &str) -> Option<Ipv4Addr> {
    let parts: Vec<u64> = host.split('.').map(number).collect::<Option<_>>()?;
    let (last, first) = parts.split_last()?;
    if first.len() > 3 || first.iter().any(|part| *part > 255) {
        return None;
    }
    let room = 32 - 8 * u32::try_from(first.len()).ok()?;
    if *last >= 1_u64 << room {
        return None;
    }
    let high = first.iter().enumerate().map(|(index, part)| {
        let place = 24_u32.saturating_sub(8 * u32::try_from(index).unwrap_or(3));
        part << place
    });
    let address = high.fold(*last, |all, part| all | part);
    u32::try_from(address).ok().map(Ipv4Addr::from)
}

/// Everything that is not a public address of one machine.
fn is_private_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        // This network; reserved and broadcast; multicast.
        || a == 0
        || a >= 224
        // Carriers' own network, IETF protocols, 6to4 relays, benchmarks.
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (b == 18 || b == 19))
}

/// Only the global unicast range is public, and of that not what wraps a
/// private IPv4 address or serves for examples.
fn is_private_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let embedded = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        is_private_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        // Mapped, translated (well-known prefix) and 6to4.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            embedded(high, low)
        }
        [0x2002, high, low, ..] => embedded(high, low),
        // Teredo, documentation, ORCHID: never a server of media.
        [0x2001, second, ..] => second < 0x200 || second == 0xdb8,
        [first, ..] => !(0x2000..=0x3fff).contains(&first) || first == 0x3fff,
    }
}

/// Names of this machine and of private networks, and those without a dot,
/// which only a search domain can complete.
fn is_private_name(name: &str) -> bool {
    const PRIVATE: [&str; 7] = [
        "localhost",
        "localdomain",
        "local",
        "internal",
        "intranet",
        "lan",
        "home.arpa",
    ];
    let under = |zone: &&str| {
        name.strip_suffix(*zone)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    !name.contains('.') || PRIVATE.iter().any(under)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(link: &str) -> Host {
        Url::parse(link).unwrap().host.unwrap()
    }

    #[test]
    fn a_private_address_is_known_in_every_spelling() {
        for link in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f000001",
            "http://0X7F.1",
            "http://0177.0.0.1/",
            "http://127.0.0.1./",
            "http://0/",
            "https://10.1.2.3:8000/x",
            "http://172.31.0.1",
            "http://192.168.0.1",
            "http://169.254.169.254/latest/meta-data",
            "http://100.64.0.1",
            "http://198.18.0.1",
            "http://255.255.255.255",
            "http://224.0.0.1",
            "http://[::1]/",
            "http://[::]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:7f00:1]/",
            "http://[0:0:0:0:0:ffff:a00:1]:80/",
            "http://[64:ff9b::7f00:1]/",
            "http://[2002:7f00:1::]/",
            "http://[fe80::1]/",
            "http://[fd00::1]/",
            "http://[::127.0.0.1]/",
            "http://localhost/",
            "HTTP://LocalHost:80",
            "http://a.localhost",
            "http://metadata.google.internal/",
            "http://printer.local.",
            "http://kubernetes/",
        ] {
            assert!(host(link).is_private(), "{link}: {:?}", host(link));
        }
    }

    #[test]
    fn public_hosts_are_not_taken_for_private_ones() {
        for link in [
            "https://example.org/a b".replace(' ', "%20").as_str(),
            "https://1.1.1.1/x.png",
            "https://images.example.com:8443/?u=http://127.0.0.1/",
            "https://localhost.example.com",
            "https://notlocal.example",
            "https://[2606:4700::1111]/",
            "https://[::ffff:8.8.8.8]/",
            "https://10.example.org",
            "https://xn--bcher-kva.example",
        ] {
            assert!(!host(link).is_private(), "{link}: {:?}", host(link));
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_an_error() {
        for (link, error) in [
            ("image.png", UrlError::NoScheme),
            (" http://127.0.0.1/", UrlError::Scheme),
            ("ht\ntp://127.0.0.1/", UrlError::Scheme),
            ("http:\\\\127.0.0.1/", UrlError::Character),
            ("http://a.example\\@127.0.0.1/", UrlError::Character),
            ("http://a.example\t/", UrlError::Character),
            ("http://user@a.example/", UrlError::User),
            ("http://a.example:80@127.0.0.1/", UrlError::User),
            ("http:/127.0.0.1/", UrlError::Host),
            ("http:127.0.0.1/", UrlError::Host),
            ("http:///127.0.0.1/", UrlError::Host),
            ("http://", UrlError::Host),
            ("http://%31%32%37.0.0.1/", UrlError::Host),
            ("http://１２７.0.0.1/", UrlError::Host),
            ("http://127。0。0。1/", UrlError::Host),
            ("http://1.2.3.4.5/", UrlError::Host),
            ("http://256.256.256.256/", UrlError::Host),
            ("http://4294967296/", UrlError::Host),
            ("http://[::1", UrlError::Host),
            ("http://[fe80::1%25eth0]/", UrlError::Host),
            ("http://[::1]x/", UrlError::Host),
            ("http://a..b/", UrlError::Host),
            ("http://a.example:99999999/", UrlError::Host),
        ] {
            assert_eq!(Url::parse(link), Err(error), "{link}");
        }
    }

    #[test]
    fn other_schemes_have_no_host() {
        let scheme = |link: &str| Url::parse(link).unwrap().scheme;
        assert_eq!(scheme("data:image/png;base64,AA=="), "data");
        assert_eq!(scheme("FILE:///etc/passwd"), "file");
        assert_eq!(Url::parse("s3://bucket/x").unwrap().host, None);
    }
}
