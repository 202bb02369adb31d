//! Keys of a `config.json`, read with bounds.
//!
//! Decides which of two objects a key is taken from (the language model's, then
//! the whole model's) and that every number is whole and within what any real
//! model has, so that the arithmetic after it cannot overflow.

use serde_json::{Map, Value};

use super::ModelError;

/// What a number counts; each has a largest value that is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// Layers.
    Layers,
    /// Heads, groups of heads, experts.
    Heads,
    /// Steps of a convolution's kernel.
    Kernel,
    /// Widths of vectors.
    Width,
    /// Entries of the vocabulary.
    Vocabulary,
    /// Tokens of context.
    Tokens,
}

/// The two objects that are searched.
#[derive(Clone, Copy)]
pub(super) struct Keys<'a> {
    inner: &'a Map<String, Value>,
    outer: &'a Map<String, Value>,
}

// === impl Limit ===

impl Limit {
    const fn most(self) -> u64 {
        match self {
            Self::Layers => 4_096,
            Self::Heads => 65_536,
            Self::Kernel => 1_024,
            Self::Width => 1 << 22,
            Self::Vocabulary => 1 << 26,
            Self::Tokens => 1 << 36,
        }
    }
}

// === impl Keys ===

impl<'a> Keys<'a> {
    /// Names under which wrappers of several modalities keep the language model.
    const LANGUAGE: [&'static str; 5] = [
        "text_config",
        "llm_config",
        "language_config",
        "thinker_config",
        "language_model_config",
    ];

    /// Follows wrappers inwards.
    pub(super) fn of(outer: &'a Map<String, Value>) -> Self {
        let mut inner = outer;
        while let Some(next) = Self::LANGUAGE.iter().find_map(|name| object(inner, name)) {
            inner = next;
        }
        Self { inner, outer }
    }

    /// What stands under a name; JSON's null is nothing.
    pub(super) fn value(self, name: &str) -> Option<&'a Value> {
        let found = self.inner.get(name).filter(|value| !value.is_null());
        found.or_else(|| self.outer.get(name).filter(|value| !value.is_null()))
    }

    /// Whether a name is there, be it with null.
    pub(super) fn has(self, name: &str) -> bool {
        self.inner.contains_key(name) || self.outer.contains_key(name)
    }

    /// An object under a name.
    pub(super) fn object(self, name: &str) -> Option<Self> {
        let inner = self.value(name)?.as_object()?;
        Some(Self {
            inner,
            outer: inner,
        })
    }

    /// A text under a name.
    pub(super) fn text(self, name: &str) -> Option<&'a str> {
        self.value(name)?.as_str()
    }

    /// Whether a name holds `true`.
    pub(super) fn is_true(self, name: &str) -> bool {
        self.value(name).and_then(Value::as_bool) == Some(true)
    }

    /// A list under a name.
    pub(super) fn list(self, name: &str) -> Option<&'a [Value]> {
        self.value(name)?.as_array().map(Vec::as_slice)
    }

    /// A list of whole numbers; entries of another kind are no numbers.
    pub(super) fn numbers(self, name: &str) -> Option<Vec<u64>> {
        let list = self.list(name)?;
        Some(list.iter().filter_map(Value::as_u64).collect())
    }

    /// The first of several names that is there, from 1 to its limit.
    pub(super) fn find(
        self,
        names: &[&'static str],
        limit: Limit,
    ) -> Result<Option<u64>, ModelError> {
        self.find_from(names, limit, 1)
    }

    /// The same, where 0 means none.
    pub(super) fn find_or_zero(
        self,
        names: &[&'static str],
        limit: Limit,
    ) -> Result<u64, ModelError> {
        Ok(self.find_from(names, limit, 0)?.unwrap_or(0))
    }

    /// The same, where one of the names must be there.
    pub(super) fn need(self, names: &[&'static str], limit: Limit) -> Result<u64, ModelError> {
        let key = names.first().copied().unwrap_or_default();
        self.find(names, limit)?.ok_or(ModelError::Missing { key })
    }

    fn find_from(
        self,
        names: &[&'static str],
        limit: Limit,
        least: u64,
    ) -> Result<Option<u64>, ModelError> {
        let found = names.iter().find_map(|key| Some((*key, self.value(key)?)));
        let Some((key, value)) = found else {
            return Ok(None);
        };
        let number = value.as_u64();
        match number.filter(|number| (least..=limit.most()).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(ModelError::Range {
                key,
                value: shown(value),
                least,
                most: limit.most(),
            }),
        }
    }
}

fn object<'a>(map: &'a Map<String, Value>, name: &str) -> Option<&'a Map<String, Value>> {
    map.get(name)?.as_object()
}

/// A value as messages show it: no longer than 40 characters.
pub(super) fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
