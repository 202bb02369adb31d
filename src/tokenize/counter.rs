//! The counter of one served model.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value};

use super::chat::weigh::{Weight, media_tokens};
use super::chat::{Conversation, Defaults, Odd, variables};
use super::engine::{AddSpecial, Counted, Engines};
use super::estimate::Calibration;
use super::files::{self, ModelFiles, Templates};
use super::template::{ModelTemplates, RenderError};
use super::{
    ChatInput, Count, CountError, CounterSpec, LoadError, MediaAllowance, Precision, PromptInput,
    Source,
};

/// Added to counts of unrendered text, as a share of it: one in sixteen.
const UNRENDERED_MARGIN: u64 = 16;

/// Counts the prompts of one served model.
///
/// Shared behind an `Arc`; counting takes `&self` and needs no lock of ours. The
/// fast engine keeps caches of up to 96 MiB per thread that counts, so count
/// long prompts on few threads.
pub struct ModelCounter {
    engines: Option<Engines>,
    templates: Option<ModelTemplates>,
    template_problem: Option<String>,
    special_tokens: Map<String, Value>,
    template_kwargs: Map<String, Value>,
    media: MediaAllowance,
    calibration: Calibration,
}

/// A chat as the text that the engine tokenizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The rendered prompt.
    pub text: String,
    /// Tokens charged for media on top of the text.
    pub media_tokens: u64,
}

// === impl ModelCounter ===

impl ModelCounter {
    /// Loads tokenizer and template. Blocking; takes seconds for a large
    /// vocabulary: call it off the async threads.
    ///
    /// A template that does not compile is no error: chats are then estimated,
    /// and [`Self::template_problem`] says why.
    ///
    /// # Errors
    /// A file that is missing or unreadable, a tokenizer no engine reads, an
    /// unknown vocabulary.
    pub fn load(spec: CounterSpec) -> Result<Self, LoadError> {
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
        let (templates, template_problem) = match ModelTemplates::compile(&templates) {
            Ok(Some(templates)) => (Some(templates), None),
            Ok(None) => (None, Some("the model has no chat template".to_owned())),
            Err(problem) => (None, Some(problem)),
        };
        Ok(Self {
            engines,
            templates,
            template_problem,
            special_tokens,
            template_kwargs: spec.template_kwargs,
            media: spec.media,
            calibration: Calibration::default(),
        })
    }

    /// Whether both texts and ordinary chats are counted as the engine counts
    /// them. Without a usable template texts still are, if there is a tokenizer.
    pub const fn is_exact(&self) -> bool {
        self.engines.is_some() && self.templates.is_some()
    }

    /// Why chats cannot be rendered, to be said once when the model is loaded.
    pub fn template_problem(&self) -> Option<&str> {
        self.template_problem.as_deref()
    }

    /// Bytes of text that [`Self::count`] would tokenize: the measure of its cost,
    /// at 5 to 30 ns a byte with a model directory. Cheap: O(messages), plus spelling out tools.
    pub fn cost_bytes(input: &PromptInput<'_>) -> usize {
        match input {
            PromptInput::Chat(chat) => Weight::of(chat).bytes(),
            PromptInput::Texts { texts, .. } => texts.iter().map(|text| text.len()).sum(),
            PromptInput::Ids { .. } => 0,
        }
    }

    /// Counts the prompts of a request. Only uses the CPU: 5 to 20 ms per megabyte
    /// of ordinary text and below 0.3 s of hostile text with a model directory, ten
    /// times that with a vocabulary. Blocks for long prompts; see
    /// [`Self::cost_bytes`].
    ///
    /// # Errors
    /// A request that the engine would refuse with 400. Everything else that
    /// cannot be counted is estimated.
    pub fn count(&self, input: &PromptInput<'_>) -> Result<Count, CountError> {
        match input {
            PromptInput::Chat(chat) => self.count_chat(chat),
            PromptInput::Texts {
                texts,
                add_special_tokens,
            } => Ok(self.count_texts(texts, AddSpecial::from_field(*add_special_tokens))),
            PromptInput::Ids { counts } => Ok(Count {
                prompts: counts.iter().map(|ids| wide(*ids)).collect(),
                precision: Precision::Exact,
            }),
        }
    }

    /// Feeds back what the engine counted, so that estimates follow the traffic.
    /// `text_bytes` is [`Self::cost_bytes`] of the request.
    pub fn observe(&self, text_bytes: usize, real_tokens: u64) {
        self.calibration.observe(text_bytes, real_tokens);
    }

    /// Renders a chat into the text the engine tokenizes; `None` if that cannot
    /// be foreseen here.
    ///
    /// # Errors
    /// A conversation that the template, and so the engine, refuses.
    pub fn render(&self, input: &ChatInput<'_>) -> Result<Option<Rendered>, CountError> {
        if input.messages.as_array().is_some_and(Vec::is_empty) {
            return Err(CountError::NoMessages);
        }
        if input.continue_final_message && input.add_generation_prompt {
            return Err(CountError::ContinueAndGenerate);
        }
        let (Some(templates), None) = (&self.templates, input.chat_template) else {
            return Ok(None);
        };
        let template = templates.choose(input.tools.filter(|tools| !tools.is_null()));
        let Ok(mut conversation) = Conversation::read(input.messages, template) else {
            return Ok(None);
        };
        let open_end = input
            .continue_final_message
            .then(|| conversation.open_end())
            .transpose()?;
        let variables = match variables(self.defaults(), input, &conversation) {
            Ok(variables) => variables,
            Err(Odd) => return Ok(None),
        };
        let mut text = match template.render(variables) {
            Ok(text) => text,
            Err(RenderError::Raised(message)) => return Err(CountError::Template(message)),
            Err(RenderError::Failed(_)) => return Ok(None),
        };
        if let Some(open_end) = open_end {
            open_end.cut(&mut text)?;
        }
        let media_tokens = media_tokens(input.messages, self.media);
        Ok(Some(Rendered { text, media_tokens }))
    }

    fn defaults(&self) -> Defaults<'_> {
        Defaults {
            special_tokens: &self.special_tokens,
            template_kwargs: &self.template_kwargs,
        }
    }

    fn count_chat(&self, chat: &ChatInput<'_>) -> Result<Count, CountError> {
        let counted = match self.render(chat)? {
            Some(rendered) => self.count_rendered(&rendered, chat),
            None => self.estimate_chat(chat),
        };
        Ok(Count {
            prompts: vec![counted.tokens.max(1)],
            precision: counted.precision,
        })
    }

    fn count_rendered(&self, rendered: &Rendered, chat: &ChatInput<'_>) -> Counted {
        let add_special = AddSpecial::from_field(chat.add_special_tokens);
        let mut counted = self.count_text(&rendered.text, add_special);
        if rendered.media_tokens > 0 {
            counted.tokens = counted.tokens.saturating_add(rendered.media_tokens);
            counted.precision = Precision::Estimated;
        }
        counted
    }

    /// Texts by the engine where there is one, a ChatML-like frame around each
    /// message, and a margin for what the template would say beyond that.
    fn estimate_chat(&self, chat: &ChatInput<'_>) -> Counted {
        let weight = Weight::of(chat);
        let text = self.count_text(&weight.text(), AddSpecial::Bare).tokens;
        let tokens = text
            .saturating_add(text.div_ceil(UNRENDERED_MARGIN))
            .saturating_add(weight.overhead())
            .saturating_add(media_tokens(chat.messages, self.media));
        Counted {
            tokens,
            precision: Precision::Estimated,
        }
    }

    fn count_texts(&self, texts: &[Cow<'_, str>], add_special: AddSpecial) -> Count {
        let counted = texts.iter().map(|text| self.count_text(text, add_special));
        let mut count = Count {
            prompts: Vec::with_capacity(texts.len()),
            precision: Precision::Exact,
        };
        for Counted { tokens, precision } in counted {
            count.prompts.push(tokens);
            count.precision = count.precision.and(precision);
        }
        count
    }

    fn count_text(&self, text: &str, add_special: AddSpecial) -> Counted {
        let by_engine = self
            .engines
            .as_ref()
            .and_then(|engines| engines.count(text, add_special));
        by_engine.unwrap_or_else(|| Counted {
            tokens: self.calibration.tokens(text),
            precision: Precision::Estimated,
        })
    }
}

impl fmt::Debug for ModelCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelCounter")
            .field("has_tokenizer", &self.engines.is_some())
            .field("template_problem", &self.template_problem)
            .finish_non_exhaustive()
    }
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
