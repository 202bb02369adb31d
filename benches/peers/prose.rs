//! Long prompts: the words of this repository's README in an order of their own, so
//! that no two prompts are alike while their words are, as in English at large.

const README: &str = include_str!("../../README.md");

/// A text of so many words. Every twentieth is one that no text had before.
pub(crate) fn text(seed: u32, words: usize) -> String {
    let vocabulary: Vec<&str> = README
        .split_ascii_whitespace()
        .filter(|word| {
            word.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b',')
        })
        .collect();
    let mut state = u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = String::with_capacity(6 * words);
    for number in 0..words {
        // The multiplier and increment of Knuth's MMIX.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let drawn = usize::try_from(state >> 33).unwrap_or(0);
        if number % 20 == 19 {
            text += &format!("{:x}", drawn % 0x10_0000);
        } else {
            text += vocabulary[drawn % vocabulary.len()];
        }
        text.push(if number % 16 == 15 { '.' } else { ' ' });
    }
    text
}
