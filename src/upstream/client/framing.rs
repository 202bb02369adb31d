//! Where the body of an answer ends, and what of the bytes before that is body.
//!
//! Decides by RFC 9112 §6.3 and §7.1, strictly: what has two readings ends the answer
//! as broken. All that has come is taken in one go, whole chunks moved together in the
//! memory they were read into. Never reads a stream.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use memchr::{memchr, memmem};

/// Most bytes of extensions and trailers of one body; no engine sends any.
const MOST_EXTRAS: usize = 16 * 1024;
/// Most trailers of one body.
const MOST_TRAILERS: usize = 100;
/// Most digits of a chunk's size.
const MOST_DIGITS: usize = 16;

/// How the rest of a body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// This many bytes more.
    Length(u64),
    /// Chunks.
    Chunked(Chunks),
    /// All there is up to the end of the connection.
    Close,
    /// Nothing more.
    Over,
}

/// The rest of a chunked body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Chunks {
    next: Next,
    /// Bytes of extensions so far.
    extras: usize,
}

/// What comes next in a chunked body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Next {
    /// The line of a chunk's size.
    #[default]
    Size,
    /// This much of a chunk.
    Data(u64),
    /// The line end behind a chunk.
    DataEnd,
    /// What follows the last chunk.
    Trailers,
    /// Nothing.
    Over,
}

/// The body bytes found in what was read, moved together.
#[derive(Default)]
struct Run {
    begin: usize,
    end: usize,
    /// How far what was read is understood.
    read: usize,
}

/// Whether more of the input may be understood.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Done,
    /// The next element is not all there.
    Short,
}

// === impl Framing ===

impl Framing {
    /// A body of `length` bytes.
    pub(super) const fn of_length(length: u64) -> Self {
        match length {
            0 => Self::Over,
            length => Self::Length(length),
        }
    }

    /// A chunked body, at its beginning.
    pub(super) fn chunked() -> Self {
        Self::Chunked(Chunks::default())
    }

    /// Whether nothing more comes.
    pub(super) const fn is_over(self) -> bool {
        matches!(self, Self::Over)
    }

    /// Takes all of the body that is in `input`; `None` where more must be read, or
    /// nothing comes. Linear.
    ///
    /// # Errors
    /// `InvalidData` where `input` goes on with what is no body of this kind; what
    /// came before that is given first.
    pub(super) fn take(&mut self, input: &mut BytesMut) -> io::Result<Option<Bytes>> {
        if input.is_empty() {
            return Ok(None);
        }
        match self {
            Self::Over => Ok(None),
            Self::Close => Ok(Some(input.split().freeze())),
            Self::Length(left) => {
                let part = within(*left, input.len());
                *self = Self::of_length(*left - count(part));
                Ok(Some(input.split_to(part).freeze()))
            }
            Self::Chunked(chunks) => {
                let data = chunks.take(input)?;
                if chunks.next == Next::Over {
                    *self = Self::Over;
                }
                Ok(data)
            }
        }
    }

    /// The connection has ended.
    ///
    /// # Errors
    /// `UnexpectedEof` where the body has not.
    pub(super) fn on_end(&mut self) -> io::Result<()> {
        match std::mem::replace(self, Self::Over) {
            Self::Close | Self::Over => Ok(()),
            Self::Length(_) | Self::Chunked(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

// === impl Chunks ===

impl Chunks {
    fn take(&mut self, input: &mut BytesMut) -> io::Result<Option<Bytes>> {
        let mut run = Run::default();
        while self.next != Next::Over {
            match self.step(input, &mut run) {
                Ok(Step::Done) => {}
                Ok(Step::Short) => break,
                Err(error) if run.is_empty() => return Err(error),
                // Met again by the next call.
                Err(_) => break,
            }
        }
        if run.is_empty() {
            input.advance(run.read);
            return Ok(None);
        }
        let mut data = input.split_to(run.read);
        data.truncate(run.end);
        data.advance(run.begin);
        Ok(Some(data.freeze()))
    }

    /// Understands one element more. After an error nothing has changed.
    fn step(&mut self, input: &mut [u8], run: &mut Run) -> io::Result<Step> {
        let rest = &input[run.read..];
        match self.next {
            Next::Size => {
                let Some(line) = line(rest)? else {
                    return Ok(Step::Short);
                };
                let (size, extras) = size(line).ok_or_else(broken)?;
                if self.extras + extras > MOST_EXTRAS {
                    return Err(broken());
                }
                self.extras += extras;
                run.read += line.len() + 2;
                self.next = match size {
                    0 => Next::Trailers,
                    size => Next::Data(size),
                };
            }
            Next::Data(left) => {
                let part = within(left, rest.len());
                if part == 0 {
                    return Ok(Step::Short);
                }
                run.take(input, part);
                self.next = match left - count(part) {
                    0 => Next::DataEnd,
                    left => Next::Data(left),
                };
            }
            Next::DataEnd => {
                if rest.len() < 2 {
                    return Ok(Step::Short);
                }
                if !rest.starts_with(b"\r\n") {
                    return Err(broken());
                }
                run.read += 2;
                self.next = Next::Size;
            }
            Next::Trailers => {
                let Some(length) = trailers(rest)? else {
                    return Ok(Step::Short);
                };
                run.read += length;
                self.next = Next::Over;
            }
            Next::Over => return Ok(Step::Short),
        }
        Ok(Step::Done)
    }
}

// === impl Run ===

impl Run {
    const fn is_empty(&self) -> bool {
        self.begin == self.end
    }

    /// Adds the next `part` bytes of `input`, which are body.
    fn take(&mut self, input: &mut [u8], part: usize) {
        let from = self.read..self.read + part;
        if self.is_empty() {
            (self.begin, self.end) = (from.start, from.start);
        } else {
            input.copy_within(from, self.end);
        }
        self.end += part;
        self.read += part;
    }
}

/// The line that begins here, without its end.
fn line(rest: &[u8]) -> io::Result<Option<&[u8]>> {
    let Some(end) = memchr(b'\n', rest) else {
        return match rest.len() {
            0..=MOST_EXTRAS => Ok(None),
            _ => Err(broken()),
        };
    };
    let line = rest[..end].strip_suffix(b"\r").ok_or_else(broken)?;
    match memchr(b'\r', line) {
        None => Ok(Some(line)),
        Some(_) => Err(broken()),
    }
}

/// The size that the line of a chunk says, and how much else there is on it: what
/// follows a semicolon means nothing.
fn size(line: &[u8]) -> Option<(u64, usize)> {
    let end = memchr(b';', line).unwrap_or(line.len());
    let mut digits = &line[..end];
    while let [before @ .., b' ' | b'\t'] = digits {
        digits = before;
    }
    if digits.is_empty() || digits.len() > MOST_DIGITS {
        return None;
    }
    let size = digits.iter().try_fold(0, |size: u64, digit| {
        let value = char::from(*digit).to_digit(16)?;
        size.checked_mul(16)?.checked_add(u64::from(value))
    })?;
    Some((size, line.len() - digits.len()))
}

/// How long what follows the last chunk is. Trailers mean nothing, but must be some.
fn trailers(rest: &[u8]) -> io::Result<Option<usize>> {
    if rest.starts_with(b"\r\n") {
        return Ok(Some(2));
    }
    let Some(end) = memmem::find(rest, b"\r\n\r\n") else {
        return match rest.len() {
            0..=MOST_EXTRAS => Ok(None),
            _ => Err(broken()),
        };
    };
    let section = &rest[..end + 4];
    let mut lines = section[..end + 2].split(|byte| *byte == b'\n');
    let are_lines = lines.all(|line| line.is_empty() || line.ends_with(b"\r"));
    let mut parsed = [httparse::EMPTY_HEADER; MOST_TRAILERS];
    match httparse::parse_headers(section, &mut parsed) {
        Ok(httparse::Status::Complete((length, _)))
            if are_lines && length == section.len() && length <= MOST_EXTRAS =>
        {
            Ok(Some(length))
        }
        _ => Err(broken()),
    }
}

/// At most `left`, of what there is.
fn within(left: u64, there: usize) -> usize {
    usize::try_from(left).map_or(there, |left| left.min(there))
}

fn count(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("a length of memory fits 64 bits")
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not a chunked body")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a chunked body gives that comes in pieces of these sizes, and what is left.
    fn read(text: &[u8], sizes: &[usize]) -> io::Result<(Vec<u8>, Framing, Vec<u8>)> {
        let (mut framing, mut input) = (Framing::chunked(), BytesMut::new());
        let (mut body, mut rest) = (Vec::new(), text);
        let mut sizes = sizes.iter().cycle();
        while !rest.is_empty() && !framing.is_over() {
            let (piece, later) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
            input.extend_from_slice(piece);
            rest = later;
            while let Some(bytes) = framing.take(&mut input)? {
                body.extend_from_slice(&bytes);
            }
        }
        Ok((body, framing, [&input[..], rest].concat()))
    }

    #[test]
    fn all_chunks_that_have_come_are_one_piece() {
        let mut input = BytesMut::from("5\r\nhello\r\n1;a=b\r\n \r\n00A \r\nwide world\r\n3\r\nab");
        let mut framing = Framing::chunked();
        let piece = framing.take(&mut input).unwrap().unwrap();
        assert_eq!(piece, "hello wide worldab");
        let inside =
            |framing| matches!(framing, Framing::Chunked(chunks) if chunks.next == Next::Data(1));
        assert!(inside(framing));
        assert!(input.is_empty());
        input.extend_from_slice(b"c\r\n0\r\nx: y\r\n\r\nnext");
        assert_eq!(framing.take(&mut input).unwrap().unwrap(), "c");
        assert!(framing.is_over());
        assert_eq!(input, "next");
        assert_eq!(framing.take(&mut input).unwrap(), None);
    }

    #[test]
    fn what_has_two_readings_is_broken() {
        for text in [
            "5\nhello\r\n",
            "5\r\nhelloX\r\n",
            "\r\n",
            "-1\r\n",
            "+5\r\nhello\r\n",
            " 5\r\nhello\r\n",
            "0x5\r\nhello\r\n",
            "5 5\r\nhello\r\n",
            "5\r;\r\nhello\r\n",
            "5\x0c\r\nhello\r\n",
            "11111111111111111\r\n",
            "0\r\nx: y\n\r\n\r\n",
            "0\r\nx y\r\n\r\n",
            "0\r\n\n\r\n\r\n",
        ] {
            let read = read(text.as_bytes(), &[usize::MAX]);
            let kind = read.map(|_| ()).map_err(|error| error.kind());
            assert_eq!(kind, Err(io::ErrorKind::InvalidData), "{text:?}");
        }
        for endless in [
            [b"5;".as_slice(), &[b'x'; 2 * MOST_EXTRAS]].concat(),
            b"1;xxxxxxx\r\na\r\n".repeat(MOST_EXTRAS / 8 + 1),
            [b"0\r\nx: ".as_slice(), &[b'y'; 2 * MOST_EXTRAS]].concat(),
            [
                b"0\r\n".as_slice(),
                &b"x: y\r\n".repeat(MOST_TRAILERS + 1),
                b"\r\n",
            ]
            .concat(),
        ] {
            assert!(read(&endless, &[1000]).is_err());
        }
    }

    #[test]
    fn what_came_before_a_break_is_given_before_it() {
        let mut input = BytesMut::from("5\r\nhello\r\n5\r\nworldX\n");
        let mut framing = Framing::chunked();
        assert_eq!(framing.take(&mut input).unwrap().unwrap(), "helloworld");
        assert!(framing.take(&mut input).is_err());
    }

    #[test]
    fn a_length_and_a_close_end_where_they_say() {
        let mut input = BytesMut::from("okXX");
        let mut framing = Framing::of_length(3);
        assert_eq!(framing.take(&mut input).unwrap().unwrap(), "okX");
        assert!(framing.is_over() && input == "X");
        let mut framing = Framing::of_length(3);
        assert_eq!(framing.take(&mut input).unwrap().unwrap(), "X");
        let error = framing.on_end().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let mut framing = Framing::Close;
        input.extend_from_slice(b"all");
        assert_eq!(framing.take(&mut input).unwrap().unwrap(), "all");
        assert!(!framing.is_over());
        framing.on_end().unwrap();
        assert!(framing.is_over() && Framing::of_length(0).is_over());
        assert!(Framing::chunked().on_end().is_err());
    }

    proptest! {
        #[test]
        fn pieces_change_nothing(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..8),
            sizes in prop::collection::vec(1_usize..50, 1..6),
            rest in prop::collection::vec(any::<u8>(), 0..9),
        ) {
            let mut text = Vec::new();
            for chunk in &chunks {
                text.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                text.extend_from_slice(chunk);
                text.extend_from_slice(b"\r\n");
            }
            text.extend_from_slice(b"0\r\n\r\n");
            text.extend_from_slice(&rest);
            let (body, framing, left) = read(&text, &sizes).unwrap();
            prop_assert_eq!(body, chunks.concat());
            prop_assert_eq!(framing, Framing::Over);
            prop_assert_eq!(left, rest);
        }
    }
}
