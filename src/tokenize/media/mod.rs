//! Tokens of images, audio and video, which no text tokenizer sees.
//!
//! Decides what to charge for each media part of a request: by the rule of the
//! model's family where there is one and the size of the image is in the request,
//! by the family's largest image where it is not, and by the operator's allowance
//! for everything else. Never fetches a link, never decodes a picture. Invariant:
//! a charge that may differ from the engine's is [`Precision::Estimated`] and not
//! below what is known.
//!
//! The template writes a placeholder for each image, and the text is counted with
//! it. Where that placeholder is one token, the engine replaces it by the tokens of
//! the image, so it is taken off here; where the engine replaces it by a frame, the
//! frame is written into the text before it is counted.

mod family;
mod grid;
mod header;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use super::chat::weigh::{embedding_rows, media_parts};
use super::engine::Counted;
use super::render::Segment;
use super::{ChatInput, MediaAllowance, Precision};

use family::Family;
pub(super) use family::{Described, Placeholder};
use header::{Size, Turn};

/// How one model's media are charged.
#[derive(Clone, Debug)]
pub(super) struct MediaRules {
    family: Family,
    allowance: MediaAllowance,
    files: Described,
}

/// Something in a request that is not text.
#[derive(Clone, Copy, Debug)]
pub(super) enum Media<'a> {
    Image(Option<&'a str>),
    Audio,
    Video,
    /// Prompt embeddings, by their base64 text.
    Embeddings(&'a str),
}

// === impl MediaRules ===

impl MediaRules {
    /// The rules of the model with these files.
    pub(super) fn new(files: Described, allowance: MediaAllowance) -> Self {
        Self {
            family: Family::of(&files),
            allowance,
            files,
        }
    }

    /// What stands for an image in the text, where the family is known.
    pub(super) const fn placeholder(&self) -> Option<Placeholder> {
        self.family.placeholder()
    }

    /// Tokens of the media of a chat that is not rendered. O(messages and parts).
    pub(super) fn charge(&self, chat: &ChatInput<'_>) -> Counted {
        let mut parts = media_parts(chat.messages).peekable();
        let changed = chat.mm_processor_kwargs.filter(|_| parts.peek().is_some());
        let Some(changed) = changed.map(|kwargs| self.changed(kwargs)) else {
            return parts.fold(NOTHING, |sum, media| sum.plus(self.one(media)));
        };
        let charged = parts.fold(NOTHING, |sum, media| sum.plus(changed.one(media)));
        estimated(charged.tokens)
    }

    /// The rules under a request's own `mm_processor_kwargs`. The operator's win
    /// over some of them, so that what follows is an estimate.
    fn changed(&self, kwargs: &Map<String, Value>) -> Self {
        Self::new(self.files.with(kwargs), self.allowance)
    }

    /// What media add at the most to a rendered text: their charge and, for each
    /// image, a token for each byte of its frame. O(messages and parts).
    pub(super) fn growth(&self, chat: &ChatInput<'_>) -> u64 {
        let frame = self.placeholder().and_then(|placeholder| placeholder.frame);
        let images = media_parts(chat.messages).filter(|media| matches!(media, Media::Image(_)));
        let frames = images.count().saturating_mul(frame.map_or(0, str::len));
        let frames = u64::try_from(frames).unwrap_or(u64::MAX);
        self.charge(chat).tokens.saturating_add(frames)
    }

    /// Tokens of the media of a chat on top of its rendered text, which is changed
    /// into what the engine makes of it. O(messages, parts and text).
    pub(super) fn charge_rendered(
        &self,
        chat: &ChatInput<'_>,
        segments: &mut [Segment],
    ) -> Counted {
        let mut media = media_parts(chat.messages).peekable();
        if media.peek().is_none() {
            return NOTHING;
        }
        let images = media.filter(|media| matches!(media, Media::Image(_)));
        let images = images.count();
        let mut charged = self.charge(chat);
        let Some(placeholder) = self.placeholder().filter(|_| images > 0) else {
            return charged;
        };
        if occurrences(segments, placeholder.target) != images {
            charged.precision = Precision::Estimated;
            return charged;
        }
        match placeholder.frame {
            Some(frame) => replace(segments, placeholder.target, frame),
            None => {
                let counted = u64::try_from(images).unwrap_or(u64::MAX);
                charged.tokens = charged.tokens.saturating_sub(counted);
            }
        }
        charged
    }

    fn one(&self, media: Media<'_>) -> Counted {
        match media {
            Media::Image(link) => match link.and_then(header::of_url) {
                Some(size) => self.image(size),
                None => estimated(self.largest()),
            },
            Media::Audio => estimated(self.allowance.audio),
            Media::Video => estimated(self.allowance.video),
            Media::Embeddings(data) => estimated(embedding_rows(data)),
        }
    }

    fn image(&self, size: Size) -> Counted {
        let both = match size.turn {
            Turn::No => [size, size],
            Turn::Perhaps => [size, size.turned()],
        };
        match both.map(|size| self.family.tokens(size)) {
            [Some(upright), Some(turned)] if upright == turned => Counted {
                tokens: upright,
                precision: Precision::Exact,
            },
            [Some(upright), Some(turned)] => estimated(upright.max(turned)),
            _ => estimated(self.largest()),
        }
    }

    fn largest(&self) -> u64 {
        self.family.most().unwrap_or(self.allowance.image)
    }
}

const NOTHING: Counted = Counted {
    tokens: 0,
    precision: Precision::Exact,
};

const fn estimated(tokens: u64) -> Counted {
    Counted {
        tokens,
        precision: Precision::Estimated,
    }
}

fn occurrences(segments: &[Segment], target: &str) -> usize {
    let texts = segments.iter().filter_map(Segment::text);
    texts.map(|text| text.matches(target).count()).sum()
}

fn replace(segments: &mut [Segment], target: &str, frame: &str) {
    for segment in segments {
        if let Segment::Text { text, .. } = segment {
            *text = text.replace(target, frame);
        }
    }
}
