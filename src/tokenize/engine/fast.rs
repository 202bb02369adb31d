//! fastokens: ordinary text.

use fastokens::{AddedTokenPolicy, TiktokenConfig, Tokenizer};
use serde_json::Value;

use super::{AddSpecial, AddedTokens, Counted, Encoding, Engine, Ranks};

/// A vocabulary read by fastokens.
pub(super) struct Fast(Tokenizer);

impl Fast {
    /// # Errors
    /// What fastokens says about a file it does not read.
    pub(super) fn load(json: Value) -> Result<Self, String> {
        let mut tokenizer =
            Tokenizer::from_json(json).map_err(|error| format!("fastokens: {error}"))?;
        // A file may ask for either; the engine switches both off.
        tokenizer.set_truncation(None);
        tokenizer.set_padding(None);
        Ok(Self(tokenizer))
    }

    /// # Errors
    /// What fastokens says about ranks or a pattern it does not read.
    pub(super) fn from_ranks(ranks: &Ranks) -> Result<Self, String> {
        let config = TiktokenConfig::new(ranks.pattern.as_str(), ranks.special_tokens.clone());
        Tokenizer::from_tiktoken_ranks(&ranks.ranks, config)
            .map(Self)
            .map_err(|error| format!("fastokens: {error}"))
    }

    /// Tokens that the post-processor puts around a text.
    pub(super) fn frame(&self) -> u64 {
        u64::try_from(self.0.num_special_tokens_to_add()).unwrap_or(u64::MAX)
    }
}

impl Engine for Fast {
    fn count(&self, text: &str, encoding: Encoding) -> Option<Counted> {
        let framed = encoding.special == AddSpecial::Framed;
        let policy = match encoding.added {
            AddedTokens::Recognised => AddedTokenPolicy::All,
            AddedTokens::Ordinary => AddedTokenPolicy::None,
        };
        let ids = self.0.encode_with_policy(text, framed, policy).ok()?;
        Counted::exact(ids.len())
    }
}
