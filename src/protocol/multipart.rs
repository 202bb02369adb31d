//! Forms of several parts, in the one spelling that all readers read alike.
//!
//! Decides where the fields of a form are and what they are called. Never
//! guesses: what curl, browsers and the usual libraries write is read, anything
//! else is refused, since another reader could find other fields in it. So no
//! reader that forgives is used here. Invariant: a name that is returned is the
//! one an engine reads, and no two are equal but those of lists (`name[]`).

use std::collections::HashSet;

use memchr::memmem::{self, Finder};

use super::request::RequestError;

/// Most fields of a form; engines refuse more.
const MAX_PARTS: usize = 1000;
/// Most headers of a field; engines refuse more.
const MAX_HEADERS: usize = 8;
/// Most characters of a boundary (RFC 2046).
const MAX_BOUNDARY: usize = 70;
/// Most characters of an odd header that are repeated in an answer.
const QUOTED: usize = 80;

const CONTENT_TYPE: &str = "content-type";
const CONTENT_DISPOSITION: &str = "content-disposition";

/// A field of a form.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part<'a> {
    /// Its name.
    pub(super) name: &'a str,
    /// Its value, or the file.
    pub(super) value: &'a [u8],
}

/// The boundary that a content type names.
///
/// # Errors
/// [`RequestError::Unreadable`], unless it names exactly one, and nothing else
/// but UTF-8 as the character set.
pub(super) fn boundary(content_type: &[u8]) -> Result<&str, RequestError> {
    let odd = || {
        let expected = "`multipart/form-data; boundary=…` and nothing else";
        unreadable(CONTENT_TYPE, expected, content_type)
    };
    let text = std::str::from_utf8(content_type).map_err(|_| odd())?;
    let mut parts = text.split(';').map(|part| part.trim_matches(' '));
    let media = parts.next().unwrap_or_default();
    if !media.eq_ignore_ascii_case("multipart/form-data") {
        return Err(odd());
    }
    let (mut boundary, mut charset) = (None, None);
    for part in parts {
        let (key, value) = part.split_once('=').ok_or_else(odd)?;
        let quoted = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
        let value = quoted.unwrap_or(value);
        let before = match key {
            "boundary" if is_boundary(value) => boundary.replace(value),
            // Names are read in this character set, so it has to be ours.
            "charset" if value.eq_ignore_ascii_case("utf-8") => charset.replace(value),
            _ => return Err(odd()),
        };
        if before.is_some() {
            return Err(odd());
        }
    }
    boundary.ok_or_else(odd)
}

/// The fields of a form, in their order. Linear in the body; nothing is copied.
///
/// # Errors
/// [`RequestError`] for what is no form, or not one of the plain spelling.
pub(super) fn parts<'a>(body: &'a [u8], boundary: &str) -> Result<Vec<Part<'a>>, RequestError> {
    let delimiter = format!("\r\n--{boundary}");
    let finder = Finder::new(&delimiter);
    let mut rest = body
        .strip_prefix(&delimiter.as_bytes()[2..])
        .ok_or_else(|| broken("it does not begin with its boundary"))?;
    let mut parts = Vec::new();
    let mut names = HashSet::new();
    while let Some(part) = rest.strip_prefix(b"\r\n") {
        let (name, data) = headers(part)?;
        let end = finder
            .find(data)
            .ok_or_else(|| broken("it does not end with its boundary"))?;
        if !name.ends_with("[]") && !names.insert(name) {
            return Err(broken(&format!("`{name}` is given twice")));
        }
        if parts.len() == MAX_PARTS {
            return Err(broken("it has more than 1000 fields"));
        }
        let value = &data[..end];
        parts.push(Part { name, value });
        rest = &data[end + delimiter.len()..];
    }
    match rest {
        b"--" | b"--\r\n" => Ok(parts),
        _ => Err(broken("a boundary is followed by something else")),
    }
}

/// The name in a part's headers, and what comes after them.
fn headers(mut rest: &[u8]) -> Result<(&str, &[u8]), RequestError> {
    let mut seen: Vec<String> = Vec::new();
    let mut name = None;
    loop {
        let end = memmem::find(rest, b"\r\n").ok_or_else(|| broken("a header has no end"))?;
        let (line, after) = (&rest[..end], &rest[end + 2..]);
        rest = after;
        if line.is_empty() {
            break;
        }
        let (key, value) = header(line).ok_or_else(|| broken("a header is not plain"))?;
        if key == CONTENT_DISPOSITION {
            name = Some(field_name(value)?);
        } else if value.iter().any(u8::is_ascii_control) {
            return Err(broken(&format!("`{key}` of a part is not plain text")));
        }
        if seen.contains(&key) {
            return Err(broken(&format!("`{key}` is given twice in a part")));
        }
        if seen.len() == MAX_HEADERS {
            return Err(broken("a part has more than 8 headers"));
        }
        seen.push(key);
    }
    let expected = "given with every part of a form";
    let name = name.ok_or_else(|| unreadable(CONTENT_DISPOSITION, expected, b""))?;
    Ok((name, rest))
}

/// A header's name, in lower case, and its value.
fn header(line: &[u8]) -> Option<(String, &[u8])> {
    let colon = memchr::memchr(b':', line)?;
    let (key, value) = (&line[..colon], &line[colon + 1..]);
    let is_key = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if key.is_empty() || !key.iter().all(is_key) {
        return None;
    }
    let key = String::from_utf8(key.to_ascii_lowercase()).ok()?;
    Some((key, value.strip_prefix(b" ").unwrap_or(value)))
}

/// The name in `form-data; name="…"`, which a quoted file name may follow.
fn field_name(value: &[u8]) -> Result<&str, RequestError> {
    let read = || {
        let rest = value.strip_prefix(b"form-data; name=\"")?;
        let (name, rest) = rest.split_at(memchr::memchr(b'"', rest)?);
        let file = match &rest[1..] {
            b"" => Some(&b""[..]),
            more => more
                .strip_prefix(b"; filename=\"")
                .and_then(|file| file.strip_suffix(b"\"")),
        };
        let is_name = |byte: &u8| (b' '..=b'~').contains(byte) && *byte != b'\\';
        let is_file = |byte: &u8| !byte.is_ascii_control() && !matches!(byte, b'"' | b'\\');
        let is_plain = !name.is_empty() && name.iter().all(is_name) && file?.iter().all(is_file);
        std::str::from_utf8(name).ok().filter(|_| is_plain)
    };
    let expected = "`form-data; name=\"…\"`, or that and `; filename=\"…\"`";
    read().ok_or_else(|| unreadable(CONTENT_DISPOSITION, expected, value))
}

/// Whether these are characters that a boundary may have (RFC 2046).
fn is_boundary(value: &str) -> bool {
    let is_ours = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=?".contains(&byte);
    (1..=MAX_BOUNDARY).contains(&value.len()) && value.bytes().all(is_ours)
}

fn broken(what: &str) -> RequestError {
    RequestError::Form(what.into())
}

fn unreadable(param: &'static str, expected: &'static str, got: &[u8]) -> RequestError {
    let got = match got {
        b"" => "nothing".into(),
        got => String::from_utf8_lossy(got).chars().take(QUOTED).collect(),
    };
    RequestError::Unreadable {
        param,
        expected,
        got,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(headers: &str) -> Result<String, RequestError> {
        let body = format!("--xyz\r\n{headers}\r\n\r\nv\r\n--xyz--\r\n");
        let parts = parts(body.as_bytes(), "xyz")?;
        assert_eq!((parts.len(), parts[0].value), (1, &b"v"[..]));
        Ok(parts[0].name.into())
    }

    #[test]
    fn audio_forms_of_usual_clients_are_read() {
        for (headers, name) in [
            ("Content-Disposition: form-data; name=\"prompt\"", "prompt"),
            (
                "Content-Disposition: form-data; name=\"file\"; filename=\"é; name=x.wav\"\r\n\
                Content-Type: audio/wav",
                "file",
            ),
            (
                "content-type: text/plain; charset=utf-8\r\n\
                content-disposition: form-data; name=\"timestamp_granularities[]\"",
                "timestamp_granularities[]",
            ),
        ] {
            assert_eq!(one(headers).as_deref(), Ok(name), "{headers}");
        }
        for media in [
            "multipart/form-data; boundary=xyz",
            "multipart/form-data;boundary=\"xyz\"",
            "Multipart/Form-Data; charset=UTF-8; boundary=xyz",
        ] {
            assert_eq!(boundary(media.as_bytes()), Ok("xyz"), "{media}");
        }
    }

    #[test]
    fn audio_field_names_that_two_readers_read_apart_are_refused() {
        for value in [
            "form-data; name=\"zz\"; name=\"prompt\"",
            "form-data; NAME=\"prompt\"",
            "form-data; x=\" name=zz\"; name=\"prompt\"",
            "form-data; name=prompt\t;x=1",
            "form-data; name=prompt",
            "form-data; name=\"prompt\" ",
            "form-data;name=\"prompt\"",
            "Form-Data; name=\"prompt\"",
            "form-data; name=\"\"",
            "form-data; name=\"pro\\mpt\"",
            "form-data; name=\"prömpt\"",
            "form-data; name*=utf-8''prompt",
            "form-data; filename=\"a\"; name=\"prompt\"",
            "form-data; name=\"zz\"; filename=\"a\"; name=\"prompt\"",
            "form-data; name=\"zz\"; filename=\"a\\\"; name=\"",
            "form-data; name=\"file\"; filename=\"a\"; filename*=utf-8''a",
            "form-data; name=\"file\"; filename=a",
            "attachment; name=\"prompt\"",
            "form-data",
        ] {
            let error = one(&format!("Content-Disposition: {value}")).unwrap_err();
            assert_eq!(error.param(), Some(CONTENT_DISPOSITION), "{value}");
            let said = error.to_string();
            assert!(said.contains(CONTENT_DISPOSITION), "{value}: {said}");
        }
    }

    #[test]
    fn audio_parts_with_odd_headers_are_refused() {
        let plain = "Content-Disposition: form-data; name=\"prompt\"";
        for headers in [
            format!("{plain}\r\n{plain}"),
            format!("{plain}\r\ncontent-disposition: form-data; name=\"zz\""),
            format!("{plain}\r\nContent-Type: a/b\r\nContent-type: a/b"),
            format!("{plain}\r\n x: folded"),
            format!("{plain}\r\nx : y"),
            format!("{plain}\r\nx: a\rb"),
            format!("{plain}\r\nx: a\nb: c"),
            format!("{plain}\r\n--xyz"),
            "Content-Type: text/plain".into(),
            plain.replace(": ", "\t: "),
        ] {
            assert!(one(&headers).is_err(), "{headers:?}");
        }
    }

    #[test]
    fn audio_boundaries_that_two_readers_read_apart_are_refused() {
        for media in [
            "multipart/form-data; boundary=aaa; boundary=bbb",
            "multipart/form-data; boundary=aaa; BOUNDARY=bbb",
            "multipart/form-data; boundary=aaa, multipart/form-data; boundary=bbb",
            "multipart/form-data; boundary=aaa, multipart/form-data",
            "multipart/form-data; Boundary=aaa",
            "multipart/form-data; boundary=aaa; x=1",
            "multipart/form-data; boundary=aaa;",
            "multipart/form-data; boundary=\"a;b\"",
            "multipart/form-data; boundary=\"a\\b\"",
            "multipart/form-data; boundary =aaa",
            "multipart/form-data; boundary=",
            "multipart/form-data; boundary*=utf-8''aaa",
            "multipart/form-data; boundary=aaa; charset=utf-7",
            "multipart/form-data",
            "multipart/mixed; boundary=aaa",
        ] {
            let error = boundary(media.as_bytes()).unwrap_err();
            assert_eq!(error.param(), Some(CONTENT_TYPE), "{media}");
        }
    }

    #[test]
    fn audio_forms_have_nothing_before_between_or_after_their_parts() {
        let part = "--xyz\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nv\r\n";
        let other = part.replace("\"a\"", "\"b\"");
        let list = part.replace("\"a\"", "\"a[]\"");
        let read = |body: String| parts(body.as_bytes(), "xyz").map(|parts| parts.len());
        assert_eq!(read(format!("{part}{other}--xyz--")), Ok(2));
        assert_eq!(read(format!("{list}{list}--xyz--\r\n")), Ok(2));
        for body in [
            format!("{part}{part}--xyz--"),
            format!("\r\n{part}--xyz--"),
            format!("pre{part}--xyz--"),
            format!("{part}--xyz--\r\n{other}--xyz--"),
            format!("{part}--xyz \r\n"),
            format!("{part}--xyzz\r\n"),
            format!("{part}--xyz"),
            part.into(),
            String::new(),
        ] {
            assert!(read(body.clone()).is_err(), "{body:?}");
        }
    }
}
