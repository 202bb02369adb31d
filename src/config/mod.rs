//! The configuration: TOML text in, a [`Config`] that is valid by construction out.
//!
//! Decides what every key means, its default and its range, and reports **all**
//! problems of a file at once. Never opens a socket, never prints a secret, and
//! never repairs a wrong value silently. Invariant: a `Config` that exists has
//! passed every check, so nothing above validates again.
//!
//! `toml` finds the syntax; `reader` takes keys out one by one with their
//! range, because a derived reader stops at the first wrong one; `sections`
//! and `fleet` say which keys there are; `stray` guesses what an unknown one was
//! meant to be; `cross` compares those that could be read.

mod advice;
mod backend;
mod content;
mod cross;
mod defaults;
mod discovery;
mod fleet;
mod hub;
mod jwt;
mod policy;
mod problem;
mod reader;
mod resolved;
mod secret;
mod sections;
mod source;
mod stray;
mod surroundings;
mod tls;
mod traces;
mod units;

use std::io;
use std::path::Path;

use reader::Report;

pub use backend::{Backend, BackendsFile, KvOverrides};
pub use content::{Content, MediaScheme, PrivateHosts, RequestTemplate};
pub use discovery::{Discover, Found, HostPort};
pub use jwt::{Jwt, JwtAlgorithm, JwtKey};
pub use problem::{Problem, Problems};
pub use resolved::{
    AccessLog, Admin, AdmissionConfig, AdmissionMode, Anonymous, Auth, BackendVisibility,
    ClientAddress, Config, Counting, ForwardedHeader, HubAccess, HubModel, HubSettings, KvLayout,
    Limits, Log, LogFormat, Model, ModelAccess, OnUncountable, Probe, Queue, ReservationKind,
    Server, Tenant, TokenizerChoice, Upstream,
};
pub use secret::{KeyDigest, Secret};
pub use surroundings::{Process, Surroundings};
pub use tls::{
    BackendTls, CertificateFacts, CertificateMatch, ClientAuth, ClientCa, ListenerTls, TlsIdentity,
    TlsRoots,
};
pub use traces::Traces;

pub use crate::core::placement::LongOnStandard;

/// Reads a configuration; files it names are looked for in the working directory.
///
/// # Errors
///
/// Every problem of the text.
pub fn load(text: &str) -> Result<Config, Problems> {
    load_in(text, &Process::new("."))
}

/// Reads a configuration file; files it names are looked for beside it.
///
/// # Errors
///
/// Every problem of the file, or that it cannot be read.
pub fn load_file(path: &Path) -> Result<Config, Problems> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let way_out = way_out(&error);
        let problem = format!("{} cannot be read: {error}{way_out}", path.display());
        Problems(vec![Problem {
            key: String::new(),
            value: None,
            problem,
        }])
    })?;
    let beside = path.parent().unwrap_or(Path::new("."));
    load_in(&text, &Process::new(beside))
}

/// What an operator does about a configuration that cannot be read.
fn way_out(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; config/tidegate.toml explains what to put there",
        io::ErrorKind::PermissionDenied => "; the user that serves must be able to read it",
        io::ErrorKind::IsADirectory => "; name the file in it",
        io::ErrorKind::InvalidData => "; it must be UTF-8 text",
        _ => "",
    }
}

/// Reads a configuration against the given files and environment.
///
/// # Errors
///
/// Every problem of the text.
pub fn load_in(text: &str, around: &dyn Surroundings) -> Result<Config, Problems> {
    let report = Report::default();
    let config = read(text, around, &report);
    let problems = report.into_problems();
    match config {
        Some(config) if problems.is_empty() => Ok(config),
        _ => Err(problems),
    }
}

/// Reads as far as it goes; the result counts only where `report` stays empty.
fn read(text: &str, around: &dyn Surroundings, report: &Report) -> Option<Config> {
    let mut root = reader::Section::parse(text, report)?;
    let mut config = Config {
        server: sections::server(root.section("server"), around),
        admin: sections::admin(root.section("admin"), around),
        upstream: sections::upstream(root.section("upstream")),
        probe: sections::probe(root.section("probe")),
        queue: sections::queue(root.section("queue")),
        admission: sections::admission(root.section("admission")),
        counting: sections::counting(root.section("counting")),
        auth: sections::auth(root.section("auth"), around),
        content: content::content(root.section("content"), around),
        log: sections::log(root.section("log"), around),
        traces: traces::traces(root.section("traces"), around),
        hub: hub::hub(root.section("hub"), around),
        models: fleet::models(&mut root, around),
        tenants: fleet::tenants(&mut root, around),
        seen: Vec::new(),
        files: Vec::new(),
    };
    root.finish();
    config.seen = report.advice();
    report.all_read();
    cross::check(&config, report);
    cross::resolve_models(&mut config);
    config.files = around.files();
    if config.tenants.is_empty() {
        config.tenants.push(Tenant::open());
    }
    Some(config)
}

#[cfg(test)]
mod tests;
