//! What each layer keeps, by family.
//!
//! Decides the list of caches of a model whose layers attend; hybrids with
//! states are in [`super::hybrid`].

use super::families::Family;
use super::keys::{Keys, Limit};
use super::{Cache, Kind, ModelError, Span, hybrid, spans};

/// Names of the vocabulary's size.
pub(super) const VOCABULARY: &[&str] = &["vocab_size", "padded_vocab_size"];

/// Names of a head's width.
pub(super) const HEAD_WIDTH: &[&str] = &["head_dim", "kv_channels", "hidden_size_per_head"];

/// Names of the number of heads of keys and values.
const KV_HEADS: &[&str] = &[
    "num_key_value_heads",
    "n_head_kv",
    "num_kv_heads",
    "multi_query_group_num",
    "num_attention_groups",
];

/// Decoder layers.
pub(super) fn count(keys: Keys<'_>, model_type: &str) -> Result<u64, ModelError> {
    match model_type {
        // The class has them where the file has not.
        "nemotron_h" => hybrid::letters(keys).map(|letters| letters.len() as u64),
        _ => keys.need(
            &["num_hidden_layers", "n_layer", "n_layers", "num_layers"],
            Limit::Layers,
        ),
    }
}

/// Width of the residual stream.
pub(super) fn hidden(keys: Keys<'_>, model_type: &str) -> Result<u64, ModelError> {
    let names = &["hidden_size", "n_embd", "d_model"];
    match (keys.find(names, Limit::Width)?, model_type) {
        (Some(hidden), _) => Ok(hidden),
        (None, "gemma3_text") => Ok(2_304),
        _ => keys.need(names, Limit::Width),
    }
}

/// Entries of the vocabulary; Gemma's files leave theirs to the class, and vLLM takes
/// the class's for others that do.
pub(super) fn vocabulary(keys: Keys<'_>, model_type: &str) -> Result<u64, ModelError> {
    match (keys.find(VOCABULARY, Limit::Vocabulary)?, model_type) {
        (Some(entries), _) => Ok(entries),
        (None, "gemma3_text") => Ok(262_208),
        (None, "gemma" | "gemma2") => Ok(256_000),
        (None, "gemma3n_text") => Ok(262_400),
        (None, "llama") => Ok(32_000),
        _ => keys.need(VOCABULARY, Limit::Vocabulary),
    }
}

/// Attention heads and heads of keys and values.
pub(super) struct Heads {
    pub(super) query: u64,
    pub(super) kv: u64,
    /// Width of one head.
    pub(super) width: u64,
}

// === impl Heads ===

impl Heads {
    /// As vLLM's `ModelArchConfigConvertor` reads them.
    pub(super) fn read(keys: Keys<'_>, model_type: &str) -> Result<Self, ModelError> {
        let names: &[&'static str] = &["num_attention_heads", "n_head", "n_heads", "num_heads"];
        let gemma3 = model_type == "gemma3_text";
        let query = match keys.find(names, Limit::Heads)? {
            Some(query) => query,
            None if gemma3 => 8,
            None => keys.need(names, Limit::Heads)?,
        };
        let kv = match Self::kv(keys, model_type)? {
            Some(kv) => kv,
            None if gemma3 => 4,
            None => query,
        };
        let width = match keys.find(HEAD_WIDTH, Limit::Width)? {
            Some(width) => width,
            None if gemma3 => 256,
            None => {
                let hidden = hidden(keys, model_type)?;
                if !hidden.is_multiple_of(query) {
                    return Err(ModelError::Heads {
                        hidden,
                        heads: query,
                    });
                }
                hidden / query
            }
        };
        Ok(Self { query, kv, width })
    }

    fn kv(keys: Keys<'_>, model_type: &str) -> Result<Option<u64>, ModelError> {
        let multi_query = keys.is_true("multi_query");
        let one = match model_type {
            "falcon" => multi_query && !keys.is_true("new_decoder_architecture"),
            _ => model_type == "gpt_bigcode" && multi_query,
        };
        if one {
            return Ok(Some(1));
        }
        keys.find(KV_HEADS, Limit::Heads)
    }

    /// Whether the file says how many heads of keys and values there are.
    pub(super) fn says_kv(keys: Keys<'_>) -> bool {
        let named = KV_HEADS.iter().any(|name| keys.value(name).is_some());
        named || keys.is_true("multi_query")
    }

    /// What a layer of these heads keeps.
    pub(super) fn cache(&self, span: Span) -> Kind {
        Kind::Attention {
            kv_heads: self.kv,
            width: 2 * self.width,
            span,
        }
    }
}

/// The caches of a model, in order of layers.
pub(super) fn caches(
    keys: Keys<'_>,
    family: Family,
    model_type: &str,
) -> Result<Vec<Cache>, ModelError> {
    let layers = count(keys, model_type)?;
    let each = |kind: Kind| (0..layers).map(move |layer| Cache { layer, kind });
    match family {
        Family::Attention | Family::Plain => {
            let heads = Heads::read(keys, model_type)?;
            let spans = spans::spans(keys, model_type, layers)?;
            Ok(by_span(&heads, &spans))
        }
        Family::Llama4 => {
            let heads = Heads::read(keys, model_type)?;
            Ok(by_span(&heads, &spans::chunks(keys, layers)?))
        }
        Family::GemmaShared => shared(keys, model_type, layers),
        Family::Latent => Ok(each(latent(keys)?).collect()),
        Family::DoubleLatent => {
            let kind = latent(keys)?;
            Ok(each(kind).flat_map(|cache| [cache, cache]).collect())
        }
        _ => hybrid::caches(keys, family, model_type),
    }
}

/// The latent vector of one token.
pub(super) fn latent(keys: Keys<'_>) -> Result<Kind, ModelError> {
    let rank = keys.need(&["kv_lora_rank"], Limit::Width)?;
    let rope = keys.need(&["qk_rope_head_dim"], Limit::Width)?;
    Ok(Kind::Latent {
        width: rank + rope,
        index: keys.find_or_zero(&["index_head_dim"], Limit::Width)?,
    })
}

fn by_span(heads: &Heads, spans: &[Span]) -> Vec<Cache> {
    let layers = (0u64..).zip(spans);
    layers
        .map(|(layer, span)| Cache {
            layer,
            kind: heads.cache(*span),
        })
        .collect()
}

/// Gemma 3n and 4: the last `num_kv_shared_layers` read the caches of earlier
/// layers, and Gemma 4's global layers have heads of their own.
fn shared(keys: Keys<'_>, model_type: &str, layers: u64) -> Result<Vec<Cache>, ModelError> {
    let heads = Heads::read(keys, model_type)?;
    let spans = spans::spans(keys, model_type, layers)?;
    let width = keys.find(&["global_head_dim"], Limit::Width)?;
    let kv = keys.find(&["num_global_key_value_heads"], Limit::Heads)?;
    let global = Heads {
        query: heads.query,
        kv: kv.unwrap_or(heads.kv),
        width: width.unwrap_or(heads.width),
    };
    let shared = keys.find_or_zero(&["num_kv_shared_layers"], Limit::Layers)?;
    let own = layers.saturating_sub(shared);
    let kept = (0..own).zip(spans);
    Ok(kept
        .map(|(layer, span)| Cache {
            layer,
            kind: match span {
                Span::Full => global.cache(span),
                _ => heads.cache(span),
            },
        })
        .collect())
}
