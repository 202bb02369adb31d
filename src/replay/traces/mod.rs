//! Traces of requests, in the formats they are published in and in our own access log's.
//!
//! Decides what each row of a file asks for and when. Never drops a row unsaid: what is
//! malformed ends the reading with its file and line, what is well formed and of no use is
//! counted under its reason in [`Trace::skipped`]. Invariant: rows are in order of time,
//! the first at zero.

mod access;
mod lines;
mod rows;
pub mod schedule;
mod tables;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, Cursor, Read as _};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::core::units::Tokens;

/// The layout of a trace file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// Mooncake's JSON lines: `timestamp` in ms, `input_length`, `output_length`, and
    /// `hash_ids` of blocks of 512 tokens, each standing for the whole prefix up to it.
    Mooncake,
    /// Qwen's on Bailian, JSON lines: as Mooncake's, in seconds, with `chat_id`, and with
    /// `hash_ids` of blocks of 16 tokens that stand for the block alone.
    Bailian,
    /// Azure's CSV: `TIMESTAMP` (a date and time of day), `ContextTokens`, `GeneratedTokens`.
    Azure,
    /// BurstGPT's CSV: `Timestamp` in seconds, `Model`, `Request tokens`,
    /// `Response tokens`, `Total tokens`, `Log Type`.
    BurstGpt,
    /// CSV by column name: `t_s`, `prompt_tokens`, `output_tokens`, and `tenant` and
    /// `max_tokens` where there are any. Other columns are not read.
    Columns,
    /// tidegate's access log, JSON lines.
    AccessLog,
}

/// One request of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Since the first request of the file.
    pub at: Duration,
    /// Index into [`Trace::tenants`].
    pub tenant: u32,
    /// What its answers are like: requests of one number alike.
    pub kind: u8,
    /// Prompt tokens; at least 1.
    pub prompt: Tokens,
    /// Output tokens, at least 1; `None` where the request was refused then, and nobody
    /// knows what it would have been given.
    pub output: Option<Tokens>,
    /// Its `max_tokens`, where the file has one.
    pub asked: Option<Tokens>,
    /// Content of the prompt by chunks of 512 tokens, as
    /// [`Call::chunks`](super::Call::chunks).
    pub chunks: Arc<[u64]>,
}

/// One file.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// How messages name the file.
    pub name: String,
    /// Its layout.
    pub format: Format,
    /// Its requests.
    pub rows: Vec<Row>,
    /// Names of its tenants.
    pub tenants: Vec<String>,
    /// Rows that are not among `rows`, by reason.
    pub skipped: BTreeMap<&'static str, u64>,
}

/// Why a file cannot be replayed.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TraceError {
    /// A row is not what the format says.
    #[error("{file}:{line}: {problem}")]
    Row {
        /// The file.
        file: String,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// The file as a whole is of no use.
    #[error("{file}: {problem}")]
    File {
        /// The file.
        file: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// Reads one trace; `file` is how messages name it. The format is told by the first line
/// unless it is given.
///
/// # Errors
/// The first row that is malformed, or that no row can be replayed.
pub fn read(
    mut input: impl BufRead,
    file: &str,
    format: Option<Format>,
) -> Result<Trace, TraceError> {
    let whole = |problem: String| TraceError::File {
        file: file.to_owned(),
        problem,
    };
    let mut head = String::new();
    while head.trim().is_empty() {
        let read = input.read_line(&mut head);
        if read.map_err(|error| whole(error.to_string()))? == 0 {
            return Err(whole("it is empty".to_owned()));
        }
    }
    let format = match format {
        Some(format) => format,
        None => Format::of(head.trim()).map_err(whole)?,
    };
    let input = Cursor::new(head.clone()).chain(input);
    let draft = rows::Draft::new(file, format);
    let read = match format {
        Format::Mooncake => lines::mooncake(input, draft),
        Format::Bailian => lines::bailian(input, draft),
        Format::AccessLog => access::read(input, draft),
        Format::Azure => tables::azure(input, draft),
        Format::BurstGpt => tables::burst_gpt(input, draft),
        Format::Columns => tables::columns(input, draft),
    };
    read?.finish()
}

// === impl Format ===

impl Format {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Mooncake,
        Self::Bailian,
        Self::Azure,
        Self::BurstGpt,
        Self::Columns,
        Self::AccessLog,
    ];

    /// The name on the command line and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mooncake => "mooncake",
            Self::Bailian => "bailian",
            Self::Azure => "azure",
            Self::BurstGpt => "burstgpt",
            Self::Columns => "csv",
            Self::AccessLog => "access-log",
        }
    }

    /// The format of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Whose rows begin with this line, or what is missing in it.
    fn of(first: &str) -> Result<Self, String> {
        let first = first.trim_start_matches('\u{feff}');
        let has = |names: &[&str]| {
            let first = first.to_ascii_lowercase();
            names.iter().all(|name| first.contains(name))
        };
        let json = first.starts_with('{');
        let known = [
            (
                json,
                Self::AccessLog,
                &["\"arrival\"", "\"request_id\""][..],
            ),
            (json, Self::Bailian, &["\"chat_id\"", "\"input_length\""]),
            (json, Self::Mooncake, &["\"timestamp\"", "\"input_length\""]),
            (!json, Self::Azure, &["timestamp", "contexttokens"]),
            (!json, Self::BurstGpt, &["timestamp", "request tokens"]),
            (!json, Self::Columns, &["t_s", "prompt_tokens"]),
        ];
        let found = known
            .into_iter()
            .find(|(form, _, names)| *form && has(names));
        found.map(|(_, format, _)| format).ok_or_else(|| {
            let shown: String = first.chars().take(60).collect();
            let names = Self::ALL.map(Self::name).join(", ");
            format!("no known format begins with {shown:?}; known are {names}")
        })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
