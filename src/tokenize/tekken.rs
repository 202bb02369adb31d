//! The vocabulary and the prompt format of Mistral's models.
//!
//! Decides what a `tekken.json` means, as Mistral's own library reads it: which part
//! of the vocabulary is in use, and which version of the format chats are in; the
//! latter of a SentencePiece model too, by its name. Never encodes.

use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::Value;

use super::engine::Ranks;
use super::{AddedTokens, LoadError, disk};

/// The part of the file that counting needs.
#[derive(Deserialize)]
struct Tekken {
    config: Config,
    vocab: Vec<Token>,
    #[serde(default)]
    special_tokens: Option<Vec<Special>>,
    #[serde(default)]
    model_settings_builder: Option<Value>,
}

#[derive(Deserialize)]
struct Config {
    pattern: String,
    default_vocab_size: usize,
    default_num_special_tokens: usize,
    version: String,
}

#[derive(Deserialize)]
struct Token {
    rank: u32,
    token_bytes: String,
}

#[derive(Deserialize)]
struct Special {
    token_str: String,
}

/// What a `tekken.json` says.
pub(super) struct Read {
    /// The vocabulary without control tokens: text never spells them.
    pub(super) ranks: Ranks,
    /// The format of chats, or why it is not known.
    pub(super) format: Result<Format, String>,
}

/// The format of a model's chats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Format {
    /// Which format.
    pub(super) version: Version,
    /// Whether there are control tokens around reasoning.
    pub(super) has_thinking: bool,
    /// The efforts that the model knows; none are for models without settings.
    pub(super) efforts: Option<Efforts>,
    /// What a control token spelled out in a text is.
    pub(super) added: AddedTokens,
}

/// The efforts that a model's settings may ask for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Efforts {
    /// All of them.
    pub(super) values: Vec<String>,
    /// The one of a request that names none.
    pub(super) default: String,
}

/// The versions of the format that tekken vocabularies come with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    /// System prompts are part of the last question.
    V3,
    /// System prompts stand for themselves.
    V7,
    /// Calls are written with control tokens instead of JSON.
    V11,
    /// Calls have no ids, and tools come first.
    V13,
    /// Settings follow the tools.
    V15,
}

/// Reads the file. Blocking.
///
/// # Errors
/// It cannot be read, or is no tekken vocabulary.
pub(super) fn read(path: &Path) -> Result<Read, LoadError> {
    let text = disk::bytes(path).map_err(|source| LoadError::Read {
        path: path.to_owned(),
        source,
    })?;
    let invalid = |reason: String| LoadError::Parse {
        path: path.to_owned(),
        reason,
    };
    let tekken: Tekken =
        serde_json::from_slice(&text).map_err(|error| invalid(error.to_string()))?;
    let Config {
        default_vocab_size: all,
        default_num_special_tokens: special,
        ..
    } = tekken.config;
    let used = all.saturating_sub(special);
    if used > tekken.vocab.len() {
        let there = tekken.vocab.len();
        return Err(invalid(format!("{used} tokens are used, {there} there")));
    }
    let ranks: Result<Vec<_>, _> = tekken.vocab[..used]
        .iter()
        .map(|token| Ok((BASE64_STANDARD.decode(&token.token_bytes)?, token.rank)))
        .collect();
    let ranks = ranks.map_err(|error: base64::DecodeError| invalid(error.to_string()))?;
    Ok(Read {
        format: format(&tekken),
        ranks: Ranks {
            ranks,
            pattern: tekken.config.pattern,
            special_tokens: Vec::new(),
        },
    })
}

/// The format that the name of a SentencePiece model tells; `None` for a name that
/// tells none.
pub(super) fn format_of_name(name: &str) -> Option<Result<Format, String>> {
    let (_, version) = name.split_once(".model.")?;
    // What follows an m is the version of the format of images.
    let version = match version.split('m').next()? {
        "v3" => Version::V3,
        "v7" => Version::V7,
        other => return Some(Err(format!("the format {other} of {name} is not known"))),
    };
    Some(Ok(Format {
        version,
        has_thinking: false,
        efforts: None,
        added: AddedTokens::Recognised,
    }))
}

fn format(tekken: &Tekken) -> Result<Format, String> {
    let version = match tekken.config.version.as_str() {
        "v3" => Version::V3,
        "v7" => Version::V7,
        "v11" => Version::V11,
        "v13" => Version::V13,
        "v15" => Version::V15,
        other => return Err(format!("the format {other} of tekken.json is not known")),
    };
    let specials = tekken.special_tokens.as_deref().unwrap_or_default();
    let has = |text: &str| specials.iter().any(|special| special.token_str == text);
    Ok(Format {
        version,
        has_thinking: version >= Version::V13 && has("[THINK]") && has("[/THINK]"),
        efforts: efforts(tekken.model_settings_builder.as_ref())?,
        added: AddedTokens::Ordinary,
    })
}

fn efforts(builder: Option<&Value>) -> Result<Option<Efforts>, String> {
    let efforts = builder.and_then(|builder| builder.get("reasoning_effort"));
    match efforts.filter(|efforts| !efforts.is_null()) {
        None => Ok(None),
        Some(efforts) => serde_json::from_value(efforts.clone())
            .map(Some)
            .map_err(|error| format!("the settings of tekken.json: {error}")),
    }
}
