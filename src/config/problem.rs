//! What is wrong with a configuration, in the operator's words.

use std::fmt;

use serde::Serialize;
use thiserror::Error;

/// One wrong key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Path of the key, e.g. `models[0].backends[1].url`; empty for the file as a
    /// whole. Where another file is wrong its path and a colon come first.
    pub key: String,
    /// The value found, as written; never a secret. `None` where the key is missing or its value must not be shown.
    pub value: Option<String>,
    /// What is wrong and what is allowed: one lower-case clause.
    pub problem: String,
}

/// Every problem of one configuration, in the order of the file's sections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Error)]
pub struct Problems(pub Vec<Problem>);

// === impl Problem ===

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key,
            value,
            problem,
        } = self;
        match (key.is_empty(), value) {
            (true, _) => f.write_str(problem),
            (false, Some(value)) => write!(f, "{key} = {value}: {problem}"),
            (false, None) => write!(f, "{key}: {problem}"),
        }
    }
}

// === impl Problems ===

impl Problems {
    /// Whether nothing is wrong.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Problems {
    /// One problem a line, without a line break at the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let line_break = if index == 0 { "" } else { "\n" };
            write!(f, "{line_break}{problem}")?;
        }
        Ok(())
    }
}
