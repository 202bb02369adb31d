//! Runs of text without a split point, which make byte-pair encoding slow.
//!
//! Decides whether a text is hostile to a tokenizer, by one pass over its bytes.
//! Never looks at a vocabulary. Invariant: every piece that [`pieces`] yields is
//! at most the asked length, and together they are the text.

/// The class of a byte as the usual split patterns see it. Bytes beyond ASCII
/// count as letters: too coarse for CJK punctuation, never too fine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Letter,
    Digit,
    Space,
    Other,
}

const CLASSES: [Class; 256] = {
    let mut classes = [Class::Letter; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        classes[byte as usize] = match byte {
            b'a'..=b'z' | b'A'..=b'Z' => Class::Letter,
            b'0'..=b'9' => Class::Digit,
            b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => Class::Space,
            _ => Class::Other,
        };
        byte += 1;
    }
    classes
};

/// Whether `text` holds a run of one class longer than `limit` bytes. O(bytes),
/// well under a nanosecond each; stops at the first such run.
pub(super) fn has_run_over(text: &str, limit: usize) -> bool {
    let bytes = text.as_bytes();
    // A run longer than the limit covers two neighbouring probes, so most text is
    // skipped without looking at it.
    let step = (limit / 2).max(1);
    let mut probe = 0;
    while probe + step < bytes.len() {
        let next = probe + step;
        if class(bytes[probe]) == class(bytes[next]) && run_around(bytes, probe) > limit {
            return true;
        }
        probe = next;
    }
    false
}

fn class(byte: u8) -> Class {
    CLASSES[usize::from(byte)]
}

fn run_around(bytes: &[u8], at: usize) -> usize {
    let here = class(bytes[at]);
    let same = |byte: &&u8| class(**byte) == here;
    let before = bytes[..at].iter().rev().take_while(same).count();
    let after = bytes[at..].iter().take_while(same).count();
    before + after
}

/// Cuts `text` so that no run of one class is longer than `limit` bytes, at
/// character boundaries; text without such a run comes back whole.
///
/// `limit` is at least 4, the longest character.
pub(super) fn pieces(text: &str, limit: usize) -> Vec<&str> {
    let bytes = text.as_bytes();
    let mut pieces = Vec::new();
    let (mut start, mut run_start) = (0, 0);
    for at in 1..bytes.len() {
        if class(bytes[at]) != class(bytes[at - 1]) {
            run_start = at;
        } else if at - run_start >= limit {
            let cut = floor_boundary(text, at);
            pieces.push(&text[start..cut]);
            (start, run_start) = (cut, cut);
        }
    }
    pieces.push(&text[start..]);
    pieces
}

fn floor_boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// A stretch of ASCII without white space is dense from this length on: no word
/// and few links are as long, while base64 and minified code are.
const DENSE_STRETCH: usize = 64;

/// Bytes in dense stretches, where a token covers half of what it does in prose.
pub(super) fn dense_bytes(text: &str) -> usize {
    text.split(|c: char| c.is_whitespace() || !c.is_ascii())
        .map(str::len)
        .filter(|length| *length >= DENSE_STRETCH)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_has_no_long_run_and_stays_whole() {
        let prose = "The quick brown fox, 42 times.\n".repeat(1000);
        assert!(!has_run_over(&prose, 64));
        assert_eq!(pieces(&prose, 64), vec![prose.as_str()]);
    }

    #[test]
    fn a_run_is_found_wherever_it_lies() {
        for before in [0, 1, 500, 4095] {
            for run in ["a", " ", "^", "\n", "7", "漢"] {
                let text = format!("{}{}", "x y ".repeat(before), run.repeat(4200));
                assert!(has_run_over(&text, 4096), "{run:?} after {before}");
            }
        }
        assert!(!has_run_over(&"a".repeat(4096), 4096));
        assert!(has_run_over(&"a".repeat(4097), 4096));
    }

    #[test]
    fn only_long_stretches_of_ascii_are_dense() {
        assert_eq!(dense_bytes(&"word ".repeat(100)), 0);
        assert_eq!(dense_bytes(&"漢字".repeat(100)), 0);
        assert_eq!(dense_bytes(&format!("data: {} end", "x".repeat(64))), 64);
    }

    #[test]
    fn cut_pieces_are_short_and_join_to_the_text() {
        let text = format!("hi {} there {}", "漢".repeat(100), " ".repeat(333));
        let cut = pieces(&text, 64);
        assert_eq!(cut.concat(), text);
        assert!(cut.iter().all(|piece| !has_run_over(piece, 64)));
        assert_eq!(cut.len(), 1 + 300 / 63 + 333 / 64);
    }
}
