//! Reads a generation request as laxly as vLLM does and bounds it.
//!
//! Numbers may be strings or booleans, unknown keys are ignored, of a repeated key the last
//! counts. Decides what is refused and with which words; never what is admitted.

use http::{HeaderMap, header};
use serde_json::{Map, Value};

use super::OutputLength;
use super::prompt::{Opening, Origin, Prompt};
use super::refuse::{PromptSize, Refused};
use crate::core::units::{BlockSize, Tokens};
use crate::sim::engine::SimRequest;
use crate::sim::random::Random;

/// What requests are checked against.
#[derive(Clone, Copy)]
pub(super) struct Served<'a> {
    pub(super) models: &'a [String],
    /// The engine's `max_model_len`.
    pub(super) context: Tokens,
}

/// Which of the generation routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Chat,
    Text,
    Responses,
    Messages,
}

/// A request that the engine may be asked.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Order {
    pub(super) kind: Kind,
    pub(super) model: String,
    pub(super) id: Option<String>,
    pub(super) prompts: Vec<Prompt>,
    pub(super) samples: u32,
    /// Output bound of each prompt's sequences.
    pub(super) limits: Vec<Tokens>,
    /// Tokens each sequence really has, where the request says so.
    pub(super) output: Option<Tokens>,
    pub(super) delivery: Delivery,
}

/// How the answer is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    Once,
    Stream { usage: UsageEvents },
}

/// Which events of a stream bear usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UsageEvents {
    None,
    Last,
    Every,
}

/// `max_tokens` of `/v1/completions` where the request has none.
const COMPLETION_TOKENS: i64 = 16;

/// A JSON body, checked for its media type and form.
///
/// # Errors
/// As vLLM's, 400.
pub(super) fn object(headers: &HeaderMap, body: &[u8]) -> Result<Map<String, Value>, Refused> {
    let media = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next());
    if !media.is_some_and(|media| media.trim().eq_ignore_ascii_case("application/json")) {
        return Err(Refused::media_type());
    }
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let Ok(text) = std::str::from_utf8(body) else {
        let status = http::StatusCode::BAD_REQUEST;
        return Err(Refused::detail(
            status,
            "There was an error parsing the body",
        ));
    };
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => Err(Refused::field(
            "",
            "model_attributes_type",
            "Input should be a valid dictionary or object to extract fields from",
            &shown(&other),
        )),
        Err(error) => Err(Refused::json(position(text, &error), reason(&error))),
    }
}

/// The model a body names, checked against those served.
///
/// # Errors
/// 404 for another model.
pub(super) fn model(body: &Map<String, Value>, models: &[String]) -> Result<String, Refused> {
    match body.get("model").and_then(Value::as_str) {
        Some(name) if !name.is_empty() && !models.iter().any(|served| served == name) => {
            Err(Refused::unknown_model(name, models))
        }
        Some(name) if !name.is_empty() => Ok(name.to_owned()),
        _ => Ok(models.first().cloned().unwrap_or_default()),
    }
}

// === impl Kind ===

impl Kind {
    /// Whether its streams are events with names.
    pub(super) const fn names_events(self) -> bool {
        matches!(self, Self::Responses | Self::Messages)
    }
}

// === impl Order ===

impl Order {
    /// # Errors
    /// As vLLM's, in vLLM's order: form, model, sampling, prompt, output.
    pub(super) fn read(
        kind: Kind,
        served: Served<'_>,
        headers: &HeaderMap,
        body: &Map<String, Value>,
    ) -> Result<Self, Refused> {
        if kind == Kind::Chat && !body.contains_key("messages") {
            let input = format!("<dict of {} items>", body.len());
            return Err(Refused::field(
                "messages",
                "missing",
                "Field required",
                &input,
            ));
        }
        let delivery = delivery(body)?;
        let samples = integer(body, "n")?.unwrap_or(1);
        let asked = asked(kind, body)?;
        if body
            .get("temperature")
            .and_then(Value::as_f64)
            .is_some_and(|value| value < 0.0)
        {
            let value = body
                .get("temperature")
                .and_then(Value::as_f64)
                .unwrap_or_default();
            let message = format!(
                "temperature must be non-negative, got {value:?}. (parameter=temperature, value={value:?})"
            );
            return Err(Refused::bad_request(message, Some("temperature")));
        }
        let model = model(body, served.models)?;
        let Some(samples) = u32::try_from(samples).ok().filter(|&samples| samples > 0) else {
            return Err(Refused::bad_request(
                format!("n must be at least 1, got {samples}."),
                None,
            ));
        };
        let prompts = match kind {
            Kind::Text => texts(body)?,
            _ => vec![chat(body, &model)?],
        };
        let limits = prompts
            .iter()
            .map(|prompt| limit(served.context, prompt, &asked))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            kind,
            model,
            id: request_id(headers, body),
            prompts,
            samples,
            limits,
            output: output_hint(body),
            delivery,
        })
    }

    /// What the engine is asked: one request per prompt. Lengths the request leaves open
    /// are drawn from `random`.
    pub(super) fn requests(
        &self,
        size: BlockSize,
        output: OutputLength,
        mut random: Random,
    ) -> Vec<SimRequest> {
        self.prompts
            .iter()
            .zip(&self.limits)
            .map(|(prompt, &limit)| SimRequest {
                samples: self.samples,
                max_tokens: Some(limit),
                output: self.output.unwrap_or_else(|| output.of(limit, &mut random)),
                ..prompt.request(size)
            })
            .collect()
    }

    /// Prompt tokens of all prompts, as usage reports them.
    pub(super) fn prompt_tokens(&self) -> u64 {
        self.prompts
            .iter()
            .map(|prompt| prompt.tokens().get())
            .sum()
    }
}

// === impl OutputLength ===

impl OutputLength {
    fn of(self, limit: Tokens, random: &mut Random) -> Tokens {
        match self {
            // Past the limit: the sequence never stops by itself.
            Self::Limit => limit + Tokens::new(1),
            Self::Share { least, most } => limit
                .share(least + (most - least) * random.unit())
                .max(Tokens::new(1)),
            Self::Tokens(tokens) => Tokens::new(tokens),
        }
    }
}

/// The output bound a request names: its key and value.
pub(super) struct Asked {
    pub(super) key: &'static str,
    pub(super) value: Option<i64>,
    pub(super) kind: Kind,
}

fn asked(kind: Kind, body: &Map<String, Value>) -> Result<Asked, Refused> {
    let plain = integer(body, "max_tokens")?;
    let newer = match kind {
        Kind::Chat => integer(body, "max_completion_tokens")?,
        _ => None,
    };
    let (key, value) = match newer {
        Some(_) => ("max_completion_tokens", newer),
        None => ("max_tokens", plain),
    };
    Ok(Asked { key, value, kind })
}

/// How many tokens a sequence may have: what was asked, cut to the rest of the context.
pub(super) fn limit(context: Tokens, prompt: &Prompt, asked: &Asked) -> Result<Tokens, Refused> {
    let tokens = prompt.tokens();
    if tokens > context {
        let size = match prompt.origin {
            Origin::Text => PromptSize::AtLeast(context + Tokens::new(1)),
            Origin::Ids => PromptSize::Exactly(tokens),
        };
        return Err(Refused::prompt_too_long(context, size));
    }
    let value = match (asked.value, asked.kind) {
        (Some(value), _) => Some(value),
        (None, Kind::Text) => Some(COMPLETION_TOKENS),
        (None, _) => None,
    };
    let room = context - tokens;
    let limit = match value {
        None => room,
        Some(value) => match u64::try_from(value) {
            Ok(value) if Tokens::new(value) <= context => Tokens::new(value).min(room),
            Ok(_) => return Err(Refused::max_tokens_too_large(asked.key, value, context)),
            Err(_) => return Err(Refused::max_tokens_too_small(value)),
        },
    };
    if limit.is_zero() {
        return Err(Refused::max_tokens_too_small(0));
    }
    Ok(limit)
}

fn chat(body: &Map<String, Value>, model: &str) -> Result<Prompt, Refused> {
    let messages = body.get("messages").and_then(Value::as_array);
    let messages = messages.map(Vec::as_slice).unwrap_or_default();
    if messages.is_empty() {
        let message =
            "Cannot apply chat template to an empty conversation. Provide at least one message.";
        return Err(Refused::bad_request(message, None));
    }
    let media = messages
        .iter()
        .filter_map(|message| message.get("content")?.as_array())
        .flatten()
        .any(|part| !part.is_string() && part.get("text").is_none());
    if media {
        return Err(Refused::bad_request(
            format!("{model} is not a multimodal model"),
            None,
        ));
    }
    let opening = if boolean(body, "add_generation_prompt") == Some(false) {
        Opening::Nothing
    } else {
        Opening::Assistant
    };
    Ok(Prompt::from_chat(messages, opening))
}

/// The prompts of a completion: a text, texts, ids, or lists of ids.
fn texts(body: &Map<String, Value>) -> Result<Vec<Prompt>, Refused> {
    let prompts = match body.get("prompt") {
        Some(Value::String(text)) => vec![Prompt::from_text(text)],
        Some(Value::Array(list)) if list.first().is_some_and(Value::is_number) => {
            vec![Prompt::from_ids(ids(list)?)]
        }
        Some(Value::Array(list)) => list.iter().map(one_of_many).collect::<Result<_, _>>()?,
        _ => Vec::new(),
    };
    if prompts.is_empty() {
        let message = "Either prompt or prompt_embeds must be provided and non-empty.";
        return Err(Refused::bad_request(message, Some("prompt")));
    }
    if prompts.iter().any(|prompt| prompt.ids.is_empty()) {
        return Err(Refused::bad_request(
            "The decoder prompt cannot be empty",
            Some("prompt"),
        ));
    }
    Ok(prompts)
}

fn one_of_many(prompt: &Value) -> Result<Prompt, Refused> {
    match prompt {
        Value::String(text) => Ok(Prompt::from_text(text)),
        Value::Array(list) => Ok(Prompt::from_ids(ids(list)?)),
        _ => Err(not_a_prompt()),
    }
}

fn ids(list: &[Value]) -> Result<Vec<u32>, Refused> {
    list.iter()
        .map(|id| {
            id.as_u64()
                .and_then(|id| u32::try_from(id).ok())
                .ok_or_else(not_a_prompt)
        })
        .collect()
}

fn not_a_prompt() -> Refused {
    Refused::field(
        "prompt",
        "list_type",
        "Input should be a valid list",
        "prompt",
    )
}

fn delivery(body: &Map<String, Value>) -> Result<Delivery, Refused> {
    let options = body.get("stream_options").and_then(Value::as_object);
    if boolean(body, "stream") != Some(true) {
        if options.is_some() {
            let message =
                "Stream options can only be defined when `stream=True`. (parameter=stream_options)";
            return Err(Refused::bad_request(message, Some("stream_options")));
        }
        return Ok(Delivery::Once);
    }
    let set = |key| options.is_some_and(|options| boolean(options, key) == Some(true));
    let usage = match (set("include_usage"), set("continuous_usage_stats")) {
        (true, true) => UsageEvents::Every,
        (true, false) => UsageEvents::Last,
        (false, _) => UsageEvents::None,
    };
    Ok(Delivery::Stream { usage })
}

/// The header wins over the body, as in vLLM.
pub(super) fn request_id(headers: &HeaderMap, body: &Map<String, Value>) -> Option<String> {
    headers
        .get("x-request-id")
        .and_then(|value| value.to_str().ok())
        .or_else(|| body.get("request_id")?.as_str())
        .map(str::to_owned)
}

/// How long the sequences really are: `vllm_xargs.sim_output_tokens`.
pub(super) fn output_hint(body: &Map<String, Value>) -> Option<Tokens> {
    let tokens = body.get("vllm_xargs")?.get("sim_output_tokens")?.as_u64()?;
    Some(Tokens::new(tokens.max(1)))
}

/// An integer as pydantic reads one: integral floats, numeric strings and booleans too.
fn integer(body: &Map<String, Value>, key: &'static str) -> Result<Option<i64>, Refused> {
    let whole = |value: f64| (value.fract() == 0.0 && value.abs() < 9e15).then_some(value);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the value is whole and below 2^53"
    )]
    let from_float = |value: f64| whole(value).map(|value| value as i64);
    match body.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(&Value::Bool(value)) => Ok(Some(i64::from(value))),
        Some(Value::Number(number)) => {
            match number.as_i64().or_else(|| from_float(number.as_f64()?)) {
                Some(value) => Ok(Some(value)),
                None => Err(Refused::field(
                    key,
                    "int_from_float",
                    "Input should be a valid integer, got a number with a fractional part",
                    &number.to_string(),
                )),
            }
        }
        Some(Value::String(text)) => match text.trim().parse().ok().and_then(from_float) {
            Some(value) => Ok(Some(value)),
            None => Err(Refused::field(
                key,
                "int_parsing",
                "Input should be a valid integer, unable to parse string as an integer",
                text,
            )),
        },
        Some(other) => Err(Refused::field(
            key,
            "int_type",
            "Input should be a valid integer",
            &shown(other),
        )),
    }
}

/// A boolean as pydantic reads one; `None` where it is absent or no boolean.
fn boolean(body: &Map<String, Value>, key: &str) -> Option<bool> {
    match body.get(key)? {
        Value::Bool(value) => Some(*value),
        Value::Number(number) => Some(number.as_f64()? != 0.0),
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "t" | "1" | "yes" | "y" | "on" => Some(true),
            "false" | "f" | "0" | "no" | "n" | "off" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// A value as an error message shows it.
fn shown(value: &Value) -> String {
    match value {
        Value::Array(list) => format!("<list of {} items>", list.len()),
        Value::Object(object) => format!("<dict of {} items>", object.len()),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Where in the body reading stopped, in characters, as Python counts.
fn position(text: &str, error: &serde_json::Error) -> usize {
    let before: usize = text
        .split_inclusive('\n')
        .take(error.line().saturating_sub(1))
        .map(str::len)
        .sum();
    let at = before + error.column();
    if error.is_eof() {
        at
    } else {
        at.saturating_sub(1)
    }
}

/// Python's words for what was missing.
fn reason(error: &serde_json::Error) -> &'static str {
    let text = error.to_string();
    let known = [
        ("trailing characters", "Extra data"),
        (
            "key must be a string",
            "Expecting property name enclosed in double quotes",
        ),
        ("expected `:`", "Expecting ':' delimiter"),
        ("expected `,`", "Expecting ',' delimiter"),
    ];
    known
        .into_iter()
        .find(|(ours, _)| text.starts_with(ours))
        .map_or("Expecting value", |(_, theirs)| theirs)
}
