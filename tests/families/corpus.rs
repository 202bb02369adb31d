//! The corpus, and what vLLM counts for it.

use std::path::Path;

use serde_json::Value;

/// One prompt of the corpus.
pub(crate) struct Entry {
    pub(crate) class: String,
    pub(crate) text: String,
}

/// Everything that is counted.
pub(crate) struct Corpus {
    pub(crate) entries: Vec<Entry>,
    /// Request bodies, the corpus's texts put where they are only numbered.
    pub(crate) conversations: Vec<Value>,
    /// The requests written out by hand, by name.
    pub(crate) requests: Vec<(String, Value)>,
}

/// The counts of one family; `None` is a request that vLLM refuses.
pub(crate) struct Counts {
    pub(crate) completions: Vec<Option<u64>>,
    pub(crate) bare: Vec<Option<u64>>,
    pub(crate) chats: Vec<Option<u64>>,
    pub(crate) conversations: Vec<Option<u64>>,
    /// In the order of [`Corpus::requests`].
    pub(crate) requests: Vec<Option<u64>>,
}

/// A golden file.
pub(crate) fn golden(name: &str) -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    serde_json::from_str(&std::fs::read_to_string(root.join(name)).unwrap()).unwrap()
}

// === impl Corpus ===

impl Corpus {
    pub(crate) fn read() -> Self {
        let entries: Vec<Entry> = golden("corpus/corpus.json")
            .as_array()
            .unwrap()
            .iter()
            .map(Entry::read)
            .collect();
        let mut conversations = golden("corpus/conversations.json");
        spell_out(&mut conversations, &entries);
        let requests = golden("counts.json")["requests"]
            .as_object()
            .unwrap()
            .clone();
        Self {
            entries,
            conversations: conversations.as_array().unwrap().clone(),
            requests: requests.into_iter().collect(),
        }
    }
}

// === impl Entry ===

impl Entry {
    fn read(entry: &Value) -> Self {
        let times = entry["times"].as_u64().unwrap_or(1).try_into().unwrap();
        Self {
            class: entry["class"].as_str().unwrap().to_owned(),
            text: entry["text"].as_str().unwrap().repeat(times),
        }
    }
}

/// Puts the corpus's texts where a request only numbers them.
fn spell_out(value: &mut Value, entries: &[Entry]) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                let text = field.as_u64().and_then(|at| usize::try_from(at).ok());
                let numbered = matches!(key.as_str(), "content" | "text" | "description");
                match text.filter(|_| numbered) {
                    Some(at) => *field = Value::from(entries[at].text.as_str()),
                    None => spell_out(field, entries),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| spell_out(item, entries)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

// === impl Counts ===

impl Counts {
    pub(crate) fn read(family: &str, corpus: &Corpus) -> Self {
        let counts = golden(&format!("corpus/counts/{family}.json"));
        let list = |form: &str| -> Vec<Option<u64>> {
            let list = counts[form].as_array().unwrap();
            list.iter().map(Value::as_u64).collect()
        };
        let requests = corpus.requests.iter();
        let requests = requests.map(|(name, _)| counts["requests"][name].as_u64());
        let counts = Self {
            completions: list("completions"),
            bare: list("bare"),
            chats: list("chats"),
            conversations: list("conversations"),
            requests: requests.collect(),
        };
        assert_eq!(counts.completions.len(), corpus.entries.len());
        assert_eq!(counts.bare.len(), corpus.entries.len());
        assert_eq!(counts.chats.len(), corpus.entries.len());
        assert_eq!(counts.conversations.len(), corpus.conversations.len());
        counts
    }
}
