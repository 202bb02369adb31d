//! One run of an engine: from its first line to its last, or to the next start.
//!
//! Decides how far it came, which wording names its failure best, and which
//! exception was the first real one. Holds a bounded number of bounded quotes,
//! whatever the log's size. Judges nothing: [`super::verdict`] does.

use super::clean::{Cleaned, Level};
use super::facts::{Facts, Field};
use super::roots::Roots;
use super::wordings::{Phase, Place, Row, Says, TABLE, Wording};

/// Longest quote, in characters: an allocation's message has some 700.
const LONGEST_QUOTE: usize = 1200;

/// Lines within which a traceback that follows a message is the message's.
const NEAR: u64 = 100;

/// Processes whose tracebacks are followed at a time.
const MOST_PROCESSES: usize = 64;

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Quote {
    pub(super) line: u64,
    pub(super) text: String,
}

/// A wording that names a failure, and where it stood.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    /// Lower is more telling: straight lines before indented ones, then the table's order.
    rank: (bool, usize),
    pub(super) wording: &'static Wording,
    pub(super) quote: Quote,
    pub(super) phase: Phase,
    /// Where in the engine the traceback stood, where one was seen.
    pub(super) place: Option<Place>,
    /// Whether the place was told after the failure.
    placed_after: bool,
}

/// What one run told.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) facts: Facts,
    pub(super) version: Option<String>,
    /// The furthest step.
    pub(super) phase: Phase,
    /// Whether it put weights on the device.
    pub(super) loaded: bool,
    pub(super) served: bool,
    pub(super) failure: Option<Failure>,
    /// The first sign that the engine is gone, before anybody asked it to end.
    pub(super) death: Option<Quote>,
    pub(super) roots: Roots,
    /// Whether a wrapper said that it did not start.
    pub(super) halted: bool,
    /// The line that told the cache's size, or that requests are taken.
    pub(super) healthy: Option<Quote>,
    /// The first traceback after that.
    pub(super) trace: Option<Quote>,
    engines: bool,
    places: Vec<(String, Option<Place>)>,
}

// === impl Quote ===

impl Quote {
    pub(super) fn of(line: u64, text: &str) -> Self {
        let text = text.trim();
        let text = match text.char_indices().nth(LONGEST_QUOTE) {
            Some((end, _)) => format!("{} …", &text[..end]),
            None => text.to_owned(),
        };
        Self { line, text }
    }
}

// === impl Run ===

impl Run {
    pub(super) fn new() -> Self {
        Self {
            facts: Facts::default(),
            version: None,
            phase: Phase::Starting,
            loaded: false,
            served: false,
            failure: None,
            death: None,
            roots: Roots::default(),
            halted: false,
            healthy: None,
            trace: None,
            engines: false,
            places: Vec::new(),
        }
    }

    /// Whether anything happened that a new start would end.
    pub(super) fn is_under_way(&self) -> bool {
        self.engines || self.phase > Phase::Starting || self.has_failed()
    }

    /// Whether another engine's first line means another start: data-parallel
    /// engines of one start print theirs before any of them serves or fails.
    pub(super) fn is_over(&self) -> bool {
        let failed = self.failure.is_some() || self.death.is_some() || self.halted;
        self.engines && (failed || self.phase >= Phase::Serving)
    }

    /// Whether a failure was told, known or not.
    fn has_failed(&self) -> bool {
        self.failure.is_some()
            || self.death.is_some()
            || self.halted
            || self.roots.first().is_some()
    }

    /// Takes one line whose needles are those of the rows at `places`.
    pub(super) fn take(&mut self, number: u64, line: &Cleaned<'_>, rows: &[usize]) {
        for at in rows {
            let row = TABLE.row(*at);
            if let Some(figures) = row.matches(line.text.trim_start()) {
                self.matched(number, line, (*at, row), &figures);
            }
        }
    }

    fn matched(
        &mut self,
        number: u64,
        line: &Cleaned<'_>,
        (at, row): (usize, &Row),
        figures: &[(Field, &str)],
    ) {
        match row.wording.says {
            Says::Figures | Says::Arguments => {}
            Says::Reached(phase) => self.reached(phase, number, line),
            Says::Server => self.server(line.text),
            Says::Engine => self.engine(line.text),
            Says::Traceback => {
                self.stand(line.process, None);
                self.traced(number, line);
            }
            Says::Within(place) => {
                self.stand(line.process, Some(place));
                self.placed(number, place);
            }
            Says::Exception => self.exception(number, line),
            Says::Failure(_) | Says::OutOfMemory | Says::Crash => {
                self.failed(number, line, (at, row));
            }
            Says::Death => self.died(number, line),
            Says::Halt => self.halted |= self.phase != Phase::Stopping,
        }
        let told_by_source = is_source(line.text);
        for (field, text) in figures.iter().filter(|_| !told_by_source) {
            self.facts.tell(*field, text);
        }
        if matches!(row.wording.says, Says::Arguments | Says::Engine) {
            super::arguments::read(line.text, &mut self.facts);
        }
    }

    fn reached(&mut self, phase: Phase, number: u64, line: &Cleaned<'_>) {
        if line.level == Level::Error || is_source(line.text) {
            return;
        }
        self.phase = self.phase.max(phase);
        self.loaded |= (Phase::Loaded..=Phase::Serving).contains(&phase);
        self.served |= phase == Phase::Serving;
        if phase == Phase::Cached && self.healthy.is_none() {
            self.healthy = Some(Quote::of(number, line.text));
        }
        let sized = line.text.contains("KV cache size: ");
        if sized || (phase == Phase::Serving && self.healthy.is_none()) {
            self.healthy = Some(Quote::of(number, line.text));
        }
    }

    fn server(&mut self, text: &str) {
        let told = text.split_once("ersion ").map_or("", |(_, rest)| rest);
        let version: String = told.split_whitespace().next().unwrap_or("").to_owned();
        if version.starts_with(|c: char| c.is_ascii_digit() || c == 'v') {
            self.version = Some(version.trim_start_matches('v').to_owned());
        }
    }

    fn engine(&mut self, text: &str) {
        self.engines = true;
        let version = text.split_once("engine (v");
        if let Some((version, _)) = version.and_then(|(_, rest)| rest.split_once(')')) {
            self.version = Some(version.to_owned());
        }
    }

    /// The first traceback after the cache had its size.
    fn traced(&mut self, number: u64, line: &Cleaned<'_>) {
        let loud = matches!(line.level, Level::Untold | Level::Error);
        if loud && self.healthy.is_some() && self.trace.is_none() {
            self.trace = Some(Quote::of(number, line.text));
        }
    }

    /// Remembers where the traceback of a process stands; a new one begins nowhere.
    fn stand(&mut self, process: &str, place: Option<Place>) {
        match self.places.iter_mut().find(|(of, _)| of == process) {
            Some((_, known)) => *known = place.and(place.max(*known)),
            None => {
                if self.places.len() == MOST_PROCESSES {
                    self.places.remove(0);
                }
                self.places.push((process.to_owned(), place));
            }
        }
    }

    /// Engines of V0 print the error first and its traceback after.
    fn placed(&mut self, number: u64, place: Place) {
        let failure = self
            .failure
            .as_mut()
            .filter(|f| f.place.is_none() || f.placed_after);
        if let Some(failure) = failure.filter(|f| number - f.quote.line < NEAR) {
            failure.place = failure.place.max(Some(place));
            failure.placed_after = true;
        }
    }

    fn place(&self, process: &str) -> Option<Place> {
        let of = self.places.iter().find(|(of, _)| of == process);
        of.and_then(|(_, place)| *place)
    }

    fn exception(&mut self, number: u64, line: &Cleaned<'_>) {
        let loud = matches!(line.level, Level::Untold | Level::Error);
        if loud && self.phase != Phase::Stopping {
            self.roots.note(number, line.text);
        }
    }

    fn failed(&mut self, number: u64, line: &Cleaned<'_>, (at, row): (usize, &Row)) {
        let loud = matches!(line.level, Level::Untold | Level::Error);
        let starts_only = matches!(row.wording.says, Says::Failure(_));
        let over = self.phase == Phase::Stopping || (self.phase == Phase::Serving && starts_only);
        if !loud || over {
            return;
        }
        let rank = (is_source(line.text), at);
        if self.failure.as_ref().is_some_and(|f| f.rank <= rank) {
            return;
        }
        self.failure = Some(Failure {
            rank,
            wording: row.wording,
            quote: Quote::of(number, line.text),
            phase: self.phase,
            place: self.place(line.process),
            placed_after: false,
        });
    }

    fn died(&mut self, number: u64, line: &Cleaned<'_>) {
        let over = self.phase == Phase::Stopping || line.level == Level::Quiet;
        if over || is_source(line.text) {
            return;
        }
        if self.death.is_none() {
            self.death = Some(Quote::of(number, line.text));
        }
        self.roots.died(number);
    }
}

/// Whether a line of a traceback shows source text, which holds a message's
/// words before its figures are filled in.
fn is_source(text: &str) -> bool {
    let inner = text.trim_start();
    let told = inner.starts_with("Value error, ") || inner.starts_with("Assertion failed, ");
    (text.starts_with([' ', '\t']) && !told) || inner.starts_with("raise ")
}
