//! Takes keys out of a TOML table, one by one, each with its range.
//!
//! A wrong value is noted and its default goes on, so that one reading finds
//! every problem; whoever reads must throw the result away where any was noted.
//! Invariant: a key nobody asked for is a problem when the section is finished.

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use toml::{Table, Value};

use super::problem::{Problem, Problems};
use super::stray::{Stray, nearest};
use super::units::{parse_time, time_text};

/// What a reading finds: problems, and every key that was asked for.
#[derive(Debug, Default)]
pub(super) struct Report {
    problems: RefCell<Vec<Problem>>,
    /// What is allowed but told.
    advice: RefCell<Vec<Problem>>,
    asked: RefCell<Vec<Asked>>,
    /// Keys that nobody asked for.
    strays: RefCell<Vec<Stray>>,
    /// How many problems there were when all keys were read.
    read: Cell<Option<usize>>,
    /// The file the tenants stand in, where it is another.
    tenants_file: RefCell<Option<String>>,
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
    /// The file it stands in, where that is not the configuration's own.
    file: Option<String>,
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

    /// All keys are read: what is noted from here on is a contradiction between them.
    pub(super) fn all_read(&self) {
        self.read.set(Some(self.problems.borrow().len()));
    }

    /// Notes that keys contradict each other, by the first of them. Not where one
    /// of them could not be read, or was perhaps meant by an unknown one: its
    /// default is in its place, and nobody has written that.
    pub(super) fn contradiction(
        &self,
        keys: &[&str],
        value: Option<String>,
        problem: impl Into<String>,
    ) {
        if !keys.iter().any(|key| self.is_wrong(key)) {
            self.note(keys[0], value, problem);
        }
    }

    /// Whether a key, or one within it, could not be read.
    pub(super) fn is_wrong(&self, key: &str) -> bool {
        self.any_wrong(|wrong| {
            wrong
                .strip_prefix(key)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
    }

    /// Whether a key that `is_meant` could not be read.
    pub(super) fn any_wrong(&self, is_meant: impl Fn(&str) -> bool) -> bool {
        let (problems, strays) = (self.problems.borrow(), self.strays.borrow());
        let read = self.read.get().unwrap_or(problems.len());
        let wrong = problems.iter().take(read).map(|problem| &problem.key);
        let meant = strays.iter().filter_map(|stray| stray.meant.as_ref());
        wrong.chain(meant).any(|key| is_meant(key))
    }

    /// The path of a tenant, with the file it stands in where that is another.
    pub(super) fn tenant_at(&self, index: usize) -> String {
        let path = format!("tenants[{index}]");
        in_file(self.tenants_file.borrow().as_deref(), path)
    }

    /// Everything that is allowed but told.
    pub(super) fn advice(&self) -> Vec<Problem> {
        self.advice.borrow().clone()
    }

    /// Every problem; an unknown key is told the section that knows it.
    pub(super) fn into_problems(self) -> Problems {
        let mut problems = self.problems.into_inner();
        let asked = self.asked.into_inner();
        for stray in self.strays.into_inner() {
            let known = asked.iter().map(|asked| asked.path.as_str());
            if let Some(homes) = stray.homes(known) {
                problems[stray.problem].problem =
                    format!("unknown key here; it belongs to {homes}");
            }
        }
        Problems(problems)
    }

    #[cfg(test)]
    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.borrow().clone()
    }
}

// === impl Section ===

impl<'r> Section<'r> {
    /// The top table of the configuration; `None`, with a problem, where it is not TOML.
    pub(super) fn parse(text: &str, report: &'r Report) -> Option<Self> {
        Self::parse_file(None, text, report)
    }

    /// The top table of the file of tenants.
    pub(super) fn parse_tenants(file: &str, text: &str, report: &'r Report) -> Option<Self> {
        *report.tenants_file.borrow_mut() = Some(file.to_owned());
        Self::parse_other(file, text, report)
    }

    /// The top table of another file.
    pub(super) fn parse_other(file: &str, text: &str, report: &'r Report) -> Option<Self> {
        Self::parse_file(Some(file.to_owned()), text, report)
    }

    /// The same of one that is written in JSON.
    pub(super) fn parse_json(file: &str, text: &str, report: &'r Report) -> Option<Self> {
        match serde_json::from_str(text) {
            Ok(table) => Some(Self::top(Some(file.to_owned()), table, report)),
            Err(error) => {
                let problem = format!("is not JSON that TOML could say too: {error}");
                report.note(file, None, problem);
                None
            }
        }
    }

    fn top(file: Option<String>, table: Table, report: &'r Report) -> Self {
        Self {
            file,
            path: String::new(),
            table,
            keys: Vec::new(),
            report,
        }
    }

    fn parse_file(file: Option<String>, text: &str, report: &'r Report) -> Option<Self> {
        match text.parse::<Table>() {
            Ok(table) => Some(Self::top(file, table, report)),
            Err(error) => {
                let line = error
                    .span()
                    .map_or(1, |span| text[..span.start].split('\n').count());
                report.note(
                    file.unwrap_or_default(),
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

    /// A table of this section.
    fn within(&self, path: String, table: Table) -> Self {
        let top = Self::top(self.file.clone(), table, self.report);
        Self { path, ..top }
    }

    /// The path of a key of this section.
    pub(super) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// The path of a key, with its file where that is another.
    fn place_of(&self, key: &str) -> String {
        in_file(self.file.as_deref(), self.path_of(key))
    }

    /// Notes a problem of one of this section's keys. `value` must not be a secret.
    pub(super) fn note(&self, key: &str, value: Option<String>, problem: impl Into<String>) {
        self.report.note(self.place_of(key), value, problem);
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
        self.within(path, table.unwrap_or_default())
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
            .map(|(index, table)| self.within(format!("{path}[{index}]"), table))
            .collect()
    }

    /// Notes every key that nobody asked for, with the nearest known one. The
    /// value is not shown: it may be a secret in the wrong place.
    pub(super) fn finish(self) {
        for key in self.table.keys() {
            let meant = nearest(key, &self.keys);
            let problem = match meant {
                Some(known) => format!("unknown key; did you mean {known}?"),
                None => format!("unknown key; known here: {}", self.keys.join(", ")),
            };
            self.report.strays.borrow_mut().push(Stray {
                problem: self.report.problems.borrow().len(),
                section: self.path.clone(),
                key: key.clone(),
                meant: meant.map(|known| self.place_of(known)),
            });
            self.note(key, None, problem);
        }
    }
}

fn in_file(file: Option<&str>, path: String) -> String {
    match file {
        Some(file) => format!("{file}: {path}"),
        None => path,
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
