//! How much text of the model an event carries, in bytes as UTF-8.
//!
//! Decides what is output: content, reasoning, refusals, arguments of tools.
//! Counts bytes and copies none; what they are worth in tokens is decided by
//! whoever has to estimate, where the engine gives no account of its own.

use std::sync::LazyLock;

use super::event::Key;

/// Members of an event that names itself a delta whose strings are output.
static OF_DELTAS: LazyLock<[Key; 4]> =
    LazyLock::new(|| ["\"delta\"", "\"text\"", "\"thinking\"", "\"partial_json\""].map(Key::new));

/// Bytes of output in the data of a named delta. Linear.
pub(super) fn of_delta(data: &[u8]) -> u64 {
    let values = OF_DELTAS.iter().flat_map(|key| key.values(data));
    values
        .filter_map(|value| value.strip_prefix(b"\""))
        .map(text_bytes)
        .sum()
}

/// Length of the string whose opening quote was taken off, its escapes undone;
/// to the end of what is there where it is not closed.
pub(super) fn text_bytes(mut text: &[u8]) -> u64 {
    let mut bytes = 0;
    while let Some(at) = memchr::memchr2(b'"', b'\\', text) {
        bytes += at;
        if text[at] == b'"' {
            return count(bytes);
        }
        let escape = &text[at + 1..];
        let (length, taken) = match escape {
            [b'u', a, b, c, d, ..] => (unit_bytes([*a, *b, *c, *d]), 5),
            _ => (1, 1),
        };
        bytes += length;
        text = escape.get(taken..).unwrap_or_default();
    }
    count(bytes + text.len())
}

/// Bytes of `\uXXXX` in UTF-8; half of a pair is half of its four.
pub(super) fn unit_bytes(digits: [u8; 4]) -> usize {
    let unit = std::str::from_utf8(&digits)
        .ok()
        .and_then(|digits| u16::from_str_radix(digits, 16).ok());
    match unit {
        Some(0..=0x7f) => 1,
        Some(0x80..=0x7ff | 0xd800..=0xdfff) => 2,
        _ => 3,
    }
}

fn count(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_measured_as_they_are_read_and_not_as_they_are_written() {
        for text in [
            "",
            "plain",
            "a \"quoted\" \\ and\nlines\t",
            "\u{e9}\u{4e2d}\u{1f600}\u{0}",
        ] {
            let plain = serde_json::to_string(text).unwrap();
            let length = count(text.len());
            assert_eq!(text_bytes(&plain.as_bytes()[1..]), length, "{plain}");
            let escaped: String = text
                .encode_utf16()
                .map(|unit| format!("\\u{unit:04x}"))
                .collect();
            assert_eq!(text_bytes(format!("{escaped}\"").as_bytes()), length);
        }
        for broken in ["ab", "ab\\", "ab\\u12", "ab\\uzzzz\""] {
            assert!(text_bytes(broken.as_bytes()) >= 2, "{broken}");
        }
    }

    #[test]
    fn all_that_a_named_delta_brings_is_output() {
        let delta = br#"{"type":"response.output_text.delta","delta":"hello"}"#;
        assert_eq!(of_delta(delta), 5);
        let delta = br#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"hi"}}"#;
        assert_eq!(of_delta(delta), 2);
    }
}
