//! What a hub says a model consists of.
//!
//! Decides which files counting needs. Names come from outside: only plain ones
//! are taken, so that none can leave its directory or change an address.

use serde::Deserialize;

/// Files that say how prompts are tokenized and rendered.
const NEEDED: [&str; 11] = [
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "tekken.json",
    "tokenizer.model",
    "tiktoken.model",
    "preprocessor_config.json",
    "processor_config.json",
];

/// Where named templates are.
const TEMPLATES: &str = "additional_chat_templates/";

/// A model at one commit.
#[derive(Debug, Deserialize)]
pub(super) struct Listing {
    /// The commit.
    #[serde(rename = "sha")]
    pub(super) commit: String,
    #[serde(rename = "siblings")]
    files: Vec<Listed>,
}

/// One file of a model.
#[derive(Debug, Deserialize)]
pub(super) struct Listed {
    /// Its path in the model.
    #[serde(rename = "rfilename")]
    pub(super) name: String,
    /// Its length in bytes, where told.
    pub(super) size: Option<u64>,
    lfs: Option<Lfs>,
}

#[derive(Debug, Deserialize)]
struct Lfs {
    sha256: Option<String>,
}

// === impl Listing ===

impl Listing {
    /// The files to fetch. Where the weights are in Mistral's format the engine
    /// takes Mistral's vocabulary, so the other is left out.
    pub(super) fn tokenizer_files(&self) -> Vec<&Listed> {
        let consolidated = |file: &Listed| {
            file.name.starts_with("consolidated") && file.name.ends_with(".safetensors")
        };
        let mistral = self.files.iter().any(consolidated)
            && self.files.iter().any(|file| is_mistral(&file.name));
        self.files
            .iter()
            .filter(|file| is_needed(&file.name))
            .filter(|file| !(mistral && file.name == "tokenizer.json"))
            .collect()
    }
}

impl Listed {
    /// The SHA-256 digest in lower-case hexadecimal digits, where told.
    pub(super) fn sha256(&self) -> Option<&str> {
        self.lfs.as_ref()?.sha256.as_deref()
    }
}

/// Whether a file holds a vocabulary.
pub(super) fn is_vocabulary(name: &str) -> bool {
    let older = ["tokenizer.json", "tokenizer.model", "tiktoken.model"];
    older.contains(&name) || is_mistral(name) || name.ends_with(".tiktoken")
}

fn is_mistral(name: &str) -> bool {
    name == "tekken.json" || name.starts_with("tokenizer.model.v")
}

fn is_needed(name: &str) -> bool {
    match name.strip_prefix(TEMPLATES) {
        Some(template) => is_plain(template) && template.ends_with(".jinja"),
        None => is_plain(name) && (NEEDED.contains(&name) || is_vocabulary(name)),
    }
}

/// Whether a name is one step of a path, and stays what it is in an address.
pub(super) fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !name.is_empty() && name.len() <= 96 && !name.starts_with('.') && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(names: &[&str]) -> Vec<String> {
        let files = names.iter().map(|name| Listed {
            name: (*name).to_owned(),
            size: None,
            lfs: None,
        });
        let listing = Listing {
            commit: "c".to_owned(),
            files: files.collect(),
        };
        let files = listing.tokenizer_files();
        files.iter().map(|file| file.name.clone()).collect()
    }

    #[test]
    fn tokenizer_files_are_taken_and_weights_and_odd_names_are_not() {
        let names = [
            "model-00001-of-00002.safetensors",
            "tokenizer.json",
            "config.json",
            "additional_chat_templates/tool_use.jinja",
            "additional_chat_templates/../../x.jinja",
            "../tokenizer.json",
            "onnx/tokenizer.json",
            "qwen.tiktoken",
            "modeling.py",
        ];
        let expected = [names[1], names[2], names[3], names[7]];
        assert_eq!(taken(&names), expected);
    }

    #[test]
    fn mistral_weights_bring_mistrals_vocabulary_alone() {
        let both = ["tokenizer.json", "tekken.json"];
        assert_eq!(taken(&both), both);
        let names = ["consolidated.safetensors", both[0], both[1]];
        assert_eq!(taken(&names), both[1..]);
    }
}
