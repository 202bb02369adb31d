//! What a `config.json` leaves out, and what stands in for it.
//!
//! Decides of which gaps an operator must hear: those that vLLM fills from the class of
//! the model, and those that nobody can fill. Never fills one itself: the readers of
//! keys do, and this says what they took. What a class defines by rule, as Llama's as
//! many heads of keys as of queries, is no gap.

use std::fmt;

use super::families::Family;
use super::keys::{Keys, shown};
use super::layers::{HEAD_WIDTH, Heads, VOCABULARY};
use super::{Kind, Model, ModelError, UNTOLD_CONTEXT, parameters};

/// Classes that have as many heads of keys and values as of queries where the file
/// does not say.
const ALL_HEADS: [&str; 26] = [
    "llama",
    "cohere",
    "cohere2",
    "granite",
    "granitemoe",
    "olmo",
    "olmo2",
    "olmo3",
    "olmoe",
    "phi",
    "phi3",
    "stablelm",
    "baichuan",
    "minicpm",
    "internlm2",
    "exaone",
    "hunyuan_v1_dense",
    "hunyuan_v1_moe",
    "gpt_neox",
    "gpt2",
    "gpt_bigcode",
    "gptj",
    "falcon",
    "opt",
    "bloom",
    "gemma3_text",
];

/// Classes whose heads are not `hidden_size / num_attention_heads` wide where the file
/// does not say.
const OWN_WIDTH: [&str; 12] = [
    "gemma",
    "gemma2",
    "gemma3n_text",
    "gemma4_text",
    "gpt_oss",
    "glm",
    "glm4",
    "glm4_moe",
    "qwen3",
    "qwen3_vl_text",
    "qwen3_next",
    "seed_oss",
];

/// Classes that have a window where the file does not say.
const WINDOWED: [&str; 5] = [
    "gemma2",
    "gemma3_text",
    "gemma3n_text",
    "gpt_oss",
    "cohere2",
];

/// Classes that write the width of an expert as `intermediate_size`.
const SHARED_KEY: [&str; 10] = [
    "mixtral",
    "gpt_oss",
    "granitemoe",
    "granitemoehybrid",
    "olmoe",
    "phimoe",
    "llama4_text",
    "jamba",
    "minimax_m2",
    "hunyuan_v1_moe",
];

/// One thing that the file does not say, or not in words that are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assumed {
    /// The key.
    pub field: &'static str,
    /// What stands there, where that is not known; else it is missing.
    pub told: Option<String>,
    /// What is taken in its place.
    pub taken: String,
    /// The figures that follow from it, and the flags that say otherwise.
    pub changes: &'static str,
}

impl fmt::Display for Assumed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.told {
            Some(told) => write!(
                f,
                "config.json says {} {told}, which is not known",
                self.field
            )?,
            None => write!(f, "config.json has no {}", self.field)?,
        }
        write!(f, ": {} assumed; {}", self.taken, self.changes)
    }
}

/// Everything that was assumed of `model` as it was read from these keys.
pub(super) fn assumed(
    keys: Keys<'_>,
    family: Family,
    model: &Model,
) -> Result<Vec<Assumed>, ModelError> {
    let mut gaps = Gaps {
        keys,
        model,
        all: Vec::new(),
    };
    gaps.weights(family)?;
    gaps.caches();
    if model.context.is_none() {
        let changes = "the longest context and --max-model-len follow from it, unless that is \
                       given";
        let taken = format!("{UNTOLD_CONTEXT} tokens, as vLLM does, are");
        gaps.add("max_position_embeddings", taken, changes);
    }
    gaps.all.extend(dtype(keys));
    Ok(gaps.all)
}

/// What was found so far.
struct Gaps<'a> {
    keys: Keys<'a>,
    model: &'a Model,
    all: Vec<Assumed>,
}

// === impl Gaps ===

impl Gaps<'_> {
    fn add(&mut self, field: &'static str, taken: String, changes: &'static str) {
        self.all.push(Assumed {
            field,
            told: None,
            taken,
            changes,
        });
    }

    fn lacks(&self, names: &[&str]) -> bool {
        names.iter().all(|name| self.keys.value(name).is_none())
    }

    fn is(&self, kinds: &[&str]) -> bool {
        kinds.contains(&self.model.model_type.as_str())
    }

    /// What weights and overhead are counted by.
    fn weights(&mut self, family: Family) -> Result<(), ModelError> {
        const CHANGES: &str = "weights that are not read from safetensors (--weights) and the \
                               overhead (--overhead) follow from it";
        let model = self.model;
        // Google leaves Gemma 3's to the class in its own files.
        if self.lacks(VOCABULARY) && !self.is(&["gemma3_text"]) {
            self.add("vocab_size", format!("{} is", model.vocabulary), CHANGES);
        }
        if let Some(width) = parameters::assumed_width(self.keys, family, model)? {
            let taken = format!("4 times hidden_size, {width}, is");
            self.add("intermediate_size", taken, CHANGES);
        }
        if model.expert > 0 && self.lacks(parameters::EXPERT) && !self.is(&SHARED_KEY) {
            let taken = format!("intermediate_size, {}, is", model.expert);
            self.add("moe_intermediate_size", taken, CHANGES);
        }
        Ok(())
    }

    /// What the KV of a token is counted by.
    fn caches(&mut self) {
        let heads = self.model.caches.iter().find_map(|cache| match cache.kind {
            Kind::Attention {
                kv_heads, width, ..
            } => Some((kv_heads, width / 2)),
            Kind::Latent { .. } | Kind::State(_) => None,
        });
        let Some((kv_heads, width)) = heads else {
            return;
        };
        if !Heads::says_kv(self.keys) && !self.is(&ALL_HEADS) {
            let changes = "the KV of one token and all that follows from it would be wrong by the \
                           factor; write it into the file";
            let taken = format!("as many as num_attention_heads, {kv_heads}, are");
            self.add("num_key_value_heads", taken, changes);
        }
        if self.lacks(HEAD_WIDTH) && self.is(&OWN_WIDTH) {
            let changes = "its class has a width of its own, by which the KV of one token would be \
                           wrong; write it into the file";
            let taken = format!("hidden_size by num_attention_heads, {width}, is");
            self.add("head_dim", taken, changes);
        }
        if !self.keys.has("sliding_window") && self.is(&WINDOWED) {
            let changes = "its class has a window, by which the KV of long sequences would be \
                           less; write it into the file";
            self.add("sliding_window", "none is".to_owned(), changes);
        }
    }
}

/// A type of weights that is none vLLM runs in.
fn dtype(keys: Keys<'_>) -> Option<Assumed> {
    let names = ["torch_dtype", "dtype"];
    let (field, value) = names
        .into_iter()
        .find_map(|name| Some((name, keys.value(name)?)))?;
    let name = value.as_str().map(|name| name.trim_start_matches("torch."));
    let known = ["bfloat16", "float16", "half", "float32", "float", "auto"];
    if name.is_some_and(|name| known.contains(&name)) {
        return None;
    }
    Some(Assumed {
        field,
        told: Some(shown(value)),
        taken: "16 bits are".to_owned(),
        changes: "the KV of one token (--kv-cache-dtype, --dtype) and the weights (--weights) \
                  follow from it",
    })
}
