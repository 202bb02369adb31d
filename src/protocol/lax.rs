//! Single JSON values, read as leniently as vLLM's request models read them.
//!
//! A whole number may come as `4`, `4.0`, `4e0`, `"4"` or `true`; a boolean as
//! `1`, `"yes"` or `"off"`. Values are passed in as JSON text that is already
//! known to be well-formed.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use super::object::unescape;
use super::request::RequestError;

/// Longest part of a refused value that is repeated in the message, in characters.
const EXCERPT_CHARS: usize = 40;

/// The error for a value no engine would take.
pub(super) fn unreadable(param: &'static str, expected: &'static str, text: &str) -> RequestError {
    let mut got: String = text.chars().take(EXCERPT_CHARS).collect();
    if got.len() < text.len() {
        got.push('…');
    }
    RequestError::Unreadable {
        param,
        expected,
        got,
    }
}

/// A whole number within `range`.
pub(super) fn whole(
    param: &'static str,
    text: &str,
    range: RangeInclusive<i64>,
    expected: &'static str,
) -> Result<i64, RequestError> {
    let value = number(text)
        .and_then(|value| i64::try_from(value).ok())
        .filter(|value| range.contains(value));
    value.ok_or_else(|| unreadable(param, expected, text))
}

/// A boolean.
pub(super) fn flag(param: &'static str, text: &str) -> Result<bool, RequestError> {
    let word = if text.starts_with('"') {
        unescape(text).to_ascii_lowercase()
    } else {
        String::new()
    };
    match word.as_str() {
        "true" | "t" | "yes" | "y" | "on" | "1" => return Ok(true),
        "false" | "f" | "no" | "n" | "off" | "0" => return Ok(false),
        _ => {}
    }
    match number(text) {
        Some(0) if word.is_empty() => Ok(false),
        Some(1) if word.is_empty() => Ok(true),
        _ => Err(unreadable(param, "true or false", text)),
    }
}

/// A string, escapes resolved.
pub(super) fn string<'a>(param: &'static str, text: &'a str) -> Result<Cow<'a, str>, RequestError> {
    if !text.starts_with('"') {
        return Err(unreadable(param, "a string", text));
    }
    Ok(unescape(text))
}

/// The whole number a JSON value stands for, if it stands for one; beyond
/// `i128` it is clipped, which is out of every range that is asked for.
pub(super) fn number(text: &str) -> Option<i128> {
    match text.as_bytes().first()? {
        b't' => Some(1),
        b'f' => Some(0),
        b'"' => digits(&unescape(text)),
        _ if text.contains(['.', 'e', 'E']) => float(text.parse().ok()?),
        _ => Some(integer(text)?),
    }
}

/// The whole number a double stands for, if it is one.
pub(super) fn float(value: f64) -> Option<i128> {
    let is_whole = value.is_finite() && value.fract() == 0.0;
    // Printing and reading is exact for whole doubles and never wraps.
    is_whole.then(|| integer(&format!("{value:.0}"))).flatten()
}

/// A number written as text: spaces around, a sign, underscores between digits,
/// zeros after a point.
pub(super) fn digits(text: &str) -> Option<i128> {
    let text = text.trim();
    let text = match text.split_once('.') {
        Some((whole, zeros)) if !zeros.is_empty() && zeros.bytes().all(|byte| byte == b'0') => {
            whole
        }
        Some(_) => return None,
        None => text,
    };
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if unsigned.starts_with('_') || unsigned.ends_with('_') || unsigned.contains("__") {
        return None;
    }
    integer(&text.replace('_', ""))
}

fn integer(text: &str) -> Option<i128> {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    match text.parse() {
        Ok(value) => Some(value),
        Err(error) => match error.kind() {
            PosOverflow => Some(i128::MAX),
            NegOverflow => Some(i128::MIN),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_taken_in_every_spelling_the_engine_takes() {
        for (text, expected) in [
            ("4", 4),
            ("4.0", 4),
            ("1e1", 10),
            ("1E3", 1000),
            ("-0", 0),
            ("true", 1),
            ("false", 0),
            (r#""4""#, 4),
            (r#"" 4 ""#, 4),
            (r#""+4""#, 4),
            (r#""4.0""#, 4),
            (r#""1_000""#, 1000),
            (r#""\u0034""#, 4),
            (r#""016""#, 16),
            (r#""0_1""#, 1),
            (r#""\u00a04""#, 4),
            ("-0.0", 0),
            ("-1", -1),
            ("9223372036854775808", 1 << 63),
            ("1000000000000000000000000000000", 10i128.pow(30)),
        ] {
            assert_eq!(number(text), Some(expected), "{text}");
        }
        assert_eq!(number(&"9".repeat(60)), Some(i128::MAX));
    }

    #[test]
    fn what_is_no_whole_number_is_none() {
        for text in [
            "4.5",
            "1e-1",
            "1e400",
            "null",
            "[]",
            "{}",
            r#""""#,
            r#""four""#,
            r#""1e3""#,
            r#""4.5""#,
            r#""_1""#,
            r#""4.""#,
            r#"".0""#,
            r#""4_.0""#,
            r#""1__0""#,
            r#""+-4""#,
            r#""0x10""#,
        ] {
            assert_eq!(number(text), None, "{text}");
        }
    }

    #[test]
    fn booleans_are_taken_in_every_spelling_the_engine_takes() {
        for text in [
            "true",
            "1",
            "1.0",
            r#""true""#,
            r#""True""#,
            r#""YES""#,
            r#""on""#,
            r#""1""#,
            r#""t""#,
        ] {
            assert_eq!(flag("stream", text), Ok(true), "{text}");
        }
        for text in [
            "false",
            "0",
            "0.0",
            r#""false""#,
            r#""No""#,
            r#""off""#,
            r#""0""#,
            r#""n""#,
        ] {
            assert_eq!(flag("stream", text), Ok(false), "{text}");
        }
        for text in [
            "2",
            "-1",
            "0.5",
            "[]",
            "{}",
            r#""""#,
            r#""maybe""#,
            r#""2""#,
            r#""01""#,
        ] {
            assert!(flag("stream", text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_refused_value_is_named_in_part_only() {
        let error = whole("n", &format!("[{}]", "1,".repeat(100)), 1..=4, "a number").unwrap_err();
        let RequestError::Unreadable { param, got, .. } = error else {
            panic!("unexpected {error:?}")
        };
        assert_eq!((param, got.chars().count()), ("n", 41));
    }
}
