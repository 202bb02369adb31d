//! Taking the configuration anew while requests run.
//!
//! Decides what of a changed configuration needs a restart, and keeps what the
//! operator wants to know of the last reload. All or nothing: a configuration
//! with a problem changes nothing. Never shows a value that may be a secret.

use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::config::{Config, Problem, load_file};
use crate::core::time::Time;
use crate::telemetry::Reload;

use super::gateway::Gateway;

/// What is known of the configuration in force and of the last try to replace it.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// When it was put in force, by the gateway's clock.
    pub since: Time,
    /// How the last reload ended.
    pub last: Reload,
    /// Why it was refused; empty unless it was.
    pub problems: Vec<String>,
    /// Keys that were changed and take effect only at a restart.
    pub pending: Vec<&'static str>,
}

/// The status of the moment.
#[derive(Debug)]
pub(super) struct Reloads {
    /// Held for as long as a copy takes.
    status: std::sync::Mutex<Status>,
    /// A file is followed, so that what changes in it is taken.
    followed: AtomicBool,
}

/// Keeps what only a restart can change as it is in `running`; names the keys of
/// which `next` asks something else.
fn pin(running: &Config, next: &mut Config) -> Vec<&'static str> {
    let asked = next.clone();
    next.server.listen = running.server.listen;
    next.admin.listen = running.admin.listen;
    next.upstream.connect_timeout = running.upstream.connect_timeout;
    next.upstream.pool_idle_timeout = running.upstream.pool_idle_timeout;
    next.auth.max_failed_keys = running.auth.max_failed_keys;
    next.auth.failed_keys_window = running.auth.failed_keys_window;
    next.hub = running.hub.clone();
    next.log = running.log.clone();
    next.traces = running.traces.clone();
    let (old, new) = (&running.upstream, &asked.upstream);
    let (old_auth, new_auth) = (&running.auth, &asked.auth);
    let keys = [
        ("server.listen", asked.server.listen == next.server.listen),
        ("admin.listen", asked.admin.listen == next.admin.listen),
        (
            "upstream.connect_timeout",
            old.connect_timeout == new.connect_timeout,
        ),
        (
            "upstream.pool_idle_timeout",
            old.pool_idle_timeout == new.pool_idle_timeout,
        ),
        (
            "auth.max_failed_keys",
            old_auth.max_failed_keys == new_auth.max_failed_keys,
        ),
        (
            "auth.failed_keys_window",
            old_auth.failed_keys_window == new_auth.failed_keys_window,
        ),
        ("hub", asked.hub == next.hub),
        ("log", asked.log == next.log),
        ("traces", asked.traces == next.traces),
    ];
    let changed = keys.into_iter().filter(|(_, same)| !same);
    changed.map(|(key, _)| key).collect()
}

// === impl Reloads ===

impl Reloads {
    /// The first configuration is in force since `now`.
    pub(super) fn new(now: Time) -> Self {
        let status = Status {
            since: now,
            last: Reload::Applied,
            problems: Vec::new(),
            pending: Vec::new(),
        };
        Self {
            status: std::sync::Mutex::new(status),
            followed: AtomicBool::new(false),
        }
    }

    pub(super) fn status(&self) -> Status {
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.clone()
    }

    fn note(&self, change: impl FnOnce(&mut Status)) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut status);
    }

    /// Whether a file is followed. Relaxed: it orders nothing.
    pub(super) fn is_followed(&self) -> bool {
        self.followed.load(Ordering::Relaxed)
    }

    pub(super) fn set_followed(&self) {
        self.followed.store(true, Ordering::Relaxed);
    }
}

// === impl Gateway ===

impl Gateway {
    /// Puts the configuration of the file at `path` in force, or leaves
    /// everything as it is and says why: in the log, `/state`, `/readyz` and the
    /// metrics. Reads files: call it where that may block.
    pub fn reload_file(&self, path: &Path) -> Reload {
        match load_file(path) {
            Ok(config) => self.reload(config),
            Err(problems) => self.refuse(problems.0.iter().map(Problem::to_string).collect()),
        }
    }

    /// Puts `next` in force for the requests that come from now on, whole or not
    /// at all. Running and waiting requests stay, each under what it began with;
    /// books, windows and what is known of backends stay with them. Keys that
    /// need a restart keep their value and are named. Blocks for a moment.
    pub fn reload(&self, mut next: Config) -> Reload {
        let mut works = self.works();
        let running = self.snapshot();
        let pending = pin(&running.config, &mut next);
        if next == *self.discovery().written() {
            return self.took(Reload::Unchanged, pending);
        }
        let expanded = self.discovery().expand(&next);
        let plan = match works.prepare(&expanded) {
            Ok(plan) => plan,
            Err(problems) => {
                return self.refuse(problems.iter().map(ToString::to_string).collect());
            }
        };
        // Nothing fails from here on.
        self.discovery().write(next);
        self.put_in_force(&mut **works, plan, expanded);
        self.took(Reload::Applied, pending)
    }

    /// How the last reload went.
    pub fn reload_status(&self) -> Status {
        self.reloads().status()
    }

    fn took(&self, reload: Reload, pending: Vec<&'static str>) -> Reload {
        let keys = pending.join(", ");
        let news = self.reload_status().pending != pending;
        match (reload, pending.is_empty()) {
            (Reload::Applied, true) => tracing::info!("configuration reloaded"),
            (Reload::Applied, false) => {
                tracing::warn!(keys, "configuration reloaded; these keys need a restart");
            }
            (_, false) if news => {
                tracing::warn!(keys, "nothing changed but keys that need a restart");
            }
            _ => tracing::debug!("configuration as before"),
        }
        let now = self.clock().now();
        self.reloads().note(|status| {
            if reload == Reload::Applied {
                status.since = now;
            }
            status.last = reload;
            status.problems.clear();
            status.pending = pending;
        });
        self.telemetry().metrics().config_reloaded(reload);
        reload
    }

    fn refuse(&self, problems: Vec<String>) -> Reload {
        // Tried again and again while the file stays as it is: told once.
        if self.reload_status().problems != problems {
            for problem in &problems {
                tracing::error!(
                    problem,
                    "the configuration is not reloaded: all stays as it is"
                );
            }
            self.telemetry().metrics().config_reloaded(Reload::Refused);
        }
        self.reloads().note(|status| {
            status.last = Reload::Refused;
            status.problems = problems;
        });
        Reload::Refused
    }
}
