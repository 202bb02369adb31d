//! What is to be said to people beside the kind.
//!
//! Decides how several engines on a card, a foreign process, fragments and
//! earlier starts are told apart. Never judges.

use std::collections::BTreeMap;

use super::Kind;
use super::facts::{Facts, Field};
use super::verdict::Verdict;

/// Fragments worth a word, in GiB.
const WORTH_A_WORD: f64 = 0.25;

/// What the notes are made of.
pub(super) struct Told<'a> {
    pub(super) verdict: &'a Verdict,
    pub(super) facts: &'a Facts,
    /// Outcomes of earlier starts in the same log.
    pub(super) outcomes: &'a BTreeMap<Kind, u64>,
    /// The container that is judged, where the log tells.
    pub(super) source: &'a str,
}

/// The notes, the cause first.
pub(super) fn notes(told: &Told<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    if !told.verdict.means.is_empty() {
        notes.push(told.verdict.means.clone());
    }
    if !told.source.is_empty() {
        notes.push(format!("this is of {}", told.source));
    }
    notes.extend(holders(told));
    notes.extend(fragments(told.facts));
    notes.extend(length(told));
    notes.extend(earlier(told.outcomes));
    notes
}

/// Who holds the memory.
fn holders(told: &Told<'_>) -> Option<String> {
    let facts = told.facts;
    let instances = facts.whole(Field::Instances).unwrap_or(1);
    if let Some(others) = told
        .verdict
        .others
        .as_ref()
        .filter(|others| others.gib >= 0.5)
    {
        let pids: Vec<String> = others.processes.iter().map(u64::to_string).collect();
        let who = match (pids.is_empty(), instances > 1) {
            (_, true) => format!("{instances} engines write into this log; on one card their shares add up"),
            (false, false) => format!("process {} is not this engine: another engine of this card, or a foreign process (nvidia-smi names it)", pids.join(", ")),
            (true, false) => "the message does not name them: a desktop, another container (nvidia-smi on the host names it)".to_owned(),
        };
        return Some(format!("{:.2} GiB were held by others: {who}", others.gib));
    }
    let in_use = matches!(
        told.verdict.kind,
        Kind::MemoryInUse | Kind::MemoryNotReleased
    );
    if !in_use {
        return None;
    }
    let (free, total) = (
        facts.number(Field::FreeAtStart)?,
        facts.number(Field::Total)?,
    );
    let taken = total - free;
    let who = if instances > 1 {
        format!(
            "{instances} engines write into this log; on one card their shares add up, and the sum must stay below 1, better below 0.8"
        )
    } else if told.verdict.kind == Kind::MemoryNotReleased {
        "an engine that ended holds it until its last process is gone".to_owned()
    } else if taken < 0.12 * total {
        "as much as the driver, a desktop or a context of a tool takes; the share asked for is too large for this card".to_owned()
    } else {
        "another engine on this card, a foreign process, or what is left of an earlier start (nvidia-smi names it)".to_owned()
    };
    Some(format!(
        "{taken:.2} of {total:.2} GiB were taken before the engine began: {who}"
    ))
}

fn fragments(facts: &Facts) -> Option<String> {
    let fragments = facts.number(Field::Fragments)?;
    let tried = facts.number(Field::Tried)?;
    (fragments >= tried && fragments >= WORTH_A_WORD).then(|| {
        format!("fragmentation: {fragments:.2} GiB were reserved and unused, in pieces too small for the {tried:.2} GiB asked for")
    })
}

/// Where a model's length was cut by the engine itself.
fn length(told: &Told<'_>) -> Option<String> {
    let asked = told.facts.whole(Field::AskedMaxModelLen)?;
    let took = told.facts.whole(Field::MaxModelLen)?;
    (told.verdict.kind == Kind::Healthy && asked > took).then(|| {
        format!("the engine cut max_model_len from {asked} to {took} so that one request fits")
    })
}

fn earlier(outcomes: &BTreeMap<Kind, u64>) -> Option<String> {
    if outcomes.is_empty() {
        return None;
    }
    let told = outcomes
        .iter()
        .map(|(kind, times)| format!("{} {times}", kind.name()));
    let told: Vec<String> = told.collect();
    Some(format!("earlier starts in this log: {}", told.join(", ")))
}
