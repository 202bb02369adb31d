//! Before a body is read: where a request says it comes from, and how it is packed.

use std::io::Write;
use std::net::IpAddr;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use tidegate::config::{ForwardedHeader, Server};
use tidegate::core::demand::TenantId;
use tidegate::layers::budget::Budget;
use tidegate::layers::error::IngestError;
use tidegate::layers::ingest::decode::{Coding, unpacked};
use tidegate::layers::origin;

/// Proxies that are believed.
const TRUSTED: [&str; 2] = ["10.0.0.0/8", "fd00::/8"];

/// Most bytes that may come out.
const LIMIT: u64 = 1 << 17;

/// The first byte chooses the header, the rest is its lines.
pub(super) fn origin(data: &[u8]) {
    let Some((chosen, rest)) = super::choice(data, 2) else {
        return;
    };
    let lines: Vec<&[u8]> = rest.split(|byte| *byte == b'\n').collect();
    let header = match chosen {
        0 => ForwardedHeader::XForwardedFor,
        _ => ForwardedHeader::Forwarded,
    };
    let of = |peer: &str, lines: &[&[u8]]| client(header, peer, lines);
    let hop = |address: &str| match header {
        ForwardedHeader::XForwardedFor => address.to_owned(),
        ForwardedHeader::Forwarded => format!("for={address}"),
    };
    let (ours, theirs, stranger) = (hop("10.0.0.9"), hop("192.0.2.9"), hop("6.6.6.6"));
    let with = |left: &str, right: &str| {
        let edges = [vec![left.as_bytes()], lines.clone(), vec![right.as_bytes()]].concat();
        of("10.0.0.1", &edges)
    };
    assert_eq!(
        of("192.0.2.7", &lines),
        address("192.0.2.7"),
        "a stranger's word"
    );
    assert_eq!(with("", &theirs), address("192.0.2.9"), "a proxy's word");
    let client = of("10.0.0.1", &lines);
    assert_eq!(client, client.to_canonical());
    let forged = with(&stranger, &ours);
    // With more hops than are looked at it is one of the last that is known.
    let is_ours = forged == client || is_trusted(forged);
    let is_open = is_trusted(client) && forged == address("6.6.6.6");
    assert!(is_ours || is_open, "{forged} is believed");
    if lines.iter().all(|line| line.is_ascii()) {
        let joined = lines.join(&b","[..]);
        let joined = of("10.0.0.1", &[&joined]);
        assert_eq!(joined, client, "lines are one list");
    }
}

fn client(header: ForwardedHeader, peer: &str, lines: &[&[u8]]) -> IpAddr {
    let server = Server {
        trusted_proxies: TRUSTED
            .map(|network| network.parse().expect("it is one"))
            .into(),
        forwarded_header: header,
        ..Server::default()
    };
    let name = match header {
        ForwardedHeader::XForwardedFor => "x-forwarded-for",
        ForwardedHeader::Forwarded => "forwarded",
    };
    let mut headers = http::HeaderMap::new();
    for line in lines {
        // What no header carries is a space.
        let carried = |byte: &u8| if byte.is_ascii_control() { b' ' } else { *byte };
        let line: Vec<u8> = line.iter().map(carried).collect();
        if let Ok(line) = http::HeaderValue::from_bytes(&line) {
            headers.append(name, line);
        }
    }
    origin::client(address(peer), &headers, &server)
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("it is an address")
}

fn is_trusted(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets()[0] == 10,
        IpAddr::V6(address) => address.octets()[0] == 0xfd,
    }
}

/// The first byte chooses the coding, and whether the rest is packed or to be packed.
pub(super) fn decode(data: &[u8]) {
    let Some((chosen, rest)) = super::choice(data, 7) else {
        return;
    };
    let coding = [Coding::Gzip, Coding::Deflate, Coding::Zstd][chosen % 3];
    let packed = match chosen {
        0..3 => return check_packed(coding, rest),
        3 => written(GzEncoder::new(Vec::new(), Compression::fast()), rest).finish(),
        4 => written(ZlibEncoder::new(Vec::new(), Compression::fast()), rest).finish(),
        5 => Ok(compress_to_vec(rest, CompressionLevel::Fastest)),
        _ => return check_raw(rest),
    };
    let packed = packed.expect("memory takes everything");
    check_packed(coding, &packed);
    assert_eq!(body(coding, &packed).as_deref(), Ok(rest), "{coding:?}");
    for end in [0, packed.len() / 2, packed.len() - 1] {
        let cut = body(coding, &packed[..end]);
        assert_eq!(cut, Err(IngestError::Undecodable), "{coding:?} up to {end}");
    }
}

/// A raw stream has nothing that tells it from the framed one, so it is only unpacked.
fn check_raw(text: &[u8]) {
    let packed = written(DeflateEncoder::new(Vec::new(), Compression::fast()), text).finish();
    let packed = packed.expect("memory takes everything");
    if let Ok(read) = body(Coding::Deflate, &packed) {
        assert_eq!(read, text);
    }
}

fn written<E: Write>(mut encoder: E, text: &[u8]) -> E {
    encoder.write_all(text).expect("memory takes everything");
    encoder
}

/// What can be read ends where it ends.
fn check_packed(coding: Coding, packed: &[u8]) {
    if body(coding, packed).is_ok() {
        let more = body(coding, &[packed, b"x"].concat());
        assert_eq!(more, Err(IngestError::Undecodable), "{coding:?}");
    }
}

/// What comes out, the accounts of the budget held to it.
fn body(coding: Coding, packed: &[u8]) -> Result<Vec<u8>, IngestError> {
    let budget = Budget::new(2 * LIMIT);
    let read = unpacked(packed, coding, budget.share(TenantId(0)), LIMIT);
    let bytes = read.map(|(bytes, share)| {
        let length = u64::try_from(bytes.len()).expect("it is a length");
        assert!(length <= LIMIT, "{length} bytes came out");
        assert_eq!((share.held(), budget.used()), (length, length));
        bytes.to_vec()
    });
    assert_eq!(budget.used(), 0, "what was taken is given back");
    bytes
}
