//! Vocabulary files in tiktoken's form: base64 bytes and a rank a line.
//!
//! Decides what such a file leaves open: how text is split before it is merged,
//! which control tokens there are and what the tokenizer puts before a prompt.
//! That is code beside the file, so it is known here by family or not at all: a
//! model of another family is an error, never a guess.
//!
//! | family | known by | split as | control tokens | before a prompt |
//! |---|---|---|---|---|
//! | Qwen 1 | class `QWenTokenizer`, type `qwen` | digits one by one | ChatML and 205 extras after the ranks; text is NFC | – |
//! | Kimi K2 | class `TikTokenTokenizer` and type `kimi_k2` or `deepseek_v3` | Han apart, case changes, digits by three | those declared, 256 places after the ranks | – |
//! | GLM-4 | class `ChatGLM4Tokenizer`, type `chatglm` | digits by three | those declared | `[gMASK]<sop>` |
//! | Llama 3 | type `llama` or `mllama` | digits by three | those declared, else Llama 3's 256 | `<|begin_of_text|>` |

use std::path::Path;

use serde_json::{Value, json};

use super::engine::{Engines, Ranks};
use super::files::ModelFiles;
use super::{LoadError, disk};

/// Words, single digits, punctuation, white space.
const BY_DIGIT: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The same with up to three digits together.
const BY_THREE: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Han apart from other letters, and a word ends where capitals begin.
const BY_CASE: &str = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Places for control tokens that Kimi K2 and Llama 3 keep after their ranks.
const RESERVED: u32 = 256;

/// Models whose vocabulary is of this form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Qwen1,
    KimiK2,
    Glm4,
    Llama3,
}

/// What a vocabulary file gives.
pub(super) struct Read {
    /// The tokenizer.
    pub(super) engines: Engines,
    /// Tokens put before a prompt that asks for them.
    pub(super) before_a_prompt: u64,
}

/// Loads the engines of a model with this vocabulary file. Blocking.
///
/// # Errors
/// The file is not of that form, or the model is of no family known here.
pub(super) fn load(
    path: &Path,
    files: &ModelFiles,
    max_run_bytes: usize,
) -> Result<Read, LoadError> {
    let kind = Kind::of(files).ok_or_else(|| unknown(path, files))?;
    let ranks = read(path)?;
    let special_tokens = kind.special_tokens(&ranks, files);
    let is_special = |name: &&&str| special_tokens.iter().any(|(token, _)| token == **name);
    let before = kind.before_a_prompt().iter().filter(is_special).count();
    let ranks = Ranks {
        ranks,
        pattern: kind.pattern().to_owned(),
        special_tokens,
    };
    let engines = if kind == Kind::Qwen1 {
        composed(path, &ranks, max_run_bytes)?
    } else {
        Engines::from_ranks(&ranks, max_run_bytes)?
    };
    Ok(Read {
        engines,
        before_a_prompt: u64::try_from(before).expect("two tokens at the most"),
    })
}

/// Engines that compose letters first, which only a `tokenizer.json` can say.
fn composed(path: &Path, ranks: &Ranks, max_run_bytes: usize) -> Result<Engines, LoadError> {
    let tokenizer = ranks.tokenizer_json();
    let mut tokenizer = tokenizer.map_err(|reason| LoadError::Parse {
        path: path.to_owned(),
        reason,
    })?;
    tokenizer["normalizer"] = json!({"type": "NFC"});
    Engines::from_json(path, tokenizer, max_run_bytes)
}

fn unknown(path: &Path, files: &ModelFiles) -> LoadError {
    let told = |file: &Value, key| file.get(key).and_then(Value::as_str).map(str::to_owned);
    LoadError::UnknownFamily {
        path: path.to_owned(),
        class: told(&files.tokenizer_config, "tokenizer_class").unwrap_or_default(),
        kind: told(&files.config, "model_type").unwrap_or_default(),
    }
}

/// Bytes and rank of each line.
fn read(path: &Path) -> Result<Vec<(Vec<u8>, u32)>, LoadError> {
    let text = disk::text(path).map_err(|source| LoadError::Read {
        path: path.to_owned(),
        source,
    })?;
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.is_empty());
    let entries = lines.map(|(number, line): (usize, _)| {
        let entry = line
            .split_once(' ')
            .and_then(|(bytes, rank)| Some((from_base64(bytes)?, rank.trim_end().parse().ok()?)));
        entry.ok_or_else(|| LoadError::Parse {
            path: path.to_owned(),
            reason: format!("line {number} is not base64 and a rank"),
        })
    });
    entries.collect()
}

/// The bytes of padded base64; `None` for anything else.
fn from_base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    let padding = text.len() - digits.len();
    if digits.is_empty() || padding > 2 || !text.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut held, mut bits) = (0_u32, 0);
    for digit in digits.bytes() {
        held = (held << 6 | u32::from(sextet(digit)?)) & 0xff_ffff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(held >> bits & 0xff).ok()?);
        }
    }
    Some(bytes)
}

fn sextet(digit: u8) -> Option<u8> {
    match digit {
        b'A'..=b'Z' => Some(digit - b'A'),
        b'a'..=b'z' => Some(digit - b'a' + 26),
        b'0'..=b'9' => Some(digit - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

/// Tokens that `tokenizer_config.json` declares, by id.
fn declared(files: &ModelFiles) -> Vec<(String, u32)> {
    let tokens = files.tokenizer_config.get("added_tokens_decoder");
    let tokens = tokens.and_then(Value::as_object).into_iter().flatten();
    let mut tokens: Vec<_> = tokens
        .filter_map(|(id, token)| {
            let content = token.get("content")?.as_str()?;
            Some((content.to_owned(), id.parse().ok()?))
        })
        .collect();
    tokens.sort_unstable_by_key(|(_, id)| *id);
    tokens
}

// === impl Kind ===

impl Kind {
    fn of(files: &ModelFiles) -> Option<Self> {
        let class = files.tokenizer_config.get("tokenizer_class");
        let class = class.and_then(Value::as_str).unwrap_or_default();
        let kind = files.config.get("model_type").and_then(Value::as_str);
        match (class, kind.unwrap_or_default()) {
            ("QWenTokenizer", _) | ("", "qwen") => Some(Self::Qwen1),
            ("TikTokenTokenizer", "kimi_k2" | "deepseek_v3") => Some(Self::KimiK2),
            ("ChatGLM4Tokenizer", _) | ("", "chatglm") => Some(Self::Glm4),
            ("" | "PreTrainedTokenizerFast", "llama" | "mllama") => Some(Self::Llama3),
            _ => None,
        }
    }

    const fn pattern(self) -> &'static str {
        match self {
            Self::Qwen1 => BY_DIGIT,
            Self::KimiK2 => BY_CASE,
            Self::Glm4 | Self::Llama3 => BY_THREE,
        }
    }

    /// Control tokens put before a prompt that asks for them.
    const fn before_a_prompt(self) -> &'static [&'static str] {
        match self {
            Self::Qwen1 | Self::KimiK2 => &[],
            Self::Glm4 => &["[gMASK]", "<sop>"],
            Self::Llama3 => &["<|begin_of_text|>"],
        }
    }

    fn special_tokens(self, ranks: &[(Vec<u8>, u32)], files: &ModelFiles) -> Vec<(String, u32)> {
        let first = ranks.iter().map(|(_, rank)| rank + 1).max().unwrap_or(0);
        let declared = declared(files);
        match self {
            Self::Qwen1 => (first..)
                .zip(qwen1_tokens())
                .map(|(id, name)| (name, id))
                .collect(),
            Self::KimiK2 => (first..first + RESERVED)
                .map(|id| {
                    let known = declared.iter().find(|(_, known)| *known == id);
                    let reserved = || format!("<|reserved_token_{id}|>");
                    (known.map_or_else(reserved, |(name, _)| name.clone()), id)
                })
                .collect(),
            Self::Llama3 if declared.is_empty() => (first..)
                .zip(llama3_tokens())
                .map(|(id, name)| (name, id))
                .collect(),
            Self::Glm4 | Self::Llama3 => declared,
        }
    }
}

fn qwen1_tokens() -> impl Iterator<Item = String> {
    let named = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"].map(str::to_owned);
    named
        .into_iter()
        .chain((0..205).map(|number| format!("<|extra_{number}|>")))
}

fn llama3_tokens() -> impl Iterator<Item = String> {
    let reserved = |range: std::ops::Range<u32>| {
        range.map(|number| format!("<|reserved_special_token_{number}|>"))
    };
    let begin = ["<|begin_of_text|>", "<|end_of_text|>"].map(str::to_owned);
    let header = ["<|start_header_id|>", "<|end_header_id|>"].map(str::to_owned);
    begin
        .into_iter()
        .chain(reserved(0..4))
        .chain(header)
        .chain(reserved(4..5))
        .chain(["<|eot_id|>".to_owned()])
        .chain(reserved(5..RESERVED - 5))
}

#[cfg(test)]
mod tests;
