//! tidegate: an admission gateway for vLLM clusters.
//!
//! A request flows once, downwards, through typed steps, and back once through
//! a relay that owns its lease:
//!
//! ```text
//!  client ──► listener ─► observe ─► rescue ─► tenant ─► ingest ─► measure ─► admit ─► forward ──► vLLM
//!                                                 Parsed    Measured    Leased
//!  client ◄───────────────────────────── relay (owns the lease, scans, never rewrites) ◄────────── vLLM
//! ```
//!
//! Modules stand on floors and import only from floors below their own:
//!
//! | floor | modules |
//! |---|---|
//! | 6 | [`cli`] |
//! | 5 | [`app`], [`sim_server`] |
//! | 4 | [`layers`] |
//! | 3 | [`upstream`], [`tenants`], [`telemetry`], [`hub`] |
//! | 2 | [`gate`], [`replay`] |
//! | 1 | [`tokenize`], [`protocol`], [`config`], [`sizing`], [`sim`] |
//! | 0 | [`core`] |

pub mod app;
pub mod cli;
pub mod config;
pub mod core;
pub mod gate;
pub mod hub;
pub mod layers;
pub mod protocol;
pub mod replay;
pub mod sim;
pub mod sim_server;
pub mod sizing;
pub mod telemetry;
pub mod tenants;
pub mod tokenize;
pub mod upstream;
