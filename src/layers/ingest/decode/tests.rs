use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::*;
use crate::core::demand::TenantId;
use crate::layers::budget::Budget;

const TEXT: &[u8] = br#"{"model":"m","prompt":"a body that comes compressed, compressed"}"#;
const LIMIT: u64 = 1 << 20;

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn zlib(text: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn raw_deflate(text: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn zstd(text: &[u8]) -> Vec<u8> {
    compress_to_vec(text, CompressionLevel::Fastest)
}

fn body(packed: &[u8], budget: &Budget) -> Body {
    let mut share = budget.share(TenantId(0));
    share.grow(u64::try_from(packed.len()).unwrap()).unwrap();
    let bytes = Bytes::copy_from_slice(packed);
    Body { bytes, share }
}

fn unpacked(packed: &[u8], coding: Coding) -> Result<Vec<u8>, IngestError> {
    let budget = Budget::new(4 * LIMIT);
    let decoded = decode(body(packed, &budget), coding, LIMIT);
    if let Ok(body) = &decoded {
        let held = u64::try_from(body.bytes.len()).unwrap();
        assert_eq!(budget.used(), held, "what came in is given back");
    }
    let bytes = decoded.map(|body| body.bytes.to_vec());
    assert_eq!(budget.used(), 0);
    bytes
}

#[test]
fn every_coding_taken_gives_the_body_back() {
    for (coding, packed) in [
        (Coding::Identity, TEXT.to_vec()),
        (Coding::Gzip, gzip(TEXT)),
        (Coding::Gzip, [gzip(&TEXT[..9]), gzip(&TEXT[9..])].concat()),
        (Coding::Deflate, zlib(TEXT)),
        (Coding::Deflate, raw_deflate(TEXT)),
        (Coding::Zstd, zstd(TEXT)),
        (Coding::Zstd, [zstd(&TEXT[..9]), zstd(&TEXT[9..])].concat()),
    ] {
        let read = unpacked(&packed, coding);
        assert_eq!(read.as_deref(), Ok(TEXT), "{coding:?}");
    }
}

#[test]
fn a_body_that_is_not_what_it_says_or_is_cut_off_is_refused() {
    let undecodable = Err(IngestError::Undecodable);
    for coding in [Coding::Gzip, Coding::Deflate, Coding::Zstd] {
        for packed in [&b"{\"a\":1}"[..], b"", &[0xff; 40]] {
            assert_eq!(
                unpacked(packed, coding),
                undecodable,
                "{coding:?} {packed:?}"
            );
        }
    }
    for (coding, packed) in [
        (Coding::Gzip, gzip(TEXT)),
        (Coding::Deflate, zlib(TEXT)),
        (Coding::Zstd, zstd(TEXT)),
    ] {
        for cut in [1, 5, packed.len() / 2] {
            let whole = &packed[..packed.len() - cut];
            assert_eq!(
                unpacked(whole, coding),
                undecodable,
                "{coding:?} cut by {cut}"
            );
        }
        let followed = [&packed[..], b"{}"].concat();
        assert_eq!(
            unpacked(&followed, coding),
            undecodable,
            "{coding:?} followed"
        );
        let mut altered = packed;
        let last = altered.len() - 1;
        altered[last] ^= 0x55;
        assert_eq!(
            unpacked(&altered, coding),
            undecodable,
            "{coding:?} altered"
        );
    }
}

#[test]
fn a_bomb_is_refused_at_the_limit_whatever_it_says_of_its_size() {
    let zeros = vec![0; 64 << 20];
    for (coding, packed) in [
        (Coding::Gzip, gzip(&zeros)),
        (Coding::Deflate, zlib(&zeros)),
        (Coding::Zstd, zstd(&zeros)),
    ] {
        assert!(packed.len() < 128 << 10, "{coding:?} {}", packed.len());
        let budget = Budget::new(8 * LIMIT);
        let refused = decode(body(&packed, &budget), coding, LIMIT).err();
        assert_eq!(refused, Some(IngestError::BodyTooLarge { limit: LIMIT }));
        let small = Budget::new(LIMIT / 2);
        let refused = decode(body(&packed, &small), coding, LIMIT).err();
        assert_eq!(refused, Some(IngestError::BodyBudgetSpent), "{coding:?}");
        assert_eq!((budget.used(), small.used()), (0, 0));
    }
}

#[test]
fn a_zstd_frame_with_a_huge_window_is_refused_before_anything_is_allocated() {
    // Magic, a descriptor without a content size, window 2^31, an empty last block.
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x01, 0x00, 0x00];
    assert_eq!(
        unpacked(&frame, Coding::Zstd),
        Err(IngestError::Undecodable)
    );
}
