//! Token counters of the configured models.

use crate::config::{Model, TokenizerChoice};
use crate::tokenize::{CounterSpec, LoadError, ModelCounter, Source};

/// Loads the counter of a model: its tokenizer, its template, its template
/// variables. Reads files and takes seconds for a large vocabulary: call it off
/// the async threads.
///
/// # Errors
///
/// A file is missing or not what it should be, or the vocabulary is not one of
/// those in the binary.
pub fn load_counter(model: &Model) -> Result<ModelCounter, LoadError> {
    let source = match &model.tokenizer {
        TokenizerChoice::Directory(path) => Source::Directory(path.clone()),
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
    ModelCounter::load(CounterSpec {
        chat_template: template.transpose()?,
        template_kwargs: model.template_kwargs.clone(),
        ..CounterSpec::new(source)
    })
}
