//! Floor 1: a pure model of a vLLM engine and of the load on it.
//!
//! [`engine`] decides what a vLLM V1 engine would do with a set of requests:
//! who runs, which KV blocks are taken, who is preempted, how long a step takes.
//! [`workload`] is seeded load as plain data. Neither reads a clock, sleeps or
//! knows HTTP; the same input gives the same output on every machine. The model
//! is held to captures of a real engine: where they differ the model is wrong.

pub mod content;
pub mod engine;
pub mod random;
pub mod workload;
