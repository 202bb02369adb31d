//! How many bytes a model's weights take.
//!
//! Decides between what a checkpoint holds (exact, from the headers of its
//! safetensors or their index) and what the configuration implies, and how much
//! of it one GPU holds. Format of safetensors: 8 bytes of length, little endian,
//! then a JSON header that names each tensor's type, shape and offsets.

use serde::Deserialize;
use serde_json::{Map, Value};
use thiserror::Error;

use super::engine::Parallel;
use super::model::{Model, Parameters, Quantization, Reach};

/// The longest header that the format allows, in bytes.
pub const LONGEST_HEADER: u64 = 100_000_000;

/// Bytes of weights by how they are spread over GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weights {
    /// Embeddings and output head: on the first and the last stage.
    pub ends: u64,
    /// Experts: over all tensor and data parallel ranks.
    pub experts: u64,
    /// The rest: over tensor parallel ranks and stages, copied per data rank.
    pub rest: u64,
}

/// Why the sizes of a checkpoint cannot be read.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum WeightsError {
    /// Its first bytes are no header.
    #[error("it is no safetensors file: {0}")]
    Header(String),
    /// Its index is no index.
    #[error("it is no index of safetensors: {0}")]
    Index(String),
    /// Nothing holds so much.
    #[error("the configuration implies {0} parameters, more than any memory holds")]
    TooLarge(u128),
}

/// An index of several files.
#[derive(Debug, PartialEq, Eq)]
pub struct Index {
    /// Bytes of all tensors, where it says so.
    pub total: Option<u64>,
    /// Its files, each once, in order of name.
    pub files: Vec<String>,
}

// === impl Weights ===

impl Weights {
    /// What the configuration implies, stored as `quantization` says, the rest
    /// in 16 bits.
    ///
    /// # Errors
    /// Where the product of the configuration's numbers does not fit 64 bits.
    pub fn estimate(
        parameters: &Parameters,
        quantization: Option<Quantization>,
    ) -> Result<Self, WeightsError> {
        let centibits = |touched: bool| match quantization {
            Some(quantization) if touched => quantization.centibits,
            _ => 1_600,
        };
        let projections = quantization.is_some_and(|how| how.reach == Reach::Projections);
        let plain = parameters.routers + parameters.encoder;
        let bytes = |parts: &[(u128, u64)]| -> Result<u64, WeightsError> {
            let sum: u128 = parts
                .iter()
                .map(|(count, centibits)| count * u128::from(*centibits) / 800)
                .sum();
            u64::try_from(sum).map_err(|_| WeightsError::TooLarge(parameters.all()))
        };
        Ok(Self {
            ends: bytes(&[(parameters.embedding + parameters.head, 1_600)])?,
            experts: bytes(&[(parameters.experts, centibits(true))])?,
            rest: bytes(&[
                (
                    parameters.attention + parameters.dense,
                    centibits(projections),
                ),
                (plain, 1_600),
            ])?,
        })
    }

    /// Adds the tensors of one file's header, the JSON after the length.
    ///
    /// # Errors
    /// Where it is no header.
    pub fn add_header(&mut self, json: &[u8]) -> Result<(), WeightsError> {
        let wrong = |problem: String| WeightsError::Header(problem);
        let tensors: Map<String, Value> =
            serde_json::from_slice(json).map_err(|error| wrong(error.to_string()))?;
        for (name, tensor) in tensors.iter().filter(|(name, _)| *name != "__metadata__") {
            let tensor: Tensor = Tensor::deserialize(tensor)
                .map_err(|error| wrong(format!("tensor {name:?}: {error}")))?;
            let [from, to] = tensor.data_offsets;
            let bytes = to.checked_sub(from);
            let bytes =
                bytes.ok_or_else(|| wrong(format!("tensor {name:?} ends before it begins")))?;
            let part = if name.contains(".experts.") {
                &mut self.experts
            } else if Self::is_end(name) {
                &mut self.ends
            } else {
                &mut self.rest
            };
            *part = part.saturating_add(bytes);
        }
        Ok(())
    }

    /// A checkpoint of which only the whole is known, split as the
    /// configuration implies.
    #[must_use]
    pub fn scaled(self, total: u64) -> Self {
        let whole = u128::from(self.total().max(1));
        let part = |bytes: u64| {
            let part = u128::from(bytes) * u128::from(total) / whole;
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        let (ends, experts) = (part(self.ends), part(self.experts));
        Self {
            ends,
            experts,
            rest: total.saturating_sub(ends).saturating_sub(experts),
        }
    }

    /// Weights of `from` bits each, loaded with `to` bits.
    #[must_use]
    pub fn converted(self, from: u64, to: u64) -> Self {
        let part = |bytes: u64| {
            let part = u128::from(bytes) * u128::from(to) / u128::from(from.max(1));
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        Self {
            ends: part(self.ends),
            experts: part(self.experts),
            rest: part(self.rest),
        }
    }

    /// All of it once.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.ends
            .saturating_add(self.experts)
            .saturating_add(self.rest)
    }

    /// Bytes on the GPU that holds most, rounded up; the same on all but the
    /// first and last stage. Embeddings that are the output head too are held
    /// on both ends; MXFP4's kernels pad an expert to 256 columns.
    #[must_use]
    pub fn per_gpu(&self, model: &Model, parallel: Parallel) -> u64 {
        let Parallel {
            tensor,
            pipeline,
            data,
            ..
        } = parallel;
        let tied = model.parameters.head == 0;
        let ends = match (pipeline, tied) {
            (1, _) | (_, true) => self.ends,
            (_, false) => self.ends.div_ceil(2),
        };
        let stage = |bytes: u64, over: u64| bytes.div_ceil(over).div_ceil(pipeline);
        let experts = stage(
            padded(self.experts, model, tensor),
            tensor.saturating_mul(data),
        );
        ends.div_ceil(tensor)
            .saturating_add(experts)
            .saturating_add(stage(self.rest, tensor))
    }

    fn is_end(name: &str) -> bool {
        let ends = [
            "embed_tokens.",
            "lm_head.",
            "wte.",
            "word_embeddings.",
            "tok_embeddings.",
        ];
        ends.iter().any(|end| name.contains(end))
    }
}

/// Bytes of experts as MXFP4's kernels hold them.
fn padded(experts: u64, model: &Model, tensor: u64) -> u64 {
    let columns = model.expert.div_ceil(tensor.max(1));
    match model.quantization {
        Some(how) if how.reach == Reach::Experts && columns > 0 => {
            let held = u128::from(columns.next_multiple_of(256));
            let bytes = u128::from(experts) * held / u128::from(columns);
            u64::try_from(bytes).unwrap_or(u64::MAX)
        }
        _ => experts,
    }
}

/// A tensor of a header; its type and shape follow from its bytes.
#[derive(Deserialize)]
struct Tensor {
    data_offsets: [u64; 2],
}

// === impl Index ===

impl Index {
    /// Reads a `model.safetensors.index.json`. Names that leave the directory
    /// are refused.
    ///
    /// # Errors
    /// Where it is no index.
    pub fn read(text: &str) -> Result<Self, WeightsError> {
        let wrong = |problem: &str| WeightsError::Index(problem.to_owned());
        let index: Value = serde_json::from_str(text).map_err(|error| wrong(&error.to_string()))?;
        let total = index.pointer("/metadata/total_size");
        let map = index.get("weight_map").and_then(Value::as_object);
        let map = map.ok_or_else(|| wrong("weight_map is missing"))?;
        let mut files = Vec::new();
        for file in map.values() {
            let file = file
                .as_str()
                .ok_or_else(|| wrong("weight_map names no file"))?;
            if file.contains(['/', '\\']) || file.starts_with('.') {
                return Err(wrong("weight_map leaves the directory"));
            }
            files.push(file.to_owned());
        }
        files.sort_unstable();
        files.dedup();
        let total = total.and_then(Value::as_u64);
        Ok(Self { total, files })
    }
}
