//! Architectures that are known, by `model_type`.
//!
//! Decides how the layers of each are laid out. A model_type that is not here
//! is refused: a guess would be wrong by a factor, not by a percent.

/// How an architecture's layers are read from its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// Attention by key and value heads in every layer; windows by layer where
    /// the configuration has any.
    Attention,
    /// The same, with a feed-forward of two matrices in place of three.
    Plain,
    /// DeepSeek's multi-head latent attention.
    Latent,
    /// LongCat's: two latent attentions in each layer.
    DoubleLatent,
    /// Llama 4: chunks of attention but for every fourth layer.
    Llama4,
    /// Gemma 3n and 4: other heads in global layers, last layers share a cache.
    GemmaShared,
    /// Qwen3-Next, Qwen3.5: gated delta net with some full attention.
    GatedDelta,
    /// Kimi Linear: delta attention with some latent attention.
    KimiLinear,
    /// Layers by letter: Mamba 2, attention, feed-forward.
    NemotronH,
    /// Mamba 2 and attention by list of layer types or of indices.
    Mamba2,
    /// Jamba: Mamba 1 with attention every so many layers.
    Jamba,
    /// Falcon-H1: Mamba 2 beside attention in every layer.
    FalconH1,
    /// LFM2: short convolutions with some attention.
    ShortConvolution,
}

/// All that are known.
const KNOWN: &[(&str, Family)] = &[
    ("llama", Family::Attention),
    ("mistral", Family::Attention),
    ("ministral", Family::Attention),
    ("ministral3", Family::Attention),
    ("mistral4", Family::Latent),
    ("mixtral", Family::Attention),
    ("qwen2", Family::Attention),
    ("qwen2_moe", Family::Attention),
    ("qwen2_vl", Family::Attention),
    ("qwen2_vl_text", Family::Attention),
    ("qwen2_5_vl", Family::Attention),
    ("qwen2_5_vl_text", Family::Attention),
    ("qwen2_5_omni_text", Family::Attention),
    ("qwen3", Family::Attention),
    ("qwen3_moe", Family::Attention),
    ("qwen3_vl_text", Family::Attention),
    ("qwen3_vl_moe_text", Family::Attention),
    ("qwen3_omni_moe_text", Family::Attention),
    ("gemma", Family::Attention),
    ("gemma2", Family::Attention),
    ("gemma3_text", Family::Attention),
    ("gemma3n_text", Family::GemmaShared),
    ("gemma4_text", Family::GemmaShared),
    ("gpt_oss", Family::Attention),
    ("phi3", Family::Attention),
    ("phi4mm", Family::Attention),
    ("phimoe", Family::Attention),
    ("granite", Family::Attention),
    ("granitemoe", Family::Attention),
    ("olmo", Family::Attention),
    ("olmo2", Family::Attention),
    ("olmo3", Family::Attention),
    ("olmoe", Family::Attention),
    ("cohere", Family::Attention),
    ("cohere2", Family::Attention),
    ("glm", Family::Attention),
    ("glm4", Family::Attention),
    ("glm4_moe", Family::Attention),
    ("glm4v_text", Family::Attention),
    ("glm4v_moe_text", Family::Attention),
    ("chatglm", Family::Attention),
    ("exaone", Family::Attention),
    ("exaone4", Family::Attention),
    ("ernie4_5", Family::Attention),
    ("ernie4_5_moe", Family::Attention),
    ("seed_oss", Family::Attention),
    ("smollm3", Family::Attention),
    ("hunyuan_v1_dense", Family::Attention),
    ("hunyuan_v1_moe", Family::Attention),
    ("minimax_m2", Family::Attention),
    ("mimo", Family::Attention),
    ("dots1", Family::Attention),
    ("internlm2", Family::Attention),
    ("internlm3", Family::Attention),
    ("baichuan", Family::Attention),
    ("stablelm", Family::Attention),
    ("solar", Family::Attention),
    ("minicpm", Family::Attention),
    ("apertus", Family::Plain),
    ("arcee", Family::Plain),
    ("nemotron", Family::Plain),
    ("phi", Family::Plain),
    ("starcoder2", Family::Plain),
    ("gpt_neox", Family::Plain),
    ("gpt2", Family::Plain),
    ("gpt_bigcode", Family::Plain),
    ("gptj", Family::Plain),
    ("falcon", Family::Plain),
    ("opt", Family::Plain),
    ("bloom", Family::Plain),
    ("deepseek_v2", Family::Latent),
    ("deepseek_v3", Family::Latent),
    ("deepseek_v32", Family::Latent),
    ("kimi_k2", Family::Latent),
    ("glm4_moe_lite", Family::Latent),
    ("glm_moe_dsa", Family::Latent),
    ("pangu_ultra_moe", Family::Latent),
    ("longcat_flash", Family::DoubleLatent),
    ("llama4_text", Family::Llama4),
    ("qwen3_next", Family::GatedDelta),
    ("qwen3_5_text", Family::GatedDelta),
    ("qwen3_5_moe_text", Family::GatedDelta),
    ("kimi_linear", Family::KimiLinear),
    ("nemotron_h", Family::NemotronH),
    ("granitemoehybrid", Family::Mamba2),
    ("bamba", Family::Mamba2),
    ("jamba", Family::Jamba),
    ("falcon_h1", Family::FalconH1),
    ("lfm2", Family::ShortConvolution),
    ("lfm2_moe", Family::ShortConvolution),
];

// === impl Family ===

impl Family {
    /// The family of a `model_type`, if it is known.
    pub(super) fn of(model_type: &str) -> Option<Self> {
        let known = KNOWN.iter().find(|(name, _)| *name == model_type);
        known.map(|(_, family)| *family)
    }
}
