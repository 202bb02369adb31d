//! `tokenizers`: hostile runs, long texts, and models fastokens does not read.

use serde_json::Value;
use tokenizers::pipeline::{EncodeOptions, Override, PipelineTokenizer};

use super::{AddSpecial, AddedTokens, Counted, Encoding, Engine};

/// A `tokenizer.json` read by `tokenizers`.
pub(super) struct Tail(PipelineTokenizer);

impl Tail {
    /// # Errors
    /// What `tokenizers` says about a file it does not read.
    pub(super) fn load(mut json: Value) -> Result<Self, String> {
        let said = |error: &dyn std::fmt::Display| format!("tokenizers: {error}");
        tokenizers::canonicalize_value(&mut json).map_err(|error| said(&error))?;
        let tail = tokenizers::from_json(&json.to_string())
            .map(Self)
            .map_err(|error| said(&error))?;
        // Patterns it does not know load, and fail at the first text.
        match tail.count("a b", Encoding::recognised(AddSpecial::Bare)) {
            Some(_) => Ok(tail),
            None => Err("tokenizers: unknown pattern".to_owned()),
        }
    }
}

impl Engine for Tail {
    fn count(&self, text: &str, encoding: Encoding) -> Option<Counted> {
        let options = EncodeOptions {
            add_special_tokens: encoding.special == AddSpecial::Framed,
            encode_special_tokens: encoding.added == AddedTokens::Ordinary,
            padding: Override::Off,
            truncation: Override::Off,
        };
        let mut ids = Vec::new();
        self.0.encode_into(text, &options, &mut ids).ok()?;
        Counted::exact(ids.len())
    }
}
