//! The top-level keys that are read, found once and asked for by name.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use serde_json::Value;

use super::object::{self, Object, ObjectError};
use super::request::RequestError;
use super::splice::{Key, TopLevel};
use super::{built, form, lax};

macro_rules! fields {
    ($($field:ident = $name:literal,)*) => {
        /// A key that is read.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Field { $($field),* }

        /// Names of the fields, in the order of the variants.
        const NAMES: [&str; [$($name),*].len()] = [$($name),*];
    };
}

fields! {
    AddGenerationPrompt = "add_generation_prompt",
    AddSpecialTokens = "add_special_tokens",
    Background = "background",
    BestOf = "best_of",
    BootstrapHost = "bootstrap_host",
    BootstrapPort = "bootstrap_port",
    BootstrapRoom = "bootstrap_room",
    CacheSalt = "cache_salt",
    ChatTemplate = "chat_template",
    ChatTemplateKwargs = "chat_template_kwargs",
    ContinueFinalMessage = "continue_final_message",
    Data = "data",
    DataParallelRank = "data_parallel_rank",
    Data1 = "data_1",
    Data2 = "data_2",
    Documents = "documents",
    EcTransferParams = "ec_transfer_params",
    Echo = "echo",
    GuidedJson = "guided_json",
    Input = "input",
    Instruction = "instruction",
    Instructions = "instructions",
    Items = "items",
    KvTransferParams = "kv_transfer_params",
    MaxCompletionTokens = "max_completion_tokens",
    MaxOutputTokens = "max_output_tokens",
    MaxTokens = "max_tokens",
    MaxTokensPerDoc = "max_tokens_per_doc",
    MaxTokensPerQuery = "max_tokens_per_query",
    Messages = "messages",
    MinTokens = "min_tokens",
    MmProcessorKwargs = "mm_processor_kwargs",
    Model = "model",
    N = "n",
    OutputConfig = "output_config",
    Padding = "padding",
    PreviousInputMessages = "previous_input_messages",
    PreviousResponseId = "previous_response_id",
    Priority = "priority",
    Prompt = "prompt",
    PromptEmbeds = "prompt_embeds",
    Queries = "queries",
    Query = "query",
    Reasoning = "reasoning",
    ReasoningEffort = "reasoning_effort",
    RequestId = "request_id",
    ResponseFormat = "response_format",
    Stream = "stream",
    StreamOptions = "stream_options",
    StructuredOutputs = "structured_outputs",
    Suffix = "suffix",
    System = "system",
    Text1 = "text_1",
    Text2 = "text_2",
    Thinking = "thinking",
    Tokens = "tokens",
    ToolChoice = "tool_choice",
    Tools = "tools",
    TruncatePromptTokens = "truncate_prompt_tokens",
    Truncation = "truncation",
    UseBeamSearch = "use_beam_search",
    VllmXargs = "vllm_xargs",
}

/// The fields of one body.
#[derive(Debug)]
pub(super) struct Fields<'a>(Object<'a>);

// === impl Field ===

impl Field {
    /// The key as the body spells it.
    pub(super) const fn name(self) -> &'static str {
        NAMES[self as usize]
    }

    /// The field that an edit of `key` is about.
    const fn of(key: Key) -> Self {
        match key {
            Key::MaxTokens => Self::MaxTokens,
            Key::MaxCompletionTokens => Self::MaxCompletionTokens,
            Key::MaxOutputTokens => Self::MaxOutputTokens,
            Key::StreamOptions => Self::StreamOptions,
            Key::Priority => Self::Priority,
            Key::RequestId => Self::RequestId,
            Key::CacheSalt => Self::CacheSalt,
        }
    }
}

// === impl Fields ===

impl<'a> Fields<'a> {
    /// Finds the fields of a body.
    pub(super) fn read(body: &'a [u8]) -> Result<Self, RequestError> {
        let (text, base) = form::text(body)?;
        object::read(text, base, &NAMES)
            .map(Self)
            .map_err(|error| match error {
                ObjectError::Syntax(error) => RequestError::Syntax(error.to_string()),
                ObjectError::NotAnObject => RequestError::NotAnObject,
                ObjectError::Duplicate(name) => RequestError::Duplicate(name),
            })
    }

    /// JSON text of a field; `None` where it is missing or `null`.
    pub(super) fn text(&self, field: Field) -> Option<&'a str> {
        self.0.value(field as usize)
    }

    /// Whether a field is there and `null`.
    pub(super) fn is_null(&self, field: Field) -> bool {
        self.0.place(field as usize).is_some() && self.text(field).is_none()
    }

    /// A boolean field.
    pub(super) fn flag(&self, field: Field) -> Result<Option<bool>, RequestError> {
        self.text(field)
            .map(|text| lax::flag(field.name(), text))
            .transpose()
    }

    /// A string field.
    pub(super) fn string(&self, field: Field) -> Result<Option<Cow<'a, str>>, RequestError> {
        self.text(field)
            .map(|text| lax::string(field.name(), text))
            .transpose()
    }

    /// A whole number within `range`; `expected` says so in words.
    pub(super) fn whole(
        &self,
        field: Field,
        range: RangeInclusive<i64>,
        expected: &'static str,
    ) -> Result<Option<i64>, RequestError> {
        self.text(field)
            .map(|text| lax::whole(field.name(), text, range, expected))
            .transpose()
    }

    /// An array field, built.
    pub(super) fn array(&self, field: Field) -> Result<Option<Value>, RequestError> {
        let Some(text) = self.text(field) else {
            return Ok(None);
        };
        if !text.starts_with('[') {
            return Err(lax::unreadable(field.name(), "a list", text));
        }
        built::value(text).map(Some)
    }

    /// Where the editable keys stand.
    pub(super) fn top_level(&self) -> TopLevel {
        let place = |key| self.0.place(Field::of(key) as usize).cloned();
        TopLevel::new(Key::ALL.map(place), self.0.open, self.0.members)
    }
}
