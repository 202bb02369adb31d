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
//! outlive the view and serve [`splice`](super::splice()) later.

mod error;
mod shape;

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::fields::{Field, Fields};
use super::object::{self, Object, ObjectError};
use super::pairs::{self, Pairs};
use super::route::{Dialect, Route, WorkKind};
use super::splice::TopLevel;
use super::{aside, chat, lax, messages, pooling, prompt, responses};

pub use error::RequestError;

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
    /// Output tokens each sequence may generate, at least 1, or 0 on a route
    /// that generates nothing. `None` on chat means the rest of the context;
    /// never `None` on completions.
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
    /// Whether the engine fills each prompt up to what the model can take.
    pub padding: Padding,
    /// The engine's scheduling priority, where the client set one.
    pub priority: Option<i64>,
    /// The client's own id for the request.
    pub request_id: Option<Cow<'a, str>>,
    /// The client's prefix-cache namespace.
    pub cache_salt: Option<Cow<'a, str>>,
    /// Present when the body carries `kv_transfer_params`, or anything else that
    /// steers what engines hand each other.
    pub kv_transfer_params: Option<KvTransfer>,
    /// Whether the body brings a chat template of its own, at the top or among
    /// the template's variables: what it makes of the prompt is not known.
    pub brings_template: bool,
    /// Whether the answer must have a form that the body gives, such as a schema.
    pub fixed_form: bool,
    /// Where the editable keys are.
    pub keys: TopLevel,
}

/// The prompt in the form it was sent.
#[derive(Debug)]
pub enum Prompt<'a> {
    /// Messages, to be rendered by the model's chat template.
    Chat(Box<Chat<'a>>),
    /// Several conversations rendered alike, one prompt each; never empty.
    Conversations {
        /// Everything but the messages, which are null.
        shared: Box<Chat<'a>>,
        /// The messages of each: non-empty arrays of objects.
        conversations: Vec<Value>,
    },
    /// Speech: how many tokens it is depends on the model, and on what it holds.
    Audio {
        /// Its length, at most, as far as its size tells.
        seconds: u64,
        /// Text that goes before it.
        prompt: Cow<'a, str>,
    },
    /// Queries and documents, in one prompt each pair or each apart.
    Pairs(Pairs<'a>),
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
        /// Prompts that are embeddings.
        prompts: usize,
        /// Tokens of each text or list of ids beside them, at the most.
        beside: Vec<usize>,
    },
}

/// The API whose body became a chat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// `/v1/chat/completions`.
    ChatCompletions,
    /// `/v1/responses`.
    Responses,
    /// `/v1/messages` and `/v1/messages/count_tokens`.
    Messages,
}

/// A chat prompt and everything that changes how it is rendered.
#[derive(Debug)]
pub struct Chat<'a> {
    /// The API it came by.
    pub origin: Origin,
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
    /// `mm_processor_kwargs`, where given: how images are prepared.
    pub mm_processor_kwargs: Option<Map<String, Value>>,
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
    /// What the prompt will hold beside it.
    pub unseen: Unseen,
    /// What a Responses body says, for models whose prompts are no chats.
    pub responses: Option<Box<Responses<'a>>>,
}

/// The conversation of a Responses body as it was sent.
#[derive(Debug)]
pub struct Responses<'a> {
    /// `instructions`, where given.
    pub instructions: Option<Cow<'a, str>>,
    /// The JSON text of `input`, where that is a list.
    pub items: Option<Cow<'a, str>>,
}

/// What an engine puts into a prompt that is not in the messages read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unseen {
    /// A conversation that only the engine has (`previous_response_id`).
    pub stored: bool,
    /// Bytes of what the body holds in a form that only some models render
    /// (`previous_input_messages`); no token is shorter than a byte.
    pub bytes: usize,
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

/// Whether the client asked for a usage event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamUsage {
    /// `stream_options.include_usage` is true.
    Asked,
    /// It is false, null or missing. Versions before 0.32 took a `stream_options`
    /// without it as true; the event is asked for and removed all the same.
    NotAsked,
}

/// Whether prompts are filled up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// They stay as long as they are.
    None,
    /// To the longest prompt the model can take.
    ToModel,
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

/// Reads the body of a completions or chat request.
///
/// Linear in the body; texts without escapes are borrowed.
///
/// # Errors
/// [`RequestError`], with the key at fault, for a body that is not JSON or that
/// no engine would serve.
pub fn parse(route: Route, body: &[u8]) -> Result<Request<'_>, RequestError> {
    let fields = Fields::read(body)?;
    let prompt = match route {
        Route::ChatCompletions => Prompt::Chat(Box::new(chat::read(&fields)?)),
        Route::Completions => prompt::completions(&fields)?,
        Route::Responses => Prompt::Chat(Box::new(responses::read(&fields)?)),
        Route::Messages | Route::CountTokens => Prompt::Chat(Box::new(messages::read(&fields)?)),
        Route::Embeddings | Route::Classify | Route::Pooling => pooling::read(route, &fields)?,
        Route::Score | Route::Rerank => Prompt::Pairs(pairs::read(route, &fields)?),
        Route::Tokenize => aside::tokenize(&fields)?,
        Route::Detokenize => aside::detokenize(&fields)?,
        // The route takes no body, or none that is read; nothing in one could be meant.
        _ => return Err(RequestError::Empty("body")),
    };
    Ok(Request {
        model: fields
            .string(Field::Model)?
            .filter(|model| !model.is_empty()),
        prompt,
        max_tokens: max_tokens(route, &fields)?,
        write_max_tokens: route == Route::Completions && fields.is_null(Field::MaxTokens),
        min_tokens: min_tokens(route, &fields)?,
        samples: samples(route, &fields)?,
        stream: stream(route, &fields)?,
        truncate: match route.dialect() {
            Dialect::OpenAi => truncate(route, &fields)?,
            Dialect::Responses => responses::truncate(&fields)?,
            Dialect::Messages => None,
        },
        padding: padding(route, &fields)?,
        priority: fields.whole(Field::Priority, i64::MIN..=i64::MAX, "a whole number")?,
        request_id: fields.string(Field::RequestId)?,
        cache_salt: fields.string(Field::CacheSalt)?,
        kv_transfer_params: kv_transfer_params(&fields)?,
        brings_template: brings_template(&fields)?,
        fixed_form: shape::is_fixed(&fields),
        keys: fields.top_level(),
    })
}

/// Where engines look for a template, on whatever route.
fn brings_template(fields: &Fields<'_>) -> Result<bool, RequestError> {
    let variables = chat::kwargs(fields, Field::ChatTemplateKwargs)?;
    let name = Field::ChatTemplate.name();
    let hidden = variables
        .is_some_and(|variables| variables.get(name).is_some_and(|value| !value.is_null()));
    Ok(hidden || fields.text(Field::ChatTemplate).is_some())
}

/// A whole number from `least` on; `least` is 0 or 1.
fn unsigned(fields: &Fields<'_>, field: Field, least: i64) -> Result<Option<u64>, RequestError> {
    let expected = if least == 0 {
        "a whole number, at least 0"
    } else {
        "a whole number, at least 1"
    };
    let value = fields.whole(field, least..=i64::MAX, expected)?;
    Ok(value.map(|value| u64::try_from(value).expect("the range begins at 0 or above")))
}

fn max_tokens(route: Route, fields: &Fields<'_>) -> Result<Option<u64>, RequestError> {
    if route.work() != WorkKind::Generate {
        return Ok(Some(0));
    }
    if route == Route::Completions {
        // With `echo`, 0 asks for the prompt alone, and engines generate one token for it.
        let least = i64::from(!fields.flag(Field::Echo)?.unwrap_or(false));
        let asked = unsigned(fields, Field::MaxTokens, least)?;
        return Ok(Some(asked.unwrap_or(COMPLETIONS_DEFAULT_MAX_TOKENS).max(1)));
    }
    match route {
        Route::Responses => return unsigned(fields, Field::MaxOutputTokens, 1),
        Route::Messages => {
            let asked = unsigned(fields, Field::MaxTokens, 1)?;
            return match asked {
                Some(_) => Ok(asked),
                None => Err(RequestError::Missing(Field::MaxTokens.name())),
            };
        }
        _ => {}
    }
    let older = unsigned(fields, Field::MaxTokens, 1)?;
    let newer = unsigned(fields, Field::MaxCompletionTokens, 1)?;
    Ok(newer.or(older))
}

/// Only OpenAI's older bodies have one; elsewhere the key means nothing.
fn min_tokens(route: Route, fields: &Fields<'_>) -> Result<u64, RequestError> {
    match route.dialect() {
        Dialect::OpenAi => Ok(unsigned(fields, Field::MinTokens, 0)?.unwrap_or(0)),
        Dialect::Responses | Dialect::Messages => Ok(0),
    }
}

fn samples(route: Route, fields: &Fields<'_>) -> Result<u32, RequestError> {
    if route.dialect() != Dialect::OpenAi || route.work() != WorkKind::Generate {
        return Ok(1);
    }
    let read = |field| {
        let value = fields.whole(
            field,
            1..=i64::from(MAX_SEQUENCES),
            "a whole number from 1 to 16384",
        )?;
        Ok(value.map_or(1, |value| {
            u32::try_from(value).expect("the range ends within 32 bits")
        }))
    };
    // Beam search keeps `n` beams; whether it is asked for changes nothing here,
    // but a value that is no boolean is refused by every engine.
    fields.flag(Field::UseBeamSearch)?;
    let n = read(Field::N)?;
    match route {
        Route::Completions => Ok(n.max(read(Field::BestOf)?)),
        _ => Ok(n),
    }
}

fn stream(route: Route, fields: &Fields<'_>) -> Result<Stream, RequestError> {
    // Where nothing is generated nothing is streamed, and the key is not read.
    if route.work() != WorkKind::Generate || !fields.flag(Field::Stream)?.unwrap_or(false) {
        return Ok(Stream::Once);
    }
    if route.dialect() != Dialect::OpenAi {
        // The last events of these streams bring it whatever was asked.
        let usage = StreamUsage::Asked;
        return Ok(Stream::Events { usage });
    }
    let include = match fields.text(Field::StreamOptions) {
        None => None,
        Some(text) => inner(
            Field::StreamOptions,
            text,
            &["include_usage", "continuous_usage_stats"],
        )?
        .value(0),
    };
    let usage = match include
        .map(|text| lax::flag("stream_options", text))
        .transpose()?
    {
        Some(true) => StreamUsage::Asked,
        Some(false) | None => StreamUsage::NotAsked,
    };
    Ok(Stream::Events { usage })
}

fn padding(route: Route, fields: &Fields<'_>) -> Result<Padding, RequestError> {
    if route.work() != WorkKind::Pool {
        return Ok(Padding::None);
    }
    match fields.string(Field::Padding)?.as_deref() {
        None | Some("do_not_pad") => Ok(Padding::None),
        Some("max_length") => Ok(Padding::ToModel),
        Some(other) => Err(lax::unreadable(
            Field::Padding.name(),
            "max_length or do_not_pad",
            other,
        )),
    }
}

fn truncate(route: Route, fields: &Fields<'_>) -> Result<Option<Truncate>, RequestError> {
    // The tokenizer's routes take a prompt of any length, whole.
    if route.work() == WorkKind::Aside {
        return Ok(None);
    }
    let kept = fields.whole(
        Field::TruncatePromptTokens,
        -1..=i64::MAX,
        "a whole number, at least -1",
    )?;
    Ok(match kept {
        Some(-1) => Some(Truncate::ToModel),
        // Versions differ on 0; the whole prompt is the larger reading.
        Some(0) | None => None,
        Some(kept) => Some(Truncate::To(kept.unsigned_abs())),
    })
}

/// What else says where an engine takes blocks from, or which one computes.
const STEERING: [Field; 5] = [
    Field::BootstrapHost,
    Field::BootstrapPort,
    Field::BootstrapRoom,
    Field::DataParallelRank,
    Field::EcTransferParams,
];

fn kv_transfer_params(fields: &Fields<'_>) -> Result<Option<KvTransfer>, RequestError> {
    let none = KvTransfer {
        prompt_token_ids: None,
    };
    // The engine merges these into the arguments a connector looks at.
    if let Some(text) = fields.text(Field::VllmXargs) {
        let named = inner(
            Field::VllmXargs,
            text,
            &["kv_transfer_params", "ec_transfer_params"],
        )?;
        if named.place(0).or_else(|| named.place(1)).is_some() {
            return Ok(Some(none));
        }
    }
    if STEERING.iter().any(|field| fields.text(*field).is_some()) {
        return Ok(Some(none));
    }
    let Some(text) = fields.text(Field::KvTransferParams) else {
        return Ok(None);
    };
    let params = inner(Field::KvTransferParams, text, &["prompt_token_ids"])?;
    let Some(ids) = params.value(0) else {
        return Ok(Some(none));
    };
    match prompt::count_ids(ids) {
        Some(count) if count > 0 => Ok(Some(KvTransfer {
            prompt_token_ids: Some(count),
        })),
        _ => Err(lax::unreadable(
            "kv_transfer_params",
            "an object whose prompt_token_ids is a list of token ids",
            text,
        )),
    }
}

/// Members of a nested object; not being one is an error.
pub(super) fn inner<'a>(
    field: Field,
    text: &'a str,
    names: &'static [&'static str],
) -> Result<Object<'a>, RequestError> {
    object::read(text, 0, names).map_err(|error| match error {
        ObjectError::Duplicate(name) => RequestError::Duplicate(name),
        ObjectError::NotAnObject | ObjectError::Syntax(_) => {
            lax::unreadable(field.name(), "an object", text)
        }
    })
}

#[cfg(test)]
mod tests;
