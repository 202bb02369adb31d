//! A model as far as memory goes, from its `config.json`.
//!
//! Decides what each layer keeps of a sequence: keys and values of every token
//! or of a window, one latent vector per token, or a state of fixed size. Never
//! guesses an architecture it does not know. Invariant: every number of a
//! [`Model`] is at least 1 where it multiplies and small enough that products of
//! them fit 128 bits.

mod assumed;
mod families;
mod hybrid;
mod keys;
mod layers;
mod parameters;
mod quantization;
mod spans;

use serde_json::Value;
use thiserror::Error;

pub use assumed::Assumed;
use families::Family;
use keys::{Keys, Limit};
pub use parameters::Parameters;
pub use quantization::{Quantization, Reach};

/// Tokens of context where a configuration says nothing: what vLLM falls back to
/// (`_get_and_verify_max_len` in its `config/model.py`).
pub const UNTOLD_CONTEXT: u64 = 2_048;

/// What a model keeps and weighs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// `model_type` of the language model.
    pub model_type: String,
    /// Decoder layers, those without a cache among them.
    pub layers: u64,
    /// What is kept of a sequence, in order of layers; a layer may keep two
    /// things (Falcon-H1) or none (feed-forward alone, shared caches).
    pub caches: Vec<Cache>,
    /// Attention heads; tensor parallelism must divide them.
    pub heads: u64,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Width of the widest feed-forward a token passes, for the activation peak.
    pub widest: u64,
    /// Width of one expert's feed-forward, 0 without experts.
    pub expert: u64,
    /// Entries of the vocabulary.
    pub vocabulary: u64,
    /// Context the model was made for, in tokens, if it says so.
    pub context: Option<u64>,
    /// Bits of the checkpoint's plain weights: 16 or 32.
    pub bits: u64,
    /// Parameters by kind.
    pub parameters: Parameters,
    /// How the checkpoint's weights are stored, where not plainly.
    pub quantization: Option<Quantization>,
    /// What `kv_cache_dtype=auto` becomes under vLLM from 0.12 on, where a
    /// checkpoint of NVIDIA's says so: `fp8` or `nvfp4`.
    pub kv_dtype: Option<&'static str>,
    /// What the file leaves out, with what stands in for it.
    pub assumed: Vec<Assumed>,
}

/// What one decoder layer keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Index of the decoder layer, from 0; decides its pipeline stage.
    pub layer: u64,
    /// What it keeps.
    pub kind: Kind,
}

/// What is kept of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A key and a value per token and head.
    Attention {
        /// Heads of keys and values, over all GPUs.
        kv_heads: u64,
        /// Width of one key plus one value.
        width: u64,
        /// How far back it looks.
        span: Span,
    },
    /// One latent vector per token for all heads; never split by tensor
    /// parallelism.
    Latent {
        /// `kv_lora_rank + qk_rope_head_dim`.
        width: u64,
        /// Width of the index key of sparse attention, 0 without one.
        index: u64,
    },
    /// A state of fixed size per sequence.
    State(State),
}

/// How far an attention layer looks back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// Over everything.
    Full,
    /// Over the last tokens of this number.
    Window(u64),
    /// Within chunks of this number of tokens.
    Chunk(u64),
}

/// A linear-attention or state-space layer's state, in elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Channels of the convolution that are split over GPUs.
    pub channels: u64,
    /// Groups that come twice (B and C), each of `group_width` channels.
    pub groups: u64,
    /// Channels of one group.
    pub group_width: u64,
    /// Steps the convolution remembers: kernel less one.
    pub steps: u64,
    /// Elements of the recurrent state, split over GPUs.
    pub cells: u64,
    /// Bytes of one recurrent element; the convolution's have 2.
    pub cell_bytes: u64,
}

/// Why a `config.json` cannot be sized.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ModelError {
    /// It is not JSON.
    #[error("it is not JSON ({0}); a model's config.json is wanted")]
    NotJson(String),
    /// It is JSON of another form.
    #[error("it is not a JSON object; a model's config.json is wanted")]
    NotObject,
    /// A key that is needed is missing.
    #[error("key {key} is missing; is this the config.json of a language model?")]
    Missing {
        /// The key.
        key: &'static str,
    },
    /// A number is not one, or not one that any model has.
    #[error("key {key} is {value}; a whole number from {least} to {most} is wanted")]
    Range {
        /// The key.
        key: &'static str,
        /// Its value, shortened.
        value: String,
        /// The least that is believed.
        least: u64,
        /// The most that is believed.
        most: u64,
    },
    /// `layer_types` and the number of layers differ.
    #[error("layer_types lists {listed} layers where num_hidden_layers is {layers}")]
    LayerTypes {
        /// Entries of the list.
        listed: usize,
        /// `num_hidden_layers`.
        layers: u64,
    },
    /// The heads do not divide.
    #[error(
        "hidden_size {hidden} is no multiple of {heads} attention heads, and head_dim is missing"
    )]
    Heads {
        /// `hidden_size`.
        hidden: u64,
        /// `num_attention_heads`.
        heads: u64,
    },
    /// Nobody here knows the architecture.
    #[error(
        "architecture {0:?} is not known; if its layers keep a key and a value per head as \
         Llama's do, ask again with --assume-attention"
    )]
    Unknown(String),
    /// It keeps nothing that grows.
    #[error("no layer of it keeps keys and values: there is no KV cache to size")]
    NoAttention,
    /// Nobody here knows how the weights are stored.
    #[error(
        "quantization {0:?} is not known; name one with --quantization (fp8, int8, awq, gptq, \
         bitsandbytes, mxfp4, nvfp4) or give the weights with --weights"
    )]
    Quantization(String),
}

/// What to do with an architecture that is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// Refuse it.
    Refuse,
    /// Take it for keys and values by head in every layer.
    AssumeAttention,
}

// === impl Model ===

impl Model {
    /// Reads a `config.json`.
    ///
    /// # Errors
    /// [`ModelError`] names the key that is missing or out of range.
    pub fn read(text: &str, unknown: Unknown) -> Result<Self, ModelError> {
        let text = text.trim_start_matches('\u{feff}');
        let whole: Value =
            serde_json::from_str(text).map_err(|error| ModelError::NotJson(error.to_string()))?;
        let keys = Keys::of(whole.as_object().ok_or(ModelError::NotObject)?);
        let model_type = model_type(keys)?;
        let family = match (Family::of(&model_type), unknown) {
            (Some(family), _) => family,
            (None, Unknown::AssumeAttention) => Family::Attention,
            (None, Unknown::Refuse) => return Err(ModelError::Unknown(model_type)),
        };
        let layers = layers::count(keys, &model_type)?;
        let hidden = layers::hidden(keys, &model_type)?;
        let caches = layers::caches(keys, family, &model_type)?;
        if !caches.iter().any(|cache| cache.kind.grows()) {
            return Err(ModelError::NoAttention);
        }
        let parameters = Parameters::read(keys, family, &caches)?;
        let mut model = Self {
            layers,
            caches,
            heads: layers::Heads::read(keys, &model_type)?.query,
            hidden,
            widest: parameters::widest(keys, hidden)?,
            expert: parameters::expert(keys)?,
            vocabulary: layers::vocabulary(keys, &model_type)?,
            context: context(keys, &model_type)?,
            bits: bits(keys),
            parameters,
            quantization: Quantization::read(keys)?,
            kv_dtype: kv_dtype(keys),
            model_type,
            assumed: Vec::new(),
        };
        model.assumed = assumed::assumed(keys, family, &model)?;
        Ok(model)
    }
}

// === impl Kind ===

impl Kind {
    /// Whether it keeps something for each token.
    #[must_use]
    pub fn grows(&self) -> bool {
        !matches!(self, Self::State(_))
    }
}

/// The language model's own type; a wrapper's where the inner object has none.
fn model_type(keys: Keys<'_>) -> Result<String, ModelError> {
    let named = keys.text("model_type").map(str::to_lowercase);
    named.ok_or(ModelError::Missing { key: "model_type" })
}

/// The context in tokens, as vLLM derives it: the least of the keys that are
/// there, times a rope scaling that is not already in it.
fn context(keys: Keys<'_>, model_type: &str) -> Result<Option<u64>, ModelError> {
    let names: [&'static str; 6] = [
        "max_position_embeddings",
        "n_positions",
        "max_seq_len",
        "seq_length",
        "model_max_length",
        "max_sequence_length",
    ];
    let mut least: Option<u64> = None;
    for name in names {
        if let Some(found) = keys.find(&[name], Limit::Tokens)? {
            least = Some(least.map_or(found, |least| least.min(found)));
        }
    }
    if least.is_none() && model_type == "gemma3_text" {
        least = Some(131_072);
    }
    // Gemma 3's linear scaling is within its `max_position_embeddings`.
    let within = model_type.starts_with("gemma3");
    Ok(least.map(|least| if within { least } else { scaled(keys, least) }))
}

/// `least` under the rope scaling of the configuration; Llama 3's and longrope
/// are within `max_position_embeddings` already.
fn scaled(keys: Keys<'_>, least: u64) -> u64 {
    let scaling = keys.object("rope_scaling");
    let Some(scaling) = scaling.or_else(|| keys.object("rope_parameters")) else {
        return least;
    };
    let kind = scaling.text("rope_type").or_else(|| scaling.text("type"));
    let original = scaling.value("original_max_position_embeddings");
    let base = match kind {
        Some("yarn") => original.and_then(Value::as_u64).unwrap_or(least),
        Some("linear" | "dynamic") => least,
        _ => return least,
    };
    // A factor is a small number with at most a few decimals.
    let factor = scaling.value("factor").and_then(Value::as_f64);
    let factor = factor.filter(|factor| (1.0..=1_024.0).contains(factor));
    let Some(thousandths) = factor.and_then(|factor| whole(factor * 1_000.0)) else {
        return least;
    };
    let longer = base.min(1 << 36) * thousandths / 1_000;
    longer.max(1)
}

/// A positive float of at most 2^20 × 1000 as a whole number.
fn whole(number: f64) -> Option<u64> {
    format!("{number:.0}").parse().ok()
}

/// Bits of a plain weight, as the checkpoint says.
fn bits(keys: Keys<'_>) -> u64 {
    let names = ["torch_dtype", "dtype"];
    match names.iter().find_map(|name| keys.text(name)) {
        Some("float32" | "float" | "torch.float32") => 32,
        _ => 16,
    }
}

fn kv_dtype(keys: Keys<'_>) -> Option<&'static str> {
    let stored = keys.object("quantization_config")?;
    if !stored.text("quant_method")?.starts_with("modelopt") {
        return None;
    }
    let nested = stored.object("quantization").unwrap_or(stored);
    let scheme = ["kv_cache_scheme", "kv_cache_quant_algo"];
    let scheme = scheme.iter().find_map(|name| nested.value(name))?;
    let bits = scheme.get("num_bits").and_then(Value::as_u64);
    let name = scheme.as_str().unwrap_or("").to_lowercase();
    match (bits, name.as_str()) {
        (Some(8), _) | (_, "fp8") => Some("fp8"),
        (Some(4), _) | (_, "nvfp4") => Some("nvfp4"),
        _ => None,
    }
}
