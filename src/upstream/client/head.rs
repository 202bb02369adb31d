//! Heads of HTTP/1.1: written for requests, read of answers.
//!
//! Decides what an answer's head says of the body behind it and of the connection, by
//! RFC 9112 §6.3 and §9.3. Never reads a stream. Invariant: a head that says two things
//! of its framing is none.

use std::mem::MaybeUninit;

use bytes::{Buf, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, TRANSFER_ENCODING};
use http::{HeaderValue, Method, Response, StatusCode, Version, request};
use httparse::{ParserConfig, Status};
use hyper::ext::ReasonPhrase;

use super::framing::Framing;

/// Largest head of an answer, in bytes.
const MOST_HEAD: usize = 400 * 1024;
/// Most headers of an answer.
const MOST_HEADERS: usize = 100;
/// Largest body that has a length; beyond it are bodies that have none.
const MOST_LENGTH: u64 = u64::MAX - 2;
/// What a head usually takes, in bytes.
const USUAL_HEAD: usize = 512;

/// The head of an answer.
#[derive(Debug)]
pub(super) struct Head {
    /// Status and headers.
    pub(super) response: Response<()>,
    /// What follows.
    pub(super) framing: Framing,
    /// Whether the connection may carry another request after that.
    pub(super) keeps_alive: bool,
}

/// What came is no head of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unreadable;

/// The head of a request with a body of `length` bytes; without a body it has no length.
pub(super) fn write(request: &request::Parts, length: usize) -> Bytes {
    let mut head = Vec::with_capacity(USUAL_HEAD);
    let target = request.uri.path_and_query();
    for part in [
        request.method.as_str(),
        " ",
        target.map_or("/", |target| target.as_str()),
        " HTTP/1.1\r\n",
    ] {
        head.extend_from_slice(part.as_bytes());
    }
    let mut line = |name: &HeaderName, value: &[u8]| {
        for part in [name.as_str().as_bytes(), b": ", value, b"\r\n"] {
            head.extend_from_slice(part);
        }
    };
    for (name, value) in &request.headers {
        line(name, value.as_bytes());
    }
    if length > 0 {
        line(&CONTENT_LENGTH, length.to_string().as_bytes());
    }
    head.extend_from_slice(b"\r\n");
    head.into()
}

/// Takes the head of the answer to a request by `method` from `input`, and what says
/// only that it will come; `None` where more must be read.
///
/// # Errors
/// Where it is none, or too large.
pub(super) fn read(input: &mut BytesMut, method: &Method) -> Result<Option<Head>, Unreadable> {
    loop {
        let Some((length, response)) = parse(input)? else {
            return match input.len() {
                MOST_HEAD.. => Err(Unreadable),
                _ => Ok(None),
            };
        };
        input.advance(length);
        let status = response.status();
        if !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS {
            return Head::of(response, method).map(Some);
        }
    }
}

/// The head at the beginning of `input`, and its length in bytes.
fn parse(input: &[u8]) -> Result<Option<(usize, Response<()>)>, Unreadable> {
    if input.is_empty() {
        return Ok(None);
    }
    let mut headers = [const { MaybeUninit::uninit() }; MOST_HEADERS];
    let mut parsed = httparse::Response::new(&mut []);
    let status = ParserConfig::default().parse_response_with_uninit_headers(
        &mut parsed,
        input,
        &mut headers,
    );
    let length = match status.map_err(|_| Unreadable)? {
        Status::Complete(length) => length,
        Status::Partial => return Ok(None),
    };
    let mut response = Response::new(());
    let code = parsed.code.ok_or(Unreadable)?;
    *response.status_mut() = StatusCode::from_u16(code).map_err(|_| Unreadable)?;
    if parsed.version == Some(0) {
        *response.version_mut() = Version::HTTP_10;
    }
    let reason = parsed.reason.unwrap_or_default();
    if Some(reason) != response.status().canonical_reason()
        && let Ok(reason) = ReasonPhrase::try_from(reason.as_bytes())
    {
        response.extensions_mut().insert(reason);
    }
    response.headers_mut().reserve(parsed.headers.len());
    for header in &*parsed.headers {
        let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(|_| Unreadable)?;
        let value = HeaderValue::from_bytes(header.value).map_err(|_| Unreadable)?;
        response.headers_mut().append(name, value);
    }
    Ok(Some((length, response)))
}

// === impl Head ===

impl Head {
    fn of(mut response: Response<()>, method: &Method) -> Result<Self, Unreadable> {
        let (status, version) = (response.status(), response.version());
        let headers = response.headers();
        let (framing, stays) = match status {
            StatusCode::SWITCHING_PROTOCOLS => (Framing::Over, false),
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED => (Framing::Over, true),
            _ if method == Method::HEAD => (Framing::Over, true),
            _ => framing(headers, version)?,
        };
        let keeps_alive = stays && is_kept(headers, version);
        if let Framing::Length(length) = framing {
            // Once, however often it was said: not every reader takes a list.
            let headers = response.headers_mut();
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        Ok(Self {
            response,
            framing,
            keeps_alive,
        })
    }
}

/// How the body is delimited, and whether that was said in the one usual way: a
/// connection on which it was not is not used again.
fn framing(headers: &HeaderMap, version: Version) -> Result<(Framing, bool), Unreadable> {
    let lengths = headers.get_all(CONTENT_LENGTH).iter().count();
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next_back() {
        // It overrides a length. HTTP/1.0 knows of none, so a reader may overlook it.
        if version == Version::HTTP_10 {
            return Err(Unreadable);
        }
        let is_alone = lengths == 0 && codings.next().is_none() && tokens(coding).count() == 1;
        return Ok(match tokens(coding).next_back() {
            Some(last) if last.eq_ignore_ascii_case("chunked") => (Framing::chunked(), is_alone),
            _ => (Framing::Close, false),
        });
    }
    if lengths == 0 {
        return Ok((Framing::Close, false));
    }
    let mut said = headers.get_all(CONTENT_LENGTH).iter().flat_map(tokens);
    let length = said.next().and_then(length_of).ok_or(Unreadable)?;
    let mut is_alone = true;
    for again in said {
        is_alone = false;
        if length_of(again) != Some(length) {
            return Err(Unreadable);
        }
    }
    Ok((Framing::of_length(length), is_alone))
}

/// Digits and nothing else.
fn length_of(digits: &str) -> Option<u64> {
    let is_plain = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let length = digits.parse().ok().filter(|_| is_plain);
    length.filter(|length| *length <= MOST_LENGTH)
}

/// Whether the connection outlives the answer: HTTP/1.0 must say that it does.
fn is_kept(headers: &HeaderMap, version: Version) -> bool {
    let says = |what: &str| {
        let values = headers.get_all(CONNECTION);
        values
            .iter()
            .flat_map(tokens)
            .any(|token| token.eq_ignore_ascii_case(what))
    };
    !says("close") && (version != Version::HTTP_10 || says("keep-alive"))
}

/// The members of a list; one that is empty where it is no text.
fn tokens(value: &HeaderValue) -> impl DoubleEndedIterator<Item = &str> {
    value.to_str().unwrap_or_default().split(',').map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(text: &str) -> Result<Option<Head>, Unreadable> {
        read(&mut BytesMut::from(text), &Method::POST)
    }

    /// What follows a head of these lines, and whether the connection stays.
    fn told(lines: &str) -> (Framing, bool) {
        let head = read_all(&format!("HTTP/{lines}\r\n")).unwrap().unwrap();
        (head.framing, head.keeps_alive)
    }

    #[test]
    fn what_follows_a_head_is_told_by_it() {
        let twice = "HTTP/1.1 200 OK\r\ncontent-length: 3, 3\r\ncontent-length: 3\r\n\r\n";
        let head = read_all(twice).unwrap().unwrap();
        assert_eq!(head.response.headers().len(), 1);
        assert_eq!(head.response.headers()[CONTENT_LENGTH], "3");
        for (lines, framing) in [
            ("200 OK\r\ncontent-length: 3\r\n", Framing::Length(3)),
            ("200 OK\r\ncontent-length: 0\r\n", Framing::Over),
            ("204 No Content\r\n", Framing::Over),
            ("304 Not Modified\r\ncontent-length: 9\r\n", Framing::Over),
            (
                "200 OK\r\ntransfer-encoding: Chunked\r\n",
                Framing::chunked(),
            ),
        ] {
            assert_eq!(told(&format!("1.1 {lines}")), (framing, true), "{lines}");
        }
        let text = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n";
        let head = read(&mut BytesMut::from(text), &Method::HEAD).unwrap();
        assert!(head.unwrap().framing.is_over());
    }

    #[test]
    fn a_connection_stays_where_everything_was_said_in_the_usual_way() {
        let length = "content-length: 3\r\n";
        let kept = format!("1.0 200 OK\r\n{length}connection: keep-alive\r\n");
        assert_eq!(told(&kept), (Framing::Length(3), true));
        let coded = "200 OK\r\ntransfer-encoding";
        let closes = "connection: x, Close\r\nconnection: keep-alive\r\n";
        for (lines, framing) in [
            ("1.1 200 OK\r\n".to_owned(), Framing::Close),
            ("1.1 101 Switching Protocols\r\n".to_owned(), Framing::Over),
            (
                format!("1.1 200 OK\r\n{length}{length}"),
                Framing::Length(3),
            ),
            (
                format!("1.1 {coded}: gzip, chunked\r\n"),
                Framing::chunked(),
            ),
            (
                format!("1.1 {coded}: chunked\r\n{length}"),
                Framing::chunked(),
            ),
            (format!("1.1 {coded}: chunked, gzip\r\n"), Framing::Close),
            (
                format!("1.1 200 OK\r\n{length}{closes}"),
                Framing::Length(3),
            ),
            (format!("1.0 200 OK\r\n{length}"), Framing::Length(3)),
        ] {
            assert_eq!(told(&lines), (framing, false), "{lines}");
        }
    }

    #[test]
    fn a_head_of_two_readings_is_none() {
        for lines in [
            "1.0 200 OK\r\ntransfer-encoding: chunked\r\n",
            "1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n",
            "1.1 200 OK\r\ncontent-length: 3, 4\r\n",
            "1.1 200 OK\r\ncontent-length: +3\r\n",
            "1.1 200 OK\r\ncontent-length:\r\n",
            "1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n",
            "1.1 200 OK\r\nx: 1\r\n y\r\n",
            "1.1 20 OK\r\n",
            "2.0 200 OK\r\n",
        ] {
            let read = read_all(&format!("HTTP/{lines}\r\n"));
            assert_eq!(read.map(|_| ()), Err(Unreadable), "{lines}");
        }
        let many = "x: 1\r\n".repeat(MOST_HEADERS + 1);
        assert!(read_all(&format!("HTTP/1.1 200 OK\r\n{many}\r\n")).is_err());
        let long = "x".repeat(MOST_HEAD);
        assert!(read_all(&format!("HTTP/1.1 200 OK\r\nx: {long}")).is_err());
    }

    #[test]
    fn what_only_announces_an_answer_is_skipped_and_the_rest_is_left() {
        let mut input = BytesMut::from(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nx: 1\r\n\r\nHTTP/1.1 299 Odd\r\n",
        );
        assert!(read(&mut input, &Method::POST).unwrap().is_none());
        assert_eq!(input, "HTTP/1.1 299 Odd\r\n");
        input.extend_from_slice(b"x: 2\r\ncontent-length: 4\r\n\r\nbody");
        let head = read(&mut input, &Method::POST).unwrap().unwrap();
        assert_eq!(head.response.status().as_u16(), 299);
        let reason = head.response.extensions().get::<ReasonPhrase>().unwrap();
        assert_eq!(reason.as_bytes(), b"Odd");
        assert_eq!(head.response.headers()["x"], "2");
        assert_eq!(input, "body");
    }
}
