//! Models with states beside attention.
//!
//! Decides which layers keep a state and how large it is. Shapes are those of
//! vLLM's `MambaStateShapeCalculator` (model_executor/layers/mamba/
//! mamba_utils.py); types those of its `MambaStateDtypeCalculator`.

use serde_json::Value;

use super::families::Family;
use super::keys::{Keys, Limit};
use super::layers::{self, Heads};
use super::{Cache, Kind, ModelError, Span, State};

/// The caches of a hybrid, in order of layers.
pub(super) fn caches(
    keys: Keys<'_>,
    family: Family,
    model_type: &str,
) -> Result<Vec<Cache>, ModelError> {
    let kinds = match family {
        Family::KimiLinear => [layers::latent(keys)?, Kind::State(kimi(keys)?)],
        family => {
            let heads = Heads::read(keys, model_type)?;
            [heads.cache(Span::Full), Kind::State(state(keys, family)?)]
        }
    };
    let parts = parts(keys, family, model_type)?;
    let mut caches = Vec::new();
    for (layer, part) in (0u64..).zip(parts) {
        let kept = match part {
            Part::Attention => &kinds[..1],
            Part::State => &kinds[1..],
            Part::Both => &kinds[..],
            Part::Neither => &[],
        };
        caches.extend(kept.iter().map(|kind| Cache { layer, kind: *kind }));
    }
    Ok(caches)
}

/// What a layer is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Attention,
    State,
    Both,
    Neither,
}

/// The parts of each layer.
pub(super) fn parts(
    keys: Keys<'_>,
    family: Family,
    model_type: &str,
) -> Result<Vec<Part>, ModelError> {
    let count = layers::count(keys, model_type)?;
    let by = |attends: &dyn Fn(u64) -> bool| -> Vec<Part> {
        let layers = 0..count;
        layers
            .map(|layer| match attends(layer) {
                true => Part::Attention,
                false => Part::State,
            })
            .collect()
    };
    if family == Family::NemotronH {
        return letters(keys);
    }
    if let Some(types) = keys.list("layer_types") {
        return listed(types, count);
    }
    match family {
        Family::GatedDelta => {
            let every = keys.find(&["full_attention_interval"], Limit::Layers)?;
            let every = every.unwrap_or(4);
            Ok(by(&|layer| (layer + 1).is_multiple_of(every)))
        }
        Family::Jamba => {
            let every = keys
                .find(&["attn_layer_period"], Limit::Layers)?
                .unwrap_or(8);
            let first = keys.find_or_zero(&["attn_layer_offset"], Limit::Layers)?;
            Ok(by(&|layer| layer % every == first))
        }
        Family::KimiLinear => {
            let linear = keys.object("linear_attn_config");
            // Counted from 1.
            let full = linear.and_then(|linear| linear.numbers("full_attn_layers"));
            let full = full.ok_or(ModelError::Missing {
                key: "full_attn_layers",
            })?;
            Ok(by(&|layer| full.contains(&(layer + 1))))
        }
        Family::FalconH1 => {
            let layers = 0..count;
            Ok(layers.map(|_| Part::Both).collect())
        }
        _ => {
            let names = ["attn_layer_indices", "full_attn_idxs"];
            let full = names.iter().find_map(|name| keys.numbers(name));
            let full = full.ok_or(ModelError::Missing { key: "layer_types" })?;
            Ok(by(&|layer| full.contains(&layer)))
        }
    }
}

/// Nemotron-H's pattern: `M` Mamba, `*` attention, the others feed-forward.
pub(super) fn letters(keys: Keys<'_>) -> Result<Vec<Part>, ModelError> {
    let key = "hybrid_override_pattern";
    let pattern = keys.text(key).ok_or(ModelError::Missing { key })?;
    if !(1..=4_096).contains(&pattern.len()) {
        return Err(ModelError::Range {
            key,
            value: format!("a text of {} letters", pattern.len()),
            least: 1,
            most: 4_096,
        });
    }
    Ok(pattern
        .chars()
        .map(|letter| match letter {
            'M' => Part::State,
            '*' => Part::Attention,
            _ => Part::Neither,
        })
        .collect())
}

fn listed(types: &[Value], layers: u64) -> Result<Vec<Part>, ModelError> {
    if types.len() as u64 != layers {
        return Err(ModelError::LayerTypes {
            listed: types.len(),
            layers,
        });
    }
    let attends = |kind: &Value| {
        kind.as_str()
            .is_some_and(|kind| kind.ends_with("attention") && kind != "linear_attention")
    };
    Ok(types
        .iter()
        .map(|kind| match attends(kind) {
            true => Part::Attention,
            false => Part::State,
        })
        .collect())
}

fn state(keys: Keys<'_>, family: Family) -> Result<State, ModelError> {
    match family {
        Family::GatedDelta => delta(keys),
        Family::Jamba => mamba1(keys),
        Family::ShortConvolution => short(keys),
        _ => mamba2(keys, family),
    }
}

/// Bytes of a recurrent element: the configuration's word, else the default.
fn cell_bytes(keys: Keys<'_>, default: u64) -> u64 {
    let names = ["mamba_ssm_cache_dtype", "mamba_ssm_dtype"];
    match names.iter().find_map(|name| keys.text(name)) {
        Some("float32") => 4,
        Some(_) => 2,
        None => default,
    }
}

/// `gated_delta_net_state_shape`.
fn delta(keys: Keys<'_>) -> Result<State, ModelError> {
    let key_heads = keys.need(&["linear_num_key_heads"], Limit::Heads)?;
    let value_heads = keys.need(&["linear_num_value_heads"], Limit::Heads)?;
    let key = keys.need(&["linear_key_head_dim"], Limit::Heads)?;
    let value = keys.need(&["linear_value_head_dim"], Limit::Heads)?;
    let kernel = keys.need(&["linear_conv_kernel_dim"], Limit::Kernel)?;
    Ok(State {
        channels: 2 * key * key_heads + value * value_heads,
        steps: kernel - 1,
        cells: value_heads * value * key,
        cell_bytes: cell_bytes(keys, 2),
        ..State::default()
    })
}

/// `kda_state_shape`; the recurrent state is in 32 bits.
fn kimi(keys: Keys<'_>) -> Result<State, ModelError> {
    let missing = ModelError::Missing {
        key: "linear_attn_config",
    };
    let linear = keys.object("linear_attn_config").ok_or(missing)?;
    let heads = linear.need(&["num_heads"], Limit::Heads)?;
    let width = linear.need(&["head_dim"], Limit::Heads)?;
    let kernel = linear.need(&["short_conv_kernel_size"], Limit::Kernel)?;
    Ok(State {
        channels: 3 * heads * width,
        steps: kernel - 1,
        cells: heads * width * width,
        cell_bytes: 4,
        ..State::default()
    })
}

/// `mamba1_state_shape`.
fn mamba1(keys: Keys<'_>) -> Result<State, ModelError> {
    let hidden = layers::hidden(keys, "jamba")?;
    let expand = keys.find(&["mamba_expand"], Limit::Heads)?.unwrap_or(2);
    let kernel = keys.find(&["mamba_d_conv"], Limit::Kernel)?.unwrap_or(4);
    let width = keys.find(&["mamba_d_state"], Limit::Heads)?.unwrap_or(16);
    Ok(State {
        channels: hidden * expand,
        steps: kernel - 1,
        cells: hidden * expand * width,
        cell_bytes: cell_bytes(keys, 2),
        ..State::default()
    })
}

/// `mamba2_state_shape`.
fn mamba2(keys: Keys<'_>, family: Family) -> Result<State, ModelError> {
    let heads = keys.need(&["mamba_num_heads", "mamba_n_heads"], Limit::Heads)?;
    let width = keys.find(&["mamba_head_dim", "mamba_d_head"], Limit::Heads)?;
    let inner = keys.find(&["mamba_d_ssm"], Limit::Width)?;
    let width = match (width, inner) {
        (Some(width), _) => width,
        (None, Some(inner)) => inner / heads,
        (None, None) => 2 * layers::hidden(keys, "bamba")? / heads,
    };
    let groups = keys.find(&["n_groups", "mamba_n_groups"], Limit::Heads)?;
    let states = keys.need(&["ssm_state_size", "mamba_d_state"], Limit::Heads)?;
    let kernel = keys.need(&["conv_kernel", "mamba_d_conv"], Limit::Kernel)?;
    let default = if family == Family::NemotronH { 4 } else { 2 };
    Ok(State {
        channels: heads * width,
        groups: groups.unwrap_or(1),
        group_width: states,
        steps: kernel - 1,
        cells: heads * width * states,
        cell_bytes: cell_bytes(keys, default),
    })
}

/// `short_conv_state_shape`.
fn short(keys: Keys<'_>) -> Result<State, ModelError> {
    let kernel = keys.need(&["conv_L_cache"], Limit::Kernel)?;
    let hidden = layers::hidden(keys, "lfm2")?;
    let channels = keys.find(&["conv_dim"], Limit::Width)?;
    Ok(State {
        channels: channels.unwrap_or(hidden),
        steps: kernel - 1,
        ..State::default()
    })
}
