//! Whether a body is text that every reader takes for the same text.
//!
//! Decides what is refused before anything is read: bytes that are not UTF-8,
//! half surrogate pairs, nesting beyond [`MAX_DEPTH`]. Never judges grammar;
//! that is the JSON reader's work. One pass, nothing allocated.

use super::request::RequestError;

/// Levels of arrays and objects a body may have.
///
/// Below the JSON reader's own limit of 128, so that a value that passed here
/// is never refused for depth later; engines refuse at some hundreds.
pub(super) const MAX_DEPTH: usize = 127;

/// A body as text, and how many bytes of a byte order mark went before it.
pub(super) fn text(body: &[u8]) -> Result<(&str, usize), RequestError> {
    let rest = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    let base = body.len() - rest.len();
    let text = std::str::from_utf8(rest).map_err(|error| RequestError::NotUtf8 {
        at: base + error.valid_up_to(),
    })?;
    check(text.as_bytes(), base)?;
    Ok((text, base))
}

fn check(bytes: &[u8], base: usize) -> Result<(), RequestError> {
    let mut depth = 0usize;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => {
                at =
                    string_end(bytes, at).map_err(|at| RequestError::Surrogate { at: base + at })?
            }
            b'{' | b'[' if depth == MAX_DEPTH => {
                return Err(RequestError::TooDeep { limit: MAX_DEPTH });
            }
            b'{' | b'[' => depth += 1,
            // Too many closing brackets are a syntax error, found later.
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

/// Offset after the string that starts at `at`; the error is the offset of half a pair.
fn string_end(bytes: &[u8], mut at: usize) -> Result<usize, usize> {
    while let Some(found) = memchr::memchr2(b'"', b'\\', &bytes[at..]) {
        at += found;
        if bytes[at] == b'"' {
            return Ok(at + 1);
        }
        at = (at + escape_len(&bytes[at..]).ok_or(at)?).min(bytes.len());
    }
    Ok(bytes.len())
}

/// Length of the escape at the start of `rest`; `None` for half a surrogate pair.
fn escape_len(rest: &[u8]) -> Option<usize> {
    match unit(rest) {
        None => Some(2),
        Some(0xD800..=0xDBFF) => matches!(unit(&rest[6..]), Some(0xDC00..=0xDFFF)).then_some(12),
        Some(0xDC00..=0xDFFF) => None,
        Some(_) => Some(6),
    }
}

/// The UTF-16 unit of a `\uXXXX` escape at the start of `rest`.
fn unit(rest: &[u8]) -> Option<u16> {
    let digits = rest.strip_prefix(b"\\u")?.get(..4)?;
    digits.iter().try_fold(0u16, |unit, digit| {
        let value = char::from(*digit).to_digit(16)?;
        Some(unit << 4 | u16::try_from(value).ok()?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_is_skipped_and_counted() {
        assert_eq!(text(b"\xEF\xBB\xBF{}"), Ok(("{}", 3)));
        assert_eq!(text(b"{}"), Ok(("{}", 0)));
    }

    #[test]
    fn bytes_that_are_not_utf8_are_refused_with_their_offset() {
        assert_eq!(
            text(b"{\"a\":\"\xFF\xFE\"}"),
            Err(RequestError::NotUtf8 { at: 6 })
        );
        assert_eq!(
            text(b"\"\xED\xA0\xBD\""),
            Err(RequestError::NotUtf8 { at: 1 })
        );
        let utf16: Vec<u8> = [0xFF, 0xFE]
            .into_iter()
            .chain("{}".encode_utf16().flat_map(u16::to_le_bytes))
            .collect();
        assert_eq!(text(&utf16), Err(RequestError::NotUtf8 { at: 0 }));
    }

    #[test]
    fn half_a_surrogate_pair_is_refused_and_a_whole_one_is_not() {
        assert_eq!(
            text(br#"{"a":"\ud83d"}"#),
            Err(RequestError::Surrogate { at: 6 })
        );
        assert_eq!(
            text(br#"["x \uDE00 y"]"#),
            Err(RequestError::Surrogate { at: 4 })
        );
        assert_eq!(
            text(br#"["\ud83d\u0041"]"#),
            Err(RequestError::Surrogate { at: 2 })
        );
        assert_eq!(text(br#"["\ud83d"#), Err(RequestError::Surrogate { at: 2 }));
        for good in [
            &br#"["\ud83d\ude00"]"#[..],
            br#"["\\ud83d"]"#,
            br#"["\u0000\u00e9"]"#,
            br#"["\uZZZZ"]"#,
            br#"["\"#,
        ] {
            assert!(text(good).is_ok(), "{good:?}");
        }
    }

    #[test]
    fn nesting_is_refused_from_the_128th_level_on() {
        let nested = |levels: usize| ["[".repeat(levels), "]".repeat(levels)].concat();
        assert!(text(nested(127).as_bytes()).is_ok());
        assert_eq!(
            text(nested(128).as_bytes()),
            Err(RequestError::TooDeep { limit: 127 })
        );
        assert_eq!(
            text("[".repeat(1 << 20).as_bytes()),
            Err(RequestError::TooDeep { limit: 127 })
        );
        assert!(
            text(format!("[\"{}\"]", "[".repeat(500)).as_bytes()).is_ok(),
            "brackets in a text are no nesting"
        );
    }
}
