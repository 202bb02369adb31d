//! A chat request turned into what a template renders, as vLLM does it.
//!
//! Decides the messages and variables a template sees. Never renders and never
//! counts. Invariant: a request that vLLM would rewrite in a way not known here
//! is [`Odd`], and nothing is guessed.

mod accounting;
mod conversation;
mod mapping;
mod tools;
mod turn;
mod values;
mod variables;
pub(super) mod weigh;

pub(super) use accounting::is_accounted;
pub(super) use conversation::Conversation;
pub(super) use turn::Turn;
pub(super) use values::{python_loads, spelled};
pub(super) use variables::{Defaults, arguments, variables};

/// A request whose prompt cannot be foreseen here; the engine may refuse it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Odd;
