//! What a model directory says about its tokenizer and template.
//!
//! Decides which file wins where several hold the same thing, in the order the
//! reference tokenizer library takes them, and which file holds the vocabulary.
//! Never interprets a template or a vocabulary.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::{LoadError, disk};

/// The chat templates of a model by name; most have only `default`.
pub(super) type Templates = BTreeMap<String, String>;

/// The role names whose tokens a template may use as variables.
pub(super) const SPECIAL_ROLES: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];

/// The small files of a model directory, as far as counting needs them; what is
/// not there is `null` or empty.
#[derive(Default)]
pub(super) struct ModelFiles {
    /// `config.json`.
    pub(super) config: Value,
    /// `tokenizer_config.json`.
    pub(super) tokenizer_config: Value,
    /// `special_tokens_map.json`.
    pub(super) special_tokens_map: Value,
    /// `preprocessor_config.json`: how images are prepared.
    pub(super) preprocessor: Value,
    /// `processor_config.json`.
    pub(super) processor: Value,
    /// Template variables such as `bos_token`; absent ones stay undefined.
    pub(super) special_tokens: Map<String, Value>,
    /// Chat templates by name.
    pub(super) templates: Templates,
}

/// The file that holds a model's vocabulary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Vocabulary {
    /// `tokenizer.json`.
    Json(PathBuf),
    /// A line for each token, its bytes in base64 and its rank: `*.tiktoken`,
    /// `tiktoken.model`, and some that are called `tokenizer.model`.
    Ranks(PathBuf),
    /// `tekken.json`.
    Tekken(PathBuf),
    /// `tokenizer.model` and its like with a SentencePiece model.
    SentencePiece(PathBuf),
}

/// Reads the small files of a directory. Blocking.
///
/// # Errors
/// One of them is there and not what it should be.
pub(super) fn read(directory: &Path) -> Result<ModelFiles, LoadError> {
    let json = |name| Ok(json_if_present(&directory.join(name))?.unwrap_or_default());
    let tokenizer_config = json("tokenizer_config.json")?;
    let special_tokens_map = json("special_tokens_map.json")?;
    Ok(ModelFiles {
        config: json("config.json")?,
        preprocessor: json("preprocessor_config.json")?,
        processor: json("processor_config.json")?,
        special_tokens: special_tokens(&special_tokens_map, &tokenizer_config),
        templates: templates(directory, &tokenizer_config)?,
        tokenizer_config,
        special_tokens_map,
    })
}

/// Finds the vocabulary of a model directory, as the engine chooses it: Mistral's
/// own file where the weights are in Mistral's format too or there is no other,
/// then `tokenizer.json`, then the older formats. Blocking.
///
/// # Errors
/// The directory cannot be read or holds none.
pub(super) fn vocabulary(directory: &Path) -> Result<Vocabulary, LoadError> {
    let names = names(directory)?;
    let has = |name: &str| names.iter().any(|found| found == name);
    let consolidated = names
        .iter()
        .any(|name| name.starts_with("consolidated") && name.ends_with(".safetensors"));
    let mistral = || names.iter().find(|name| is_mistral(name));
    if (consolidated || !has("tokenizer.json"))
        && let Some(name) = mistral()
    {
        return vocabulary_file(&directory.join(name));
    }
    let ranks = || names.iter().find(|name| name.ends_with(".tiktoken"));
    let known = ["tokenizer.json", "tiktoken.model", "tokenizer.model"];
    let name = known.into_iter().find(|name| has(name));
    let name = name.or_else(|| ranks().map(String::as_str));
    let name = name.ok_or_else(|| LoadError::NoVocabulary {
        directory: directory.to_owned(),
    })?;
    vocabulary_file(&directory.join(name))
}

/// Whether a file is one of those that the engine takes for Mistral's own.
fn is_mistral(name: &str) -> bool {
    name == "tekken.json" || name.starts_with("tokenizer.model.v")
}

/// What kind of vocabulary a file holds, by its name and its first line. Blocking.
///
/// # Errors
/// It cannot be read.
pub(super) fn vocabulary_file(path: &Path) -> Result<Vocabulary, LoadError> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.unwrap_or_default();
    let mut first = [0; 256];
    let read = disk::beginning(path, &mut first).map_err(|source| LoadError::Read {
        path: path.to_owned(),
        source,
    })?;
    let path = path.to_owned();
    Ok(if name == "tekken.json" || name.starts_with("tekken_") {
        Vocabulary::Tekken(path)
    } else if first[..read].trim_ascii_start().starts_with(b"{") {
        Vocabulary::Json(path)
    } else if is_rank_line(&first[..read]) {
        Vocabulary::Ranks(path)
    } else {
        Vocabulary::SentencePiece(path)
    })
}

/// Whether a text begins as a list of ranks does: base64, a space, a number.
fn is_rank_line(text: &[u8]) -> bool {
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut words = line.trim_ascii_end().split(|byte| *byte == b' ');
    let base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
    let bytes = words.next().unwrap_or_default();
    let rank = words.next().unwrap_or_default();
    !bytes.is_empty()
        && bytes.iter().all(base64)
        && !rank.is_empty()
        && rank.iter().all(u8::is_ascii_digit)
        && words.next().is_none()
}

/// The names of a directory's files, in order.
fn names(directory: &Path) -> Result<Vec<String>, LoadError> {
    let unreadable = |source| LoadError::Read {
        path: directory.to_owned(),
        source,
    };
    let entries = directory.read_dir().map_err(unreadable)?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(unreadable)?;
        names.extend(entry.file_name().into_string());
    }
    names.sort_unstable();
    Ok(names)
}

/// Special tokens by role; `tokenizer_config.json` wins.
fn special_tokens(map: &Value, config: &Value) -> Map<String, Value> {
    let mut tokens = Map::new();
    for role in SPECIAL_ROLES {
        let text = [config, map]
            .into_iter()
            .filter_map(|file| file.get(role))
            .find_map(token_text);
        if let Some(text) = text {
            tokens.insert(role.to_owned(), Value::from(text));
        }
    }
    tokens
}

pub(super) fn token_text(token: &Value) -> Option<&str> {
    token
        .as_str()
        .or_else(|| token.get("content").and_then(Value::as_str))
}

/// Templates by name: `chat_template.jinja` and `additional_chat_templates/`
/// before `chat_template.json` before the configuration's own.
fn templates(directory: &Path, config: &Value) -> Result<Templates, LoadError> {
    let mut templates = Templates::new();
    if let Some(value) = config.get("chat_template") {
        add_templates(value, &mut templates);
    }
    let legacy = json_if_present(&directory.join("chat_template.json"))?.unwrap_or_default();
    if let Some(value) = legacy.get("chat_template") {
        templates.clear();
        add_templates(value, &mut templates);
    }
    if let Some(text) = text_if_present(&directory.join("chat_template.jinja"))? {
        templates.clear();
        templates.insert("default".to_owned(), text);
    }
    let more = directory.join("additional_chat_templates");
    for entry in more.read_dir().into_iter().flatten().flatten() {
        let path = entry.path();
        let name = path.file_stem().and_then(|stem| stem.to_str());
        if let (Some(name), true) = (name, path.extension().is_some_and(|end| end == "jinja")) {
            let text = text_if_present(&path)?.unwrap_or_default();
            templates.insert(name.to_owned(), text);
        }
    }
    Ok(templates)
}

/// Reads the forms a template takes in JSON: one text, a list of named ones, or
/// a map of them.
fn add_templates(value: &Value, templates: &mut Templates) {
    match value {
        Value::String(text) => {
            templates.insert("default".to_owned(), text.clone());
        }
        Value::Array(list) => {
            let named = list.iter().filter_map(|entry| {
                let name = entry.get("name")?.as_str()?;
                Some((name.to_owned(), entry.get("template")?.as_str()?.to_owned()))
            });
            templates.extend(named);
        }
        Value::Object(map) => {
            let named = map
                .iter()
                .filter_map(|(name, text)| Some((name.clone(), text.as_str()?.to_owned())));
            templates.extend(named);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn text_if_present(path: &Path) -> Result<Option<String>, LoadError> {
    match disk::text(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(LoadError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

/// The JSON of a file. Blocking.
///
/// # Errors
/// It cannot be read or is not JSON.
pub(super) fn json(path: &Path) -> Result<Value, LoadError> {
    json_if_present(path)?.ok_or_else(|| LoadError::Read {
        path: path.to_owned(),
        source: ErrorKind::NotFound.into(),
    })
}

fn json_if_present(path: &Path) -> Result<Option<Value>, LoadError> {
    let Some(text) = text_if_present(path)? else {
        return Ok(None);
    };
    serde_json::from_str(&text)
        .map(Some)
        .map_err(|error| LoadError::Parse {
            path: path.to_owned(),
            reason: error.to_string(),
        })
}

#[cfg(test)]
mod tests;
