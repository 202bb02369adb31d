//! Model directories: the committed ones unpacked, the fetched ones as they are.

use std::collections::{BTreeSet, HashSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use serde_json::{Map, Value, json};

/// What Qwen 3 added to the vocabulary of Qwen 2.5.
const NEW_IN_QWEN3: [&str; 4] = ["<tool_response>", "</tool_response>", "<think>", "</think>"];

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A directory that `tests/golden/families/fetch.py` wrote.
pub(crate) fn fetched(family: &str) -> PathBuf {
    let directory = repository().join("target/golden-models").join(family);
    assert!(
        directory.join("config.json").is_file(),
        "{family} is not there: run tests/golden/families/fetch.py"
    );
    directory
}

/// The folder of templates that the same script wrote.
pub(crate) fn templates() -> PathBuf {
    fetched("qwen3").with_file_name("templates")
}

/// A committed family with its large files unpacked, once for all tests of a process.
pub(crate) fn committed(family: &str) -> PathBuf {
    static UNPACKED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    // Several processes may run these tests at the same time.
    let name = format!("{family}-{}", std::process::id());
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Held while files are written: nobody reads a part of one.
    let mut unpacked = UNPACKED.lock().unwrap();
    if unpacked.insert(target.clone()) {
        unpack(family, &target);
    }
    target
}

fn unpack(family: &str, target: &Path) {
    let source = repository().join("tests/golden/families").join(family);
    std::fs::create_dir_all(target).unwrap();
    for entry in source.read_dir().unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if let Some(plain) = name.strip_suffix(".packed") {
            let vocabulary = Packed::read(&path).unpacked();
            std::fs::write(target.join(plain), vocabulary.to_string()).unwrap();
        } else if let Some(plain) = name.strip_suffix(".gz") {
            std::fs::write(target.join(plain), gunzipped(&path)).unwrap();
        } else {
            std::fs::copy(&path, target.join(name)).unwrap();
        }
    }
    if family == "qwen2.5" {
        let tokenizer = without_qwen3s_tokens();
        std::fs::write(target.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    }
}

fn without_qwen3s_tokens() -> Value {
    let path = repository().join("tests/golden/families/qwen3/tokenizer.json.packed");
    let mut tokenizer = Packed::read(&path).unpacked();
    let added = tokenizer["added_tokens"].as_array_mut().unwrap();
    added.retain(|token| !NEW_IN_QWEN3.contains(&token["content"].as_str().unwrap()));
    assert_eq!(added.len(), 22);
    tokenizer
}

fn gunzipped(path: &Path) -> Vec<u8> {
    let mut plain = Vec::new();
    let file = std::fs::File::open(path).unwrap();
    GzDecoder::new(file).read_to_end(&mut plain).unwrap();
    plain
}

/// A vocabulary written as its merges: a line of JSON, then the ids of each
/// merge's two tokens, byte plane by byte plane.
struct Packed {
    header: Value,
    merges: Vec<(usize, usize)>,
}

// === impl Packed ===

impl Packed {
    fn read(path: &Path) -> Self {
        let plain = gunzipped(path);
        let line = plain.iter().position(|byte| *byte == b'\n').unwrap();
        let header: Value = serde_json::from_slice(&plain[..line]).unwrap();
        let count = usize::try_from(header["merges"].as_u64().unwrap()).unwrap();
        let planes: Vec<&[u8]> = plain[line + 1..].chunks_exact(count).collect();
        assert_eq!(planes.len(), 6);
        let id = |planes: &[&[u8]], at: usize| {
            let byte = |plane: usize| usize::from(planes[plane][at]);
            byte(0) | byte(1) << 8 | byte(2) << 16
        };
        let merges = (0..count)
            .map(|at| (id(&planes[..3], at), id(&planes[3..], at)))
            .collect();
        Self { header, merges }
    }

    fn unpacked(self) -> Value {
        match self.header.get("tekken") {
            Some(_) => self.tekken(),
            None => self.tokenizer(),
        }
    }

    fn tokenizer(mut self) -> Value {
        let base = self.header["base"].as_array().unwrap().iter();
        let mut tokens: Vec<String> = base.map(|t| t.as_str().unwrap().to_owned()).collect();
        let mut merges = Vec::with_capacity(self.merges.len());
        for (left, right) in self.merges {
            merges.push(json!([tokens[left], tokens[right]]));
            tokens.push(format!("{}{}", tokens[left], tokens[right]));
        }
        assert_eq!(tokens.iter().collect::<HashSet<_>>().len(), tokens.len());
        let ids = tokens.into_iter().zip(0_u64..);
        let vocabulary: Map<String, Value> = ids.map(|(t, id)| (t, Value::from(id))).collect();
        let mut tokenizer = self.header["tokenizer"].take();
        tokenizer["model"]["vocab"] = Value::Object(vocabulary);
        tokenizer["model"]["merges"] = Value::Array(merges);
        tokenizer
    }

    fn tekken(mut self) -> Value {
        let mut tokens: Vec<Vec<u8>> = (0..=255).map(|byte: u8| vec![byte]).collect();
        for (left, right) in self.merges {
            let token = [tokens[left].as_slice(), tokens[right].as_slice()].concat();
            tokens.push(token);
        }
        let ranked = tokens.iter().zip(0_u64..).map(|(token, rank)| {
            json!({"rank": rank, "token_bytes": STANDARD.encode(token), "token_str": null})
        });
        let vocabulary = ranked.collect();
        let mut tekken = self.header["tekken"].take();
        tekken["vocab"] = vocabulary;
        tekken
    }
}
