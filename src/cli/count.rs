//! `tidegate count`: the tokens of a body or a text, by part, offline.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use http::Method;
use serde::Serialize;
use serde_json::{Map, Value};

use super::Failure;
use super::plain::say;
use crate::app::{CounterError, load_counter};
use crate::config::{HubAccess, HubModel, HubSettings, Model, Process, Secret, TokenizerChoice};
use crate::hub::{Hub, HubError, Wanted};
use crate::layers::measure::Offline;
use crate::protocol::{Route, parse, route};
use crate::tokenize::{Count, ModelCounter, Part, Precision};

/// Most that is read of the input, in bytes: four of the largest bodies a
/// gateway takes by default.
const MOST_BYTES: u64 = 64 * 1024 * 1024;

/// Routes whose body is no prompt: a recording, or nothing.
const WITHOUT_PROMPT: [Route; 3] = [Route::Models, Route::Transcriptions, Route::Translations];

/// Flags of `tidegate count`.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// A model directory or a vocabulary file, "tiktoken:" and a vocabulary such
    /// as o200k_base, "hub:org/model" or "hub:org/model@revision", or "estimate".
    #[arg(long, value_name = "SOURCE")]
    tokenizer: String,
    /// The route whose body stands on standard input: chat, completions, … or a
    /// path such as /v1/chat/completions.
    #[arg(long, value_name = "ROUTE", default_value = "chat", value_parser = read_route)]
    route: Route,
    /// Count a bare string, this one or standard input, as a completions prompt.
    #[arg(long, value_name = "TEXT", num_args = 0..=1, conflicts_with = "route")]
    text: Option<Option<String>>,
    /// Chat template in place of the tokenizer's own.
    #[arg(long, value_name = "FILE")]
    chat_template: Option<PathBuf>,
    /// Template variables the engine was started with.
    #[arg(long, value_name = "JSON", value_parser = read_object)]
    template_kwargs: Option<Map<String, Value>>,
    /// Print one JSON object instead of lines.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    hub: HubFlags,
}

/// Which hub, and whether it may be asked.
#[derive(Debug, Args)]
struct HubFlags {
    /// Fetch the tokenizer files of a hub: model that are not in the cache; with
    /// this, org/model without a prefix is one too where no such path exists. The
    /// token, where one is needed, is taken from HF_TOKEN.
    #[arg(long = "hub")]
    allowed: bool,
    /// A hub that speaks Hugging Face's API.
    #[arg(long, value_name = "URL")]
    hub_endpoint: Option<String>,
    /// Where fetched files are kept [default: the user's cache directory].
    #[arg(long, value_name = "DIR")]
    hub_cache: Option<PathBuf>,
}

/// What is told.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Told {
    /// Tokens over all prompts; the sum of the parts.
    tokens: u64,
    /// Whether the engine will count the same.
    exact: bool,
    parts: Vec<Share>,
    /// Time of reading and counting, in microseconds; caches are cold.
    micros: u64,
}

/// One part.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Share {
    name: String,
    tokens: u64,
}

/// Loads the tokenizer, reads the input and prints what it counts.
pub(super) fn count(
    flags: &Flags,
    input: &mut impl Read,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let counter = load(flags)?;
    let body = body(flags, input)?;
    let told = told(flags, &counter, &body)?;
    if !told.exact {
        say(format_args!("estimated: {}", why_estimated(&counter)));
    }
    if flags.json {
        let text = serde_json::to_string(&told).expect("texts and numbers have a JSON form");
        writeln!(out, "{text}")?;
    } else {
        told.print(out)?;
    }
    Ok(())
}

fn load(flags: &Flags) -> Result<ModelCounter, Failure> {
    let wrong = |problem: String| {
        Failure::Configuration(format!("--tokenizer {:?} {problem}", flags.tokenizer))
    };
    let choice = TokenizerChoice::parse(&written(flags), &Process::new(""));
    let choice = choice.map_err(wrong)?;
    if choice == TokenizerChoice::Engine {
        let problem = "asks a running engine; `tidegate check --live` does";
        return Err(wrong(problem.to_owned()));
    }
    let mut model = Model::new("model", Vec::new());
    model.tokenizer = choice;
    model.chat_template_file.clone_from(&flags.chat_template);
    model.template_kwargs = flags.template_kwargs.clone().unwrap_or_default();
    let hub = Hub::new(&flags.hub.settings()?);
    let counter = load_counter(&model, &hub, Wanted::Any).map_err(|error| match error {
        CounterError::Load(error) => Failure::Configuration(error.to_string()),
        CounterError::Hub(error @ HubError::NotCached { .. }) => {
            Failure::Configuration(format!("{error}; --hub does"))
        }
        CounterError::Hub(error) => Failure::Run(error.to_string()),
    })?;
    match counter.template_problem() {
        Some(problem) if flags.chat_template.is_some() => Err(Failure::Configuration(format!(
            "the chat template cannot be used: {problem}"
        ))),
        _ => Ok(counter),
    }
}

/// The source as a configuration spells it: a path in the working directory needs
/// no `/` here, and a name of the hub no prefix where the hub is allowed.
fn written(flags: &Flags) -> String {
    let written = flags.tokenizer.as_str();
    if Path::new(written).exists() {
        return Path::new(".").join(written).display().to_string();
    }
    if flags.hub.allowed && HubModel::parse(written).is_some() {
        return format!("hub:{written}");
    }
    written.to_owned()
}

/// The bytes to be counted: a body as it stands, or one made of a bare text.
fn body(flags: &Flags, input: &mut impl Read) -> Result<Vec<u8>, Failure> {
    let text = match &flags.text {
        None => return read_all(input, "a body"),
        Some(Some(text)) => text.clone(),
        Some(None) => String::from_utf8(read_all(input, "a text")?).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            Failure::Configuration(format!(
                "the text is not UTF-8: invalid byte at {at} of standard input"
            ))
        })?,
    };
    Ok(serde_json::json!({"prompt": text}).to_string().into_bytes())
}

fn read_all(input: &mut impl Read, what: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    input
        .take(MOST_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::Run(format!("cannot read standard input: {error}")))?;
    if bytes.is_empty() {
        return Err(Failure::Configuration(format!(
            "standard input is empty: {what} is expected there"
        )));
    }
    if u64::try_from(bytes.len()).is_ok_and(|length| length > MOST_BYTES) {
        return Err(Failure::Configuration(format!(
            "standard input is longer than {MOST_BYTES} bytes"
        )));
    }
    Ok(bytes)
}

fn told(flags: &Flags, counter: &ModelCounter, body: &[u8]) -> Result<Told, Failure> {
    let refused = |problem: String| Failure::Configuration(problem);
    let route = flags
        .text
        .as_ref()
        .map_or(flags.route, |_| Route::Completions);
    let begun = Instant::now();
    let request = parse(route, body).map_err(|error| refused(error.to_string()))?;
    let offline = Offline {
        counter,
        request: &request,
        body_bytes: body.len(),
        stored_history: Model::new("model", Vec::new()).stored_history,
    };
    let count = offline
        .count()
        .map_err(|error| refused(format!("the engine would refuse this request: {error}")))?;
    let took = begun.elapsed();
    Ok(Told {
        tokens: count.total(),
        exact: count.precision == Precision::Exact,
        parts: shares(flags, &offline, &count),
        micros: micros(took),
    })
}

fn shares(flags: &Flags, offline: &Offline<'_>, count: &Count) -> Vec<Share> {
    let name = |part: Part| match flags.text {
        Some(_) => "text".to_owned(),
        None => part.name,
    };
    let parts = offline.parts(count).into_iter();
    let share = |part: Part| Share {
        tokens: part.tokens,
        name: name(part),
    };
    parts.map(share).collect()
}

fn why_estimated(counter: &ModelCounter) -> String {
    match counter.template_problem() {
        Some(problem) => problem.to_owned(),
        None => "the prompt holds what no tokenizer sees, or there is no tokenizer".to_owned(),
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A route by its name or by one of its paths.
fn read_route(written: &str) -> Result<Route, String> {
    let name = match written {
        "chat" => "chat_completions".to_owned(),
        name => name.replace('-', "_"),
    };
    let named = || Route::served().find(|(_, route)| route.label() == name);
    let found = match route(&Method::POST, written) {
        Ok(found) => Some(found.route),
        Err(_) => named().map(|(_, route)| route),
    };
    found
        .filter(|route| !WITHOUT_PROMPT.contains(route))
        .ok_or_else(|| {
            format!(
                "no route with a prompt; known: {}",
                known_routes().join(", ")
            )
        })
}

fn known_routes() -> Vec<&'static str> {
    let mut names = vec!["chat"];
    for (_, route) in Route::served() {
        let known = WITHOUT_PROMPT.contains(&route) || names.contains(&route.label());
        if !known && route != Route::ChatCompletions {
            names.push(route.label());
        }
    }
    names
}

fn read_object(written: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(written).map_err(|error| format!("not a JSON object: {error}"))
}

// === impl HubFlags ===

impl HubFlags {
    fn settings(&self) -> Result<HubSettings, Failure> {
        let default = HubSettings::default();
        let endpoint = self.hub_endpoint.clone().unwrap_or(default.endpoint);
        let token = std::env::var("HF_TOKEN")
            .ok()
            .filter(|token| !token.is_empty());
        let settings = HubSettings {
            access: if self.allowed {
                HubAccess::Download
            } else {
                HubAccess::CacheOnly
            },
            endpoint,
            cache_dir: self.hub_cache.clone().unwrap_or_else(users_cache),
            token: token.map(Secret::new),
            ..default
        };
        if settings.shows_token() {
            let endpoint = &settings.endpoint;
            let problem = format!("--hub-endpoint {endpoint:?} must be https://: HF_TOKEN is set");
            return Err(Failure::Configuration(problem));
        }
        Ok(settings)
    }
}

/// `$XDG_CACHE_HOME/tidegate`, or `~/.cache/tidegate`.
fn users_cache() -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = || variable("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let caches = variable("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    caches.unwrap_or_default().join("tidegate")
}

// === impl Told ===

impl Told {
    fn print(&self, out: &mut impl Write) -> Result<(), Failure> {
        let precision = if self.exact { "exact" } else { "estimated" };
        let micros = self.micros;
        writeln!(out, "{} tokens, {precision}, in {micros} µs", self.tokens)?;
        let width = self.tokens.to_string().len();
        for Share { name, tokens } in &self.parts {
            writeln!(out, "{tokens:>width$}  {name}")?;
        }
        Ok(())
    }
}
