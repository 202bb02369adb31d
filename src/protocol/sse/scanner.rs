//! Cuts a stream into events and decides what may pass.

use std::ops::Range;

use bytes::Bytes;

use super::event::{self, Memory, Shape, may_be_usage};
use super::facts::{EndState, Facts, Tail};
use super::named::{self, Large, Names};

/// Events above this size are relayed without being looked into.
///
/// Usage and error events are some hundred bytes; the bound is what one stream
/// may hold in memory.
pub const MAX_EVENT_BYTES: usize = 1 << 20;

/// Most bytes of an unfinished event that are held back on the suspicion that
/// it is the usage event: a hundred times the size of any seen.
const MAX_HELD_BYTES: usize = 64 << 10;

/// What the events are, and who asked for the one with the usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanMode {
    /// The client did, or nobody: every byte passes at once.
    Observe,
    /// We did: the event with usage and no choices is removed. An unfinished
    /// event is held back until its choices are seen.
    StripUsage,
    /// Events of OpenAI's responses: the last brings the usage; every byte passes.
    Responses,
    /// Events of Anthropic's messages, likewise.
    Messages,
}

/// Incremental scanner of one stream.
#[derive(Debug)]
pub struct Scanner {
    mode: ScanMode,
    seen: Facts,
    /// Bytes of the current event from earlier chunks; empty once it is too large.
    carry: Vec<u8>,
    memory: Memory,
    event: Event,
    /// Of a named event that is too large to be kept.
    large: Large,
    /// The current line has no byte yet.
    line_is_empty: bool,
    /// The last byte was a CR: an LF that follows belongs to it.
    after_cr: bool,
    /// The last whole event was removed, so an LF that completes it is too.
    removed: bool,
}

/// State of the current event.
#[derive(Clone, Copy, Debug, Default)]
struct Event {
    /// It has bytes.
    begun: bool,
    /// It is larger than [`MAX_EVENT_BYTES`].
    too_large: bool,
    /// Its bytes pass: it cannot be the usage event.
    released: bool,
    /// How far it has been searched for its choices.
    scanned: usize,
}

/// What of a chunk, and of what was held before it, goes on.
#[derive(Default)]
struct Output {
    before: Vec<u8>,
    cuts: Vec<Range<usize>>,
}

// === impl ScanMode ===

impl ScanMode {
    /// Whose names the events bear, where they bear any.
    const fn names(self) -> Option<Names> {
        match self {
            Self::Observe | Self::StripUsage => None,
            Self::Responses => Some(Names::Responses),
            Self::Messages => Some(Names::Messages),
        }
    }
}

// === impl Scanner ===

impl Scanner {
    /// A scanner at the start of a stream.
    pub fn new(mode: ScanMode) -> Self {
        Self {
            mode,
            seen: Facts::default(),
            carry: Vec::new(),
            memory: Memory::default(),
            event: Event::default(),
            large: Large::default(),
            line_is_empty: true,
            after_cr: false,
            removed: false,
        }
    }

    /// Takes the next bytes of the stream; returns those that may go on now
    /// (`None` where there are none) and what the events ending here said.
    ///
    /// Linear in the chunk. The chunk itself goes on wherever possible; bytes
    /// are copied only around a removed or held event.
    pub fn push(&mut self, chunk: Bytes) -> (Option<Bytes>, Facts) {
        let mut facts = Facts::default();
        let mut output = Output::default();
        let mut at = self.complete_line_end(&chunk);
        let mut start = if self.event.begun { 0 } else { at };
        if start > 0 && self.removed {
            output.cuts.push(0..start);
        }
        if !self.event.begun {
            at += self.hear(&chunk[at..], &mut facts);
            start = at;
        }
        while let Some(end) = self.event_end(&chunk, at) {
            self.end_event(&chunk, start..end, &mut output, &mut facts);
            start = end + self.hear(&chunk[end..], &mut facts);
            at = start;
        }
        if start < chunk.len() {
            self.keep_rest(&chunk, start, &mut output);
        }
        self.seen.merge(&facts);
        (output.of(chunk), facts)
    }

    /// What the events that have ended said, all together.
    pub const fn seen(&self) -> &Facts {
        &self.seen
    }

    /// Whether the bytes that went on stop between two events: a line put in
    /// there belongs to no event that has begun, nor to the end of one.
    pub fn is_between_events(&self) -> bool {
        !self.has_begun() && !self.after_cr
    }

    /// What ends the event of which a part has gone on, and nothing where none
    /// has: a blank line more than needed makes some readers hand out an event
    /// that is empty.
    pub fn closing(&self) -> &'static [u8] {
        match (self.has_begun(), self.line_is_empty && !self.after_cr) {
            (false, _) => b"",
            (true, true) => b"\n",
            (true, false) => b"\n\n",
        }
    }

    /// Whether a part of the current event has gone on.
    fn has_begun(&self) -> bool {
        self.event.too_large || (self.event.begun && self.held() < self.carry.len())
    }

    /// Ends the stream; returns bytes held back until now and the whole account.
    ///
    /// An unfinished last event is looked into as well: a usage event counts
    /// even if its blank line never came. The scanner is then at the start of
    /// a new stream.
    pub fn finish(&mut self) -> (Option<Bytes>, EndState) {
        let Event {
            begun, too_large, ..
        } = self.event;
        let held = self.held();
        let mut facts = Facts::default();
        let shape = match too_large {
            true => skipped(&mut facts),
            false => inspect(self.mode, &self.carry, &mut self.memory, &mut facts),
        };
        let passes = held > 0 && shape == Shape::Ordinary;
        let bytes = passes.then(|| Bytes::from(std::mem::take(&mut self.carry)));
        let mut seen = std::mem::take(&mut self.seen);
        seen.merge(&facts);
        let tail = if begun {
            Tail::MidEvent
        } else {
            Tail::Boundary
        };
        *self = Self::new(self.mode);
        (bytes, EndState { seen, tail })
    }

    /// Counts the events at the beginning of `rest` that say what the one before them
    /// said with another text; how long they are. No event has begun there.
    fn hear(&mut self, rest: &[u8], facts: &mut Facts) -> usize {
        let mut at = 0;
        if self.mode.names().is_some() || self.after_cr {
            return at;
        }
        while let Some(heard) = self.memory.refrain.hear(&rest[at..]) {
            at += heard.length;
            facts.hear(heard.output_bytes);
            self.removed = false;
        }
        at
    }

    /// Offset after the LF that completes a CRLF cut in two by the chunks.
    fn complete_line_end(&mut self, chunk: &[u8]) -> usize {
        let Some(first) = chunk.first() else { return 0 };
        usize::from(std::mem::take(&mut self.after_cr) && *first == b'\n')
    }

    /// Offset after the next blank line from `at` on.
    fn event_end(&mut self, chunk: &[u8], mut at: usize) -> Option<usize> {
        while let Some(found) = memchr::memchr2(b'\n', b'\r', &chunk[at..]) {
            let is_blank = found == 0 && self.line_is_empty;
            self.line_is_empty = true;
            at += found + 1;
            if chunk[at - 1] == b'\r' {
                self.after_cr = at == chunk.len();
                at += usize::from(chunk.get(at) == Some(&b'\n'));
            }
            if is_blank {
                return Some(at);
            }
        }
        self.line_is_empty &= at == chunk.len();
        None
    }

    fn end_event(
        &mut self,
        chunk: &[u8],
        part: Range<usize>,
        output: &mut Output,
        facts: &mut Facts,
    ) {
        let held = self.held();
        let bytes = &chunk[part.clone()];
        let shape = if self.event.too_large || self.carry.len() + bytes.len() > MAX_EVENT_BYTES {
            self.end_large(bytes, facts)
        } else if self.carry.is_empty() {
            inspect(self.mode, bytes, &mut self.memory, facts)
        } else {
            self.carry.extend_from_slice(bytes);
            inspect(self.mode, &self.carry, &mut self.memory, facts)
        };
        self.removed = self.may_remove() && shape == Shape::UsageOnly;
        if self.removed {
            output.cuts.push(part);
        } else {
            output.before.extend_from_slice(&self.carry[..held]);
        }
        self.event = Event::default();
        self.carry.clear();
        // A large event now and then must not cost its size until the stream ends.
        self.carry.shrink_to(MAX_HELD_BYTES);
    }

    /// Ends an event that is too large to be looked into.
    fn end_large(&mut self, bytes: &[u8], facts: &mut Facts) -> Shape {
        let Some(names) = self.mode.names() else {
            return skipped(facts);
        };
        let mut large = std::mem::take(&mut self.large);
        large.push(&self.carry);
        large.push(bytes);
        named::inspect_large(names, &large, facts);
        Shape::Ordinary
    }

    /// Keeps the beginning of an event that ends in a later chunk.
    fn keep_rest(&mut self, chunk: &[u8], start: usize, output: &mut Output) {
        let held = self.held();
        let rest = &chunk[start..];
        self.event.begun = true;
        if self.event.too_large {
            if self.mode.names().is_some() {
                self.large.push(rest);
            }
            return;
        }
        let whole = self.carry.len() + rest.len();
        if whole <= MAX_EVENT_BYTES {
            self.carry.extend_from_slice(rest);
        }
        if self.may_remove() {
            if whole <= MAX_HELD_BYTES && may_be_usage(&self.carry, &mut self.event.scanned) {
                output.cuts.push(start..chunk.len());
                return;
            }
            output.before.extend_from_slice(&self.carry[..held]);
            self.event.released = true;
        }
        if whole > MAX_EVENT_BYTES {
            self.event.too_large = true;
            let carry = std::mem::take(&mut self.carry);
            if self.mode.names().is_some() {
                self.large.push(&carry);
                self.large.push(rest);
            }
        }
    }

    /// Whether the current event may still turn out to be one to remove.
    fn may_remove(&self) -> bool {
        self.mode == ScanMode::StripUsage && !self.event.released
    }

    /// How many bytes of the current event have come and not gone on.
    fn held(&self) -> usize {
        if self.may_remove() {
            self.carry.len()
        } else {
            0
        }
    }
}

fn inspect(mode: ScanMode, event: &[u8], memory: &mut Memory, facts: &mut Facts) -> Shape {
    let Some(names) = mode.names() else {
        return event::inspect(event, memory, facts);
    };
    if let Some(data) = event::data(event, &mut memory.scratch) {
        named::inspect(names, event, data, facts);
    }
    Shape::Ordinary
}

/// Counts an event that is too large to be looked into.
fn skipped(facts: &mut Facts) -> Shape {
    facts.merge(&Facts {
        data_events: 1,
        skipped: 1,
        ..Facts::default()
    });
    Shape::Ordinary
}

// === impl Output ===

impl Output {
    /// The bytes that go on; the chunk itself where nothing is cut.
    fn of(self, chunk: Bytes) -> Option<Bytes> {
        let Self { before, cuts } = self;
        if before.is_empty() && cuts.is_empty() {
            return (!chunk.is_empty()).then_some(chunk);
        }
        let mut kept = Vec::new();
        let mut at = 0;
        for cut in &cuts {
            kept.push(at..cut.start);
            at = cut.end;
        }
        kept.push(at..chunk.len());
        kept.retain(|range| !range.is_empty());
        if before.is_empty() && kept.len() <= 1 {
            return kept.pop().map(|range| chunk.slice(range));
        }
        let mut bytes = before;
        for range in kept {
            bytes.extend_from_slice(&chunk[range]);
        }
        Some(Bytes::from(bytes))
    }
}

#[cfg(test)]
mod tests;
