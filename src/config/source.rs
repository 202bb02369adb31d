//! What a tokenizer is written as.

use std::fmt;

use super::resolved::{HubModel, TokenizerChoice};
use super::surroundings::Surroundings;

/// What may be written, in words.
pub(super) const FORMS: &str = "\"engine\", \"estimate\", \"tiktoken:\" and a vocabulary, \"hub:\" and a model's name there, or a path with a /";

/// Files of which one makes a directory a model's.
const VOCABULARIES: [&str; 5] = [
    "tokenizer.json",
    "tekken.json",
    "tokenizer.model",
    "tiktoken.model",
    "qwen.tiktoken",
];

// === impl TokenizerChoice ===

impl TokenizerChoice {
    /// Reads one of `engine`, `estimate`, `tiktoken:NAME`, `hub:ORG/MODEL` or
    /// `hub:ORG/MODEL@REVISION`, or the path of a model directory or of a
    /// vocabulary file; a path has a `/` in it and must be there.
    ///
    /// # Errors
    /// What is wrong, as the rest of a sentence about what was written.
    pub fn parse(written: &str, around: &dyn Surroundings) -> Result<Self, String> {
        match written.split_once(':') {
            None if written == "engine" => Ok(Self::Engine),
            None if written == "estimate" => Ok(Self::Estimate),
            Some(("tiktoken", name)) if !name.is_empty() => Ok(Self::Tiktoken(name.to_owned())),
            Some(("hub", model)) => HubModel::parse(model).map(Self::Hub).ok_or_else(|| {
                "must name a model of the hub as hub:org/model or hub:org/model@revision".to_owned()
            }),
            _ if !written.contains('/') => Err(format!("must be {FORMS}")),
            _ => path(written, around),
        }
    }
}

fn path(written: &str, around: &dyn Surroundings) -> Result<TokenizerChoice, String> {
    let path = around.path(written);
    let inside = |name| around.is_file(&path.join(name));
    if VOCABULARIES.into_iter().any(inside) {
        return Ok(TokenizerChoice::Directory(path));
    }
    if around.is_file(&path) {
        return Ok(TokenizerChoice::File(path));
    }
    let names = VOCABULARIES.join(", ");
    let path = path.display();
    Err(format!(
        "{path} is no vocabulary file and no directory with one ({names})"
    ))
}

impl fmt::Display for TokenizerChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) | Self::File(path) => write!(f, "{}", path.display()),
            Self::Hub(model) => write!(f, "hub:{model}"),
            Self::Tiktoken(name) => write!(f, "tiktoken:{name}"),
            Self::Engine => f.write_str("engine"),
            Self::Estimate => f.write_str("estimate"),
        }
    }
}

// === impl HubModel ===

impl fmt::Display for HubModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.id, self.revision)
    }
}

impl HubModel {
    /// Reads `org/model` or `org/model@revision`. Letters, digits, `.`, `_` and
    /// `-` alone, so that neither can leave a directory or an address.
    pub fn parse(written: &str) -> Option<Self> {
        let (id, revision) = written.split_once('@').unwrap_or((written, "main"));
        let (organisation, model) = id.split_once('/')?;
        let all_plain = [organisation, model, revision].into_iter().all(is_plain);
        all_plain.then(|| Self {
            id: id.to_owned(),
            revision: revision.to_owned(),
        })
    }
}

fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !name.is_empty() && name.len() <= 96 && !name.starts_with('.') && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_of_the_hub_has_an_organisation_and_perhaps_a_revision() {
        let model = |written| HubModel::parse(written).map(|model| (model.id, model.revision));
        let parsed = Some(("Qwen/Qwen3-8B".to_owned(), "main".to_owned()));
        assert_eq!(model("Qwen/Qwen3-8B"), parsed);
        let parsed = Some(("a/b".to_owned(), "v1.0".to_owned()));
        assert_eq!(model("a/b@v1.0"), parsed);
        for wrong in [
            "", "a", "a/", "/b", "a/b/c", "a/..", "a/b@", "a/b@../x", "a/b?x", "a b/c",
        ] {
            assert_eq!(model(wrong), None, "{wrong}");
        }
    }
}
