//! What the service manager (systemd) is told of the gateway's life.
//!
//! Decides when: ready once it listens, reloading and ready again around a reload
//! that was asked for, stopping with the first signal to end, and alive as often
//! as a watchdog wants. The watchdog hears nothing from a process whose runtime or
//! whose books hang, and restarts it. Never waits for an answer, and a manager
//! that does not listen changes nothing. Without one there is nothing to do.

use std::env;
use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;

use super::gateway::Gateway;

/// How often the status line is written anew.
const STATUS: Duration = Duration::from_secs(5);

/// Beyond the drain timeout, until what is left is cut.
const LAST: Duration = Duration::from_secs(5);

/// Whether there is a manager that listens.
fn listens() -> bool {
    env::var_os("NOTIFY_SOCKET").is_some()
}

/// It listens and its configuration is in force.
pub(super) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// The configuration is being read anew; [`ready`] follows.
pub(super) fn reloading() {
    // One message: a manager that waits for both must not see one without the other.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!(%error, "no time to tell the service manager"),
    }
}

/// It takes nothing new, and may need `drain` for what it has.
pub(super) fn stopping(drain: Duration) {
    let micros = u32::try_from((drain + LAST).as_micros()).unwrap_or(u32::MAX);
    tell(&[
        NotifyState::Stopping,
        NotifyState::ExtendTimeoutUsec(micros),
    ]);
}

/// Tells how it stands every few seconds, and that it lives twice in each time
/// the watchdog waits. Endless where somebody listens; run it as one owned task.
pub(super) async fn attend(gateway: Arc<Gateway>) {
    if !listens() {
        return;
    }
    let watchdog = sd_notify::watchdog_enabled();
    let every = watchdog.map_or(STATUS, |limit| (limit / 2).min(STATUS));
    loop {
        // Looks into the books: a lock that nobody gives back ends this too.
        let status = status(&gateway);
        let alive = watchdog.map(|_| NotifyState::Watchdog);
        let states: Vec<_> = alive
            .into_iter()
            .chain([NotifyState::Status(&status)])
            .collect();
        tell(&states);
        tokio::time::sleep(every).await;
    }
}

/// How it stands, in a line.
fn status(gateway: &Gateway) -> String {
    let (mut up, mut backends, mut leases, mut waiting) = (0_usize, 0_usize, 0_u64, 0_u64);
    for pool in gateway.pools().all() {
        let state = pool.gate().state();
        backends += state.backends.len();
        up += state.backends.iter().filter(|b| b.health.admits()).count();
        leases += state
            .backends
            .iter()
            .map(|b| u64::from(b.leases))
            .sum::<u64>();
        waiting += u64::from(state.queue.requests);
    }
    format!("{up} of {backends} backends usable, {leases} requests in flight, {waiting} waiting")
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager does not listen");
    }
}
