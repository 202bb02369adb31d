//! The configuration: TOML text in, a [`Config`] that is valid by construction out.
//!
//! Decides what every key means, its default and its range, and reports **all**
//! problems of a file at once. Never opens a socket, never prints a secret, and
//! never repairs a wrong value silently. Invariant: a `Config` that exists has
//! passed every check, so nothing above validates again.

mod problem;
mod resolved;
mod secret;

pub use problem::{Problem, Problems};
pub use resolved::{
    AccessLog, Admin, AdmissionConfig, Anonymous, Auth, Backend, BackendVisibility, Config,
    KvLayout, KvOverrides, Limits, Log, LogFormat, LongOnStandard, Model, ModelAccess,
    OnUncountable, Probe, Queue, ReservationKind, Server, Tenant, TokenizerChoice, Upstream,
};
pub use secret::{KeyDigest, Secret};
