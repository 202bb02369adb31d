//! Traces of JSON lines: Mooncake's and Bailian's, and the loop that all such files share.

use std::io::BufRead;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::TraceError;
use super::rows::{Draft, Seen, chunks, seconds};
use crate::core::units::Tokens;
use crate::replay::Call;
use crate::sim::random::mix;

/// Tokens of a block of Bailian's.
const BAILIAN_BLOCK: usize = 16;

#[derive(Deserialize)]
struct Mooncake {
    timestamp: f64,
    input_length: u64,
    output_length: u64,
    #[serde(default)]
    hash_ids: Vec<u64>,
}

#[derive(Deserialize)]
struct Bailian {
    timestamp: f64,
    input_length: u64,
    output_length: u64,
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    hash_ids: Vec<u64>,
}

/// Hands each line to `take`, with its number. A last line that was not written to its end
/// is skipped: a log is being written while it is read.
pub(super) fn each<T: DeserializeOwned>(
    mut input: impl BufRead,
    draft: &mut Draft,
    mut take: impl FnMut(&mut Draft, u64, T) -> Result<(), TraceError>,
) -> Result<(), TraceError> {
    let mut text = String::new();
    let mut line = 0;
    loop {
        text.clear();
        line += 1;
        let read = input.read_line(&mut text);
        if read.map_err(|error| draft.wrong(line, error.to_string()))? == 0 {
            return Ok(());
        }
        if text.trim().is_empty() {
            continue;
        }
        match serde_json::from_str(text.trim().trim_start_matches('\u{feff}')) {
            Ok(row) => take(draft, line, row)?,
            Err(error) if error.is_eof() && !text.ends_with('\n') && line > 1 => {
                draft.skip("not written to its end");
            }
            Err(error) => {
                let what = error.to_string();
                let what = what.split(" at line ").next().unwrap_or(&what);
                let problem = format!("{what} (column {})", error.column());
                return Err(draft.wrong(line, problem));
            }
        }
    }
}

/// Reads Mooncake's format.
pub(super) fn mooncake(input: impl BufRead, mut draft: Draft) -> Result<Draft, TraceError> {
    each(input, &mut draft, |draft, line, row: Mooncake| {
        let at = seconds(row.timestamp / 1e3).map_err(|problem| draft.wrong(line, problem))?;
        let seen = Seen {
            chunks: Arc::from(row.hash_ids.as_slice()),
            ..Seen::new(at, row.input_length, row.output_length)
        };
        draft.take(line, seen)?;
        draft.check_ids(line, &row.hash_ids, row.input_length)
    })?;
    Ok(draft)
}

/// Reads Bailian's format; ids of blocks are chained to ids of prefixes.
pub(super) fn bailian(input: impl BufRead, mut draft: Draft) -> Result<Draft, TraceError> {
    each(input, &mut draft, |draft, line, row: Bailian| {
        let at = seconds(row.timestamp).map_err(|problem| draft.wrong(line, problem))?;
        let chain = |prefix: &mut u64, block: &u64| {
            *prefix = mix(*prefix, *block);
            Some(*prefix)
        };
        let ids: Vec<u64> = row.hash_ids.iter().scan(0, chain).collect();
        let seen = Seen {
            kind: row.kind.into(),
            chunks: chunks(&ids, BAILIAN_BLOCK),
            ..Seen::new(at, row.input_length, row.output_length)
        };
        draft.take(line, seen)
    })?;
    Ok(draft)
}

// === impl Draft ===

impl Draft {
    /// A prompt has one id for each chunk of it, or none at all.
    fn check_ids(&self, line: u64, ids: &[u64], prompt: u64) -> Result<(), TraceError> {
        let chunks = Tokens::new(prompt).get().div_ceil(Call::CHUNK.get());
        let told = u64::try_from(ids.len()).unwrap_or(u64::MAX);
        if told == 0 || told == chunks {
            return Ok(());
        }
        let problem =
            format!("{told} hash_ids for {prompt} tokens, which are {chunks} blocks of 512");
        Err(self.wrong(line, problem))
    }
}
