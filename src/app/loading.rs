//! Puts the counters of the models in place, each loaded off the async threads.
//!
//! Decides what a model is counted with once its files are read. Until then,
//! and where they cannot be read, prompts are estimated or refused as the
//! model's policy says; other models are not held up.

use std::sync::Arc;

use crate::config::{Model, TokenizerChoice};
use crate::hub::{Hub, Wanted};
use crate::layers::pool::{CountingPlace, Pool};
use crate::tokenize::{CounterSpec, ModelCounter, Source};

use super::counters::load_counter;

/// A counter that needs no files.
pub(super) fn estimate(model: &Model) -> Arc<ModelCounter> {
    let counter = ModelCounter::load(CounterSpec {
        template_kwargs: model.template_kwargs.clone(),
        ..CounterSpec::new(Source::Estimate)
    });
    Arc::new(counter.expect("an estimate reads no file"))
}

/// Loads the counter of `model` and puts it into `pool`.
pub(super) async fn load_into(pool: Arc<Pool>, model: Model, hub: Arc<Hub>) {
    let name = model.name.clone();
    let has_tokenizer = model.tokenizer != TokenizerChoice::Estimate;
    match tokio::task::spawn_blocking(move || load_counter(&model, &hub, Wanted::Any)).await {
        Ok(Ok(counter)) => {
            // Where the engine counts, or nobody does, no template is expected.
            let expected = pool.counting().place == CountingPlace::Here && has_tokenizer;
            if let (Some(problem), true) = (counter.template_problem(), expected) {
                tracing::warn!(model = %name, problem, "chats of this model are estimated");
            }
            pool.use_counter(Arc::new(counter));
        }
        Ok(Err(error)) => {
            tracing::error!(model = %name, %error, "prompts of this model cannot be counted exactly");
        }
        Err(error) => tracing::error!(model = %name, %error, "loading a tokenizer panicked"),
    }
    pool.settle_counter();
}
