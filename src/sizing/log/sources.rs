//! Who writes into a log, and the starts of each.
//!
//! Decides where one start ends and the next begins, which of them is judged,
//! and what earlier starts and neighbours say about it. Containers and pods are
//! told apart by the name before the line; at most [`MOST_SOURCES`] of them.

use std::collections::BTreeMap;

use super::clean::{Cleaned, clean, unwrapped};
use super::facts::Field;
use super::notes::{self, Told};
use super::run::Run;
use super::verdict::{self, Verdict};
use super::wordings::{Says, TABLE};
use super::{Diagnosis, Evidence, Kind, fixes};

/// Containers followed at a time; what further ones write is read as the last's.
const MOST_SOURCES: usize = 32;

/// All that write into one log.
#[derive(Debug, Default)]
pub(super) struct Sources {
    sources: Vec<Source>,
    found: Vec<usize>,
}

/// One engine's output, start after start.
#[derive(Debug)]
struct Source {
    name: String,
    run: Run,
    /// The start before, where this one says nothing.
    before: Option<Box<Run>>,
    runs: u64,
    /// Outcomes of earlier starts.
    outcomes: BTreeMap<Kind, u64>,
    /// Whether an earlier start put weights on the device.
    loaded_before: bool,
}

// === impl Sources ===

impl Sources {
    /// Takes the next line.
    pub(super) fn take(&mut self, number: u64, line: &str) {
        TABLE.candidates(line, &mut self.found);
        if self.found.is_empty() {
            return;
        }
        let plain = unwrapped(line);
        let cleaned = clean(&plain);
        let at = self.source(cleaned.source);
        self.sources[at].take(number, &cleaned, &self.found);
    }

    fn source(&mut self, name: &str) -> usize {
        let known = self.sources.iter().position(|source| source.name == name);
        if let Some(at) = known {
            return at;
        }
        if self.sources.len() < MOST_SOURCES {
            self.sources.push(Source::new(name));
        }
        self.sources.len() - 1
    }

    /// What all of it means: the failure of one source before the health of others.
    pub(super) fn diagnosis(mut self) -> Diagnosis {
        let engines: Vec<usize> = (0..self.sources.len())
            .filter(|at| self.sources[*at].run.is_under_way())
            .collect();
        let instances = engines.len() as u64;
        let rank = |source: &Source| match source.judged().1.kind {
            Kind::Healthy => 1,
            Kind::NotRecognised if source.judged().1.evidence.is_none() => 0,
            _ => 2,
        };
        let ranks: Vec<i32> = self.sources.iter().map(rank).collect();
        let best = (0..ranks.len()).max_by_key(|at| (ranks[*at], std::cmp::Reverse(*at)));
        let source = match best {
            Some(at) => self.sources.swap_remove(at),
            None => Source::new(""),
        };
        source.diagnosis(instances)
    }
}

// === impl Source ===

impl Source {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            run: Run::new(),
            before: None,
            runs: 1,
            outcomes: BTreeMap::new(),
            loaded_before: false,
        }
    }

    fn take(&mut self, number: u64, line: &Cleaned<'_>, rows: &[usize]) {
        let says = |says: Says| rows.iter().any(|at| TABLE.row(*at).wording.says == says);
        let server = says(Says::Server) && self.run.is_under_way();
        if server || (says(Says::Engine) && self.run.is_over()) {
            self.turn();
        }
        self.run.take(number, line, rows);
    }

    /// Ends the present start.
    fn turn(&mut self) {
        let ended = std::mem::replace(&mut self.run, Run::new());
        let kind = verdict::judge(&ended).kind;
        *self.outcomes.entry(kind).or_default() += 1;
        self.runs += 1;
        self.loaded_before |= ended.loaded;
        self.before = Some(Box::new(ended));
    }

    /// The start that is judged: the last that says something.
    fn judged(&self) -> (&Run, Verdict) {
        let verdict = verdict::judge(&self.run);
        match &self.before {
            Some(before) if verdict.evidence.is_none() => (before, verdict::judge(before)),
            _ => (&self.run, verdict),
        }
    }

    fn diagnosis(mut self, instances: u64) -> Diagnosis {
        let mut verdict = self.judged().1;
        if verdict::judge(&self.run).evidence.is_none()
            && let Some(before) = self.before.take()
        {
            self.run = *before;
        }
        let released = verdict.kind == Kind::MemoryInUse && self.loaded_before && instances < 2;
        if released {
            verdict.kind = Kind::MemoryNotReleased;
            verdict.means =
                "an earlier start in this log held weights, and its memory was not free yet"
                    .to_owned();
        }
        verdict::derive(&mut self.run);
        if self.runs > 1 {
            self.run.facts.set_whole(Field::Runs, self.runs);
        }
        if instances > 1 {
            self.run.facts.set_whole(Field::Instances, instances);
        }
        if let Some(others) = &verdict.others {
            self.run.facts.set_gib(Field::HeldByOthers, others.gib);
        }
        let notes = notes::notes(&Told {
            verdict: &verdict,
            facts: &self.run.facts,
            outcomes: &self.outcomes,
            source: &self.name,
        });
        let version = self.run.version.clone();
        let known = fixes::Known {
            facts: &self.run.facts,
            version: version.as_deref(),
            verdict: &verdict,
        };
        Diagnosis {
            kind: verdict.kind,
            fixes: known.fixes(),
            evidence: verdict.evidence.map(|quote| Evidence {
                line: quote.line,
                text: quote.text,
                source: verdict.source,
            }),
            engine_version: version,
            facts: self.run.facts,
            notes,
        }
    }
}
