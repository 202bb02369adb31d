//! Request bodies that come compressed: unpacked once, within the same limits.
//!
//! Decides which content codings are taken and when unpacking has gone too far:
//! the body limit and the budget hold for what comes out, not for what came in,
//! whatever a frame says of its own size. Never keeps more than the limit.
//! Invariant: what leaves here is what the engine reads and what is counted.

use std::io::{self, Read};

use bytes::Bytes;
use flate2::bufread::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

use crate::layers::budget::Share;
use crate::layers::error::IngestError;
use crate::layers::steps::Body;

/// The codings taken, as an `Accept-Encoding` header says it.
pub const ACCEPTED: &str = "gzip, deflate, zstd";

/// Largest window of a Zstandard frame: what RFC 8878 (3.1.1.1.2) asks every
/// decoder to take, and what compression levels up to 19 use.
const ZSTD_WINDOW: u64 = 8 << 20;

/// Bytes unpacked between two looks at the limit.
const PIECE: usize = 64 * 1024;

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// As it is.
    Identity,
    /// RFC 1952; several members in a row are one body.
    Gzip,
    /// RFC 1950, or RFC 1951 without its frame, which some clients send.
    Deflate,
    /// RFC 8878; several frames in a row are one body.
    Zstd,
}

// === impl Coding ===

impl Coding {
    /// What the headers say; codings on top of each other are not taken.
    ///
    /// # Errors
    /// [`IngestError::Encoding`] for a coding not taken, or more than one.
    pub fn of(headers: &HeaderMap) -> Result<Self, IngestError> {
        let mut coding = Self::Identity;
        for value in headers.get_all(CONTENT_ENCODING) {
            for name in value.as_bytes().split(|byte| *byte == b',') {
                let named = Self::named(name.trim_ascii()).ok_or(IngestError::Encoding)?;
                if coding != Self::Identity && named != Self::Identity {
                    return Err(IngestError::Encoding);
                }
                if named != Self::Identity {
                    coding = named;
                }
            }
        }
        Ok(coding)
    }

    fn named(name: &[u8]) -> Option<Self> {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        match name {
            _ if is("identity") => Some(Self::Identity),
            _ if is("gzip") || is("x-gzip") => Some(Self::Gzip),
            _ if is("deflate") => Some(Self::Deflate),
            _ if is("zstd") => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// Unpacks `body`; blocking, a few milliseconds per megabyte that comes out.
///
/// What came in is dropped, and its share of the budget with it, once
/// everything is out.
///
/// # Errors
/// Where it is no such coding, is cut off, is followed by something else, or
/// unpacks to more than `limit` bytes or than the budget has.
pub(super) fn decode(body: Body, coding: Coding, limit: u64) -> Result<Body, IngestError> {
    if coding == Coding::Identity {
        return Ok(body);
    }
    let (bytes, share) = unpacked(&body.bytes, coding, body.share.sibling(), limit)?;
    Ok(Body { bytes, share })
}

/// Unpacks `packed` into `share`, which has to be empty and holds then what came
/// out; blocking, a few milliseconds per megabyte of it.
///
/// # Errors
/// Those of a request: see [`IngestError`].
pub fn unpacked(
    packed: &[u8],
    coding: Coding,
    share: Share,
    limit: u64,
) -> Result<(Bytes, Share), IngestError> {
    match coding {
        Coding::Identity => unpack(packed, share, limit),
        Coding::Gzip => unpack(MultiGzDecoder::new(packed), share, limit),
        Coding::Deflate if has_zlib_frame(packed) => {
            let mut decoder = ZlibDecoder::new(packed);
            let unpacked = unpack(&mut decoder, share, limit)?;
            ends_here(decoder.get_ref())?;
            Ok(unpacked)
        }
        Coding::Deflate => {
            let mut decoder = DeflateDecoder::new(packed);
            let unpacked = unpack(&mut decoder, share, limit)?;
            ends_here(decoder.get_ref())?;
            Ok(unpacked)
        }
        Coding::Zstd => unpack(ZstdFrames::new(packed)?, share, limit),
    }
}

fn unpack(
    mut decoder: impl Read,
    mut share: Share,
    limit: u64,
) -> Result<(Bytes, Share), IngestError> {
    let mut unpacked = Vec::new();
    let mut piece = vec![0; PIECE];
    loop {
        let read = match decoder.read(&mut piece) {
            Ok(0) => return Ok((Bytes::from(unpacked), share)),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return Err(IngestError::Undecodable),
        };
        let more = u64::try_from(read).unwrap_or(u64::MAX);
        if share.held().saturating_add(more) > limit {
            return Err(IngestError::BodyTooLarge { limit });
        }
        share.grow(more).map_err(|_| IngestError::BodyBudgetSpent)?;
        unpacked.extend_from_slice(&piece[..read]);
    }
}

/// RFC 1950: method 8, and the first two bytes as a number divide by 31.
fn has_zlib_frame(packed: &[u8]) -> bool {
    matches!(packed, [method, flags, ..]
        if method & 0x0f == 8 && u16::from_be_bytes([*method, *flags]) % 31 == 0)
}

/// Bytes after the end would be read by nobody here and perhaps by the next.
fn ends_here(rest: &[u8]) -> Result<(), IngestError> {
    if rest.is_empty() {
        Ok(())
    } else {
        Err(IngestError::Undecodable)
    }
}

/// Zstandard frames one after the other.
struct ZstdFrames<'a>(StreamingDecoder<&'a [u8], FrameDecoder>);

// === impl ZstdFrames ===

impl<'a> ZstdFrames<'a> {
    fn new(packed: &'a [u8]) -> Result<Self, IngestError> {
        let frame = StreamingDecoder::new_with_max_window_size(packed, ZSTD_WINDOW);
        frame.map(Self).map_err(|_| IngestError::Undecodable)
    }

    /// The decoder leaves the comparison to its caller.
    fn checksum_holds(&self) -> bool {
        let decoder = &self.0.decoder;
        let said = decoder.get_checksum_from_data();
        said.is_none() || said == decoder.get_calculated_checksum()
    }
}

impl Read for ZstdFrames<'_> {
    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.0.read(piece)?;
            if read > 0 {
                return Ok(read);
            }
            if !self.checksum_holds() {
                return Err(io::Error::other("the checksum differs"));
            }
            let rest = *self.0.get_ref();
            if rest.is_empty() {
                return Ok(0);
            }
            *self = Self::new(rest).map_err(io::Error::other)?;
        }
    }
}

#[cfg(test)]
mod tests;
