//! Takes keys out of a TOML table, one by one, each with its range.
//!
//! A wrong value is noted and its default goes on, so that one reading finds
//! every problem; whoever reads must throw the result away where any was noted.
//! Invariant: a key nobody asked for is a problem when the section is finished.

use std::cell::RefCell;
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use toml::{Table, Value};

use super::problem::{Problem, Problems};
use super::units::{parse_time, time_text};

/// What a reading finds: problems, and every key that was asked for.
#[derive(Debug, Default)]
pub(super) struct Report {
    problems: RefCell<Vec<Problem>>,
    /// What is allowed but told.
    advice: RefCell<Vec<Problem>>,
    asked: RefCell<Vec<Asked>>,
}

/// A key that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// Its path, indices included.
    pub(super) path: String,
    /// What it takes, in words.
    pub(super) range: String,
}

/// One table of the file.
pub(super) struct Section<'r> {
    path: String,
    table: Table,
    keys: Vec<&'static str>,
    report: &'r Report,
}

/// The words a key takes and what each means.
pub(super) type Words<'w, T> = &'w [(&'static str, T)];

// === impl Report ===

impl Report {
    pub(super) fn note(
        &self,
        key: impl Into<String>,
        value: Option<String>,
        problem: impl Into<String>,
    ) {
        let problem = Problem {
            key: key.into(),
            value,
            problem: problem.into(),
        };
        self.problems.borrow_mut().push(problem);
    }

    /// Everything that is allowed but told.
    pub(super) fn advice(&self) -> Vec<Problem> {
        self.advice.borrow().clone()
    }

    pub(super) fn into_problems(self) -> Problems {
        Problems(self.problems.into_inner())
    }

    #[cfg(test)]
    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.borrow().clone()
    }
}

// === impl Section ===

impl<'r> Section<'r> {
    /// The top table of a file; `None`, with a problem of `key`, where it is not TOML.
    pub(super) fn parse(key: &str, text: &str, report: &'r Report) -> Option<Self> {
        match text.parse::<Table>() {
            Ok(table) => Some(Self::new(String::new(), table, report)),
            Err(error) => {
                let line = error
                    .span()
                    .map_or(1, |span| text[..span.start].split('\n').count());
                report.note(
                    key,
                    None,
                    format!("line {line} is not TOML: {}", error.message()),
                );
                None
            }
        }
    }

    /// Where problems of this section go.
    pub(super) const fn report(&self) -> &'r Report {
        self.report
    }

    fn new(path: String, table: Table, report: &'r Report) -> Self {
        Self {
            path,
            table,
            keys: Vec::new(),
            report,
        }
    }

    /// The path of a key of this section.
    pub(super) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// Notes a problem of one of this section's keys. `value` must not be a secret.
    pub(super) fn note(&self, key: &str, value: Option<String>, problem: impl Into<String>) {
        self.report.note(self.path_of(key), value, problem);
    }

    /// Tells of one of this section's keys what is allowed but seldom meant.
    pub(super) fn advise(&self, key: &str, problem: String) {
        let key = self.path_of(key);
        let advice = Problem {
            key,
            value: None,
            problem,
        };
        self.report.advice.borrow_mut().push(advice);
    }

    /// Whether a key that nobody took yet is there.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Takes a key's value as it stands; `range` says in words what it may be.
    fn take(&mut self, key: &'static str, range: impl Display) -> Option<Value> {
        self.keys.push(key);
        let asked = Asked {
            path: self.path_of(key),
            range: range.to_string(),
        };
        self.report.asked.borrow_mut().push(asked);
        self.table.remove(key)
    }

    /// Takes a key through `read`, which returns `None` for a wrong value.
    fn read<T>(
        &mut self,
        key: &'static str,
        range: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Option<T> {
        let value = self.take(key, range)?;
        let read = read(&value);
        if read.is_none() {
            self.note(key, Some(value.to_string()), format!("must be {range}"));
        }
        read
    }

    /// A whole number within `range`, if the key is there.
    pub(super) fn number(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let words = format!("{} to {}", range.start(), range.end());
        self.read(key, &words, |value| {
            let number = u64::try_from(value.as_integer()?).ok()?;
            range.contains(&number).then_some(number)
        })
    }

    /// A whole number within `range` that a `u32` holds, if the key is there.
    pub(super) fn small(&mut self, key: &'static str, range: RangeInclusive<u32>) -> Option<u32> {
        let number = self.number(key, u64::from(*range.start())..=u64::from(*range.end()))?;
        Some(u32::try_from(number).expect("the range is one of u32"))
    }

    /// A whole number of either sign, if the key is there.
    pub(super) fn signed(&mut self, key: &'static str) -> Option<i32> {
        let words = format!("{} to {}", i32::MIN, i32::MAX);
        self.read(key, &words, |value| i32::try_from(value.as_integer()?).ok())
    }

    /// A share within `range`.
    pub(super) fn share(
        &mut self,
        key: &'static str,
        range: RangeInclusive<f64>,
        default: f64,
    ) -> f64 {
        let words = format!("{} to {}", range.start(), range.end());
        let read = self.read(key, &words, |value| {
            let whole = value
                .as_integer()
                .and_then(|whole| i32::try_from(whole).ok());
            let share = value.as_float().or(whole.map(f64::from))?;
            range.contains(&share).then_some(share)
        });
        read.unwrap_or(default)
    }

    /// A time within `range`.
    pub(super) fn time(
        &mut self,
        key: &'static str,
        range: RangeInclusive<Duration>,
        default: Duration,
    ) -> Duration {
        self.optional_time(key, range).unwrap_or(default)
    }

    /// A time within `range`, if the key is there.
    pub(super) fn optional_time(
        &mut self,
        key: &'static str,
        range: RangeInclusive<Duration>,
    ) -> Option<Duration> {
        let words = time_words(&range);
        self.read(key, &words, |value| {
            parse_time(value.as_str()?).filter(|time| range.contains(time))
        })
    }

    /// A time within `range`, or `"off"`.
    pub(super) fn time_or_off(
        &mut self,
        key: &'static str,
        range: RangeInclusive<Duration>,
        default: Option<Duration>,
    ) -> Option<Duration> {
        let words = format!("\"off\" or {}", time_words(&range));
        let read = self.read(key, &words, |value| match value.as_str()? {
            "off" => Some(None),
            text => parse_time(text)
                .filter(|time| range.contains(time))
                .map(Some),
        });
        read.unwrap_or(default)
    }

    /// An address with its port.
    pub(super) fn address(&mut self, key: &'static str, default: SocketAddr) -> SocketAddr {
        let words = "an IP address and a port, such as \"127.0.0.1:8080\"";
        self.read(key, words, |value| value.as_str()?.parse().ok())
            .unwrap_or(default)
    }

    /// One of a few words.
    pub(super) fn word<T: Copy>(
        &mut self,
        key: &'static str,
        words: Words<'_, T>,
        default: T,
    ) -> T {
        self.optional_word(key, words).unwrap_or(default)
    }

    /// One of a few words, if the key is there.
    pub(super) fn optional_word<T: Copy>(
        &mut self,
        key: &'static str,
        words: Words<'_, T>,
    ) -> Option<T> {
        self.read(key, &one_of(words), |value| meaning(words, value))
    }

    /// A list of words out of a few, if the key is there; never empty.
    pub(super) fn word_list<T: Copy>(
        &mut self,
        key: &'static str,
        words: Words<'_, T>,
    ) -> Option<Vec<T>> {
        let range = format!("a list of {}", one_of(words));
        self.read(key, &range, |value| {
            let list = value.as_array().filter(|list| !list.is_empty())?;
            list.iter().map(|value| meaning(words, value)).collect()
        })
    }

    /// Text without control characters, if the key is there. `range` says what it is for.
    pub(super) fn text(&mut self, key: &'static str, range: &str) -> Option<String> {
        self.read(key, range, clean_text)
    }

    /// A list of texts, if the key is there.
    pub(super) fn texts(&mut self, key: &'static str, range: &str) -> Option<Vec<String>> {
        self.read(key, range, |value| {
            value.as_array()?.iter().map(clean_text).collect()
        })
    }

    /// A list of texts that may hold secrets by mistake: what is wrong is not shown.
    pub(super) fn hidden_texts(&mut self, key: &'static str, range: &str) -> Vec<String> {
        let Some(value) = self.take(key, range) else {
            return Vec::new();
        };
        let texts = value
            .as_array()
            .and_then(|list| list.iter().map(clean_text).collect());
        texts.unwrap_or_else(|| {
            self.note(key, None, format!("must be {range}"));
            Vec::new()
        })
    }

    /// A table of free content.
    pub(super) fn free_table(&mut self, key: &'static str, range: &str) -> Table {
        self.read(key, range, |value| value.as_table().cloned())
            .unwrap_or_default()
    }

    /// A table of this section; empty where it is not there.
    pub(super) fn section(&mut self, key: &'static str) -> Section<'r> {
        let path = self.path_of(key);
        let table = self.read(key, "a table", |value| value.as_table().cloned());
        Section::new(path, table.unwrap_or_default(), self.report)
    }

    /// The tables of an array `[[key]]`, in order.
    pub(super) fn list(&mut self, key: &'static str) -> Vec<Section<'r>> {
        let path = self.path_of(key);
        let tables = self.read(key, "a list of tables", |value| {
            value
                .as_array()?
                .iter()
                .map(|entry| entry.as_table().cloned())
                .collect::<Option<Vec<_>>>()
        });
        let tables = tables.unwrap_or_default().into_iter().enumerate();
        tables
            .map(|(index, table)| Section::new(format!("{path}[{index}]"), table, self.report))
            .collect()
    }

    /// Notes every key that nobody asked for, with the nearest known one. The
    /// value is not shown: it may be a secret in the wrong place.
    pub(super) fn finish(self) {
        for key in self.table.keys() {
            let problem = match nearest(key, &self.keys) {
                Some(known) => format!("unknown key; did you mean {known}?"),
                None => format!("unknown key; known here: {}", self.keys.join(", ")),
            };
            self.note(key, None, problem);
        }
    }
}

fn time_words(range: &RangeInclusive<Duration>) -> String {
    format!(
        "a time of {} to {} with its unit",
        time_text(*range.start()),
        time_text(*range.end())
    )
}

fn one_of<T>(words: Words<'_, T>) -> String {
    let words: Vec<_> = words
        .iter()
        .map(|(word, _)| format!("\"{word}\""))
        .collect();
    words.join(" or ")
}

fn meaning<T: Copy>(words: Words<'_, T>, value: &Value) -> Option<T> {
    let text = value.as_str()?;
    words
        .iter()
        .find(|(word, _)| *word == text)
        .map(|(_, meaning)| *meaning)
}

fn clean_text(value: &Value) -> Option<String> {
    let text = value.as_str()?;
    let clean = !text.is_empty() && !text.chars().any(char::is_control);
    clean.then(|| text.to_owned())
}

/// The known key an unknown one most likely means: the part of a longer name,
/// or at most a third of its letters away.
fn nearest<'k>(unknown: &str, known: &[&'k str]) -> Option<&'k str> {
    let distance = |key: &str| {
        if key.contains(unknown) || unknown.contains(key) {
            1
        } else {
            edits(unknown, key)
        }
    };
    let nearest = known
        .iter()
        .min_by_key(|key| (distance(key), edits(unknown, key)))?;
    (distance(nearest) <= unknown.len() / 3).then_some(*nearest)
}

/// Letters to insert, remove or replace to turn `from` into `to`.
fn edits(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, letter) in from.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, other) in to.bytes().enumerate() {
            let replaced = diagonal + usize::from(letter != other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}
