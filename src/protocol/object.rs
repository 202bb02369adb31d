//! Finds named members of a JSON object and where they stand, without building the rest.
//!
//! Decides nothing about values: they are handed on as text. Memory is bounded
//! by the number of names asked for, whatever the object holds. Keys are
//! compared after their escapes are resolved.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// One member that was asked for, and its neighbours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Position among all members, first is 0.
    pub(super) index: usize,
    /// Offset of the key's opening quote.
    pub(super) key_start: usize,
    /// Offsets of the value.
    pub(super) value: Range<usize>,
    /// Where the value before ends; `None` for the first member.
    pub(super) previous_end: Option<usize>,
    /// Where the key after starts; `None` for the last member.
    pub(super) next_start: Option<usize>,
}

/// The members of an object that have one of the names asked for.
#[derive(Debug)]
pub(super) struct Object<'a> {
    /// The name of each by its number; a few of the many asked for.
    found: Vec<(usize, &'a str, Place)>,
    /// Offset of the opening brace.
    pub(super) open: usize,
    /// Number of members, named or not.
    pub(super) members: usize,
}

/// Why an object was not read.
#[derive(Debug)]
pub(super) enum ObjectError {
    /// Not JSON.
    Syntax(serde_json::Error),
    /// JSON that begins like something else.
    NotAnObject,
    /// One of the names appears twice.
    Duplicate(&'static str),
}

/// Reads the object that is all of `text`; offsets are those in `text` plus `base`.
///
/// # Errors
/// See [`ObjectError`].
pub(super) fn read<'a>(
    text: &'a str,
    base: usize,
    names: &'static [&'static str],
) -> Result<Object<'a>, ObjectError> {
    let indent = text
        .bytes()
        .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
        .count();
    if !text[indent..].starts_with('{') {
        // Told apart from broken JSON: `[]` is a document, `{` is not.
        let mut other = serde_json::Deserializer::from_str(text);
        IgnoredAny::deserialize(&mut other)
            .and_then(|_| other.end())
            .map_err(ObjectError::Syntax)?;
        return Err(ObjectError::NotAnObject);
    }
    let mut reader = Reader {
        names,
        origin: text.as_ptr().addr(),
        base,
        object: Object {
            found: Vec::new(),
            open: base + indent,
            members: 0,
        },
        duplicate: None,
    };
    let mut json = serde_json::Deserializer::from_str(text);
    json.deserialize_map(&mut reader)
        .and_then(|()| json.end())
        .map_err(ObjectError::Syntax)?;
    match reader.duplicate {
        Some(name) => Err(ObjectError::Duplicate(name)),
        None => Ok(reader.object),
    }
}

struct Reader<'a> {
    names: &'static [&'static str],
    origin: usize,
    base: usize,
    object: Object<'a>,
    duplicate: Option<&'static str>,
}

// === impl Object ===

impl<'a> Object<'a> {
    /// The text of a member's value; `None` where it is missing or `null`.
    pub(super) fn value(&self, name: usize) -> Option<&'a str> {
        self.member(name)
            .map(|(text, _)| text)
            .filter(|text| *text != "null")
    }

    /// Where a member stands, `null` or not.
    pub(super) fn place(&self, name: usize) -> Option<&Place> {
        self.member(name).map(|(_, place)| place)
    }

    fn member(&self, name: usize) -> Option<(&'a str, &Place)> {
        let mut found = self.found.iter();
        let (_, text, place) = found.find(|(found, _, _)| *found == name)?;
        Some((text, place))
    }
}

// === impl Reader ===

impl<'a> Reader<'a> {
    fn offset(&self, part: &str) -> usize {
        part.as_ptr().addr() - self.origin + self.base
    }

    fn keep(&mut self, name: usize, value: &'a str, place: Place) {
        if self.object.place(name).is_some() {
            self.duplicate = self.duplicate.or(Some(self.names[name]));
            return;
        }
        self.object.found.push((name, value, place));
    }
}

impl<'a> Visitor<'a> for &mut Reader<'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let mut previous_end = None;
        // Whether the member before was one: it still lacks its `next_start`.
        let mut is_kept = false;
        while let Some(key) = map.next_key::<&'a RawValue>()? {
            let key_start = self.offset(key.get());
            if let (true, Some((_, _, place))) = (is_kept, self.object.found.last_mut()) {
                place.next_start.get_or_insert(key_start);
            }
            let value = map.next_value::<&'a RawValue>()?.get();
            let start = self.offset(value);
            let end = start + value.len();
            let name = unescape(key.get());
            is_kept = false;
            if let Some(found) = self.names.iter().position(|known| *known == name) {
                let index = self.object.members;
                let place = Place {
                    index,
                    key_start,
                    value: start..end,
                    previous_end,
                    next_start: None,
                };
                self.keep(found, value, place);
                is_kept = true;
            }
            previous_end = Some(end);
            self.object.members += 1;
        }
        Ok(())
    }
}

/// The text a JSON string stands for; `raw` has its quotes.
///
/// An escape that cannot be resolved (half a surrogate pair) leaves the raw text.
pub(super) fn unescape(raw: &str) -> Cow<'_, str> {
    let inner = raw
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap_or(raw);
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Cow::Borrowed(inner);
    }
    serde_json::from_str(raw).map_or(Cow::Borrowed(inner), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 2] = ["a", "b"];

    #[test]
    fn members_are_found_with_their_places_and_neighbours() {
        let text = r#" { "x" : [1, 2] , "\u0061":"v","y":null , "b" : {} } "#;
        let object = read(text, 3, &NAMES).unwrap();
        assert_eq!((object.open, object.members), (4, 4));
        assert_eq!(object.value(0), Some("\"v\""));
        let a = object.place(0).unwrap();
        assert_eq!(
            (a.index, a.previous_end, a.next_start),
            (1, Some(18), Some(34))
        );
        assert_eq!(&text[a.key_start - 3..a.value.end - 3], r#""\u0061":"v""#);
        let b = object.place(1).unwrap();
        assert_eq!((b.index, b.next_start), (3, None));
        assert_eq!(&text[b.value.start - 3..b.value.end - 3], "{}");
    }

    #[test]
    fn an_asked_name_given_twice_is_an_error_and_another_is_not() {
        assert!(matches!(
            read(r#"{"a":1,"b":2,"\u0061":3}"#, 0, &NAMES),
            Err(ObjectError::Duplicate("a"))
        ));
        assert_eq!(read(r#"{"x":1,"x":2}"#, 0, &NAMES).unwrap().members, 2);
    }

    #[test]
    fn documents_that_are_no_object_are_told_from_broken_ones() {
        for text in ["[]", "\"x\"", " null", "1"] {
            assert!(
                matches!(read(text, 0, &NAMES), Err(ObjectError::NotAnObject)),
                "{text}"
            );
        }
        for text in [
            "",
            "{",
            "[",
            "{} {}",
            "NaN",
            "{'a':1}",
            "{\"a\":NaN}",
            "{\"a\":1,}",
            "{\"a\":1}x",
            "// {}",
        ] {
            assert!(
                matches!(read(text, 0, &NAMES), Err(ObjectError::Syntax(_))),
                "{text}"
            );
        }
    }
}
