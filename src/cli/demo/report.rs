//! What a run came to: numbers from its records and its engines, as a table or JSON.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;

use super::board::{CLASSES, name};
use super::client::Answer;
use super::load::Record;
use crate::sim::engine::EngineStats;
use crate::sim::workload::Class;

/// One run in figures; times are engine time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Outcome {
    /// Preemptions of all engines.
    pub(super) preemptions: u64,
    /// Tokens that preempted sequences had to compute again.
    pub(super) recomputed_tokens: u64,
    /// Median time to first token of answered chats; none if none was answered.
    pub(super) chat_ttft_p50_ms: Option<u64>,
    /// The same, of the slowest in a hundred.
    pub(super) chat_ttft_p99_ms: Option<u64>,
    /// Output tokens of answered requests, over the time from the first request to the
    /// last answer.
    pub(super) tokens_per_second: f64,
    /// Requests answered to the end.
    pub(super) completed: u64,
    /// Requests that were not, by reason.
    pub(super) rejected: Vec<Rejected>,
    #[serde(skip)]
    classes: Vec<ClassOutcome>,
    #[serde(skip)]
    lasted: Duration,
}

/// Requests turned away for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Rejected {
    /// The error code, or what went wrong.
    pub(super) reason: String,
    /// How many.
    pub(super) count: u64,
}

/// Both runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Comparison {
    /// The load straight at the engines.
    pub(super) without: Outcome,
    /// The same load through the gateway.
    pub(super) with: Outcome,
}

/// Answered of sent, by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ClassOutcome {
    sent: u64,
    completed: u64,
}

// === impl Outcome ===

impl Outcome {
    pub(super) fn new(records: &[Record], engines: &[EngineStats]) -> Self {
        let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
        let (mut completed, mut output) = (0, 0);
        for record in records {
            match &record.answer {
                Answer::Whole { tokens } => {
                    completed += 1;
                    output += tokens;
                }
                Answer::Not(reason) => *reasons.entry(reason).or_default() += 1,
            }
        }
        let rejected = reasons.into_iter().map(|(reason, count)| Rejected {
            reason: reason.to_owned(),
            count,
        });
        let lasted = records.iter().map(|record| record.ended).max();
        let lasted = lasted.unwrap_or_default();
        let first_tokens = chat_first_tokens(records);
        Self {
            preemptions: engines.iter().map(|engine| engine.preemptions).sum(),
            recomputed_tokens: engines.iter().map(|engine| engine.recomputed.get()).sum(),
            chat_ttft_p50_ms: percentile(&first_tokens, 50),
            chat_ttft_p99_ms: percentile(&first_tokens, 99),
            tokens_per_second: rate(output, lasted),
            completed,
            rejected: rejected.collect(),
            classes: CLASSES.map(|class| class_outcome(records, class)).to_vec(),
            lasted,
        }
    }

    /// Requests that were not answered for `reason`.
    pub(super) fn rejected_for(&self, reason: &str) -> u64 {
        let found = self.rejected.iter().find(|entry| entry.reason == reason);
        found.map_or(0, |entry| entry.count)
    }
}

/// Milliseconds to the first token of every answered chat, shortest first.
fn chat_first_tokens(records: &[Record]) -> Vec<u64> {
    let mut times: Vec<u64> = records
        .iter()
        .filter(|record| record.class == Class::Chat)
        .filter(|record| matches!(record.answer, Answer::Whole { .. }))
        .filter_map(|record| record.first)
        .map(|first| u64::try_from(first.as_millis()).unwrap_or(u64::MAX))
        .collect();
    times.sort_unstable();
    times
}

/// The value that `percent` of `sorted` do not pass, by nearest rank.
fn percentile(sorted: &[u64], percent: usize) -> Option<u64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

/// Per second, to one decimal.
fn rate(tokens: u64, lasted: Duration) -> f64 {
    let per_second = crate::core::units::Tokens::new(tokens).as_f64() / lasted.as_secs_f64();
    if per_second.is_finite() {
        (per_second * 10.0).round() / 10.0
    } else {
        0.0
    }
}

fn class_outcome(records: &[Record], class: Class) -> ClassOutcome {
    let mut outcome = ClassOutcome::default();
    for record in records.iter().filter(|record| record.class == class) {
        outcome.sent += 1;
        outcome.completed += u64::from(matches!(record.answer, Answer::Whole { .. }));
    }
    outcome
}

// === impl Comparison ===

impl Comparison {
    /// One line of JSON.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub(super) fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        let text = serde_json::to_string(self).expect("numbers and texts have a JSON form");
        writeln!(out, "{text}")
    }

    /// The table, for people.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub(super) fn write_table(&self, out: &mut impl Write) -> io::Result<()> {
        let (without, with) = (&self.without, &self.with);
        let mut row = |label: &str, cells: [String; 2]| {
            let [left, right] = cells;
            writeln!(out, "{label:<34}{left:>14}{right:>14}")
        };
        let both = |show: &dyn Fn(&Outcome) -> String| [show(without), show(with)];
        row("", ["without".to_owned(), "with".to_owned()])?;
        row("preemptions", both(&|run| run.preemptions.to_string()))?;
        row(
            "recomputed tokens",
            both(&|run| run.recomputed_tokens.to_string()),
        )?;
        row(
            "chat TTFT p50",
            both(&|run| milliseconds(run.chat_ttft_p50_ms)),
        )?;
        row(
            "chat TTFT p99",
            both(&|run| milliseconds(run.chat_ttft_p99_ms)),
        )?;
        row(
            "output tokens/s",
            both(&|run| format!("{:.1}", run.tokens_per_second)),
        )?;
        row(
            "all answered after",
            both(&|run| format!("{:.1} s", run.lasted.as_secs_f64())),
        )?;
        row("completed", both(&|run| run.completed.to_string()))?;
        for (place, class) in CLASSES.into_iter().enumerate() {
            let cell = |run: &Outcome| {
                let class = run.classes[place];
                format!("{} of {}", class.completed, class.sent)
            };
            row(&format!("  {}", name(class)), both(&cell))?;
        }
        let total = |run: &Outcome| {
            run.rejected
                .iter()
                .map(|r| r.count)
                .sum::<u64>()
                .to_string()
        };
        row("rejected", both(&total))?;
        for reason in self.reasons() {
            row(
                &format!("  {reason}"),
                both(&|run| run.rejected_for(reason).to_string()),
            )?;
        }
        Ok(())
    }

    /// Every reason of either run, in order.
    fn reasons(&self) -> Vec<&str> {
        let all = self.without.rejected.iter().chain(&self.with.rejected);
        let mut reasons: Vec<&str> = all.map(|entry| entry.reason.as_str()).collect();
        reasons.sort_unstable();
        reasons.dedup();
        reasons
    }
}

fn milliseconds(time: Option<u64>) -> String {
    time.map_or_else(|| "-".to_owned(), |time| format!("{time} ms"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_value_of_the_nearest_rank() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!(percentile(&hundred, 50), Some(50));
        assert_eq!(percentile(&hundred, 99), Some(99));
        assert_eq!(percentile(&[7], 50), Some(7));
        assert_eq!(percentile(&[3, 9], 99), Some(9));
        assert_eq!(percentile(&[], 99), None);
    }

    #[test]
    fn only_answered_chats_count_for_the_first_token() {
        let record = |class, first, answer| Record {
            class,
            first: Some(Duration::from_millis(first)),
            ended: Duration::from_secs(2),
            answer,
        };
        let whole = Answer::Whole { tokens: 30 };
        let records = [
            record(Class::Chat, 40, whole.clone()),
            record(Class::Chat, 4_000, Answer::Not("stream_cut".to_owned())),
            record(Class::Documents, 900, whole),
        ];
        let outcome = Outcome::new(&records, &[]);
        assert_eq!(outcome.chat_ttft_p99_ms, Some(40));
        assert_eq!(outcome.completed, 2);
        assert!((outcome.tokens_per_second - 30.0).abs() < 1e-9);
        let cut = Rejected {
            reason: "stream_cut".to_owned(),
            count: 1,
        };
        assert_eq!(outcome.rejected, [cut]);
    }
}
