//! Pieces of a prompt being written.

use std::borrow::Cow;

use super::{AddedTokens, Segment};

/// Collects segments: ids that follow each other are one, empty texts are none.
pub(super) struct Pieces {
    segments: Vec<Segment>,
    added: AddedTokens,
}

// === impl Pieces ===

impl Pieces {
    /// Texts are encoded with control tokens in them read as `added` says.
    pub(super) const fn new(added: AddedTokens) -> Self {
        Self {
            segments: Vec::new(),
            added,
        }
    }

    /// Adds `count` tokens written by id.
    pub(super) fn ids(&mut self, count: u64) {
        match self.segments.last_mut() {
            Some(Segment::Ids(before)) => *before += count,
            _ => self.segments.push(Segment::Ids(count)),
        }
    }

    /// Adds a text encoded by itself.
    pub(super) fn text<'a>(&mut self, text: impl Into<Cow<'a, str>>) {
        let text = text.into();
        if !text.is_empty() {
            self.segments.push(Segment::Text {
                text: text.into_owned(),
                added: self.added,
            });
        }
    }

    /// The pieces, in order.
    pub(super) fn into_segments(self) -> Vec<Segment> {
        self.segments
    }
}
