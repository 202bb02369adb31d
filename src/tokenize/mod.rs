//! How many tokens a prompt is, before any engine has seen it.
//!
//! Decides: the number of prompt tokens a request will have inside the engine,
//! from the model's own tokenizer and chat template where they are at hand, and
//! from a calibrated ratio where they are not; and which of the two it was.
//! Never does: network, locks held across work, edits of a prompt, a look at
//! `usage` (callers feed that back with [`ModelCounter::observe`] and
//! [`ModelCounter::compare`]).
//! Invariant: counting never panics, never ends in zero for a prompt that holds
//! text, and a number that is not the engine's is called
//! [`Precision::Estimated`].
//!
//! ```text
//!  ChatInput ─► renderer (template, or the model's own) ─► segments ─┐
//!  Texts ────────────────────────────────────────────────────────────┴─► engine ─► Count
//! ```
//!
//! "Exact" is relative to the served stack: tokenizers built on different
//! Unicode tables split a few thousand rare code points differently, and only
//! the engine's own `/tokenize` can settle that.

mod added;
mod chat;
mod counter;
mod disk;
mod effort;
mod engine;
mod estimate;
mod family;
mod files;
mod load;
mod media;
mod messages;
mod parts;
mod ranks;
mod render;
mod runs;
mod sentencepiece;
mod tekken;
mod template;
#[cfg(test)]
mod tests;
mod trust;

use std::borrow::Cow;
use std::path::PathBuf;

use serde_json::{Map, Value};
use thiserror::Error;

pub use counter::{ModelCounter, Truncation};
pub use effort::Effort;
pub use estimate::{MediaAllowance, Sample};
pub use parts::Part;
pub use render::{AddedTokens, Rendered, Segment};
pub use trust::{Demotion, Margin, Verdict};

/// Where the token counts of one served model come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A model directory: a vocabulary (`tokenizer.json` or one of the older
    /// formats), and beside it `config.json`, `tokenizer_config.json`,
    /// `special_tokens_map.json`, `chat_template.jinja`, `chat_template.json` and
    /// `additional_chat_templates/` as far as they exist.
    Directory(PathBuf),
    /// A vocabulary file. Under its usual name it brings the directory around it
    /// along; under another it is read alone, and chats need a template.
    File(PathBuf),
    /// A vocabulary inside this binary: `cl100k_base`, `o200k_base`,
    /// `o200k_harmony`, `p50k_base`, `p50k_edit` or `r50k_base`. Texts are exact;
    /// chats are exact with `o200k_harmony`, which is gpt-oss, and where a chat
    /// template is given.
    Tiktoken(String),
    /// The engine's own `/tokenize`, asked by a higher floor; counts made here
    /// are estimates until it has answered.
    Engine,
    /// No tokenizer: bytes times a ratio learned from answers.
    Estimate,
}

/// What a [`ModelCounter`] is loaded from.
#[derive(Clone, Debug)]
pub struct CounterSpec {
    /// Where counts come from.
    pub source: Source,
    /// The text of a chat template that replaces the directory's own.
    pub chat_template: Option<String>,
    /// The operator's default template variables; a request's are merged over
    /// them, as the engine does with `--default-chat-template-kwargs`.
    pub template_kwargs: Map<String, Value>,
    /// Bytes without a split point above which the engine with the better worst
    /// case counts. Default 4096: below that the fast engine's worst case is
    /// microseconds, far above it one prompt costs tenths of a second.
    pub max_run_bytes: usize,
    /// Tokens charged for media, which no text tokenizer can see.
    pub media: MediaAllowance,
}

impl CounterSpec {
    /// A specification with the defaults and no template of its own.
    pub fn new(source: Source) -> Self {
        Self {
            source,
            chat_template: None,
            template_kwargs: Map::new(),
            max_run_bytes: 4096,
            media: MediaAllowance::default(),
        }
    }
}

/// One prompt, or several, as a request carries them.
#[derive(Clone, Debug)]
pub enum PromptInput<'a> {
    /// The messages of `/v1/chat/completions`.
    Chat(ChatInput<'a>),
    /// The text prompts of `/v1/completions`.
    Texts {
        /// One prompt each.
        texts: &'a [Cow<'a, str>],
        /// Whether the tokenizer's post-processor adds its tokens (BOS);
        /// `/v1/completions` does unless the request says otherwise.
        add_special_tokens: bool,
    },
    /// Prompts sent as token ids: counted by their length, and nothing is added.
    Ids {
        /// Ids in each prompt.
        counts: &'a [usize],
    },
}

/// The API whose request became a chat: engines render some models differently
/// per API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Origin {
    /// `/v1/chat/completions`.
    #[default]
    ChatCompletions,
    /// `/v1/responses`.
    Responses,
    /// `/v1/messages` and `/v1/messages/count_tokens`.
    Messages,
}

/// What a Responses request says beside the chat that was made of it; models whose
/// prompts are no chats are rendered from this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponsesInput<'a> {
    /// `instructions`, where given.
    pub instructions: Option<&'a str>,
    /// The JSON text of `input`, where that is a list.
    pub items: Option<&'a str>,
}

/// The parts of a chat request that decide its prompt.
///
/// [`ChatInput::new`] sets what the engine assumes for absent fields.
#[derive(Clone, Debug)]
pub struct ChatInput<'a> {
    /// The API the chat came by; default chat completions.
    pub origin: Origin,
    /// What a Responses request says beside it; default nothing.
    pub responses: Option<ResponsesInput<'a>>,
    /// The `messages` array.
    pub messages: &'a Value,
    /// The `tools` array, already absent where the engine would exclude it.
    pub tools: Option<&'a Value>,
    /// The `documents` array.
    pub documents: Option<&'a Value>,
    /// A template of the request's own. Never compiled here: such a request is
    /// estimated.
    pub chat_template: Option<&'a str>,
    /// `chat_template_kwargs`.
    pub chat_template_kwargs: Option<&'a Map<String, Value>>,
    /// `mm_processor_kwargs`: what the request changes about how images are
    /// prepared.
    pub mm_processor_kwargs: Option<&'a Map<String, Value>>,
    /// `reasoning_effort`, also the source of `enable_thinking`.
    pub reasoning_effort: Option<&'a str>,
    /// Whether the header of the answer is appended; default true.
    pub add_generation_prompt: bool,
    /// Whether the last message is left open; default false.
    pub continue_final_message: bool,
    /// Whether the post-processor adds its tokens to the rendered text; default
    /// false, since templates write BOS themselves.
    pub add_special_tokens: bool,
}

impl<'a> ChatInput<'a> {
    /// A chat with every other field absent from the request.
    pub const fn new(messages: &'a Value) -> Self {
        Self {
            origin: Origin::ChatCompletions,
            responses: None,
            messages,
            tools: None,
            documents: None,
            chat_template: None,
            chat_template_kwargs: None,
            mm_processor_kwargs: None,
            reasoning_effort: None,
            add_generation_prompt: true,
            continue_final_message: false,
            add_special_tokens: false,
        }
    }
}

/// Whether a count is the engine's or ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Precision {
    /// What the engine will count.
    #[default]
    Exact,
    /// On the high side of what the engine will count, as far as can be known.
    Estimated,
    /// Below what the engine will count: the count stopped once it was past
    /// [`Effort::enough`].
    AtLeast,
}

impl Precision {
    /// The weaker of both: exact only if both are.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        self.max(other)
    }
}

/// The tokens of each prompt of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// Tokens per prompt, in the order of the request; a chat is one prompt.
    pub prompts: Vec<u64>,
    /// The weakest precision among them.
    pub precision: Precision,
}

impl Count {
    /// The tokens of all prompts together.
    pub fn total(&self) -> u64 {
        self.prompts.iter().sum()
    }
}

/// Why a model's tokenizer or template could not be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// A file is missing or unreadable.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is not the JSON it should be.
    #[error("{path} is not valid: {reason}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// No engine reads this tokenizer.
    #[error("no engine reads {path}: {fast}; {tail}")]
    Tokenizer {
        /// The tokenizer file.
        path: PathBuf,
        /// What the fast engine said.
        fast: String,
        /// What the second engine said.
        tail: String,
    },
    /// The directory holds no vocabulary.
    #[error(
        "{directory} holds no tokenizer.json, tekken.json, tokenizer.model, tiktoken.model or *.tiktoken"
    )]
    NoVocabulary {
        /// The directory.
        directory: PathBuf,
    },
    /// A vocabulary that does not say how it is used, of a model whose way is not
    /// known.
    #[error(
        "{path} does not say how it is used, and a tokenizer of class {class:?} in a model of type {kind:?} is not known"
    )]
    UnknownFamily {
        /// The file.
        path: PathBuf,
        /// `tokenizer_class` of `tokenizer_config.json`.
        class: String,
        /// `model_type` of `config.json`.
        kind: String,
    },
    /// A format that no reader takes.
    #[error("{path} is a vocabulary of a format that is not supported")]
    Unsupported {
        /// The file.
        path: PathBuf,
    },
    /// No engine reads a vocabulary in tiktoken's form.
    #[error("no engine reads these ranks: {reason}")]
    Ranks {
        /// What the reference engine said.
        reason: String,
    },
    /// A vocabulary this binary does not carry.
    #[error("unknown vocabulary {name:?}; known: {known}")]
    Vocabulary {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
}

/// Why a prompt is one that the engine would refuse: each is a 400.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CountError {
    /// The chat template refused the conversation; the template's own words.
    #[error("{0}")]
    Template(String),
    /// `messages` is an empty array.
    #[error("messages holds no message")]
    NoMessages,
    /// Both flags at once.
    #[error("continue_final_message and add_generation_prompt cannot both be set")]
    ContinueAndGenerate,
    /// There is no text at the end of the conversation that could be continued.
    #[error("continue_final_message is set but the final message cannot be continued")]
    NothingToContinue,
}
