//! fastokens: ordinary text.

use fastokens::{AddedTokenPolicy, Tokenizer};
use serde_json::Value;

use super::{AddSpecial, Counted, Engine};

/// A `tokenizer.json` read by fastokens.
pub(super) struct Fast(Tokenizer);

impl Fast {
    /// # Errors
    /// What fastokens says about a file it does not read.
    pub(super) fn load(json: Value) -> Result<Self, String> {
        Tokenizer::from_json(json)
            .map(Self)
            .map_err(|error| format!("fastokens: {error}"))
    }
}

impl Engine for Fast {
    fn count(&self, text: &str, add_special: AddSpecial) -> Option<Counted> {
        let framed = add_special == AddSpecial::Framed;
        let ids = self
            .0
            .encode_with_policy(text, framed, AddedTokenPolicy::All)
            .ok()?;
        Counted::exact(ids.len())
    }
}
