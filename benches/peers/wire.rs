//! As much of HTTP/1.1 as the mock engine and the load generator speak: heads and
//! the framing of bodies, read as the bytes come.
//!
//! By hand, because both share one core and must not be what limits a proxy. Never
//! lenient: what is no such message is a [`Malformed`].

use memchr::memmem;

/// Longest head that is read, in bytes.
const LONGEST_HEAD: usize = 64 * 1024;

/// No HTTP/1.1 message as this module knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// What the head of a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Length of the head in bytes, its empty line included.
    pub(crate) bytes: usize,
    /// How its body is framed; `None` where it does not say.
    pub(crate) framing: Option<Framing>,
    /// Whether the connection ends after this message.
    pub(crate) closes: bool,
}

/// How a body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// This many bytes.
    Sized(usize),
    /// In chunks, each after its size.
    Chunked,
}

/// The head at the start of `buffer`; `None` while it is not all there.
pub(crate) fn head(buffer: &[u8]) -> Result<Option<Head>, Malformed> {
    let Some(end) = memmem::find(buffer, b"\r\n\r\n") else {
        return if buffer.len() > LONGEST_HEAD {
            Err(Malformed)
        } else {
            Ok(None)
        };
    };
    let mut head = Head {
        bytes: end + 4,
        framing: None,
        closes: false,
    };
    let mut lines = buffer[..end].split(|&byte| byte == b'\n').skip(1);
    lines.try_for_each(|line| head.field(line))?;
    Ok(Some(head))
}

/// The status code of an answer whose head is in `buffer`.
pub(crate) fn status(buffer: &[u8]) -> Result<u16, Malformed> {
    let digits = buffer
        .strip_prefix(b"HTTP/1.1 ")
        .and_then(|rest| rest.get(..3))
        .and_then(|digits| str::from_utf8(digits).ok());
    digits
        .and_then(|digits| digits.parse().ok())
        .ok_or(Malformed)
}

/// A body while it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// So many bytes are to come.
    Sized(usize),
    /// In the line that tells a chunk's size.
    Size { bytes: usize, told: bool },
    /// In a chunk of which so many bytes are to come.
    Chunk(usize),
    /// In the line end after a chunk.
    AfterChunk,
    /// In the trailer, with so many bytes of the line read.
    Trailer(usize),
    /// Read to its end.
    Done,
}

// === impl Head ===

impl Head {
    fn field(&mut self, line: &[u8]) -> Result<(), Malformed> {
        let colon = line.iter().position(|&byte| byte == b':');
        let (name, value) = line.split_at(colon.ok_or(Malformed)?);
        let value = value[1..].trim_ascii();
        if name.eq_ignore_ascii_case(b"content-length") {
            let bytes = str::from_utf8(value).ok().and_then(|n| n.parse().ok());
            self.framing = Some(Framing::Sized(bytes.ok_or(Malformed)?));
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Malformed);
            }
            self.framing = Some(Framing::Chunked);
        } else if name.eq_ignore_ascii_case(b"connection") {
            self.closes = value.eq_ignore_ascii_case(b"close");
        }
        Ok(())
    }
}

// === impl Body ===

impl Body {
    /// A body of which nothing is read yet.
    pub(crate) fn new(framing: Framing) -> Self {
        match framing {
            Framing::Sized(0) => Self::Done,
            Framing::Sized(bytes) => Self::Sized(bytes),
            Framing::Chunked => Self::start_of_chunk(),
        }
    }

    const fn start_of_chunk() -> Self {
        Self::Size {
            bytes: 0,
            told: false,
        }
    }

    /// Whether it was read to its end.
    pub(crate) fn is_done(self) -> bool {
        self == Self::Done
    }

    /// Takes the next piece of content off `input`; `None` when more input is
    /// needed or the body is done.
    pub(crate) fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<&'a [u8]>, Malformed> {
        loop {
            if self.is_done() || input.is_empty() {
                return Ok(None);
            }
            if let Self::Sized(left) | Self::Chunk(left) = *self {
                let (piece, rest) = input.split_at(left.min(input.len()));
                *input = rest;
                *self = self.after(left - piece.len());
                return Ok(Some(piece));
            }
            let byte = input[0];
            *input = &input[1..];
            *self = self.step(byte)?;
        }
    }

    /// With so many bytes of content left.
    fn after(self, left: usize) -> Self {
        match (self, left) {
            (Self::Sized(_), 0) => Self::Done,
            (Self::Sized(_), left) => Self::Sized(left),
            (_, 0) => Self::AfterChunk,
            (_, left) => Self::Chunk(left),
        }
    }

    /// One byte of what frames chunks.
    fn step(self, byte: u8) -> Result<Self, Malformed> {
        match (self, byte) {
            (same @ (Self::Size { .. } | Self::AfterChunk | Self::Trailer(_)), b'\r') => Ok(same),
            (Self::Size { told: false, .. }, b'\n') => Err(Malformed),
            (Self::Size { bytes: 0, .. }, b'\n') => Ok(Self::Trailer(0)),
            (Self::Size { bytes, .. }, b'\n') => Ok(Self::Chunk(bytes)),
            (Self::Size { bytes, .. }, _) => {
                let digit = char::from(byte).to_digit(16).ok_or(Malformed)?;
                let digit = usize::try_from(digit).map_err(|_| Malformed)?;
                let bytes = bytes.checked_mul(16).ok_or(Malformed)? + digit;
                Ok(Self::Size { bytes, told: true })
            }
            (Self::AfterChunk, b'\n') => Ok(Self::start_of_chunk()),
            (Self::Trailer(0), b'\n') => Ok(Self::Done),
            (Self::Trailer(_), b'\n') => Ok(Self::Trailer(0)),
            (Self::Trailer(read), _) => Ok(Self::Trailer(read + 1)),
            _ => Err(Malformed),
        }
    }
}
