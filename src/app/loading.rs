//! Keeps the counters of the models in place, each loaded off the async threads.
//!
//! Decides when a model's tokenizer and template are loaded: at the start, when
//! the operator asks for it anew, and again after a while where a hub did not
//! give them. Until the first load is done, and where it fails, prompts are
//! estimated or refused as the model's policy says; later failures keep what is
//! in use. Never waited for by a request. Invariant: a counter is swapped as one
//! piece, and who counts with the old one ends with it.

use std::future::pending;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use tokio::sync::watch;
use tokio::task::spawn_blocking;

use crate::config::{Model, TokenizerChoice};
use crate::hub::{Hub, Wanted};
use crate::layers::pool::{CountingPlace, Pool};
use crate::layers::provenance::Failure;
use crate::telemetry::{Load, Metrics};
use crate::tokenize::{CounterSpec, ModelCounter, Source};

use super::counters::{CounterError, counter_spec};
use super::loader::Loader;

/// A counter that needs no files.
pub(super) fn estimate(model: &Model) -> Arc<ModelCounter> {
    let counter = ModelCounter::load(CounterSpec {
        template_kwargs: model.template_kwargs.clone(),
        ..CounterSpec::new(Source::Estimate)
    });
    Arc::new(counter.expect("an estimate reads no file"))
}

/// What the keepers of all models share.
#[derive(Clone)]
pub(super) struct Shared {
    /// Where named models come from.
    pub(super) hub: Arc<Hub>,
    /// Where vocabularies are parsed.
    pub(super) loader: Loader,
    /// Changes when everything is to be loaded anew.
    pub(super) reload: watch::Receiver<u64>,
    pub(super) metrics: Arc<Metrics>,
}

/// Keeps the counter of one pool.
pub(super) struct Keeper {
    pub(super) pool: Arc<Pool>,
    pub(super) model: Arc<Model>,
    pub(super) shared: Shared,
}

/// How a load ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Loaded,
    Failed,
}

// === impl Keeper ===

impl Keeper {
    /// Loads the counter, and again whenever that is due. Dropping it leaves the
    /// counter as it is.
    pub(super) async fn keep(mut self) {
        let mut ended = self.load(Wanted::Any).await;
        self.pool.settle_counter();
        loop {
            let wanted = self.due(ended).await;
            ended = self.load(wanted).await;
        }
    }

    /// Waits until the next load is due; says how new its files must be.
    async fn due(&mut self, last: Ended) -> Wanted {
        let hub = &self.shared.hub;
        let from_hub = matches!(self.model.tokenizer, TokenizerChoice::Hub(_));
        let again = last == Ended::Failed && from_hub && hub.may_fetch();
        let retry_after = hub.retry_after();
        let retry = async move {
            if again {
                tokio::time::sleep(retry_after).await;
            } else {
                pending::<()>().await;
            }
        };
        tokio::select! {
            () = retry => Wanted::Any,
            changed = self.shared.reload.changed() => match changed {
                Ok(()) => Wanted::Newest,
                // Nobody is left who could ask.
                Err(_) => pending().await,
            },
        }
    }

    async fn load(&self, wanted: Wanted) -> Ended {
        let begun = Instant::now();
        let loaded = self.read(wanted).await;
        match loaded {
            Ok(counter) => {
                self.took(counter, begun);
                Ended::Loaded
            }
            Err(error) => {
                self.failed(error);
                Ended::Failed
            }
        }
    }

    /// Fetches what has to be and then, in its turn, reads it.
    async fn read(&self, wanted: Wanted) -> Result<ModelCounter, String> {
        let (model, hub) = (Arc::clone(&self.model), Arc::clone(&self.shared.hub));
        let spec = spawn_blocking(move || counter_spec(&model, &hub, wanted)).await;
        let spec = spec
            .map_err(|panicked| panicked.to_string())?
            .map_err(|error| error.to_string())?;
        let loaded = self.shared.loader.run(move || ModelCounter::load(spec));
        let counter = loaded.await.ok_or("loading it panicked")?;
        counter.map_err(|error| CounterError::from(error).to_string())
    }

    fn took(&self, counter: ModelCounter, begun: Instant) {
        let model = &**self.pool.name();
        // Where the engine counts, or nobody does, no template is expected.
        let expected = self.pool.counting().place == CountingPlace::Here
            && self.model.tokenizer != TokenizerChoice::Estimate;
        let problem = counter.template_problem().filter(|_| expected);
        let problem = problem.map(str::to_owned);
        let load = match &problem {
            Some(problem) => {
                tracing::warn!(model, problem, "chats of this model are estimated");
                Load::TemplateFailed
            }
            None => {
                tracing::info!(model, took = ?begun.elapsed(), "tokenizer and template are loaded");
                Load::Loaded
            }
        };
        self.shared.metrics.tokenizer_load(model, load);
        self.pool.use_counter(Arc::new(counter));
        self.pool.note_provenance(|provenance| {
            provenance.loaded_at = Some(SystemTime::now());
            provenance.problem = problem;
            provenance.failure = None;
        });
    }

    fn failed(&self, error: String) {
        let model = &**self.pool.name();
        if self.pool.provenance().loaded_at.is_some() {
            tracing::error!(
                model,
                error,
                "the tokenizer cannot be loaded anew: the one in use stays"
            );
        } else {
            tracing::error!(
                model,
                error,
                "prompts of this model cannot be counted exactly"
            );
        }
        self.shared.metrics.tokenizer_load(model, Load::Failed);
        self.pool.note_provenance(|provenance| {
            provenance.failure = Some(Failure {
                at: SystemTime::now(),
                error,
            });
        });
    }
}
