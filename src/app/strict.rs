//! HTTP/1 that can be read in one way only.
//!
//! The parser behind this is lenient where another before or behind us may not
//! be: it takes a length beside a transfer coding, lines that end without a
//! carriage return, a request without a host. Two readers that disagree where
//! a request ends see two requests, so what has a second reading is never
//! shown to the parser: it is given bytes it answers with 400 and a close.
//! Decides about framing and the host alone. Invariant: of a request that is
//! refused here the parser has never seen the end of the head.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use memchr::memchr;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Most bytes of a line that are looked at. No header that concerns framing is
/// longer, and no size of a chunk with its extensions need be.
const LOOKED_AT: usize = 512;

/// What the parser is given instead of what has two readings: no head, no size
/// of a chunk and no trailer goes on like this.
const POISON: &[u8] = b"\0\r\n\r\n";

/// A stream whose requests have one reading each.
#[derive(Debug)]
pub(super) struct Strict<I> {
    io: I,
    framing: Framing,
    /// What is left to give of [`POISON`], once a request had two readings.
    poison: Option<&'static [u8]>,
}

/// Where in a message the next byte stands.
#[derive(Debug, Default)]
struct Framing {
    place: Place,
    head: Head,
    line: Line,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Before a request: empty lines, or the first one.
    #[default]
    Before,
    /// In the header lines.
    Headers,
    /// This many bytes before the end of a body or of a chunk with its line end.
    Counted { left: u64, then: Then },
    /// In the line of a chunk's size.
    Size,
    /// In the lines behind the last chunk.
    Trailers,
}

/// What follows counted bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Request,
    Chunk,
}

/// What the lines of a head said of its framing.
#[derive(Debug, Default)]
struct Head {
    is_http_11: bool,
    hosts: u32,
    length: Option<u64>,
    chunked: bool,
}

/// The line that is being read.
#[derive(Debug, Default)]
struct Line {
    /// Its first bytes.
    start: Vec<u8>,
    /// All of its bytes, without the line end.
    bytes: usize,
    last: u8,
    has_fragment: bool,
    /// A carriage return came, which only a line feed may follow.
    returned: bool,
}

/// A second reading is possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ambiguous(&'static str);

// === impl Strict ===

impl<I> Strict<I> {
    /// `io`, at the beginning of a request.
    pub(super) fn new(io: I) -> Self {
        Self {
            io,
            framing: Framing::default(),
            poison: None,
        }
    }

    /// The stream itself.
    pub(super) fn into_inner(self) -> I {
        self.io
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Strict<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.poison.is_none() {
            let begin = buf.filled().len();
            ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
            let Err((clear, Ambiguous(what))) = this.framing.feed(&buf.filled()[begin..]) else {
                return Poll::Ready(Ok(()));
            };
            tracing::debug!(what, "a request with more than one reading");
            buf.set_filled(begin + clear);
            this.poison = Some(POISON);
        }
        if let Some(left) = &mut this.poison {
            let (now, later) = left.split_at(left.len().min(buf.remaining()));
            buf.put_slice(now);
            *left = later;
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Strict<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

// === impl Framing ===

impl Framing {
    /// Follows `bytes`. An error comes with how many of them are clear.
    fn feed(&mut self, bytes: &[u8]) -> Result<(), (usize, Ambiguous)> {
        let mut at = 0;
        while at < bytes.len() {
            if let Place::Counted { left, then } = &mut self.place {
                let rest = bytes.len() - at;
                let skipped = usize::try_from(*left).map_or(rest, |left| left.min(rest));
                *left -= u64::try_from(skipped).unwrap_or(0);
                at += skipped;
                if *left == 0 {
                    self.place = then.place();
                }
                continue;
            }
            let part = &bytes[at..];
            let Some(end) = memchr(b'\n', part) else {
                return self.line.push(part).map_err(|error| (at, error));
            };
            self.line.push(&part[..end]).map_err(|error| (at, error))?;
            let line = std::mem::take(&mut self.line);
            self.end_line(&line).map_err(|error| (at + end, error))?;
            self.line = line.emptied();
            at += end + 1;
        }
        Ok(())
    }

    fn end_line(&mut self, line: &Line) -> Result<(), Ambiguous> {
        if !line.returned {
            return Err(Ambiguous("a line feed alone"));
        }
        match self.place {
            Place::Before if line.bytes == 0 => {}
            Place::Before => {
                if line.has_fragment {
                    return Err(Ambiguous("a fragment in the target"));
                }
                self.head = Head {
                    is_http_11: line.last == b'1',
                    ..Head::default()
                };
                self.place = Place::Headers;
            }
            Place::Headers if line.bytes == 0 => self.place = self.head.body()?,
            Place::Headers => self.head.line(line)?,
            Place::Size => self.place = chunk(line)?,
            Place::Trailers if line.bytes == 0 => self.place = Place::Before,
            Place::Trailers => {}
            Place::Counted { .. } => unreachable!("counted bytes have no lines"),
        }
        Ok(())
    }
}

impl Then {
    const fn place(self) -> Place {
        match self {
            Self::Request => Place::Before,
            Self::Chunk => Place::Size,
        }
    }
}

// === impl Line ===

impl Line {
    /// More of the line, without its line feed.
    fn push(&mut self, part: &[u8]) -> Result<(), Ambiguous> {
        let text = part.strip_suffix(b"\r").unwrap_or(part);
        if part.is_empty() {
            return Ok(());
        }
        if self.returned || memchr(b'\r', text).is_some() {
            return Err(Ambiguous("a carriage return alone"));
        }
        self.returned = text.len() < part.len();
        let room = LOOKED_AT - self.start.len();
        self.start.extend_from_slice(&text[..text.len().min(room)]);
        self.bytes = self.bytes.saturating_add(text.len());
        self.last = text.last().copied().unwrap_or(self.last);
        self.has_fragment |= memchr(b'#', text).is_some();
        Ok(())
    }

    /// The next line, in the memory of this one.
    fn emptied(self) -> Self {
        let mut start = self.start;
        start.clear();
        Self {
            start,
            ..Self::default()
        }
    }

    /// All of the line, where it is short enough.
    fn text(&self) -> Option<&[u8]> {
        (self.bytes == self.start.len()).then_some(&self.start)
    }
}

// === impl Head ===

impl Head {
    /// One header line.
    fn line(&mut self, line: &Line) -> Result<(), Ambiguous> {
        let start = &line.start;
        if matches!(start.first(), Some(b' ' | b'\t')) {
            return Err(Ambiguous("a folded line"));
        }
        let Some(colon) = memchr(b':', start) else {
            // The parser takes no line without a colon and no name this long.
            return Ok(());
        };
        let name = &start[..colon];
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        if !(is(b"content-length") || is(b"transfer-encoding") || is(b"host")) {
            return Ok(());
        }
        let value = line.text().map(|text| text[colon + 1..].trim_ascii());
        let value = value.ok_or(Ambiguous("an endless header of framing"))?;
        if is(b"host") {
            self.hosts += 1;
            return is_host(value).then_some(()).ok_or(Ambiguous("an odd host"));
        }
        if is(b"content-length") {
            let length = digits(value, 10).ok_or(Ambiguous("an odd length"))?;
            if self.length.is_some_and(|other| other != length) {
                return Err(Ambiguous("two lengths"));
            }
            self.length = Some(length);
            return Ok(());
        }
        if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
            return Err(Ambiguous("an odd transfer coding"));
        }
        self.chunked = true;
        Ok(())
    }

    /// What follows the head.
    fn body(&self) -> Result<Place, Ambiguous> {
        if self.hosts > 1 || (self.is_http_11 && self.hosts == 0) {
            return Err(Ambiguous("not one host"));
        }
        match (self.chunked, self.length) {
            (true, Some(_)) => Err(Ambiguous("a length beside a transfer coding")),
            (true, None) if !self.is_http_11 => Err(Ambiguous("a transfer coding in HTTP/1.0")),
            (true, None) => Ok(Place::Size),
            (false, None | Some(0)) => Ok(Place::Before),
            (false, Some(left)) => Ok(Place::Counted {
                left,
                then: Then::Request,
            }),
        }
    }
}

/// What follows the line of a chunk's size.
fn chunk(line: &Line) -> Result<Place, Ambiguous> {
    let odd = Ambiguous("an odd chunk");
    let text = line.text().ok_or(odd)?;
    let size = text.split(|byte| *byte == b';').next().unwrap_or(text);
    match digits(size.trim_ascii_end(), 16).ok_or(odd)? {
        0 => Ok(Place::Trailers),
        size => Ok(Place::Counted {
            left: size.checked_add(2).ok_or(odd)?,
            then: Then::Chunk,
        }),
    }
}

/// Digits and nothing else, as many as fit.
fn digits(text: &[u8], radix: u32) -> Option<u64> {
    let all = !text.is_empty() && text.iter().all(|byte| char::from(*byte).is_digit(radix));
    let text = std::str::from_utf8(text).ok().filter(|_| all)?;
    u64::from_str_radix(text, radix).ok()
}

/// Whether these are characters of a host and a port; none at all is a host too.
fn is_host(value: &[u8]) -> bool {
    value
        .iter()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:[]".contains(byte))
}

#[cfg(test)]
mod tests;
