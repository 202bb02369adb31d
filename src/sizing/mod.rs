//! Floor 1: what a model and a card mean in KV tokens, and what an engine's log
//! says of it.
//!
//! Decides by arithmetic that the guides of vLLM do by hand: bytes of KV per
//! token, weights, blocks, concurrency, the longest context. Never opens a
//! file, never asks a server: it takes text and numbers, and returns data.

pub mod advise;
pub mod bytes;
pub mod engine;
pub mod layout;
pub mod load;
pub mod log;
pub mod memory;
pub mod model;
pub mod plan;
pub mod weights;

#[cfg(test)]
mod tests;
