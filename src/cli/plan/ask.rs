//! The files of a model, and the question that flags make of them.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::{Failure, Flags};
use crate::sizing::engine::{Device, Engine, KvDtype, Parallel, PrefixCaching};
use crate::sizing::memory::{Budget, Card, Graphs, default_batched, default_sequences};
use crate::sizing::model::{Model, Unknown};
use crate::sizing::plan::{Flag, Plan, Question};
use crate::sizing::weights::{Index, LONGEST_HEADER, Weights};

/// The longest `config.json` that is read, in bytes.
const LONGEST_CONFIG: u64 = 16 << 20;

/// What was read of a model.
pub(super) struct Asked {
    pub(super) model: Model,
    pub(super) weights: Weights,
    /// Where the weights' size is from.
    pub(super) source: String,
}

// === impl Asked ===

impl Asked {
    pub(super) fn read(flags: &Flags) -> Result<Self, Failure> {
        let given = &flags.model;
        let file = match given.is_dir() {
            true => given.join("config.json"),
            false => given.clone(),
        };
        let text = text(&file)?;
        let unknown = match flags.engine.assume_attention {
            true => Unknown::AssumeAttention,
            false => Unknown::Refuse,
        };
        let model = Model::read(&text, unknown).map_err(|error| wrong(&file, &error))?;
        let (weights, source) = weights(flags, &model, given)?;
        Ok(Self {
            model,
            weights,
            source,
        })
    }

    pub(super) fn question(&self, flags: &Flags) -> Result<Question<'_>, Failure> {
        let card = &flags.card;
        let memory = card.gpu.map(Card::bytes).or(card.gpu_memory);
        let budget = [
            card.gpu_memory_utilization.map(Budget::Utilization),
            card.kv_cache_memory_bytes.map(Budget::KvBytes),
            card.available_kv.map(Budget::Logged),
            card.num_gpu_blocks_override.map(Budget::Blocks),
        ];
        let budget = budget.into_iter().flatten().next();
        let sized = matches!(
            budget,
            Some(Budget::KvBytes(_) | Budget::Logged(_) | Budget::Blocks(_))
        );
        if memory.is_none() && !sized {
            return Err(Failure::Configuration(
                "how much memory is there? Give --gpu NAME or --gpu-memory SIZE, or the pool \
                 itself with --kv-cache-memory-bytes, --available-kv or --num-gpu-blocks-override"
                    .to_owned(),
            ));
        }
        Ok(Question {
            model: &self.model,
            engine: self.engine(flags, memory),
            weights: self.weights,
            memory,
            budget,
            overhead: card.overhead,
            graphs: if flags.engine.enforce_eager || flags.engine.cpu {
                Graphs::Off
            } else {
                Graphs::Captured
            },
            context: flags.engine.max_model_len,
            instances: card.instances_per_gpu,
            others: card.others,
        })
    }

    fn engine(&self, flags: &Flags, memory: Option<u64>) -> Engine {
        let told = &flags.engine;
        let card = flags.card.gpu;
        // Without a card, that of most: what a large one has by default.
        let memory = memory.unwrap_or(80 << 30);
        let dtype = match (told.kv_cache_dtype.0, told.dtype.as_str()) {
            (KvDtype::Auto, "float32") => KvDtype::Single,
            (dtype, _) => dtype,
        };
        let prefix = match (told.enable_prefix_caching, told.no_enable_prefix_caching) {
            (true, _) => PrefixCaching::On,
            (_, true) => PrefixCaching::Off,
            _ => PrefixCaching::Default,
        };
        Engine {
            version: told.vllm,
            kv: dtype.resolve(&self.model, told.vllm),
            block: told.block_size,
            parallel: self.parallel(flags),
            batched: told
                .max_num_batched_tokens
                .unwrap_or_else(|| default_batched(memory, card)),
            sequences: told
                .max_num_seqs
                .unwrap_or_else(|| default_sequences(memory, card, told.vllm)),
            prefix,
            device: if told.cpu { Device::Cpu } else { Device::Gpu },
        }
    }

    /// `--gpus` as tensor parallel ranks that divide the heads, and stages.
    fn parallel(&self, flags: &Flags) -> Parallel {
        let spread = &flags.spread;
        let (tensor, pipeline) = match spread.gpus {
            Some(gpus) => {
                let divides = |ranks: &u64| {
                    gpus.is_multiple_of(*ranks) && self.model.heads.is_multiple_of(*ranks)
                };
                let tensor = (1..=gpus).rev().find(divides).unwrap_or(1);
                (tensor, gpus / tensor)
            }
            None => (spread.tensor_parallel_size, spread.pipeline_parallel_size),
        };
        Parallel {
            tensor,
            pipeline,
            data: spread.data_parallel_size,
            context: spread.decode_context_parallel_size,
        }
    }

    /// Flags that say back what was asked by name.
    pub(super) fn add_flags(&self, flags: &Flags, question: &Question<'_>, plan: &mut Plan) {
        let told = &flags.engine;
        plan.flags
            .extend(question.dtype_flag(&told.kv_cache_dtype.1));
        if let Some(quantization) = told.quantization
            && self.model.quantization.is_none()
        {
            plan.flags.push(Flag::new(
                format!("--quantization={}", quantization.name),
                "the checkpoint is not stored so; it is quantised while it loads",
            ));
        }
        let counts = [
            ("--max-num-batched-tokens", told.max_num_batched_tokens),
            ("--max-num-seqs", told.max_num_seqs),
        ];
        for (flag, count) in counts {
            let count = count.map(|count| Flag::new(format!("{flag}={count}"), "as asked"));
            plan.flags.extend(count);
        }
        if told.dtype != "auto" {
            plan.flags
                .push(Flag::new(format!("--dtype={}", told.dtype), "as asked"));
        }
    }
}

fn wrong(file: &Path, problem: &dyn std::fmt::Display) -> Failure {
    Failure::Configuration(format!("{}: {problem}", file.display()))
}

fn text(file: &Path) -> Result<String, Failure> {
    let bytes = bytes(file, LONGEST_CONFIG)?;
    String::from_utf8(bytes).map_err(|_| wrong(file, &"it is not UTF-8"))
}

fn bytes(file: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    let opened = File::open(file).map_err(|error| {
        let next = match error.kind() {
            ErrorKind::NotFound => "; a model directory or its config.json is wanted",
            _ => "",
        };
        wrong(file, &format!("{error}{next}"))
    })?;
    let mut bytes = Vec::new();
    let read = opened.take(most + 1).read_to_end(&mut bytes);
    read.map_err(|error| wrong(file, &error))?;
    if bytes.len() as u64 > most {
        return Err(wrong(file, &format!("it is longer than {most} bytes")));
    }
    Ok(bytes)
}

/// The weights and where their size is from: told, read, or counted.
fn weights(flags: &Flags, model: &Model, given: &Path) -> Result<(Weights, String), Failure> {
    let told = &flags.engine;
    let named = told.quantization;
    let estimate =
        |how| Weights::estimate(&model.parameters, how).map_err(|error| wrong(given, &error));
    if let Some(total) = told.weights {
        let split = estimate(named.or(model.quantization))?;
        return Ok((split.scaled(total), "as given by --weights".to_owned()));
    }
    let run = if told.dtype == "float32" { 32 } else { 16 };
    let converts = named.is_some() && model.quantization.is_none();
    let found = if given.is_dir() && !converts {
        stored(given, model)?
    } else {
        None
    };
    let (weights, bits, source) = match found {
        Some((weights, source)) => (weights, model.bits, source),
        None => (
            estimate(named.or(model.quantization))?,
            16,
            "an estimate from the configuration: no safetensors beside it".to_owned(),
        ),
    };
    // Plain weights are loaded in what the model runs in; quantised ones as they are.
    if named.or(model.quantization).is_none() {
        return Ok((weights.converted(bits, run), source));
    }
    Ok((weights, source))
}

/// What the directory's safetensors hold: their headers, or the index's total.
fn stored(folder: &Path, model: &Model) -> Result<Option<(Weights, String)>, Failure> {
    let index = folder.join("model.safetensors.index.json");
    let index = match index.exists() {
        true => {
            let text = text(&index)?;
            Some(Index::read(&text).map_err(|error| wrong(&index, &error))?)
        }
        false => None,
    };
    let files = match &index {
        Some(index) => index.files.iter().map(|name| folder.join(name)).collect(),
        None => safetensors(folder)?,
    };
    if !files.is_empty() && files.iter().all(|file| file.exists()) {
        let mut weights = Weights::default();
        for file in &files {
            add(&mut weights, file)?;
        }
        let source = match files.len() {
            1 => "the header of its safetensors file".to_owned(),
            several => format!("the headers of {several} safetensors files"),
        };
        return Ok(Some((weights, source)));
    }
    let total = index.and_then(|index| index.total);
    let Some(total) = total else {
        return Ok(None);
    };
    let split = Weights::estimate(&model.parameters, model.quantization);
    let split = split.map_err(|error| wrong(folder, &error))?;
    let source = "the index of the safetensors".to_owned();
    Ok(Some((split.scaled(total), source)))
}

/// Files of a directory without an index; what other loaders keep beside them is
/// left out, as vLLM does.
fn safetensors(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let listed = fs::read_dir(folder).map_err(|error| wrong(folder, &error))?;
    let mut files = Vec::new();
    for entry in listed {
        let path = entry.map_err(|error| wrong(folder, &error))?.path();
        let kept = path.extension().is_some_and(|kind| kind == "safetensors");
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if kept && !name.starts_with("consolidated") && !name.starts_with('.') {
            files.push(path);
        }
    }
    files.sort_unstable();
    Ok(files)
}

fn add(weights: &mut Weights, file: &Path) -> Result<(), Failure> {
    let fail = |problem: &dyn std::fmt::Display| wrong(file, problem);
    let mut opened = File::open(file).map_err(|error| fail(&error))?;
    let mut length = [0; 8];
    let short = "it is no safetensors file: it ends within its header";
    opened.read_exact(&mut length).map_err(|_| fail(&short))?;
    let length = u64::from_le_bytes(length);
    let size = opened.metadata().map_err(|error| fail(&error))?.len();
    if length > LONGEST_HEADER || length.saturating_add(8) > size {
        return Err(fail(&short));
    }
    let mut json = Vec::new();
    let read = opened.take(length).read_to_end(&mut json);
    read.map_err(|error| fail(&error))?;
    weights.add_header(&json).map_err(|error| fail(&error))
}
