//! Which attention layers look back over everything and which over a window.
//!
//! Decides one [`Span`] per layer from `layer_types` or, in configurations older
//! than that key, from the rule each architecture has. Sources: the same rules
//! in Hugging Face's configuration classes and vLLM's models.

use serde_json::Value;

use super::keys::{Keys, Limit};
use super::{ModelError, Span};

/// The spans of `layers` attention layers.
pub(super) fn spans(
    keys: Keys<'_>,
    model_type: &str,
    layers: u64,
) -> Result<Vec<Span>, ModelError> {
    let window = keys.find(&["sliding_window", "sliding_window_size"], Limit::Tokens);
    let window = match keys.value("sliding_window") {
        Some(Value::Number(number)) if number.as_u64() == Some(0) => None,
        _ => window?,
    };
    let Some(window) = window.filter(|_| uses_windows(keys, model_type)) else {
        return Ok(vec![Span::Full; size(layers)]);
    };
    if let Some(types) = keys.list("layer_types") {
        return by_type(types, window, layers);
    }
    let local = rule(keys, model_type)?;
    Ok((0..layers)
        .map(|layer| match local.holds(layer) {
            true => Span::Window(window),
            false => Span::Full,
        })
        .collect())
}

/// The spans of Llama 4: layers with positions attend by chunks.
pub(super) fn chunks(keys: Keys<'_>, layers: u64) -> Result<Vec<Span>, ModelError> {
    let chunk = keys.find(&["attention_chunk_size"], Limit::Tokens)?;
    let Some(chunk) = chunk else {
        return Ok(vec![Span::Full; size(layers)]);
    };
    let listed = keys.numbers("no_rope_layers").filter(|all| !all.is_empty());
    Ok((0..layers)
        .map(|layer| {
            let local = match &listed {
                Some(all) => all.get(size(layer)).is_none_or(|rope| *rope == 1),
                None => !(layer + 1).is_multiple_of(4),
            };
            if local {
                Span::Chunk(chunk)
            } else {
                Span::Full
            }
        })
        .collect())
}

/// Which layers are local, where no list says so.
enum Rule {
    All,
    Even,
    AllBut { every: u64 },
    From { layer: u64 },
}

// === impl Rule ===

impl Rule {
    fn holds(&self, layer: u64) -> bool {
        match *self {
            Self::All => true,
            Self::Even => layer.is_multiple_of(2),
            Self::AllBut { every } => !(layer + 1).is_multiple_of(every),
            Self::From { layer: first } => layer >= first,
        }
    }
}

/// Qwen's configurations name a window that is off unless they say otherwise.
fn uses_windows(keys: Keys<'_>, model_type: &str) -> bool {
    match keys.value("use_sliding_window").and_then(Value::as_bool) {
        Some(used) => used,
        None => !model_type.starts_with("qwen"),
    }
}

fn rule(keys: Keys<'_>, model_type: &str) -> Result<Rule, ModelError> {
    let every = keys.find(&["sliding_window_pattern"], Limit::Layers);
    Ok(match model_type {
        "gemma2" | "gpt_oss" => Rule::Even,
        "gemma3_text" => Rule::AllBut {
            every: every?.unwrap_or(6),
        },
        "cohere2" => Rule::AllBut {
            every: every?.unwrap_or(4),
        },
        "gemma3n_text" => Rule::AllBut { every: 5 },
        kind if kind.starts_with("qwen") => Rule::From {
            layer: keys.find_or_zero(&["max_window_layers"], Limit::Layers)?,
        },
        _ => Rule::All,
    })
}

fn by_type(types: &[Value], window: u64, layers: u64) -> Result<Vec<Span>, ModelError> {
    if types.len() != size(layers) {
        return Err(ModelError::LayerTypes {
            listed: types.len(),
            layers,
        });
    }
    Ok(types
        .iter()
        .map(|kind| match kind.as_str() {
            Some("sliding_attention" | "local_attention") => Span::Window(window),
            _ => Span::Full,
        })
        .collect())
}

/// A bounded count as an index.
fn size(count: u64) -> usize {
    usize::try_from(count).expect("layers are at most 4,096")
}
