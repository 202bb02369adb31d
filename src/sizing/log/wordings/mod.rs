//! What engines write, and what it means: one table, read top to bottom.
//!
//! Decides nothing by itself: a row is a wording, the figures in it, what it
//! says, and the file and versions of vLLM it comes from. Where two rows of
//! [`failures`] match one run, the upper one names the cause. A row is tried only
//! on lines that contain its needle, so a log is searched once for all rows.

mod failures;
mod figures;

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use regex::Regex;

use super::Kind;
use super::facts::Field;

/// How far a start has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Reading flags and the model's configuration.
    Starting,
    /// Putting weights on the device.
    Loading,
    /// Weights are there: profiling, compiling, sizing the cache.
    Loaded,
    /// The cache has its size: capturing graphs, warming up.
    Cached,
    /// Requests are taken.
    Serving,
    /// Somebody asked it to end.
    Stopping,
}

/// Where in the engine a traceback stands. The later names say more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Running,
    Stepping,
    Loading,
    Profiling,
    Caching,
    Sampling,
    Capturing,
}

/// What a wording says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Says {
    /// Its figures, and nothing else.
    Figures,
    /// The start has come this far.
    Reached(Phase),
    /// A server begins.
    Server,
    /// An engine begins, with its configuration.
    Engine,
    /// The flags of a server.
    Arguments,
    /// The next lines are a traceback.
    Traceback,
    /// A frame of a traceback.
    Within(Place),
    /// Perhaps an exception.
    Exception,
    /// A failure of this kind, while starting.
    Failure(Kind),
    /// The device's memory ran out; where decides which kind it is.
    OutOfMemory,
    /// The engine crashed, of this cause.
    Crash,
    /// The engine is gone; another line says why.
    Death,
    /// It did not start; another line says why.
    Halt,
}

/// One row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wording {
    /// A line without this text is not looked at.
    pub(super) needle: &'static str,
    /// What the line must match; empty where the needle says all.
    pub(super) pattern: &'static str,
    /// The figures of the pattern's groups, in order.
    pub(super) reads: &'static [Field],
    pub(super) says: Says,
    /// What it means, for people; empty where the kind says all.
    pub(super) means: &'static str,
    /// The flag to change and its value, where the wording tells.
    pub(super) advice: Option<(&'static str, &'static str)>,
    /// File of vLLM (or of what it stands on) and versions.
    pub(super) from: &'static str,
}

/// A row and its pattern.
pub(super) struct Row {
    pub(super) wording: &'static Wording,
    pub(super) pattern: Option<Regex>,
}

/// The rows and the search for their needles.
pub(super) struct Table {
    rows: Vec<Row>,
    needles: AhoCorasick,
}

/// The table, made once.
pub(super) static TABLE: LazyLock<Table> = LazyLock::new(Table::new);

// === impl Wording ===

impl Wording {
    const fn new(says: Says, needle: &'static str, from: &'static str) -> Self {
        Self {
            needle,
            pattern: "",
            reads: &[],
            says,
            means: "",
            advice: None,
            from,
        }
    }

    const fn reads(self, pattern: &'static str, reads: &'static [Field]) -> Self {
        Self {
            pattern,
            reads,
            ..self
        }
    }

    const fn means(self, means: &'static str) -> Self {
        Self { means, ..self }
    }

    const fn advice(self, flag: &'static str, to: &'static str) -> Self {
        Self {
            advice: Some((flag, to)),
            ..self
        }
    }
}

// === impl Table ===

impl Table {
    fn new() -> Self {
        let wordings = figures::FIGURES.iter().chain(failures::FAILURES);
        let rows: Vec<Row> = wordings.map(Row::new).collect();
        let needles = rows.iter().map(|row| row.wording.needle);
        let needles = AhoCorasick::new(needles).expect("some hundred short needles");
        Self { rows, needles }
    }

    /// The rows whose needles `line` contains, by place in the table, each once.
    pub(super) fn candidates(&self, line: &str, found: &mut Vec<usize>) {
        found.clear();
        let hits = self.needles.find_overlapping_iter(line);
        found.extend(hits.map(|hit| hit.pattern().as_usize()));
        found.sort_unstable();
        found.dedup();
    }

    /// The row at this place.
    pub(super) fn row(&self, place: usize) -> &Row {
        &self.rows[place]
    }
}

// === impl Row ===

impl Row {
    fn new(wording: &'static Wording) -> Self {
        let pattern = (!wording.pattern.is_empty())
            .then(|| Regex::new(wording.pattern).expect("the rows' patterns are tried by a test"));
        Self { wording, pattern }
    }

    /// The figures of `text` where it matches: one for each of the row's fields.
    pub(super) fn matches<'t>(&self, text: &'t str) -> Option<Vec<(Field, &'t str)>> {
        let Some(pattern) = &self.pattern else {
            return Some(Vec::new());
        };
        let groups = pattern.captures(text)?;
        let fields = self.wording.reads.iter().zip(1..);
        let figures =
            fields.filter_map(|(field, group)| Some((*field, groups.get(group)?.as_str())));
        Some(figures.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_needle_its_source_and_as_many_groups_as_figures() {
        for row in &TABLE.rows {
            let wording = row.wording;
            assert!(wording.needle.len() >= 4, "{wording:?}");
            assert!(!wording.from.is_empty(), "{wording:?}");
            let groups = row.pattern.as_ref().map_or(0, |p| p.captures_len() - 1);
            assert_eq!(groups, wording.reads.len(), "{wording:?}");
        }
    }

    #[test]
    fn a_line_is_searched_for_all_needles_at_once_even_where_they_overlap() {
        let mut found = Vec::new();
        TABLE.candidates(
            "ValueError: No available memory for the cache blocks.",
            &mut found,
        );
        let says: Vec<Says> = found.iter().map(|at| TABLE.row(*at).wording.says).collect();
        assert_eq!(says, [Says::Exception, Says::Failure(Kind::NoCacheBlocks)]);
    }
}
