//! Traces of comma-separated values, with a header: Azure's, BurstGPT's, and by column name.

use std::io::Read;
use std::str::FromStr;
use std::time::Duration;

use csv::{ReaderBuilder, StringRecord, Trim};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

use super::TraceError;
use super::rows::{Draft, Seen, seconds};

/// A row, with the places of the columns that are read.
struct Fields<'a> {
    record: &'a StringRecord,
    header: &'a StringRecord,
    /// Where each column is in `record`.
    places: &'a [Option<usize>],
}

/// A column: its name in lower case, and whether each file has it.
type Column = (&'static str, Presence);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Always,
    Sometimes,
}

use Presence::{Always, Sometimes};

/// Reads Azure's format.
pub(super) fn azure(input: impl Read, draft: Draft) -> Result<Draft, TraceError> {
    let columns = [
        ("timestamp", Always),
        ("contexttokens", Always),
        ("generatedtokens", Always),
    ];
    table(input, draft, &columns, |fields| {
        Ok(Seen::new(
            fields.date(0)?,
            fields.tokens(1)?,
            fields.tokens(2)?,
        ))
    })
}

/// Reads BurstGPT's format. Its rows name no user: all are one tenant's, and model and log
/// type tell answers apart.
pub(super) fn burst_gpt(input: impl Read, draft: Draft) -> Result<Draft, TraceError> {
    let columns = [
        ("timestamp", Always),
        ("request tokens", Always),
        ("response tokens", Always),
        ("model", Sometimes),
        ("log type", Sometimes),
    ];
    table(input, draft, &columns, |fields| {
        Ok(Seen {
            kind: format!("{}, {}", fields.text(3), fields.text(4)).into(),
            ..Seen::new(fields.seconds(0)?, fields.tokens(1)?, fields.tokens(2)?)
        })
    })
}

/// Reads columns by their names.
pub(super) fn columns(input: impl Read, draft: Draft) -> Result<Draft, TraceError> {
    let columns = [
        ("t_s", Always),
        ("prompt_tokens", Always),
        ("output_tokens", Always),
        ("tenant", Sometimes),
        ("max_tokens", Sometimes),
    ];
    table(input, draft, &columns, |fields| {
        let asked = match fields.text(4) {
            "" => None,
            _ => Some(fields.tokens(4)?),
        };
        Ok(Seen {
            tenant: fields.text(3),
            asked,
            ..Seen::new(fields.seconds(0)?, fields.tokens(1)?, fields.tokens(2)?)
        })
    })
}

/// Hands each row to `seen`, its fields in the order of `columns`.
fn table(
    input: impl Read,
    mut draft: Draft,
    columns: &[Column],
    seen: impl for<'a> Fn(&Fields<'a>) -> Result<Seen<'a>, String>,
) -> Result<Draft, TraceError> {
    let mut reader = ReaderBuilder::new()
        .trim(Trim::All)
        .flexible(true)
        .from_reader(input);
    let header = reader.headers();
    let header = header
        .map_err(|error| draft.wrong(1, error.to_string()))?
        .clone();
    let places = places(&header, columns).map_err(|problem| draft.wrong(1, problem))?;
    let mut record = StringRecord::new();
    loop {
        let line = reader.position().line();
        let read = reader.read_record(&mut record);
        if !read.map_err(|error| draft.wrong(line, error.to_string()))? {
            return Ok(draft);
        }
        let line = record.position().map_or(line, csv::Position::line);
        if record.len() != header.len() {
            let problem = format!("{} fields, the header has {}", record.len(), header.len());
            return Err(draft.wrong(line, problem));
        }
        let fields = Fields {
            record: &record,
            header: &header,
            places: &places,
        };
        let seen = seen(&fields).map_err(|problem| draft.wrong(line, problem))?;
        draft.take(line, seen)?;
    }
}

/// Where `columns` are in `header`.
fn places(header: &StringRecord, columns: &[Column]) -> Result<Vec<Option<usize>>, String> {
    let place = |name: &str| {
        let named = |field: &str| {
            field
                .trim_start_matches('\u{feff}')
                .eq_ignore_ascii_case(name)
        };
        header.iter().position(named)
    };
    let found = columns.iter().map(|(name, presence)| match place(name) {
        None if *presence == Always => Err(format!("the header has no column {name:?}")),
        place => Ok(place),
    });
    found.collect()
}

// === impl Fields ===

impl<'a> Fields<'a> {
    /// The field of a column; empty where the file has no such column.
    fn text(&self, column: usize) -> &'a str {
        let place = self.places.get(column).copied().flatten();
        place.and_then(|place| self.record.get(place)).unwrap_or("")
    }

    fn tokens(&self, column: usize) -> Result<u64, String> {
        self.number(column, "a number of tokens")
    }

    fn seconds(&self, column: usize) -> Result<Duration, String> {
        seconds(self.number(column, "a number of seconds")?)
    }

    /// A date and time of day, in UTC where it does not say; as time since 1970.
    fn date(&self, column: usize) -> Result<Duration, String> {
        let text = self.text(column);
        let stamp = match text.parse::<Timestamp>() {
            Ok(stamp) => Some(stamp),
            Err(_) => {
                let civil = text.parse::<DateTime>().ok();
                civil.and_then(|civil| Offset::UTC.to_timestamp(civil).ok())
            }
        };
        let since = stamp.and_then(|stamp| Duration::try_from(stamp.as_duration()).ok());
        since.ok_or_else(|| self.not(column, "a date and time"))
    }

    fn number<N: FromStr>(&self, column: usize, what: &str) -> Result<N, String> {
        self.text(column)
            .parse()
            .map_err(|_| self.not(column, what))
    }

    fn not(&self, column: usize, what: &str) -> String {
        let place = self.places.get(column).copied().flatten();
        let name = place.and_then(|place| self.header.get(place)).unwrap_or("");
        format!("{name} = {:?} is not {what}", self.text(column))
    }
}
