//! Reading an engine's log: which kind of failure, the line that proves it, what
//! to change.
//!
//! Decides by one table of wordings (`wordings`) over the versions of vLLM, on
//! a stream of any size: one line is held at a time, and a bounded number of
//! quotes. A log may hold several starts and several engines; the last start
//! that says something is judged, and what came before explains it. Never opens
//! a file, never asks a device.

mod arguments;
mod clean;
mod facts;
mod fixes;
mod held;
mod lines;
mod notes;
mod roots;
mod run;
mod sources;
mod verdict;
mod wordings;

use std::io::{self, BufRead};

use serde::{Serialize, Serializer};

pub use facts::{Facts, Field, Value};
pub use fixes::Fix;
use lines::Lines;
use sources::Sources;

/// Kinds of outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It started, and nothing took it down.
    Healthy,
    /// The weights are larger than the device's memory.
    WeightsDoNotFit,
    /// Nothing is left for the cache.
    NoCacheBlocks,
    /// One request of full length is larger than the cache.
    MaxModelLenExceedsKv,
    /// Activations, sampler or graphs needed more than was left beside the cache.
    ActivationPeak,
    /// Another process holds the memory.
    MemoryInUse,
    /// A process that is ending still holds, or just let go of, the memory.
    MemoryNotReleased,
    /// This build, card or model cannot do what was asked.
    Unsupported,
    /// Flags contradict each other, the model or the machine.
    ConfigError,
    /// The engine crashed or was killed.
    EngineDied,
    /// No known wording.
    NotRecognised,
}

/// The line that proves a diagnosis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// Its number, from 1.
    pub line: u64,
    /// Its text without time stamps and prefixes, cut where very long.
    pub text: String,
    /// The file that writes it, and its versions, where the wording is known.
    pub source: Option<&'static str>,
}

/// What a log means.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnosis {
    /// The kind.
    pub kind: Kind,
    /// The line that proves it; none for a log that says nothing.
    pub evidence: Option<Evidence>,
    /// Version of the engine, as the log tells it.
    pub engine_version: Option<String>,
    /// Figures of the run that is judged.
    pub facts: Facts,
    /// What to change, in this order.
    pub fixes: Vec<Fix>,
    /// What is to be said to people beside the kind: who holds memory, what
    /// earlier runs did.
    pub notes: Vec<String>,
}

/// Reads `log` to its end and says what it means.
///
/// Bytes that are not text are passed over; a log of nothing but such bytes is
/// not recognised.
///
/// # Errors
///
/// What reading `log` gives.
pub fn diagnose(log: impl BufRead) -> io::Result<Diagnosis> {
    let mut lines = Lines::new(log);
    let mut sources = Sources::default();
    while let Some((number, line)) = lines.next()? {
        sources.take(number, line);
    }
    Ok(sources.diagnosis())
}

// === impl Kind ===

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 11] = [
        Self::Healthy,
        Self::WeightsDoNotFit,
        Self::NoCacheBlocks,
        Self::MaxModelLenExceedsKv,
        Self::ActivationPeak,
        Self::MemoryInUse,
        Self::MemoryNotReleased,
        Self::Unsupported,
        Self::ConfigError,
        Self::EngineDied,
        Self::NotRecognised,
    ];

    /// Its name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::WeightsDoNotFit => "weights_do_not_fit",
            Self::NoCacheBlocks => "no_cache_blocks",
            Self::MaxModelLenExceedsKv => "max_model_len_exceeds_kv",
            Self::ActivationPeak => "activation_peak",
            Self::MemoryInUse => "memory_in_use",
            Self::MemoryNotReleased => "memory_not_released",
            Self::Unsupported => "unsupported",
            Self::ConfigError => "config_error",
            Self::EngineDied => "engine_died",
            Self::NotRecognised => "not_recognised",
        }
    }

    /// What it means, in a clause.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Healthy => "the engine started, and nothing in the log took it down",
            Self::WeightsDoNotFit => "the weights do not fit into the device's memory",
            Self::NoCacheBlocks => "nothing is left for the KV cache",
            Self::MaxModelLenExceedsKv => "one request of full length is larger than the KV cache",
            Self::ActivationPeak => {
                "activations, sampler or graphs need more memory than is left beside the KV cache"
            }
            Self::MemoryInUse => "another process holds the memory the engine wants",
            Self::MemoryNotReleased => "memory of a process that is ending was not free yet",
            Self::Unsupported => "this build, card or model cannot do what was asked",
            Self::ConfigError => "the flags contradict each other, the model or the machine",
            Self::EngineDied => "the engine crashed or was killed",
            Self::NotRecognised => "not recognised",
        }
    }
}

impl Serialize for Diagnosis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut told = serializer.serialize_struct("Diagnosis", 8)?;
        let evidence = self.evidence.as_ref();
        told.serialize_field("kind", &self.kind)?;
        told.serialize_field("evidence", &evidence.map(|evidence| &evidence.text))?;
        told.serialize_field("evidence_line", &evidence.map(|evidence| evidence.line))?;
        told.serialize_field("evidence_source", &evidence.map(|evidence| evidence.source))?;
        told.serialize_field("engine_version", &self.engine_version)?;
        told.serialize_field("facts", &self.facts)?;
        told.serialize_field("fixes", &self.fixes)?;
        told.serialize_field("notes", &self.notes)?;
        told.end()
    }
}
