//! How many parameters a model has, from its configuration alone.
//!
//! Decides by the shapes of the usual matrices; norms, biases and rotary tables
//! are left out (less than 0.1 %). It serves where no checkpoint is at hand:
//! a checkpoint's own sizes are exact and come first.

use super::families::Family;
use super::keys::{Keys, Limit};
use super::layers::{self, Heads};
use super::{Cache, Kind, Model, ModelError};

/// Names of the number of experts.
const EXPERTS: &[&str] = &[
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "moe_num_experts",
];

/// Names of the width of one expert.
pub(super) const EXPERT: &[&str] = &["moe_intermediate_size", "expert_ffn_hidden_size"];

/// Parameters by kind. 128 bits hold the product of any believed numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// The table of token embeddings.
    pub embedding: u128,
    /// The output head; 0 where it is the embedding.
    pub head: u128,
    /// Projections of attention and of states.
    pub attention: u128,
    /// Feed-forwards every token passes, shared experts among them.
    pub dense: u128,
    /// All experts.
    pub experts: u128,
    /// Routers.
    pub routers: u128,
    /// The encoder of images or sound.
    pub encoder: u128,
}

// === impl Parameters ===

impl Parameters {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> u128 {
        self.embedding
            + self.head
            + self.attention
            + self.dense
            + self.experts
            + self.routers
            + self.encoder
    }

    /// Counts them.
    pub(super) fn read(
        keys: Keys<'_>,
        family: Family,
        caches: &[Cache],
    ) -> Result<Self, ModelError> {
        let model_type = keys.text("model_type").unwrap_or_default().to_lowercase();
        let hidden = layers::hidden(keys, &model_type)?;
        let vocabulary = layers::vocabulary(keys, &model_type)?;
        let table = product(&[hidden, vocabulary]);
        let mut counted = Self {
            embedding: table,
            head: if tied(keys, &model_type) { 0 } else { table },
            encoder: encoder(keys)?,
            ..Self::default()
        };
        counted.attention = attention(keys, &model_type, caches)?;
        if family == Family::GemmaShared {
            counted.attention += reading(keys, &model_type)?;
            counted.embedding += per_layer(keys)?;
        }
        let forward = Forward::read(keys, family, hidden)?;
        let letters = pattern(keys, family);
        for layer in 0..layers::count(keys, &model_type)? {
            let fed = match &letters {
                Some(letters) => letters.get(usize::try_from(layer).unwrap_or(usize::MAX)),
                None => None,
            };
            forward.add(layer, fed.copied(), &mut counted);
        }
        Ok(counted)
    }
}

/// Names of the width of a dense feed-forward.
const DENSE: &[&str] = &["intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"];

/// Classes that define it as four times the residual stream's.
const FOUR_TIMES: [&str; 6] = ["gpt2", "gpt_bigcode", "gptj", "falcon", "bloom", "gpt_neo"];

/// Width of a dense feed-forward as the file says; 0 where it does not.
fn told_width(keys: Keys<'_>) -> Result<u64, ModelError> {
    for name in DENSE {
        let width = keys.find_or_zero(&[name], Limit::Width)?;
        if width > 0 {
            return Ok(width);
        }
    }
    Ok(0)
}

/// The width that was assumed for a feed-forward some layer has, where the file says
/// none and the class has no rule; `None` where nothing was.
pub(super) fn assumed_width(
    keys: Keys<'_>,
    family: Family,
    model: &Model,
) -> Result<Option<u64>, ModelError> {
    let by_rule = FOUR_TIMES.contains(&model.model_type.as_str());
    if by_rule || told_width(keys)? > 0 {
        return Ok(None);
    }
    let forward = Forward::read(keys, family, model.hidden)?;
    let letters = pattern(keys, family);
    let is_dense = |layer: u64| match &letters {
        Some(letters) => {
            let at = usize::try_from(layer).ok();
            at.and_then(|at| letters.get(at)) == Some(&'-')
        }
        None => !forward.sparse.holds(layer),
    };
    let sparse = !matches!(forward.sparse, Sparse::Never);
    let own = keys.value("intermediate_size_mlp").is_some();
    let dense = !own && (0..model.layers).any(is_dense);
    let experts = sparse && !EXPERT.iter().any(|name| keys.value(name).is_some());
    Ok((dense || experts).then_some(4 * model.hidden))
}

/// The widest feed-forward one token passes; four times the residual stream where no
/// width of any is told.
pub(super) fn widest(keys: Keys<'_>, hidden: u64) -> Result<u64, ModelError> {
    let dense = told_width(keys)?;
    let expert = keys.find_or_zero(&["moe_intermediate_size"], Limit::Width)?;
    let names = &["num_experts_per_tok", "moe_topk", "top_k_experts"];
    let chosen = keys.find_or_zero(names, Limit::Heads)?;
    let sparse = if expert == 0 { dense } else { expert };
    match dense.max(sparse * chosen.min(64)) {
        0 => Ok(4 * hidden),
        width => Ok(width),
    }
}

/// Width of one expert, 0 without experts.
pub(super) fn expert(keys: Keys<'_>) -> Result<u64, ModelError> {
    if keys.find_or_zero(EXPERTS, Limit::Heads)? == 0 {
        return Ok(0);
    }
    keys.find_or_zero(
        &["moe_intermediate_size", "intermediate_size"],
        Limit::Width,
    )
}

fn product(factors: &[u64]) -> u128 {
    let factors = factors.iter().map(|factor| u128::from(*factor));
    factors.product()
}

/// Whether the output head is the embedding. Where the file is silent, the
/// class decides: Gemma's, Cohere's and GPT-2's tie them.
fn tied(keys: Keys<'_>, model_type: &str) -> bool {
    let told = keys.value("tie_word_embeddings");
    let kinds = ["gemma", "cohere", "gpt2", "gpt_bigcode", "bloom", "falcon"];
    match told.and_then(serde_json::Value::as_bool) {
        Some(tied) => tied,
        None => kinds.iter().any(|kind| model_type.starts_with(kind)),
    }
}

fn attention(keys: Keys<'_>, model_type: &str, caches: &[Cache]) -> Result<u128, ModelError> {
    let hidden = layers::hidden(keys, model_type)?;
    let mut sum = 0;
    for cache in caches {
        sum += match cache.kind {
            Kind::Attention {
                kv_heads, width, ..
            } => {
                let query = Heads::read(keys, model_type)?.query;
                // Qwen3-Next's query projection holds a gate as wide as itself.
                let gated = keys.value("linear_num_value_heads").is_some();
                let outs = if gated { 3 } else { 2 };
                product(&[hidden, query, width / 2, outs]) + product(&[hidden, kv_heads, width])
            }
            Kind::Latent { .. } => latent(keys, hidden)?,
            Kind::State(state) => {
                // In (what is convolved, and a gate as wide as the output) and out.
                let groups = 2 * state.groups * state.group_width;
                let output = inner(keys, state.channels)?;
                product(&[hidden, state.channels + groups + 2 * output])
            }
        };
    }
    Ok(sum)
}

/// Width of a state layer's output: a delta net's values, else all channels.
fn inner(keys: Keys<'_>, channels: u64) -> Result<u64, ModelError> {
    let heads = keys.find(&["linear_num_value_heads"], Limit::Heads)?;
    let width = keys.find(&["linear_value_head_dim"], Limit::Heads)?;
    Ok(match (heads, width) {
        (Some(heads), Some(width)) => heads * width,
        // Kimi's convolve queries, keys and values alike.
        _ if keys.value("linear_attn_config").is_some() => channels / 3,
        _ => channels,
    })
}

/// DeepSeek's projections, down to the ranks and up from them.
fn latent(keys: Keys<'_>, hidden: u64) -> Result<u128, ModelError> {
    let heads = keys.need(&["num_attention_heads"], Limit::Heads)?;
    let rank = keys.need(&["kv_lora_rank"], Limit::Width)?;
    let rope = keys.find_or_zero(&["qk_rope_head_dim"], Limit::Width)?;
    let nope = keys.need(&["qk_nope_head_dim"], Limit::Width)?;
    let value = keys.need(&["v_head_dim"], Limit::Width)?;
    let query = heads * (nope + rope);
    let down = match keys.find(&["q_lora_rank"], Limit::Width)? {
        Some(rank) => product(&[hidden, rank]) + product(&[rank, query]),
        None => product(&[hidden, query]),
    };
    Ok(down
        + product(&[hidden, rank + rope])
        + product(&[rank, heads, nope + value])
        + product(&[heads, value, hidden]))
}

/// Gemma's layers that read another's cache still ask and answer.
fn reading(keys: Keys<'_>, model_type: &str) -> Result<u128, ModelError> {
    let heads = Heads::read(keys, model_type)?;
    let hidden = layers::hidden(keys, model_type)?;
    let shared = keys.find_or_zero(&["num_kv_shared_layers"], Limit::Layers)?;
    Ok(product(&[shared, hidden, heads.query, heads.width, 2]))
}

/// Gemma 3n's table of embeddings for every layer.
fn per_layer(keys: Keys<'_>) -> Result<u128, ModelError> {
    let width = keys.find_or_zero(&["hidden_size_per_layer_input"], Limit::Width)?;
    let entries = keys.find_or_zero(&["vocab_size_per_layer_input"], Limit::Vocabulary)?;
    let layers = keys.find_or_zero(&["num_hidden_layers"], Limit::Layers)?;
    Ok(product(&[width, entries, layers]))
}

/// A tower of images, from its own configuration.
fn encoder(keys: Keys<'_>) -> Result<u128, ModelError> {
    let Some(vision) = keys.object("vision_config") else {
        return Ok(0);
    };
    let width = vision.find_or_zero(&["hidden_size", "embed_dim"], Limit::Width)?;
    let depth = vision.find_or_zero(&["num_hidden_layers", "depth"], Limit::Layers)?;
    let inner = vision.find(&["intermediate_size"], Limit::Width)?;
    let inner = inner.unwrap_or(4 * width);
    Ok(product(&[depth, width, 4 * width + 2 * inner]))
}

/// The letters of Nemotron-H's pattern, of which only some feed forward.
fn pattern(keys: Keys<'_>, family: Family) -> Option<Vec<char>> {
    let named = (family == Family::NemotronH).then(|| keys.text("hybrid_override_pattern"));
    Some(named??.chars().collect())
}

/// The feed-forward of each layer.
struct Forward {
    /// One dense feed-forward.
    dense: u128,
    /// All experts of one layer, those shared, and the router.
    experts: u128,
    shared: u128,
    router: u128,
    sparse: Sparse,
}

/// Which layers have experts.
enum Sparse {
    Never,
    From { first: u64, every: u64 },
    Not(Vec<u64>),
}

// === impl Forward ===

impl Forward {
    fn read(keys: Keys<'_>, family: Family, hidden: u64) -> Result<Self, ModelError> {
        let matrices = match family {
            Family::Plain | Family::NemotronH => 2,
            _ => 3,
        };
        let told = match told_width(keys)? {
            0 => 4 * hidden,
            told => told,
        };
        let count = keys.find_or_zero(EXPERTS, Limit::Heads)?;
        let expert = keys.find(EXPERT, Limit::Width)?;
        let expert = expert.unwrap_or(told);
        // Llama 4 writes its experts' width where others write the dense one.
        let dense = keys.find(&["intermediate_size_mlp"], Limit::Width)?;
        let one = |width: u64| product(&[matrices, hidden, width]);
        Ok(Self {
            dense: one(dense.unwrap_or(told)),
            experts: one(expert) * u128::from(count),
            shared: one(shared(keys, expert)?),
            router: product(&[hidden, count]),
            sparse: if count == 0 {
                Sparse::Never
            } else {
                sparse(keys)?
            },
        })
    }

    fn add(&self, layer: u64, letter: Option<char>, counted: &mut Parameters) {
        let sparse = match letter {
            Some('E') => true,
            Some('-') => false,
            Some(_) => return,
            None => self.sparse.holds(layer),
        };
        if sparse {
            counted.experts += self.experts;
            counted.dense += self.shared;
            counted.routers += self.router;
        } else {
            counted.dense += self.dense;
        }
    }
}

/// Width of the experts every token passes.
fn shared(keys: Keys<'_>, expert: u64) -> Result<u64, ModelError> {
    let names: &[&'static str] = &[
        "shared_expert_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "shared_intermediate_size",
    ];
    if let Some(width) = keys.find(names, Limit::Width)? {
        return Ok(width);
    }
    let llama4 = keys.value("intermediate_size_mlp").is_some();
    let names = &[
        "n_shared_experts",
        "num_shared_experts",
        "moe_num_shared_experts",
    ];
    let count = keys.find_or_zero(names, Limit::Heads)?;
    Ok(expert * count.max(u64::from(llama4)))
}

/// Which layers are sparse: all, but for the first, every other, or a list.
fn sparse(keys: Keys<'_>) -> Result<Sparse, ModelError> {
    if let Some(dense) = keys
        .numbers("mlp_only_layers")
        .filter(|all| !all.is_empty())
    {
        return Ok(Sparse::Not(dense));
    }
    let step = keys.find(
        &[
            "decoder_sparse_step",
            "interleave_moe_layer_step",
            "expert_layer_period",
        ],
        Limit::Layers,
    )?;
    let first = keys.find_or_zero(&["first_k_dense_replace"], Limit::Layers)?;
    let offset = keys.find_or_zero(&["expert_layer_offset"], Limit::Layers)?;
    let every = step.unwrap_or(1);
    let first = if every > 1 && offset == 0 {
        every - 1
    } else {
        first.max(offset)
    };
    Ok(Sparse::From { first, every })
}

// === impl Sparse ===

impl Sparse {
    fn holds(&self, layer: u64) -> bool {
        match self {
            Self::Never => false,
            Self::From { first, every } => {
                layer >= *first && (layer - first).is_multiple_of(*every)
            }
            Self::Not(dense) => !dense.contains(&layer),
        }
    }
}
