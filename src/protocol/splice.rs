//! The one edit engine: changes named top-level keys of a body and nothing else.
//!
//! Works on offsets found when the body was read, so no byte outside an edited
//! member, and the comma that goes with it, changes. Invariant: for a body that
//! was read, the result is valid JSON that reads as the old object with the
//! edits applied.

use std::ops::Range;

use bytes::Bytes;
use serde_json::Value;

use super::object::{self, Object, Place};
use super::route::Route;

/// A top-level key the gateway may edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// `max_tokens`.
    MaxTokens,
    /// `max_completion_tokens`.
    MaxCompletionTokens,
    /// `max_output_tokens`.
    MaxOutputTokens,
    /// `stream_options`; edited from within by [`Edit::IncludeUsage`].
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
    /// Gives the key this value, which must be valid JSON, adding the key where it is missing.
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

/// A change of one member of an object.
struct Change<'a> {
    name: &'static str,
    place: Option<&'a Place>,
    /// The new value, or `None` to remove the member.
    value: Option<String>,
}

/// New text for a range of the old.
struct Patch {
    range: Range<usize>,
    text: String,
}

/// Applies `edits` to the body that `keys` was read from.
///
/// Copies the body once, or hands the same bytes back where nothing changes.
/// Of several edits of one key the last counts.
pub fn splice(body: &Bytes, keys: &TopLevel, edits: &[Edit]) -> Bytes {
    let mut changes: Vec<Change<'_>> = Vec::with_capacity(edits.len());
    for edit in edits {
        let Some(change) = change(body, keys, edit) else {
            continue;
        };
        changes.retain(|earlier| earlier.name != change.name);
        changes.push(change);
    }
    let patches = patches(keys.open, keys.members, changes);
    if patches.is_empty() {
        return body.clone();
    }
    Bytes::from(apply(body, &patches))
}

/// The edits that bound the output of a request to `tokens`, at least 1.
///
/// Sets each key of the route that the body carries, so that no reading of it
/// gives another bound, and adds the one that every version knows where it
/// carries none.
pub fn limit_output(route: Route, keys: &TopLevel, tokens: u64) -> Vec<Edit> {
    let read: &[Key] = match route {
        Route::ChatCompletions => &[Key::MaxTokens, Key::MaxCompletionTokens],
        Route::Responses => &[Key::MaxOutputTokens],
        _ => &[Key::MaxTokens],
    };
    let present: Vec<Key> = read
        .iter()
        .copied()
        .filter(|key| keys.contains(*key))
        .collect();
    let set = if present.is_empty() {
        vec![read[0]]
    } else {
        present
    };
    set.into_iter()
        .map(|key| Edit::number(key, tokens))
        .collect()
}

fn change<'a>(body: &Bytes, keys: &'a TopLevel, edit: &Edit) -> Option<Change<'a>> {
    let (key, value) = match edit {
        Edit::Set(key, value) => (*key, Some(value.clone())),
        Edit::Remove(key) => (*key, None),
        Edit::IncludeUsage => (Key::StreamOptions, Some(with_usage(body, keys)?)),
    };
    Some(Change {
        name: key.name(),
        place: keys.place(key),
        value,
    })
}

/// The value of `stream_options` with usage asked for; `None` where it is
/// neither an object nor null, which is the engine's to refuse.
fn with_usage(body: &Bytes, keys: &TopLevel) -> Option<String> {
    const NAMES: [&str; 2] = ["include_usage", "continuous_usage_stats"];
    let old = keys
        .place(Key::StreamOptions)
        .and_then(|place| body.get(place.value.clone()));
    let old = match old {
        None | Some(b"null") => "{}",
        Some(text) => std::str::from_utf8(text).ok()?,
    };
    let object: Object<'_> = object::read(old, 0, &NAMES).ok()?;
    let mut changes = vec![Change {
        name: NAMES[0],
        place: object.place(0),
        value: Some("true".to_owned()),
    }];
    if let Some(place) = object.place(1) {
        changes.push(Change {
            name: NAMES[1],
            place: Some(place),
            value: Some("false".to_owned()),
        });
    }
    let patches = patches(object.open, object.members, changes);
    String::from_utf8(apply(old.as_bytes(), &patches)).ok()
}

/// Patches in the order of the text, none overlapping another.
fn patches(open: usize, members: usize, changes: Vec<Change<'_>>) -> Vec<Patch> {
    let mut patches = Vec::new();
    let mut added = Vec::new();
    let mut removed = Vec::new();
    for Change { name, place, value } in changes {
        match (place, value) {
            (Some(place), Some(text)) => patches.push(Patch {
                range: place.value.clone(),
                text,
            }),
            (Some(place), None) => removed.push(place),
            (None, Some(text)) => added.push(format!("\"{name}\":{text}")),
            (None, None) => {}
        }
    }
    if !added.is_empty() {
        // New members go first, where the place is known without looking for it.
        let comma = if members > removed.len() { "," } else { "" };
        let at = open + 1;
        patches.push(Patch {
            range: at..at,
            text: added.join(",") + comma,
        });
    }
    removed.sort_by_key(|place| place.index);
    let runs = removed.chunk_by(|earlier, later| earlier.index + 1 == later.index);
    patches.extend(runs.map(|run| Patch {
        range: cut(run),
        text: String::new(),
    }));
    // An insertion is empty, so it comes before a cut that begins at the same place.
    patches.sort_by_key(|patch| (patch.range.start, patch.range.end));
    patches
}

/// What to cut so that neighbouring members vanish together with one comma.
fn cut(run: &[&Place]) -> Range<usize> {
    let (first, last) = (run[0], run[run.len() - 1]);
    match (first.previous_end, last.next_start) {
        (_, Some(next)) => first.key_start..next,
        (Some(previous), None) => previous..last.value.end,
        (None, None) => first.key_start..last.value.end,
    }
}

fn apply(text: &[u8], patches: &[Patch]) -> Vec<u8> {
    let added: usize = patches.iter().map(|patch| patch.text.len()).sum();
    let mut result = Vec::with_capacity(text.len() + added);
    let mut at = 0;
    for Patch { range, text: new } in patches {
        result.extend_from_slice(&text[at..range.start]);
        result.extend_from_slice(new.as_bytes());
        at = range.end;
    }
    result.extend_from_slice(&text[at..]);
    result
}

// === impl TopLevel ===

impl TopLevel {
    /// Those of a body that is no object: nothing in it can be edited.
    pub(super) fn none() -> Self {
        Self::new(Key::ALL.map(|_| None), 0, 0)
    }

    pub(super) fn new(
        places: [Option<Place>; Key::ALL.len()],
        open: usize,
        members: usize,
    ) -> Self {
        Self {
            places,
            open,
            members,
        }
    }

    /// Whether the body has the key, `null` or not.
    pub fn contains(&self, key: Key) -> bool {
        self.place(key).is_some()
    }

    fn place(&self, key: Key) -> Option<&Place> {
        self.places[key as usize].as_ref()
    }
}

// === impl Edit ===

impl Edit {
    /// Sets a key to a whole number.
    pub fn number(key: Key, value: impl Into<i128>) -> Self {
        let value: i128 = value.into();
        Self::Set(key, value.to_string())
    }

    /// Sets a key to a string, escaped as needed.
    pub fn text(key: Key, value: &str) -> Self {
        Self::Set(key, Value::from(value).to_string())
    }
}

// === impl Key ===

impl Key {
    /// Every editable key.
    pub const ALL: [Self; 7] = [
        Self::MaxTokens,
        Self::MaxCompletionTokens,
        Self::MaxOutputTokens,
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
            Self::MaxOutputTokens => "max_output_tokens",
            Self::StreamOptions => "stream_options",
            Self::Priority => "priority",
            Self::RequestId => "request_id",
            Self::CacheSalt => "cache_salt",
        }
    }
}

#[cfg(test)]
mod tests;
