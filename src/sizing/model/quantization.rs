//! How a checkpoint's weights are stored.
//!
//! Decides the bits of one weight, with its scales, from `quantization_config`
//! or from the name given to `--quantization`, and which weights keep 16 bits.

use serde_json::Value;

use super::ModelError;
use super::keys::{Keys, Limit};

/// How the matrices of a model are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantization {
    /// Its name as vLLM's `--quantization` takes it.
    pub name: &'static str,
    /// Bits of one weight, in hundredths, with scales and zeros.
    pub centibits: u64,
    /// Which matrices are stored so; the others have 16 bits.
    pub reach: Reach,
}

/// Which matrices a quantization touches. Embeddings, output head, norms and
/// routers keep 16 bits under all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All projections of attention and feed-forward, and all experts.
    Projections,
    /// The experts alone (MXFP4 of gpt-oss).
    Experts,
}

// === impl Quantization ===

impl Quantization {
    /// One that vLLM applies while it loads, by its name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let of = |name, centibits| Self {
            name,
            centibits,
            reach: Reach::Projections,
        };
        Some(match name {
            "fp8" => of("fp8", 800),
            "int8" | "experts_int8" => of("experts_int8", 800),
            // 4 bits and one 32-bit scale per 64 weights.
            "bitsandbytes" => of("bitsandbytes", 450),
            "awq" => of("awq", grouped(4, 128)),
            "gptq" => of("gptq", grouped(4, 128)),
            "mxfp4" => Self {
                reach: Reach::Experts,
                ..of("mxfp4", 425)
            },
            "nvfp4" => of("modelopt_fp4", 450),
            _ => return None,
        })
    }

    /// What the configuration says, if it says anything.
    pub(super) fn read(keys: Keys<'_>) -> Result<Option<Self>, ModelError> {
        let stored = keys
            .object("quantization_config")
            .or_else(|| keys.object("compression_config"));
        let Some(stored) = stored else {
            return Ok(None);
        };
        let method = stored.text("quant_method").unwrap_or("").to_lowercase();
        let bits = stored.find(&["bits", "w_bit"], Limit::Heads)?.unwrap_or(4);
        let group = group(stored, "group_size").or_else(|| group(stored, "q_group_size"));
        let group = group.unwrap_or(128);
        let of = |name, centibits| {
            Ok(Some(Self {
                name,
                centibits,
                reach: Reach::Projections,
            }))
        };
        match method.as_str() {
            "awq" => of("awq", grouped(bits, group)),
            "gptq" | "auto-round" | "auto_round" | "inc" => of("gptq", grouped(bits, group)),
            // One byte, and a 32-bit scale per block of 128 by 128: 0.002 bits.
            "fp8" | "fbgemm_fp8" => of("fp8", 800),
            "bitsandbytes" if stored.is_true("load_in_8bit") => of("bitsandbytes", 800),
            "bitsandbytes" => of("bitsandbytes", 450),
            "mxfp4" => Ok(Self::named("mxfp4")),
            "compressed-tensors" => compressed(stored),
            method if method.starts_with("modelopt") => of("modelopt", modelopt(stored)),
            _ => Err(ModelError::Quantization(method)),
        }
    }
}

/// Bits in hundredths: each group has a 16-bit scale and a zero of `bits`.
fn grouped(bits: u64, group: u64) -> u64 {
    bits * 100 + (16 + bits) * 100 / group.max(1)
}

/// A group size; -1 means one group per column, which costs nothing to speak of.
fn group(keys: Keys<'_>, name: &str) -> Option<u64> {
    match keys.value(name)?.as_i64()? {
        size if size > 0 => u64::try_from(size).ok(),
        _ => Some(1 << 20),
    }
}

fn compressed(stored: Keys<'_>) -> Result<Option<Quantization>, ModelError> {
    let groups = stored.value("config_groups").and_then(Value::as_object);
    let weights = groups.and_then(|groups| {
        let mut weights = groups.values().filter_map(|group| group.get("weights"));
        weights.find_map(Value::as_object)
    });
    let Some(weights) = weights else {
        return Err(ModelError::Quantization("compressed-tensors".to_owned()));
    };
    let number = |name: &str| weights.get(name).and_then(Value::as_u64);
    let bits = number("num_bits").filter(|bits| (1..=16).contains(bits));
    let bits = bits.ok_or(ModelError::Missing { key: "num_bits" })?;
    let centibits = match number("group_size") {
        Some(group) if group > 0 => bits * 100 + 1_600 / group,
        _ => bits * 100,
    };
    Ok(Some(Quantization {
        name: "compressed-tensors",
        centibits,
        reach: Reach::Projections,
    }))
}

/// NVIDIA's: FP8 has one byte, NVFP4 4 bits and an 8-bit scale per 16 weights.
fn modelopt(stored: Keys<'_>) -> u64 {
    let nested = stored.object("quantization").unwrap_or(stored);
    match nested.text("quant_algo") {
        Some(algo) if algo.to_uppercase().contains("FP4") => 450,
        _ => 800,
    }
}
