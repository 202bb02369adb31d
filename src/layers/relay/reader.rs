//! What an answer says about its cost while it passes.
//!
//! Decides nothing about bytes except the usage event asked for on our own
//! account; reads how much was generated, what the engine finally said it used,
//! and whether the answer was whole.

use bytes::{Bytes, BytesMut};

use crate::core::units::Tokens;
use crate::protocol::sse::Tail;
use crate::protocol::usage::usage_of_tail;
use crate::protocol::{Answer, Facts, Finish, ScanMode, Scanner, Usage, answer_of_body};

/// End of a plain answer kept for its `usage`, in bytes. Engines write it after
/// the choices; what follows it (prompt logprobs aside) is short.
const WINDOW: usize = 64 * 1024;

/// Reads an answer as it passes.
#[derive(Debug)]
pub(super) enum Reader {
    /// Server-sent events.
    Events(Box<Events>),
    /// One JSON answer.
    Whole(Window),
    /// An answer that says nothing of cost: an engine's error.
    Opaque,
}

/// A stream's scanner, and what it had seen when the stream ended.
#[derive(Debug)]
pub(super) struct Events {
    scanner: Scanner,
    ended: Option<Facts>,
}

/// The end of a plain answer, or all of a small one.
#[derive(Debug, Default)]
pub(super) struct Window {
    kept: BytesMut,
    lost: u64,
}

/// What one chunk meant.
#[derive(Debug)]
pub(super) struct Passed {
    /// Bytes that may go on now.
    pub(super) forward: Option<Bytes>,
    /// Whether it brought data, as opposed to comments and half events.
    pub(super) data: bool,
    /// Tokens generated so far, where it can be told; never less than before.
    pub(super) generated: Option<Tokens>,
}

/// What the whole answer meant.
#[derive(Debug)]
pub(super) struct Ended {
    /// Bytes held back until now.
    pub(super) rest: Option<Bytes>,
    /// What ends the event of which the client has a part.
    pub(super) closing: &'static [u8],
    /// The engine's final account.
    pub(super) usage: Option<Usage>,
    /// Tokens seen in events: no more than were generated.
    pub(super) generated: Tokens,
    /// Bytes of text in them.
    pub(super) text: u64,
    /// Events too large to be looked into.
    pub(super) skipped: u32,
    /// Whether the answer is all there.
    pub(super) state: Wholeness,
}

/// Whether an answer is all there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wholeness {
    /// It is.
    Whole,
    /// The engine said that it failed or gave up, and ended its answer properly.
    EngineFailed,
    /// It stops in the middle.
    Truncated,
}

// === impl Reader ===

impl Reader {
    pub(super) fn events(mode: ScanMode) -> Self {
        Self::Events(Box::new(Events {
            scanner: Scanner::new(mode),
            ended: None,
        }))
    }

    pub(super) fn whole() -> Self {
        Self::Whole(Window::default())
    }

    /// Takes a chunk; never holds back more than one event.
    pub(super) fn push(&mut self, chunk: Bytes) -> Passed {
        match self {
            Self::Events(events) => events.push(chunk),
            Self::Whole(window) => {
                window.push(&chunk);
                Passed::data(chunk)
            }
            Self::Opaque => Passed::data(chunk),
        }
    }

    /// Whether everything the client is to see has passed, though the stream
    /// has not been seen to end.
    pub(super) fn is_done(&self) -> bool {
        matches!(self, Self::Events(events) if events.seen().done)
    }

    /// Whether what the client was given stops between two events.
    pub(super) fn is_between_events(&self) -> bool {
        matches!(self, Self::Events(events) if events.scanner.is_between_events())
    }

    /// Ends the answer.
    pub(super) fn finish(&mut self) -> Ended {
        match self {
            Self::Events(events) => events.finish(),
            Self::Whole(window) => window.finish(),
            Self::Opaque => Ended {
                rest: None,
                closing: b"",
                usage: None,
                generated: Tokens::ZERO,
                text: 0,
                skipped: 0,
                state: Wholeness::Whole,
            },
        }
    }
}

// === impl Events ===

impl Events {
    fn push(&mut self, chunk: Bytes) -> Passed {
        let (forward, facts) = self.scanner.push(chunk);
        let data = facts.data_events > 0;
        let told = facts.token_events > 0 || facts.progress.is_some() || facts.usage.is_some();
        Passed {
            forward,
            data,
            generated: told.then(|| self.generated()),
        }
    }

    fn seen(&self) -> &Facts {
        self.ended.as_ref().unwrap_or(self.scanner.seen())
    }

    /// An event may carry several tokens and continuous usage may cover one
    /// sample only, so the larger of both is the better lower bound.
    fn generated(&self) -> Tokens {
        let said = |usage: Option<Usage>| usage.map_or(0, |usage| usage.completion_tokens);
        let seen = self.seen();
        let events = u64::from(seen.token_events);
        let most = events.max(said(seen.progress)).max(said(seen.usage));
        Tokens::new(most)
    }

    fn finish(&mut self) -> Ended {
        let closing = self.scanner.closing();
        let (rest, end) = self.scanner.finish();
        self.ended = Some(end.seen);
        let seen = self.seen();
        let state = if !seen.done || end.tail == Tail::MidEvent {
            Wholeness::Truncated
        } else if seen.error.is_some() {
            Wholeness::EngineFailed
        } else {
            Wholeness::of(seen.finish)
        };
        Ended {
            rest,
            closing,
            usage: seen.usage,
            generated: self.generated(),
            text: seen.output_bytes,
            skipped: seen.skipped,
            state,
        }
    }
}

// === impl Window ===

impl Window {
    /// Keeps the last bytes; copies each byte at most twice.
    fn push(&mut self, chunk: &[u8]) {
        let kept = &mut self.kept;
        let surplus = (kept.len() + chunk.len()).saturating_sub(WINDOW);
        if surplus > WINDOW || chunk.len() >= WINDOW {
            self.lost += u64::try_from(surplus).unwrap_or(u64::MAX);
            *kept = BytesMut::from(&kept[surplus.min(kept.len())..]);
        }
        kept.extend_from_slice(&chunk[chunk.len().saturating_sub(WINDOW)..]);
    }

    fn finish(&self) -> Ended {
        let answer = if self.lost == 0 {
            answer_of_body(&self.kept).unwrap_or_default()
        } else {
            Answer {
                usage: usage_of_tail(&self.kept),
                finish: None,
            }
        };
        Ended {
            rest: None,
            closing: b"",
            usage: answer.usage,
            generated: Tokens::ZERO,
            text: 0,
            skipped: 0,
            state: Wholeness::of(answer.finish),
        }
    }
}

// === impl Wholeness ===

impl Wholeness {
    /// An engine that is shut down, or fails on a sequence, ends its answers
    /// properly all the same.
    fn of(finish: Option<Finish>) -> Self {
        match finish {
            Some(Finish::Abort | Finish::Error) => Self::EngineFailed,
            _ => Self::Whole,
        }
    }
}

// === impl Passed ===

impl Passed {
    fn data(chunk: Bytes) -> Self {
        Self {
            forward: Some(chunk),
            data: true,
            generated: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_keeps_the_end_and_stays_small() {
        let mut window = Window::default();
        for round in 0..1000_u32 {
            window.push(&[u8::try_from(round % 251).unwrap(); 777]);
            assert!(window.kept.len() <= 2 * WINDOW);
        }
        assert!(window.kept.len() >= WINDOW);
        assert_eq!(window.kept.last(), Some(&u8::try_from(999 % 251).unwrap()));
        window.push(&vec![7; 3 * WINDOW]);
        assert_eq!(window.kept.len(), WINDOW);
    }
}
