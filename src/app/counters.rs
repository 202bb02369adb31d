//! Token counters of the configured models.

use thiserror::Error;

use crate::config::{Model, TokenizerChoice};
use crate::hub::{Hub, HubError, Wanted};
use crate::tokenize::{CounterSpec, LoadError, ModelCounter, Source};

/// Why a model's counter cannot be loaded.
#[derive(Debug, Error)]
pub enum CounterError {
    /// Its files are not what they should be.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Its files cannot be had.
    #[error(transparent)]
    Hub(#[from] HubError),
}

/// Loads the counter of a model: its tokenizer, its template, its template
/// variables. Reads files, may fetch them first, and takes seconds for a large
/// vocabulary: call it off the async threads.
///
/// # Errors
///
/// A file is missing or not what it should be, the vocabulary is not one of
/// those in the binary, the hub does not give what it is asked for.
pub fn load_counter(
    model: &Model,
    hub: &Hub,
    wanted: Wanted,
) -> Result<ModelCounter, CounterError> {
    Ok(ModelCounter::load(counter_spec(model, hub, wanted)?)?)
}

/// What the counter of a model is loaded from; fetches what has to be.
pub(super) fn counter_spec(
    model: &Model,
    hub: &Hub,
    wanted: Wanted,
) -> Result<CounterSpec, CounterError> {
    let source = match &model.tokenizer {
        TokenizerChoice::Directory(path) => Source::Directory(path.clone()),
        TokenizerChoice::File(path) => Source::File(path.clone()),
        TokenizerChoice::Hub(named) => Source::Directory(hub.directory(named, wanted)?),
        TokenizerChoice::Tiktoken(name) => Source::Tiktoken(name.clone()),
        TokenizerChoice::Engine => Source::Engine,
        TokenizerChoice::Estimate => Source::Estimate,
    };
    let template = model.chat_template_file.as_ref().map(|path| {
        std::fs::read_to_string(path).map_err(|source| LoadError::Read {
            path: path.clone(),
            source,
        })
    });
    Ok(CounterSpec {
        chat_template: template.transpose()?,
        template_kwargs: model.template_kwargs.clone(),
        ..CounterSpec::new(source)
    })
}
