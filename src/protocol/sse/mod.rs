//! Watches an engine's event stream while it is relayed.
//!
//! Decides which bytes the client gets, which is all of them, except for the
//! usage event that was asked for on our own account ([`ScanMode::StripUsage`]).
//! Never changes, reorders or delays a byte beyond what is needed to recognise
//! that one event. Lines end at CR, LF or CRLF and at nothing else.
//!
//! Invariant: facts and bytes do not depend on how the stream is cut into
//! chunks. Memory is bounded by [`MAX_EVENT_BYTES`], work is linear in the bytes.

mod event;
mod facts;
mod findings;
mod named;
mod output;
mod refrain;
mod scanner;

pub use facts::{EndState, Facts, StreamError, Tail};
pub use scanner::{MAX_EVENT_BYTES, ScanMode, Scanner};
