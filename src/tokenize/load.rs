//! From a source to what a counter needs: engines and a renderer.

use serde_json::Map;

use super::engine::Engines;
use super::files::{self, ModelFiles, Templates};
use super::render::{Jinja, Renderer};
use super::template::ModelTemplates;
use super::{CounterSpec, LoadError, Source};

/// What a source gave.
pub(super) struct Loaded {
    /// The tokenizer; `None` where counts are estimates.
    pub(super) engines: Option<Engines>,
    /// How chats are rendered, where that is known.
    pub(super) renderer: Result<Renderer, String>,
}

/// Reads and compiles everything. Blocking; takes seconds for a large vocabulary.
///
/// # Errors
/// A file that is missing or unreadable, a tokenizer no engine reads, an
/// unknown vocabulary.
pub(super) fn load(spec: CounterSpec) -> Result<Loaded, LoadError> {
    let mut templates = Templates::new();
    let mut special_tokens = Map::new();
    let engines = match &spec.source {
        Source::Directory(directory) => {
            let ModelFiles {
                tokenizer,
                special_tokens: found_tokens,
                templates: found_templates,
            } = files::read(directory)?;
            (templates, special_tokens) = (found_templates, found_tokens);
            let path = directory.join("tokenizer.json");
            Some(Engines::from_json(&path, tokenizer, spec.max_run_bytes)?)
        }
        Source::Tiktoken(name) => Some(Engines::from_vocabulary(name)?),
        Source::Engine | Source::Estimate => None,
    };
    if let Some(template) = spec.chat_template {
        templates = Templates::from([("default".to_owned(), template)]);
    }
    let renderer = match ModelTemplates::compile(&templates) {
        Ok(Some(templates)) => Ok(Renderer::Jinja(Jinja {
            templates,
            special_tokens,
            template_kwargs: spec.template_kwargs,
        })),
        Ok(None) => Err("the model has no chat template".to_owned()),
        Err(problem) => Err(problem),
    };
    Ok(Loaded { engines, renderer })
}
