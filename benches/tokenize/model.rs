//! The vocabularies, each with every counter that reads it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use fastokens::tiktoken::QWEN2_PATTERN;
use oracle::Tokenizer;
use serde_json::Value;
use tidegate::tokenize::{Count, CounterSpec, Effort, ModelCounter, PromptInput, Source};
use tiktoken_rs::CoreBPE;

/// One vocabulary.
pub(crate) struct Model {
    pub(crate) name: &'static str,
    pub(crate) ours: ModelCounter,
    pub(crate) tiktoken: CoreBPE,
    /// What vLLM runs, where there is a file of the vocabulary.
    pub(crate) peer: Option<Tokenizer>,
}

// === impl Model ===

impl Model {
    /// Every vocabulary that is at hand; says which is not.
    pub(crate) fn all() -> Vec<Self> {
        let builtin = |name: &'static str, vocabulary: &str, tiktoken| Self {
            name,
            ours: load(Source::Tiktoken(vocabulary.to_owned())),
            tiktoken,
            peer: None,
        };
        let mut models = vec![
            builtin("cl100k", "cl100k_base", tiktoken_rs::cl100k_base().unwrap()),
            builtin("o200k", "o200k_base", tiktoken_rs::o200k_base().unwrap()),
        ];
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/golden-models");
        match directory(&root, "qwen3") {
            Some(path) => models.push(Self::qwen3(&path)),
            None => println!("Qwen 3 is left out: run tests/golden/families/fetch.py first.\n"),
        }
        // The only file of o200k there is.
        if let Some(path) = directory(&root, "gpt_oss") {
            models[1].peer = Tokenizer::from_file(path.join("tokenizer.json")).ok();
        }
        models
    }

    fn qwen3(path: &Path) -> Self {
        let file = path.join("tokenizer.json");
        let json: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        Self {
            name: "Qwen 3",
            ours: load(Source::Directory(path.to_owned())),
            tiktoken: tiktoken_of(&json),
            peer: Tokenizer::from_file(&file).ok(),
        }
    }

    /// Counts a text as the gateway does.
    pub(crate) fn count(&self, text: &str, effort: &Effort<'_>) -> Count {
        let input = PromptInput::Texts {
            texts: &[Cow::Borrowed(text)],
            add_special_tokens: true,
        };
        self.ours.count(&input, effort).unwrap()
    }
}

fn directory(root: &Path, family: &str) -> Option<PathBuf> {
    let path = root.join(family);
    path.join("tokenizer.json").is_file().then_some(path)
}

fn load(source: Source) -> ModelCounter {
    ModelCounter::load(CounterSpec::new(source)).unwrap()
}

/// The ranks of a byte-level `tokenizer.json` whose ids are its merge order.
fn tiktoken_of(json: &Value) -> CoreBPE {
    let printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let moved = (0..=255_u8).filter(|byte| !printable(byte));
    let moved = (256..).filter_map(char::from_u32).zip(moved);
    let itself = (0..=255_u8)
        .filter(printable)
        .map(|byte| (char::from(byte), byte));
    let bytes: HashMap<char, u8> = itself.chain(moved).collect();
    let vocabulary = json["model"]["vocab"].as_object().unwrap();
    let ranks = vocabulary.iter().map(|(token, id)| {
        let token: Vec<u8> = token.chars().map(|c| bytes[&c]).collect();
        (token, u32::try_from(id.as_u64().unwrap()).unwrap())
    });
    let special = json["added_tokens"]
        .as_array()
        .unwrap()
        .iter()
        .map(|token| {
            let id = u32::try_from(token["id"].as_u64().unwrap()).unwrap();
            (token["content"].as_str().unwrap().to_owned(), id)
        });
    CoreBPE::new(ranks.collect(), special.collect(), QWEN2_PATTERN).unwrap()
}
