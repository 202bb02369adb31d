//! What a stream, or a piece of one, has said.

use super::super::usage::{Finish, Usage};

/// What the events that ended within one chunk said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Events with data, `[DONE]` not among them; comments are no events, nor is
    /// what an engine says before it begins.
    pub data_events: u32,
    /// Events that carry output: text, reasoning or tool calls. One such event
    /// may carry several tokens, so this is a lower bound of tokens.
    pub token_events: u32,
    /// Bytes of output text in those events, as UTF-8.
    pub output_bytes: u64,
    /// Usage of the whole answer: from the event that has usage and no choices.
    pub usage: Option<Usage>,
    /// Latest usage from an event that also has choices (continuous usage).
    /// It replaces what came before; with several samples it is one choice's.
    pub progress: Option<Usage>,
    /// Latest finish reason; an abort or error is kept before a harmless one.
    pub finish: Option<Finish>,
    /// First error event of the engine; the stream may still end with `[DONE]`.
    pub error: Option<StreamError>,
    /// Whether the last event has come: `[DONE]`, or the one named so.
    pub done: bool,
    /// Events too large to be looked into; they are relayed all the same.
    pub skipped: u32,
}

/// An error an engine reported within a stream whose status was 200.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamError {
    /// The engine's numeric `code`, where it is one.
    pub code: Option<u16>,
    /// The engine's `type`; empty where there is none.
    pub kind: String,
    /// The engine's message, at most 300 characters of it.
    pub message: String,
}

/// Where in an event a stream has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// After a whole event, or before the first.
    Boundary,
    /// Within an event: its closing blank line never came.
    MidEvent,
}

/// What a stream has said in all, and how it stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndState {
    /// Facts of the whole stream, an unfinished last event included.
    pub seen: Facts,
    /// Where it stopped.
    pub tail: Tail,
}

// === impl Facts ===

impl Facts {
    /// Adds what was said later: counts add up, usage is replaced, the first error stays.
    pub fn merge(&mut self, later: &Self) {
        // A stream of 4 billion events is not one we have to count exactly.
        self.data_events = self.data_events.saturating_add(later.data_events);
        self.token_events = self.token_events.saturating_add(later.token_events);
        self.output_bytes = self.output_bytes.saturating_add(later.output_bytes);
        self.skipped = self.skipped.saturating_add(later.skipped);
        self.usage = later.usage.or(self.usage);
        self.progress = later.progress.or(self.progress);
        self.on_finish(later.finish);
        if self.error.is_none() {
            self.error.clone_from(&later.error);
        }
        self.done |= later.done;
    }

    /// One more event came with this much output and nothing else.
    pub(super) fn hear(&mut self, output_bytes: usize) {
        let output_bytes = u64::try_from(output_bytes).unwrap_or(u64::MAX);
        self.data_events = self.data_events.saturating_add(1);
        self.token_events = self.token_events.saturating_add(1);
        self.output_bytes = self.output_bytes.saturating_add(output_bytes);
    }

    pub(super) fn on_finish(&mut self, later: Option<Finish>) {
        self.finish = match (self.finish, later) {
            (Some(earlier), Some(later)) => Some(earlier.worse(later)),
            (earlier, later) => later.or(earlier),
        };
    }
}
