//! tidegate's own access log as a trace.
//!
//! What was refused for want of room is asked again, with an answer as long as one of its
//! kind had ([`Row::output`](super::Row::output) is `None`): without it the replay would
//! see less load than there was. What was wrong by itself, or ended before anything is
//! known of its answer, is skipped and counted.

use std::io::BufRead;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;

use super::TraceError;
use super::lines::each;
use super::rows::{Draft, Seen};
use crate::replay::Call;

/// What is read of a record; see `telemetry::AccessRecord`.
#[derive(Deserialize)]
struct Record {
    arrival: String,
    route: String,
    tenant: Option<String>,
    model: Option<String>,
    prompt_tokens: Option<u64>,
    used_prompt_tokens: Option<u64>,
    used_output_tokens: Option<u64>,
    max_tokens: Option<u64>,
    #[serde(default = "one")]
    samples: u32,
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    class: Vec<String>,
    #[serde(default)]
    prefix_hashes: Vec<String>,
    finish: String,
    status: Option<u16>,
}

/// What a record is to a replay.
enum Use {
    Answered(u64),
    Refused,
    No(&'static str),
}

/// Reads an access log.
pub(super) fn read(input: impl BufRead, mut draft: Draft) -> Result<Draft, TraceError> {
    each(input, &mut draft, |draft, line, record: Record| {
        let output = match record.of_use() {
            Use::Answered(output) => Some(output),
            Use::Refused => None,
            Use::No(reason) => {
                draft.skip(reason);
                return Ok(());
            }
        };
        let stamp = record.arrival.parse::<Timestamp>().ok();
        let at = stamp.and_then(|stamp| Duration::try_from(stamp.as_duration()).ok());
        let at = at.ok_or_else(|| {
            draft.wrong(
                line,
                format!("arrival = {:?} is not a date and time", record.arrival),
            )
        })?;
        let prompt = record.prompt().unwrap_or(0);
        let prefix = record.prefix(prompt).map_err(|hash| {
            draft.wrong(
                line,
                format!("{hash:?} in prefix_hashes is not hexadecimal"),
            )
        })?;
        let seen = Seen {
            tenant: record.tenant.as_deref().unwrap_or(""),
            kind: record.kind().into(),
            output,
            asked: record.max_tokens,
            chunks: prefix,
            ..Seen::new(at, prompt, 1)
        };
        draft.take(line, seen)
    })?;
    Ok(draft)
}

const fn one() -> u32 {
    1
}

// === impl Record ===

impl Record {
    fn of_use(&self) -> Use {
        if self.prompt().is_none() {
            return Use::No("whose prompt was not counted");
        }
        if self.samples != 1 {
            return Use::No("of several samples");
        }
        match (self.finish.as_str(), self.used_output_tokens) {
            (_, Some(output)) if output > 0 => Use::Answered(output),
            ("complete", _) => Use::No("without an answer"),
            ("refused", _) if matches!(self.status, Some(429 | 503)) => Use::Refused,
            ("refused", _) => Use::No("refused for what they were"),
            ("cancelled", _) => Use::No("left by their client before an answer"),
            _ => Use::No("failed before an answer"),
        }
    }

    fn prompt(&self) -> Option<u64> {
        self.used_prompt_tokens.or(self.prompt_tokens)
    }

    /// Everything but the prompt that tells answers apart by length.
    fn kind(&self) -> String {
        let model = self.model.as_deref().unwrap_or("");
        let form = if self.stream { "stream" } else { "whole" };
        format!("{model} {} {form} {}", self.route, self.class.join(" "))
    }

    /// The prompt's content, or the first hash that is none. The log has one hash for
    /// each step of 512 tokens, which stands for everything up to its end: a chunk as a
    /// replay counts them. Steps are of text, so there may be fewer than the prompt's
    /// tokens would fill, and those past the first 256 are not told: what has no hash is
    /// nobody else's beginning.
    fn prefix(&self, prompt: u64) -> Result<Arc<[u64]>, String> {
        let hash = |text: &String| u64::from_str_radix(text, 16).map_err(|_| text.clone());
        let steps = usize::try_from(prompt / Call::CHUNK.get()).unwrap_or(usize::MAX);
        let hashes = self.prefix_hashes.iter().take(steps);
        hashes.map(hash).collect()
    }
}
