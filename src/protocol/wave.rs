//! How fast a wave file plays.
//!
//! Decides the bytes of a second from the numbers that decoders go by, and
//! whether those agree; never decodes a sample. Work is bounded by [`MAX_CHUNKS`].

/// Most chunks that are looked at; files have a handful.
const MAX_CHUNKS: usize = 64;

/// What a file's header says.
pub(super) struct Rate {
    /// Channels × whole bytes of a sample × samples per second; never 0.
    pub(super) bytes_per_second: u64,
    /// Whether the header agrees with itself, and is the only one.
    pub(super) is_sound: bool,
}

/// The rate of a plain wave file; `None` for anything else.
pub(super) fn rate(file: &[u8]) -> Option<Rate> {
    let is_wave = file.starts_with(b"RIFF") && file.get(8..16) == Some(b"WAVEfmt ");
    // Samples as they are, whole or floating: other codings have no fixed rate.
    let is_plain = is_wave && matches!(number(file, 20, 2), Some(1 | 3));
    let channels = number(file, 22, 2).filter(|_| is_plain)?;
    let frames = number(file, 24, 4)?;
    let block = channels * number(file, 34, 2)?.div_ceil(8);
    let bytes_per_second = frames * block;
    let agrees =
        number(file, 28, 4) == Some(bytes_per_second) && number(file, 32, 2) == Some(block);
    (bytes_per_second > 0).then(|| Rate {
        bytes_per_second,
        is_sound: agrees && is_only_header(file),
    })
}

/// Whether no chunk after the first is a header as well.
fn is_only_header(file: &[u8]) -> bool {
    let mut at = 12;
    for chunk in 0..MAX_CHUNKS {
        let (Some(kind), Some(size)) = (file.get(at..at + 4), number(file, at + 4, 4)) else {
            return true;
        };
        if chunk > 0 && kind == b"fmt " {
            return false;
        }
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        // Chunks begin at even offsets.
        at = at
            .saturating_add(8)
            .saturating_add(size.saturating_add(size % 2));
        if at > file.len() {
            return true;
        }
    }
    false
}

/// A number of this many bytes, the lowest first.
fn number(file: &[u8], at: usize, bytes: usize) -> Option<u64> {
    let little_endian = file.get(at..at.checked_add(bytes)?)?.iter().rev();
    Some(little_endian.fold(0, |number, byte| number << 8 | u64::from(*byte)))
}
