//! Code points that the engines' Unicode tables class differently.
//!
//! Decides whether a text holds one. Never looks at a vocabulary. Invariant: a
//! text without one is split alike by every engine and by the served stack.

/// First and last of each range, ascending: mostly what Unicode 17 assigned, which
/// `tokenizers` 1.0 knows and Oniguruma's Unicode 16 does not; and the radicals
/// that it leaves out of `\p{Han}`. Found by counting every code point beside
/// letters, digits, signs and white space with both engines, for every known
/// pattern.
const DISPUTED: [(char, char); 51] = [
    ('\u{88f}', '\u{88f}'),
    ('\u{c5c}', '\u{c5c}'),
    ('\u{cdc}', '\u{cdc}'),
    ('\u{1acf}', '\u{1add}'),
    ('\u{1ae0}', '\u{1aeb}'),
    ('\u{20c1}', '\u{20c1}'),
    ('\u{2b96}', '\u{2b96}'),
    ('\u{2e80}', '\u{2e99}'),
    ('\u{2e9b}', '\u{2ef3}'),
    ('\u{2f00}', '\u{2fd5}'),
    ('\u{a7ce}', '\u{a7cf}'),
    ('\u{a7d2}', '\u{a7d2}'),
    ('\u{a7d4}', '\u{a7d4}'),
    ('\u{a7f1}', '\u{a7f1}'),
    ('\u{fbc3}', '\u{fbd2}'),
    ('\u{fd90}', '\u{fd91}'),
    ('\u{fdc8}', '\u{fdce}'),
    ('\u{10940}', '\u{10959}'),
    ('\u{10ec5}', '\u{10ec7}'),
    ('\u{10ed0}', '\u{10ed8}'),
    ('\u{10efa}', '\u{10efb}'),
    ('\u{11b60}', '\u{11b67}'),
    ('\u{11db0}', '\u{11ddb}'),
    ('\u{11de0}', '\u{11de9}'),
    ('\u{16ea0}', '\u{16eb8}'),
    ('\u{16ebb}', '\u{16ed3}'),
    ('\u{16fe2}', '\u{16fe2}'),
    ('\u{16ff2}', '\u{16ff6}'),
    ('\u{187f8}', '\u{187ff}'),
    ('\u{18d09}', '\u{18d1e}'),
    ('\u{18d80}', '\u{18df2}'),
    ('\u{1ccfa}', '\u{1ccfc}'),
    ('\u{1ceba}', '\u{1ced0}'),
    ('\u{1cee0}', '\u{1cef0}'),
    ('\u{1e6c0}', '\u{1e6de}'),
    ('\u{1e6e0}', '\u{1e6f5}'),
    ('\u{1e6fe}', '\u{1e6ff}'),
    ('\u{1f6d8}', '\u{1f6d8}'),
    ('\u{1f777}', '\u{1f77a}'),
    ('\u{1f8d0}', '\u{1f8d8}'),
    ('\u{1fa54}', '\u{1fa57}'),
    ('\u{1fa8a}', '\u{1fa8a}'),
    ('\u{1fa8e}', '\u{1fa8e}'),
    ('\u{1fac8}', '\u{1fac8}'),
    ('\u{1facd}', '\u{1facd}'),
    ('\u{1faea}', '\u{1faea}'),
    ('\u{1faef}', '\u{1faef}'),
    ('\u{1fbfa}', '\u{1fbfa}'),
    ('\u{2b73a}', '\u{2b73f}'),
    ('\u{2cea2}', '\u{2cead}'),
    ('\u{323b0}', '\u{33479}'),
];

/// Whether `text` holds a code point on which engines differ. O(bytes); ASCII is
/// skipped at memory speed.
pub(super) fn is_disputed(text: &str) -> bool {
    !text.is_ascii() && text.chars().any(is_disputed_char)
}

fn is_disputed_char(c: char) -> bool {
    // The first range begins well above Latin, Greek, Cyrillic and Arabic.
    if c < DISPUTED[0].0 {
        return false;
    }
    let after = DISPUTED.partition_point(|(first, _)| *first <= c);
    after > 0 && c <= DISPUTED[after - 1].1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ranges_ascend_and_do_not_touch() {
        for pair in DISPUTED.windows(2) {
            assert!(pair[0].0 <= pair[0].1 && pair[0].1 < pair[1].0, "{pair:?}");
        }
    }

    #[test]
    fn only_code_points_in_a_range_are_disputed() {
        assert!(!is_disputed("plain, déjà vu, 漢字, 🙂"));
        assert!(is_disputed("a\u{323b0}b") && is_disputed("\u{33479}"));
        assert!(!is_disputed("\u{3347a}") && !is_disputed("\u{2e9a}"));
    }
}
