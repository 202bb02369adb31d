//! The size of a picture, from the first bytes of its file.
//!
//! Decides how large an image is that came inside a request, and whether it may
//! be turned. Never decodes a pixel and never reads far. Invariant: a file that is
//! anything but plain has no size here. The engine opens the same bytes with
//! another reader, and a file that two readers understand differently would be
//! charged less than it takes; so padding, repeated headers and unknown variants
//! are "unknown", not a guess.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Bytes looked at: plain files say their size in the first hundred; a JPEG may
/// put a preview and a colour profile of 64 KiB each before it.
const FIRST_BYTES: usize = 4 * 1024;
const MOST_BYTES: usize = 256 * 1024;
/// No side is longer than this; beyond it the arithmetic of the rules is moot.
const LONGEST_SIDE: u32 = 1 << 20;

/// Padding at the end of a cut text is of no interest.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The sides of an image in pixels; neither is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) turn: Turn,
}

// === impl Size ===

impl Size {
    /// The image turned by a quarter.
    pub(super) const fn turned(self) -> Self {
        Self {
            width: self.height,
            height: self.width,
            turn: self.turn,
        }
    }
}

/// Whether the engine may turn the image by a quarter before it measures it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// There is nothing in the file that says so, or it is turned already.
    No,
    /// There are notes of a camera that are not read here.
    Perhaps,
}

/// The size of the image in a `data:` URL; `None` for any other link and for a
/// file that is not plain. O(1): reads at most 256 KiB.
pub(super) fn of_url(url: &str) -> Option<Size> {
    let (scheme, rest) = url.split_at_checked(5)?;
    if !scheme.eq_ignore_ascii_case("data:") {
        return None;
    }
    let (about, data) = rest.split_once(',')?;
    if !about.ends_with(";base64") {
        return None;
    }
    [FIRST_BYTES, MOST_BYTES]
        .into_iter()
        .find_map(|most| of_file(&first_bytes(data, most)?))
}

/// At most the first `most` bytes of a base64 text.
fn first_bytes(data: &str, most: usize) -> Option<Vec<u8>> {
    let length = data.len().min(most.div_ceil(3) * 4);
    BASE64.decode(data.as_bytes().get(..length)?).ok()
}

/// The size of the image whose file begins with `bytes`.
fn of_file(bytes: &[u8]) -> Option<Size> {
    let size = match bytes {
        [0x89, b'P', b'N', b'G', ..] => png(bytes),
        [0xFF, 0xD8, ..] => jpeg(bytes),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => gif(bytes),
        [b'R', b'I', b'F', b'F', ..] => webp(bytes),
        [b'B', b'M', ..] => bmp(bytes),
        _ => None,
    }?;
    let fits = |side| (1..=LONGEST_SIDE).contains(&side);
    (fits(size.width) && fits(size.height)).then_some(size)
}

/// The header, and that no second one comes before the picture.
fn png(bytes: &[u8]) -> Option<Size> {
    const AFTER_HEADER: usize = 33;
    if bytes.get(4..16)? != b"\r\n\x1a\n\0\0\0\rIHDR" {
        return None;
    }
    let mut turn = Turn::No;
    let mut at = AFTER_HEADER;
    loop {
        match bytes.get(at + 4..at + 8)? {
            b"IDAT" => break,
            b"IHDR" => return None,
            b"eXIf" | b"iTXt" | b"tEXt" | b"zTXt" => turn = Turn::Perhaps,
            _ => {}
        }
        at = at.checked_add(usize::try_from(big(bytes, at)?).ok()?)?;
        at = at.checked_add(12)?;
    }
    Some(Size {
        width: big(bytes, 16)?,
        height: big(bytes, 20)?,
        turn,
    })
}

/// The only frame header before the first scan.
fn jpeg(bytes: &[u8]) -> Option<Size> {
    let mut size: Option<(u32, u32)> = None;
    let mut notes: Option<Option<Way>> = None;
    let mut at = 2;
    loop {
        let [0xFF, marker, ..] = *bytes.get(at..at + 4)? else {
            return None;
        };
        let length = usize::from(u16::from_be_bytes(pair(bytes, at + 2)?)).max(2);
        let side = |from| Some(u32::from(u16::from_be_bytes(pair(bytes, from)?)));
        match marker {
            0xC0..=0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF if size.is_some() => return None,
            0xC0..=0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF => {
                size = Some((side(at + 7)?, side(at + 5)?));
            }
            0xDA => break,
            0xE1 if notes.is_some() => notes = Some(None),
            0xE1 => notes = Some(orientation(bytes.get(at + 4..at + 2 + length)?)),
            0xC4 | 0xC8 | 0xCC | 0xDB..=0xEF | 0xFE => {}
            _ => return None,
        }
        at += 2 + length;
    }
    let (width, height) = size?;
    let size = |turn| Size {
        width,
        height,
        turn,
    };
    Some(match notes {
        None | Some(Some(Way::Upright)) => size(Turn::No),
        Some(Some(Way::Sideways)) => size(Turn::No).turned(),
        Some(None) => size(Turn::Perhaps),
    })
}

/// How a camera was held.
#[derive(Clone, Copy)]
enum Way {
    Upright,
    Sideways,
}

/// The first directory of a camera's notes; `None` for notes of another kind and
/// for a way to hold it that there is not.
fn orientation(segment: &[u8]) -> Option<Way> {
    const ENTRY: usize = 12;
    const ORIENTATION: u16 = 0x0112;
    const SHORT: u16 = 3;
    let notes = segment.strip_prefix(b"Exif\0\0")?;
    let little = match notes.get(..4)? {
        b"II*\0" => true,
        b"MM\0*" => false,
        _ => return None,
    };
    let short = |from| {
        let two = pair(notes, from)?;
        Some(if little {
            u16::from_le_bytes(two)
        } else {
            u16::from_be_bytes(two)
        })
    };
    let first = if little { self::little } else { big };
    let directory = usize::try_from(first(notes, 4)?).ok()?;
    let entries = usize::from(short(directory)?);
    let places = (0..entries).map(|at| directory + 2 + at * ENTRY);
    let mut found = places.filter(|place| short(*place) == Some(ORIENTATION));
    let Some(place) = found.next() else {
        return Some(Way::Upright);
    };
    match (short(place + 2)?, short(place + 8)?, found.next()) {
        (SHORT, 1..=4, None) => Some(Way::Upright),
        (SHORT, 5..=8, None) => Some(Way::Sideways),
        _ => None,
    }
}

/// The screen, or the first picture where that reaches beyond it.
fn gif(bytes: &[u8]) -> Option<Size> {
    let side = |from| Some(u32::from(u16::from_le_bytes(pair(bytes, from)?)));
    let (width, height) = (side(6)?, side(8)?);
    let flags = *bytes.get(10)?;
    let colours = if flags & 0x80 == 0 {
        0
    } else {
        3 << ((flags & 7) + 1)
    };
    let mut at = 13 + colours;
    while *bytes.get(at)? == 0x21 {
        at += 2;
        while let length @ 1.. = usize::from(*bytes.get(at)?) {
            at += 1 + length;
        }
        at += 1;
    }
    if *bytes.get(at)? != 0x2C {
        return None;
    }
    Some(Size {
        width: width.max(side(at + 1)? + side(at + 5)?),
        height: height.max(side(at + 3)? + side(at + 7)?),
        turn: Turn::No,
    })
}

/// The canvas, or the only picture.
fn webp(bytes: &[u8]) -> Option<Size> {
    const FOURTEEN_BITS: u32 = (1 << 14) - 1;
    const NOTES: u8 = 0b1100;
    let small = |from| Some(u32::from(u16::from_le_bytes(pair(bytes, from)?)));
    let plain = |width, height| Size {
        width,
        height,
        turn: Turn::No,
    };
    if bytes.get(8..12)? != b"WEBP" {
        return None;
    }
    match bytes.get(12..16)? {
        b"VP8 " if bytes.get(23..26)? == [0x9D, 0x01, 0x2A] => Some(plain(
            small(26)? & FOURTEEN_BITS,
            small(28)? & FOURTEEN_BITS,
        )),
        b"VP8L" if *bytes.get(20)? == 0x2F => {
            let sides = little(bytes, 21)?;
            let side = |bits: u32| (bits & FOURTEEN_BITS) + 1;
            Some(plain(side(sides), side(sides >> 14)))
        }
        b"VP8X" => Some(Size {
            width: (little(bytes, 24)? & 0xFF_FFFF) + 1,
            height: (little(bytes, 26)? >> 8) + 1,
            turn: if bytes.get(20)? & NOTES == 0 {
                Turn::No
            } else {
                Turn::Perhaps
            },
        }),
        _ => None,
    }
}

/// The header every variant since 1990 begins with; a negative height is a
/// picture from top to bottom.
fn bmp(bytes: &[u8]) -> Option<Size> {
    if !(40..=124).contains(&little(bytes, 14)?) {
        return None;
    }
    Some(Size {
        width: little(bytes, 18)?,
        height: little(bytes, 22)?.cast_signed().unsigned_abs(),
        turn: Turn::No,
    })
}

fn pair(bytes: &[u8], from: usize) -> Option<[u8; 2]> {
    bytes.get(from..)?.first_chunk().copied()
}

fn big(bytes: &[u8], from: usize) -> Option<u32> {
    bytes
        .get(from..)?
        .first_chunk()
        .map(|four| u32::from_be_bytes(*four))
}

fn little(bytes: &[u8], from: usize) -> Option<u32> {
    bytes
        .get(from..)?
        .first_chunk()
        .map(|four| u32::from_le_bytes(*four))
}
