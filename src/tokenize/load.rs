//! From a source to what a counter needs: engines and a renderer.
//!
//! Decides, by the files that are there, which reader takes a vocabulary and
//! which renderer a model has. Never guesses: a file that no reader takes is an
//! error, and a template that does not compile leaves chats to be estimated.

use std::path::Path;

use serde_json::Map;

use super::chat::Defaults;
use super::engine::Engines;
use super::family::Family;
use super::files::{self, ModelFiles, Templates, Vocabulary};
use super::media::{Described, MediaRules};
use super::render::{DeepSeek, Jinja, Mistral, Renderer};
use super::template::ModelTemplates;
use super::{CounterSpec, LoadError, Source, added, ranks, sentencepiece, tekken};

/// File names under which a vocabulary belongs to the model directory around it.
const CANONICAL: [&str; 5] = [
    "qwen.tiktoken",
    "tokenizer.json",
    "tokenizer.model",
    "tiktoken.model",
    "tekken.json",
];

/// What a source gave.
pub(super) struct Loaded {
    /// The tokenizer; `None` where counts are estimates.
    pub(super) engines: Option<Engines>,
    /// How chats are rendered, where that is known.
    pub(super) renderer: Result<Renderer, String>,
    /// What images, audio and video are charged.
    pub(super) media: MediaRules,
    /// Tokens in front of a framed text that no post-processor adds.
    pub(super) bos: u64,
    /// What becomes of a text before an engine sees it.
    pub(super) prepare: Option<fn(&str) -> String>,
}

/// Reads and compiles everything. Blocking; takes seconds for a large vocabulary.
///
/// # Errors
/// A file that is missing or unreadable, a tokenizer no engine reads, an
/// unknown vocabulary.
pub(super) fn load(spec: CounterSpec) -> Result<Loaded, LoadError> {
    match &spec.source {
        Source::Directory(directory) => {
            let vocabulary = files::vocabulary(directory)?;
            from_files(&vocabulary, files::read(directory)?, spec)
        }
        Source::File(file) => {
            let vocabulary = files::vocabulary_file(file)?;
            from_files(&vocabulary, files_around(file)?, spec)
        }
        Source::Tiktoken(name) => {
            let family = match (name.as_str(), &spec.chat_template) {
                ("o200k_harmony", None) => Family::Harmony,
                _ => Family::Template,
            };
            let engines = Engines::from_vocabulary(name, spec.max_run_bytes)?;
            Ok(loaded(Some(engines), family, ModelFiles::default(), spec))
        }
        Source::Engine | Source::Estimate => {
            let files = ModelFiles::default();
            Ok(loaded(None, Family::Template, files, spec))
        }
    }
}

/// The small files beside a vocabulary, where its name says it is a model's.
fn files_around(file: &Path) -> Result<ModelFiles, LoadError> {
    let name = file.file_name().and_then(|name| name.to_str());
    match file.parent() {
        Some(directory) if name.is_some_and(|name| CANONICAL.contains(&name)) => {
            files::read(directory)
        }
        _ => Ok(ModelFiles::default()),
    }
}

fn from_files(
    vocabulary: &Vocabulary,
    files: ModelFiles,
    spec: CounterSpec,
) -> Result<Loaded, LoadError> {
    let (engines, family) = match vocabulary {
        Vocabulary::Json(path) => {
            let engines = from_json(path, &files, spec.max_run_bytes)?;
            (engines, Family::of(&files.config))
        }
        Vocabulary::Tekken(path) => {
            let tekken::Read { ranks, format } = tekken::read(path)?;
            let engines = Engines::from_ranks(&ranks, spec.max_run_bytes)?;
            (engines, Family::Mistral(format))
        }
        Vocabulary::SentencePiece(path) => {
            let name = path.file_name().and_then(|name| name.to_str());
            let Some(format) = name.and_then(tekken::format_of_name) else {
                return Err(LoadError::Unsupported { path: path.clone() });
            };
            let model = sentencepiece::read(path)?;
            let engines = Engines::from_json(path, model, spec.max_run_bytes)?;
            let loaded = loaded(Some(engines), Family::Mistral(format), files, spec);
            return Ok(Loaded {
                prepare: Some(sentencepiece::prepared),
                ..loaded
            });
        }
        Vocabulary::Ranks(path) => {
            let read = ranks::load(path, &files, spec.max_run_bytes)?;
            let family = Family::of(&files.config);
            return Ok(Loaded {
                bos: read.before_a_prompt,
                ..loaded(Some(read.engines), family, files, spec)
            });
        }
    };
    Ok(loaded(Some(engines), family, files, spec))
}

fn from_json(path: &Path, files: &ModelFiles, max_run_bytes: usize) -> Result<Engines, LoadError> {
    let mut tokenizer = files::json(path)?;
    let object = tokenizer.as_object_mut().ok_or_else(|| LoadError::Parse {
        path: path.to_owned(),
        reason: "not a JSON object".to_owned(),
    })?;
    added::complete(object, files);
    Engines::from_json(path, tokenizer, max_run_bytes)
}

/// Puts together what was read.
fn loaded(
    engines: Option<Engines>,
    family: Family,
    files: ModelFiles,
    spec: CounterSpec,
) -> Loaded {
    let described = Described {
        config: files.config.clone(),
        images: files.preprocessor.clone(),
        processor: files.processor.clone(),
    };
    let media = MediaRules::new(described, spec.media);
    let bos = u64::from(matches!(family, Family::Mistral(_)));
    let renderer = match family {
        Family::Template => {
            jinja(&media, files, spec).map(|jinja| Renderer::Jinja(Box::new(jinja)))
        }
        Family::Harmony => Ok(Renderer::Harmony),
        Family::DeepSeek(version) => Ok(Renderer::DeepSeek(DeepSeek {
            version,
            defaults: Defaults::new(&Map::new(), &spec.template_kwargs),
        })),
        Family::Mistral(format) => format.map(|format| Renderer::Mistral(Mistral(format))),
        Family::Unknown(architecture) => Err(format!(
            "the engine renders chats of {architecture} by code that is not known here"
        )),
    };
    Loaded {
        engines,
        renderer,
        media,
        bos,
        prepare: None,
    }
}

/// The templates of a model whose chats they render.
fn jinja(media: &MediaRules, files: ModelFiles, spec: CounterSpec) -> Result<Jinja, String> {
    let templates = match spec.chat_template {
        Some(template) => Templates::from([("default".to_owned(), template)]),
        None => files.templates,
    };
    let templates = ModelTemplates::compile(&templates)?;
    Ok(Jinja::new(
        templates.ok_or("the model has no chat template")?,
        media.placeholder(),
        Defaults::new(&files.special_tokens, &spec.template_kwargs),
    ))
}
