//! What became of every request.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Violations told in words; the rest are only counted.
const TOLD: usize = 20;

/// How one request ended, as its client saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The whole answer, checked to the last token.
    Full,
    /// An error the client could see: a status, an event, a cut.
    Visible(String),
    /// The client left, as it meant to.
    Left(&'static str),
    /// What must never happen.
    Violation(String),
}

/// Totals of one generator, or of all.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    /// Requests by how they ended.
    pub(crate) endings: BTreeMap<String, u64>,
    /// Requests that ended as none may.
    pub(crate) violations: u64,
    /// The first of them, in words.
    pub(crate) told: Vec<String>,
}

// === impl Tally ===

impl Tally {
    pub(crate) fn add(&mut self, verdict: Verdict) {
        let name = match verdict {
            Verdict::Full => "full".to_owned(),
            Verdict::Visible(what) => what,
            Verdict::Left(when) => format!("left {when}"),
            Verdict::Violation(what) => {
                self.violations += 1;
                if self.told.len() < TOLD {
                    self.told.push(what);
                }
                return;
            }
        };
        *self.endings.entry(name).or_default() += 1;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (name, number) in &other.endings {
            *self.endings.entry(name.clone()).or_default() += number;
        }
        self.violations += other.violations;
        let room = TOLD.saturating_sub(self.told.len());
        self.told.extend(other.told.iter().take(room).cloned());
    }

    /// Requests with this ending.
    pub(crate) fn of(&self, ending: &str) -> u64 {
        self.endings.get(ending).copied().unwrap_or_default()
    }

    pub(crate) fn requests(&self) -> u64 {
        self.endings.values().sum::<u64>() + self.violations
    }
}
