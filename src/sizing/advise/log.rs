//! The access log as advice needs it.
//!
//! Decides which lines tell of a prompt, and takes of each only what advice is computed
//! from. Never stops at a line: what is no record is counted, and the first of them is
//! told. Prompts' beginnings are tallied while they pass and not kept. The schema is that
//! of `telemetry::AccessRecord`; fields that are not there are not known.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;

use super::prefixes::Prefixes;
use crate::core::backend::Tier;
use crate::core::units::Tokens;

/// Requests of any number of log files.
#[derive(Debug, Default)]
pub struct Log {
    /// Requests whose prompt was counted, in the order of the files.
    pub entries: Vec<Entry>,
    /// Names of models by [`Entry::model`].
    pub models: Names,
    /// Names of tenants by [`Entry::tenant`]; a request without one has the name `-`.
    pub tenants: Names,
    /// Names of backends by [`Entry::backend`].
    pub backends: Names,
    /// Beginnings of prompts, by model.
    pub prefixes: Prefixes,
    /// Lines that were read, empty ones left out.
    pub lines: u64,
    /// Lines that are no record.
    pub bad: u64,
    /// The first of them, as `file:line: problem`.
    pub first_bad: Option<String>,
    /// Records of no use here, by reason.
    pub skipped: BTreeMap<&'static str, u64>,
}

/// Names, each once, with places that stay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    names: Vec<String>,
    places: BTreeMap<String, usize>,
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Place of its model among [`Log::models`].
    pub model: usize,
    /// Place of its tenant among [`Log::tenants`].
    pub tenant: usize,
    /// Place of its backend among [`Log::backends`], where it had one.
    pub backend: Option<usize>,
    /// That backend's tier.
    pub tier: Option<Tier>,
    /// Prompt tokens, by the engine where it said so.
    pub prompt: Tokens,
    /// Output tokens of all samples; `None` where nobody knows.
    pub output: Option<Tokens>,
    /// Output tokens asked for, of each sample; `None` where the client left it open.
    pub asked: Option<Tokens>,
    /// Samples; at least 1.
    pub samples: u64,
    /// From 1970 to its arrival.
    pub arrival: Duration,
    /// When it held KV, since 1970; `None` where it never did.
    pub held: Option<Held>,
    /// From arrival to its first output.
    pub first_token: Option<Duration>,
    /// How it ended.
    pub end: End,
}

/// The time in which a request held KV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// From its grant, taken to be its arrival plus its wait in the queue.
    pub from: Duration,
    /// To the end of its answer; not before `from`.
    pub to: Duration,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its answer is whole.
    Complete,
    /// It was too long for everything, or for its tenant.
    TooLong,
    /// It was refused for another reason.
    Refused,
    /// Its client left, or something failed: its output may be a part.
    Broken,
}

/// What is read of a line.
#[derive(Deserialize)]
struct Record {
    arrival: String,
    finish: String,
    #[serde(default)]
    route: String,
    tenant: Option<String>,
    model: Option<String>,
    backend: Option<String>,
    tier: Option<String>,
    prompt_tokens: Option<u64>,
    used_prompt_tokens: Option<u64>,
    used_cached_tokens: Option<u64>,
    used_output_tokens: Option<u64>,
    max_tokens: Option<u64>,
    samples: Option<u64>,
    #[serde(default)]
    prefix_hashes: Vec<String>,
    queue_ms: Option<f64>,
    ttft_ms: Option<f64>,
    duration_ms: Option<f64>,
    reason: Option<String>,
}

/// Reasons of refusals for length.
const TOO_LONG: [&str; 4] = [
    "context_too_long",
    "tenant_context_limit",
    "tenant_prompt_limit",
    "tenant_output_limit",
];

/// Routes whose prompts hold no KV.
const ASIDE: [&str; 4] = ["count_tokens", "tokenize", "detokenize", "models"];

// === impl Log ===

impl Log {
    /// Reads on; `file` is how messages name the input. Returns the first error of
    /// reading itself, with what was read before it kept.
    ///
    /// # Errors
    /// The input cannot be read further.
    pub fn read(&mut self, mut input: impl BufRead, file: &str) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        let mut place = 0_u64;
        loop {
            bytes.clear();
            place += 1;
            if input.read_until(b'\n', &mut bytes)? == 0 {
                return Ok(());
            }
            let line = bytes.trim_ascii();
            let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            self.lines += 1;
            if let Err(problem) = self.take(line) {
                self.bad += 1;
                self.first_bad
                    .get_or_insert_with(|| format!("{file}:{place}: {problem}"));
            }
        }
    }

    fn take(&mut self, line: &[u8]) -> Result<(), String> {
        let record: Record = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        let arrival = record.arrived()?;
        let prefix = record.prefix()?;
        let end = record.end()?;
        let known = record.used_prompt_tokens.or(record.prompt_tokens);
        let prompt = match known {
            _ if ASIDE.contains(&record.route.as_str()) => return self.skip("that hold no KV"),
            None => return self.skip("whose prompt was not counted"),
            Some(prompt) => Tokens::new(prompt).believable(),
        };
        let model = self.models.place(record.model.as_deref().unwrap_or("-"));
        let answered = end == End::Complete;
        let cached = record.used_cached_tokens.map(Tokens::new);
        let cached = cached.filter(|_| answered);
        if answered {
            self.prefixes.see(model, prompt, &prefix, cached);
        }
        let tokens = |count: Option<u64>| count.map(|count| Tokens::new(count).believable());
        self.entries.push(Entry {
            model,
            tenant: self.tenants.place(record.tenant.as_deref().unwrap_or("-")),
            backend: record
                .backend
                .as_deref()
                .map(|name| self.backends.place(name)),
            tier: record.tier.as_deref().and_then(tier),
            prompt,
            output: tokens(record.used_output_tokens),
            asked: tokens(record.max_tokens),
            samples: record.samples.unwrap_or(1).clamp(1, 1 << 16),
            arrival,
            held: record.held(arrival),
            first_token: record.ttft_ms.and_then(milliseconds),
            end,
        });
        Ok(())
    }

    fn skip(&mut self, reason: &'static str) -> Result<(), String> {
        *self.skipped.entry(reason).or_default() += 1;
        Ok(())
    }
}

fn tier(name: &str) -> Option<Tier> {
    Tier::ALL.into_iter().find(|tier| tier.name() == name)
}

fn milliseconds(ms: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(ms / 1e3).ok()
}

// === impl Names ===

impl Names {
    /// The place of `name`, which gets one if it has none.
    pub fn place(&mut self, name: &str) -> usize {
        if let Some(&place) = self.places.get(name) {
            return place;
        }
        self.places.insert(name.to_owned(), self.names.len());
        self.names.push(name.to_owned());
        self.names.len() - 1
    }

    /// The place of `name`, if it has one.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// All names, in order of their places.
    pub fn all(&self) -> &[String] {
        &self.names
    }
}

// === impl Entry ===

impl Entry {
    /// Output of its longest sample, rounded **up** where samples share a sum; zero where
    /// nobody knows.
    pub fn output_each(&self) -> Tokens {
        let output = self.output.unwrap_or(Tokens::ZERO);
        Tokens::new(output.get().div_ceil(self.samples))
    }

    /// Prompt and output of one sequence: what `max_model_len` bounds.
    pub fn context(&self) -> Tokens {
        self.prompt + self.output_each()
    }

    /// Whether the answer is whole and its length known.
    pub fn is_whole(&self) -> bool {
        self.end == End::Complete
    }
}

// === impl Held ===

impl Held {
    /// How long; zero for an instant.
    pub fn time(self) -> Duration {
        self.to.saturating_sub(self.from)
    }
}

// === impl Record ===

impl Record {
    fn arrived(&self) -> Result<Duration, String> {
        let stamp = self.arrival.parse::<Timestamp>().ok();
        let since = stamp.and_then(|stamp| Duration::try_from(stamp.as_duration()).ok());
        since.ok_or_else(|| format!("arrival {:?} is not a date and time", self.arrival))
    }

    fn prefix(&self) -> Result<Vec<u64>, String> {
        let hashes = self.prefix_hashes.iter();
        let hash = |text: &String| {
            u64::from_str_radix(text, 16)
                .map_err(|_| format!("{text:?} in prefix_hashes is not hexadecimal"))
        };
        hashes.map(hash).collect()
    }

    fn end(&self) -> Result<End, String> {
        let too_long = |reason: &String| TOO_LONG.contains(&reason.as_str());
        match self.finish.as_str() {
            "complete" => Ok(End::Complete),
            "refused" if self.reason.as_ref().is_some_and(too_long) => Ok(End::TooLong),
            "refused" => Ok(End::Refused),
            "cancelled" | "failed" => Ok(End::Broken),
            other => Err(format!("finish {other:?} is not known")),
        }
    }

    fn held(&self, arrival: Duration) -> Option<Held> {
        self.backend.as_ref()?;
        let queued = self.queue_ms.and_then(milliseconds)?;
        let to = arrival.checked_add(milliseconds(self.duration_ms?)?)?;
        let from = arrival.checked_add(queued)?.min(to);
        Some(Held { from, to })
    }
}
