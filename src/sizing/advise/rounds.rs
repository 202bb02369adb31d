//! Rounds of tuning: one line each, compared with the first and the one before.
//!
//! Decides how a round is written and which change is for the better. Never touches a file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::figures::Figures;

/// One round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// When it was recorded, RFC 3339 in UTC.
    pub at: String,
    /// What it is called.
    pub name: String,
    /// What it is judged by.
    #[serde(flatten)]
    pub figures: Figures,
    /// What was set, by flag or key with the place before it.
    #[serde(default)]
    pub flags: BTreeMap<String, String>,
}

/// A figure of a round, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// KV tokens of all engines.
    KvTokens,
    /// Median time to first token.
    TtftP50,
    /// P99 time to first token.
    TtftP99,
    /// Output tokens a second.
    OutputRate,
    /// Peak KV usage.
    PeakUsage,
}

/// Rounds that were read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rounds {
    /// In the order of the file.
    pub rounds: Vec<Round>,
    /// Lines that are no round, as `line N: problem`.
    pub bad: Vec<String>,
}

// === impl Figure ===

impl Figure {
    /// All, in the order of columns.
    pub const ALL: [Self; 5] = [
        Self::KvTokens,
        Self::TtftP50,
        Self::TtftP99,
        Self::OutputRate,
        Self::PeakUsage,
    ];

    /// Its value in a round: tokens, seconds, tokens a second, or a share.
    pub fn of(self, figures: &Figures) -> Option<f64> {
        match self {
            Self::KvTokens => figures
                .kv_tokens
                .map(|kv| crate::core::units::Tokens::new(kv).as_f64()),
            Self::TtftP50 => figures.ttft_p50_seconds,
            Self::TtftP99 => figures.ttft_p99_seconds,
            Self::OutputRate => figures.output_tokens_per_second,
            Self::PeakUsage => figures.peak_kv_usage,
        }
    }

    /// By what share it changed from `before` to `after`: 0.1 is a tenth more. `None`
    /// where one of them is not known or the first is 0.
    pub fn change(self, before: &Figures, after: &Figures) -> Option<f64> {
        let (before, after) = (self.of(before)?, self.of(after)?);
        (before != 0.0).then(|| after / before - 1.0)
    }
}

// === impl Rounds ===

impl Rounds {
    /// Reads a file's text; a line that is no round is told and passed over.
    pub fn read(text: &str) -> Self {
        let mut rounds = Self::default();
        for (place, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            match serde_json::from_str(line) {
                Ok(round) => rounds.rounds.push(round),
                Err(error) => rounds.bad.push(format!("line {}: {error}", place + 1)),
            }
        }
        rounds
    }
}

// === impl Round ===

impl Round {
    /// Its line, ending in a line feed.
    pub fn line(&self) -> String {
        let mut line = serde_json::to_string(self).expect("texts and numbers have a JSON form");
        line.push('\n');
        line
    }

    /// What is set otherwise than in `before`: flag, then, now.
    pub fn changed<'a>(
        &'a self,
        before: &'a Self,
    ) -> Vec<(&'a str, Option<&'a str>, Option<&'a str>)> {
        let mut flags: Vec<&String> = self.flags.keys().chain(before.flags.keys()).collect();
        flags.sort_unstable();
        flags.dedup();
        let get =
            |flags: &'a BTreeMap<String, String>, flag: &str| flags.get(flag).map(String::as_str);
        let both = flags.into_iter().map(|flag| {
            (
                flag.as_str(),
                get(&before.flags, flag),
                get(&self.flags, flag),
            )
        });
        both.filter(|(_, then, now)| then != now).collect()
    }
}
