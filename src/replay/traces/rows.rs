//! A trace in the making: what all readers have in common.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Format, Row, Trace, TraceError};
use crate::core::units::Tokens;
use crate::replay::Call;

/// More tokens than any context there is: a larger figure is a broken row.
const MOST_TOKENS: u64 = 1 << 32;

/// Rows as they are read, in the file's order and on the file's clock.
#[derive(Debug)]
pub(super) struct Draft {
    file: String,
    format: Format,
    rows: Vec<Row>,
    tenants: Names,
    kinds: Names,
    skipped: BTreeMap<&'static str, u64>,
}

/// Names, numbered as they come.
#[derive(Debug, Default)]
struct Names(BTreeMap<String, u32>);

/// A row as a reader sees it.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    /// On the file's clock.
    pub(super) at: Duration,
    /// Who asks; empty where the file does not say.
    pub(super) tenant: &'a str,
    /// What its answers are like; empty where the file does not say.
    pub(super) kind: Cow<'a, str>,
    pub(super) prompt: u64,
    /// `None` for what was refused.
    pub(super) output: Option<u64>,
    pub(super) asked: Option<u64>,
    pub(super) chunks: Arc<[u64]>,
}

// === impl Draft ===

impl Draft {
    pub(super) fn new(file: &str, format: Format) -> Self {
        Self {
            file: file.to_owned(),
            format,
            rows: Vec::new(),
            tenants: Names::default(),
            kinds: Names::default(),
            skipped: BTreeMap::new(),
        }
    }

    /// The error of `line`.
    pub(super) fn wrong(&self, line: u64, problem: impl Into<String>) -> TraceError {
        TraceError::Row {
            file: self.file.clone(),
            line,
            problem: problem.into(),
        }
    }

    /// Counts a row that is of no use.
    pub(super) fn skip(&mut self, reason: &'static str) {
        *self.skipped.entry(reason).or_default() += 1;
    }

    /// Takes a row in; one without a prompt or an answer is of no use.
    pub(super) fn take(&mut self, line: u64, seen: Seen<'_>) -> Result<(), TraceError> {
        for tokens in [Some(seen.prompt), seen.output, seen.asked]
            .into_iter()
            .flatten()
        {
            if tokens > MOST_TOKENS {
                return Err(self.wrong(line, format!("{tokens} tokens are beyond any context")));
            }
        }
        if seen.prompt == 0 {
            self.skip("without a prompt");
            return Ok(());
        }
        if seen.output == Some(0) || seen.asked == Some(0) {
            self.skip("without an answer");
            return Ok(());
        }
        let kind = self.kinds.number(&seen.kind);
        self.rows.push(Row {
            at: seen.at,
            tenant: self.tenants.number(seen.tenant),
            kind: u8::try_from(kind).unwrap_or(u8::MAX),
            prompt: Tokens::new(seen.prompt),
            output: seen.output.map(Tokens::new),
            asked: seen.asked.map(Tokens::new),
            chunks: seen.chunks,
        });
        Ok(())
    }

    /// The trace: in order of time, from zero.
    pub(super) fn finish(mut self) -> Result<Trace, TraceError> {
        self.rows.sort_by_key(|row| row.at);
        let Some(first) = self.rows.first().map(|row| row.at) else {
            let skipped: u64 = self.skipped.values().sum();
            return Err(TraceError::File {
                file: self.file,
                problem: format!("no row can be replayed; {skipped} were skipped"),
            });
        };
        for row in &mut self.rows {
            row.at -= first;
        }
        Ok(Trace {
            name: self.file,
            format: self.format,
            rows: self.rows,
            tenants: self.tenants.list(),
            skipped: self.skipped,
        })
    }
}

// === impl Seen ===

impl Seen<'_> {
    /// A prompt that is answered, of which no more is known.
    pub(super) fn new(at: Duration, prompt: u64, output: u64) -> Self {
        Self {
            at,
            tenant: "",
            kind: Cow::Borrowed(""),
            prompt,
            output: Some(output),
            asked: None,
            chunks: Arc::from([]),
        }
    }
}

// === impl Names ===

impl Names {
    fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.0.get(name) {
            return *number;
        }
        let next = u32::try_from(self.0.len()).expect("names are fewer than rows that fit memory");
        self.0.insert(name.to_owned(), next);
        next
    }

    fn list(self) -> Vec<String> {
        let mut names: Vec<(u32, String)> = self
            .0
            .into_iter()
            .map(|(name, number)| (number, name))
            .collect();
        names.sort_unstable();
        names.into_iter().map(|(_, name)| name).collect()
    }
}

/// Seconds as a time, or what is wrong with them.
pub(super) fn seconds(seconds: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| format!("{seconds} is no number of seconds since a beginning"))
}

/// Chunks of 512 tokens from ids of blocks of `size` tokens that stand for the whole
/// prefix up to them: the last id within each chunk.
pub(super) fn chunks(ids: &[u64], size: usize) -> Arc<[u64]> {
    let chunk = usize::try_from(Call::CHUNK.get()).expect("512 fits");
    let each = (chunk / size.max(1)).max(1);
    ids.chunks(each)
        .filter_map(|ids| ids.last().copied())
        .collect()
}
