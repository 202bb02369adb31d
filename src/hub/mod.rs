//! Floor 3: tokenizer files of models that a hub holds.
//!
//! Decides which files of a model are fetched, when the hub is asked, and what
//! counts as fetched. Blocking, so never on the path of a request; never fetches
//! weights, never runs what it fetched. Invariant: a directory it names is
//! complete, whatever interrupted the fetch before.
//!
//! The cache has the layout of Hugging Face's own, without its links: a folder
//! that `huggingface_hub` has filled serves as well.

mod cache;
mod client;
mod listing;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::config::{HubAccess, HubModel, HubSettings};

use cache::Cache;
use client::Client;

/// The hub, as far as the operator allows it.
#[derive(Debug)]
pub struct Hub {
    settings: HubSettings,
    client: Client,
    /// Locked for a look-up.
    attempts: Mutex<HashMap<HubModel, Attempt>>,
}

/// When a model was last asked for. Locked while it is fetched, so that it is
/// fetched by one caller and the others find it.
type Attempt = Arc<Mutex<Option<Instant>>>;

/// How new a model's files must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// As they are in the cache; the hub is asked for what is not.
    Any,
    /// As the hub has them, where it may be asked and was not asked just before.
    Newest,
}

/// Why a model's files cannot be had.
#[derive(Debug, Error)]
pub enum HubError {
    /// Not there, and nothing may be fetched.
    #[error("{model} is not in the cache {cache}, and hub.access does not allow downloads")]
    NotCached {
        /// The model.
        model: String,
        /// The cache.
        cache: PathBuf,
    },
    /// Asked for too recently.
    #[error("the hub was asked for {model} less than {} s ago", .period.as_secs())]
    TooSoon {
        /// The model.
        model: String,
        /// Least time between two attempts.
        period: Duration,
    },
    /// The hub does not let us in.
    #[error("the hub refuses {url} with status {status}: a token with access to it is needed")]
    NoAccess {
        /// What was asked for.
        url: String,
        /// 401 or 403.
        status: u16,
    },
    /// The hub answered something else than what was asked for.
    #[error("{url} answered status {status}")]
    Status {
        /// What was asked for.
        url: String,
        /// 404 for what there is not.
        status: u16,
    },
    /// The hub did not answer, or not to the end.
    #[error("{url} failed: {problem}")]
    Transport {
        /// What was asked for.
        url: String,
        /// What went wrong.
        problem: String,
    },
    /// The answer is not the file that was announced.
    #[error("{url} is not what the hub announced: {problem}")]
    Differs {
        /// What was asked for.
        url: String,
        /// What differs.
        problem: String,
    },
    /// The model has no tokenizer that could be fetched.
    #[error("{model} has no tokenizer files on the hub")]
    NoTokenizer {
        /// The model.
        model: String,
    },
    /// The cache cannot be read or written.
    #[error("cannot use the hub's cache at {path}: {source}")]
    Cache {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

// === impl Hub ===

impl Hub {
    /// The hub of these settings. Nothing is asked yet.
    pub fn new(settings: &HubSettings) -> Self {
        Self {
            client: Client::new(settings),
            settings: settings.clone(),
            attempts: Mutex::default(),
        }
    }

    /// Least time between two attempts to fetch a model.
    pub const fn retry_after(&self) -> Duration {
        self.settings.retry_after
    }

    /// Whether anything may be fetched.
    pub fn may_fetch(&self) -> bool {
        self.settings.access == HubAccess::Download
    }

    /// A directory with the tokenizer files of `model`, fetched where they are not
    /// there. Blocking, for as long as the settings allow for each file, and while
    /// another caller fetches the same model.
    ///
    /// # Errors
    /// The files are not in the cache and cannot or may not be fetched. What was
    /// in the cache before is still there.
    pub fn directory(&self, model: &HubModel, wanted: Wanted) -> Result<PathBuf, HubError> {
        let cache = Cache::new(&self.settings.cache_dir, model);
        let any = |_: &PathBuf| wanted == Wanted::Any;
        if let Some(found) = cache.snapshot().filter(any) {
            return Ok(found);
        }
        if !self.may_fetch() {
            return cache.snapshot().ok_or_else(|| HubError::NotCached {
                model: model.to_string(),
                cache: self.settings.cache_dir.clone(),
            });
        }
        let attempt = self.attempt(model);
        let mut last = attempt.lock().unwrap_or_else(PoisonError::into_inner);
        // Another may have fetched it while this one waited.
        if let Some(found) = cache.snapshot().filter(any) {
            return Ok(found);
        }
        if last.is_some_and(|last| last.elapsed() < self.settings.retry_after) {
            return cache.snapshot().ok_or_else(|| HubError::TooSoon {
                model: model.to_string(),
                period: self.settings.retry_after,
            });
        }
        *last = Some(Instant::now());
        self.fetch(model, &cache)
    }

    fn attempt(&self, model: &HubModel) -> Attempt {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(attempts.entry(model.clone()).or_default())
    }

    fn fetch(&self, model: &HubModel, cache: &Cache) -> Result<PathBuf, HubError> {
        let listing = self.client.listing(model)?;
        let files = listing.tokenizer_files();
        if !files.iter().any(|file| listing::is_vocabulary(&file.name)) {
            return Err(HubError::NoTokenizer {
                model: model.to_string(),
            });
        }
        let staging = cache.stage(&listing.commit)?;
        for file in files {
            if !cache.has(&listing.commit, &file.name) {
                let url = self.client.url_of(model, &listing.commit, &file.name);
                self.client
                    .download(&url, file, &staging.place(&file.name)?)?;
            }
        }
        cache.publish(staging)
    }
}
