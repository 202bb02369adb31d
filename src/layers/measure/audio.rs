//! Charges speech by policy: nobody knows its tokens before the engine does.
//!
//! Decides what a clip of audio costs. Engines cut audio into clips and run each
//! as a prompt of its own, all at once; what a second costs depends on the
//! model, and the dearest of those known is charged.

use crate::core::units::Tokens;
use crate::tokenize::{Count, Precision};

use super::count::Counted;

/// Longest clip of engines that cut audio, in seconds.
const CLIP_SECONDS: u64 = 30;

/// Prompt tokens of a second: Whisper's encoder makes 50 states of it, the
/// speech models that put audio into the prompt 12 to 25 tokens.
const TOKENS_PER_SECOND: u64 = 50;

/// Control tokens around a clip: language, task, timestamps.
const CONTROL: Tokens = Tokens::new(8);

/// Output charged for a clip where the client names no bound: Whisper's limit,
/// and five words a second.
const CLIP_OUTPUT: Tokens = Tokens::new(448);

/// The charge of `seconds` of audio after `text`, where each clip may bring
/// `output` tokens in a context of `window`.
pub(super) fn charge(
    (seconds, text): (u64, &Counted),
    output: Tokens,
    window: Option<Tokens>,
) -> Counted {
    let clips = seconds.div_ceil(CLIP_SECONDS).max(1);
    let text_alone = text.total().saturating_add(CONTROL);
    let clip = Tokens::new(CLIP_SECONDS * TOKENS_PER_SECOND).saturating_add(text_alone);
    // Where audio is no part of the prompt, the context is made for the text.
    let room = window.map_or(Tokens::MAX, |window| window.saturating_sub(output));
    let prompt = clip.min(room.max(text_alone));
    let clips = usize::try_from(clips).unwrap_or(usize::MAX);
    Counted {
        prompts: vec![prompt; clips],
        by_policy: text.by_policy || text.precision != Precision::Estimated,
        ..Counted::new(Count {
            prompts: Vec::new(),
            precision: Precision::Estimated,
        })
    }
}

/// The bound of a clip's output: asked for, or what is usual, within what the
/// tenant may ask for. No bound can be written into a form.
pub(super) fn output(asked: Option<Tokens>, most: Option<Tokens>) -> Tokens {
    asked.unwrap_or_else(|| CLIP_OUTPUT.min(most.unwrap_or(Tokens::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clips(seconds: u64, window: u64) -> Vec<u64> {
        let text = Counted::new(Count {
            prompts: vec![12],
            precision: Precision::Exact,
        });
        let output = output(None, None);
        let charged = charge((seconds, &text), output, Some(Tokens::new(window)));
        assert!(charged.by_policy && charged.precision == Precision::Estimated);
        charged.prompts.into_iter().map(Tokens::get).collect()
    }

    #[test]
    fn every_clip_is_a_prompt_that_leaves_room_for_its_text() {
        assert_eq!(clips(30, 32_768), [1520]);
        assert_eq!(clips(61, 32_768), [1520; 3]);
        // Whisper's context holds the text alone.
        assert_eq!(clips(61, 448), [20; 3]);
        assert_eq!(clips(1, 1_000), [552]);
    }

    #[test]
    fn the_output_of_a_clip_is_what_was_asked_or_usual() {
        let ten = Some(Tokens::new(10));
        assert_eq!(output(ten, None), Tokens::new(10));
        assert_eq!(output(None, ten), Tokens::new(10));
        assert_eq!(output(None, None), Tokens::new(448));
    }
}
