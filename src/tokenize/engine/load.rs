//! From a vocabulary to the engines that read it.
//!
//! Decides which engines a vocabulary gets and how its texts may be parted. Never
//! counts. Invariant: whatever a reader does with a file, the answer is engines or
//! an error, not a panic.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use serde_json::Value;

use super::bounds::Bounds;
use super::cuts::Family;
use super::fast::Fast;
use super::marks::Marks;
use super::stretches::Stretches;
use super::tail::Tail;
use super::tiktoken::Tiktoken;
use super::{Engine, Engines, Ranks, ids};
use crate::tokenize::LoadError;

/// The vocabularies of this binary that were asked for, each loaded once: they are
/// never given back, as their bytes are part of the binary. The lock is held while
/// one is loaded, so that two models do not load it twice.
static BUILTIN: LazyLock<Mutex<HashMap<String, Engines>>> = LazyLock::new(Mutex::default);

// === impl Engines ===

impl Engines {
    /// Loads the engines that read `json`, the parsed text of `path`.
    ///
    /// Takes seconds for a large vocabulary. One of the two engines is enough.
    ///
    /// # Errors
    /// [`LoadError::Tokenizer`] if neither reads the file.
    pub(in crate::tokenize) fn from_json(
        path: &Path,
        json: Value,
        max_run_bytes: usize,
    ) -> Result<Self, LoadError> {
        ids::check_json(&json).map_err(|reason| LoadError::Parse {
            path: path.to_owned(),
            reason,
        })?;
        let family = Family::of_json(&json);
        let marks = Marks::of_json(&json);
        let bounds = Bounds::of_json(&json, family.is_some());
        let tail_reads_ordinary = are_all_special(&json);
        let tail = guarded(|| Tail::load(json.clone()));
        let fast = guarded(|| Fast::load(json));
        let (first, tail): (Arc<dyn Engine>, Option<Arc<dyn Engine>>) = match (fast, tail) {
            (Ok(fast), tail) => {
                let frame = fast.frame();
                let stretches = marks.map(|marks| Stretches::new(marks, family, frame));
                return Ok(Self {
                    bounds: bounds.framed(frame),
                    tail: tail.ok().map(|tail| Arc::new(tail) as Arc<dyn Engine>),
                    reference: None,
                    tail_reads_ordinary,
                    max_run_bytes,
                    stretches,
                    first: Arc::new(fast),
                });
            }
            (Err(_), Ok(tail)) => (Arc::new(tail), None),
            (Err(fast), Err(tail)) => {
                return Err(LoadError::Tokenizer {
                    path: path.to_owned(),
                    fast,
                    tail,
                });
            }
        };
        Ok(Self {
            bounds: bounds.framed(FRAME_OF_OTHERS),
            first,
            tail,
            reference: None,
            tail_reads_ordinary: true,
            max_run_bytes,
            stretches: None,
        })
    }

    /// Loads a vocabulary in tiktoken's form, with tiktoken-rs as its reference.
    ///
    /// Takes seconds for a large vocabulary. One engine is enough: a pattern or a
    /// token the faster ones do not read leaves the reference to count.
    ///
    /// # Errors
    /// [`LoadError::Ranks`] if not even the reference reads it.
    pub(in crate::tokenize) fn from_ranks(
        ranks: &Ranks,
        max_run_bytes: usize,
    ) -> Result<Self, LoadError> {
        let ordinary = ranks.ranks.iter().map(|(_, rank)| *rank);
        let special = ranks.special_tokens.iter().map(|(_, id)| *id);
        ids::check(ordinary.chain(special).map(u64::from))
            .map_err(|reason| LoadError::Ranks { reason })?;
        let reference = guarded(|| Tiktoken::from_ranks(ranks))
            .map_err(|reason| LoadError::Ranks { reason })?;
        Ok(Self::beside(Arc::new(reference), ranks, max_run_bytes))
    }

    /// Takes a vocabulary this binary carries; two of the same name share memory.
    ///
    /// # Errors
    /// [`LoadError::Vocabulary`] if it carries none of that name.
    pub(in crate::tokenize) fn from_vocabulary(
        name: &str,
        max_run_bytes: usize,
    ) -> Result<Self, LoadError> {
        let reference = Tiktoken::builtin(name)?;
        // A poisoned lock only says that a load panicked; the map is whole.
        let mut loaded = BUILTIN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(engines) = loaded.get(name) {
            let mut engines = engines.clone();
            engines.max_run_bytes = max_run_bytes;
            return Ok(engines);
        }
        let ranks = reference.ranks(name);
        let engines = match name {
            // Not what tiktoken-rs takes for its control tokens: see there.
            "o200k_harmony" => Self::from_ranks(&ranks, max_run_bytes)?,
            _ => Self::beside(Arc::new(reference), &ranks, max_run_bytes),
        };
        loaded.insert(name.to_owned(), engines.clone());
        Ok(engines)
    }

    fn beside(reference: Arc<dyn Engine>, ranks: &Ranks, max_run_bytes: usize) -> Self {
        let family = Family::of_pattern(&ranks.pattern);
        // The fast engine needs no second one: reading a vocabulary a second time
        // takes as long as all the rest, and its worst run is bounded in time anyway.
        let (first, stretches): (Arc<dyn Engine>, _) = match guarded(|| Fast::from_ranks(ranks)) {
            Ok(fast) => {
                let marks = Marks::of_tokens(&ranks.special_tokens);
                let stretches = marks.map(|marks| Stretches::new(marks, family, 0));
                (Arc::new(fast), stretches)
            }
            Err(_) => match guarded(|| Tail::load(ranks.tokenizer_json()?)) {
                Ok(other) => (Arc::new(other), None),
                Err(_) => (Arc::clone(&reference), None),
            },
        };
        Self {
            first,
            tail: None,
            reference: Some(reference),
            tail_reads_ordinary: true,
            max_run_bytes,
            bounds: Bounds::of_ranks(ranks, family.is_some()),
            stretches,
        }
    }
}

/// Tokens around a text where the fast engine cannot tell how many there are: more
/// than any post-processor of one sequence adds.
const FRAME_OF_OTHERS: u64 = 8;

fn are_all_special(json: &Value) -> bool {
    let added = json["added_tokens"].as_array().into_iter().flatten();
    let mut ordinary = added.filter(|token| token["special"] != true);
    ordinary.next().is_none()
}

/// Runs a loader so that a panic inside it is an error like any other.
fn guarded<T>(load: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(load))
        .unwrap_or_else(|_| Err("the reader panicked on this file".to_owned()))
}
