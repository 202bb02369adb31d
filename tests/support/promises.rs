//! What must hold at the end of every test, whatever it is about.
//!
//! [`Watch::settled`] is asked by `settle` of a stand once nothing is held;
//! dropping a watch fails the test that forgot to settle, or that did anything
//! after it. Checked are: conservation, in the books and of HTTP requests; that
//! no admission took a backend over its capacity, at any time; that nothing
//! panicked, caught or not; that neither keys nor prompts of the test are to
//! be read in metrics, state, diagnostics or access log.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Once, PoisonError};

use tidegate::app::Gateway;
use tidegate::config::AccessLog;
use tidegate::core::stats::{PoolState, Totals};

use super::secrets;

/// Watches one gateway until its test ends.
pub(crate) struct Watch {
    gateway: Arc<Gateway>,
    access_log: Option<PathBuf>,
    /// Requests that had asked when the test settled last.
    settled: Mutex<Option<u64>>,
    /// Where this test's part of the diagnostics begins.
    began: usize,
}

/// Panics so far by thread, and everything the library logged.
static PANICS: Mutex<Option<HashMap<String, String>>> = Mutex::new(None);
static LOGGED: Mutex<Vec<u8>> = Mutex::new(Vec::new());
static LISTEN: Once = Once::new();

/// Threads that belong to no test of their own: one that panics fails whoever
/// looks next.
const SHARED_THREADS: [&str; 3] = ["tokio-runtime-worker", "count", "access-log"];

/// Begins to listen for panics and diagnostics; once for all tests.
pub(crate) fn listen() {
    LISTEN.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let thread = std::thread::current().name().unwrap_or("?").to_owned();
            let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
            let told = panics.get_or_insert_default().entry(thread);
            told.or_insert_with(|| panic.to_string());
            drop(panics);
            before(panic);
        }));
        // Another test's own subscriber may be there first.
        drop(
            tracing_subscriber::fmt()
                .with_env_filter("info,tidegate=trace")
                .with_ansi(false)
                .with_writer(|| Logged)
                .try_init(),
        );
    });
}

/// Writes to [`LOGGED`].
struct Logged;

impl Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        logged().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn logged() -> std::sync::MutexGuard<'static, Vec<u8>> {
    LOGGED.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Watch ===

impl Watch {
    /// Watches `gateway` from now on.
    pub(crate) fn new(gateway: &Arc<Gateway>) -> Self {
        listen();
        let access_log = match &gateway.snapshot().config.log.access {
            AccessLog::File(path) => Some(path.clone()),
            AccessLog::Stdout | AccessLog::Off => None,
        };
        Self {
            gateway: Arc::clone(gateway),
            access_log,
            settled: Mutex::new(None),
            began: logged().len(),
        }
    }

    /// Whether nothing is held and nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        let idle = |state: &PoolState| state.is_idle();
        self.states().iter().all(idle) && self.gateway.body_bytes() == 0 && self.under_way() == 0
    }

    /// HTTP requests that have begun and not ended.
    fn under_way(&self) -> u64 {
        let metrics = self.gateway.telemetry().metrics().render();
        let sum = |family: &str| -> u64 {
            let lines = metrics.lines().filter(|line| line.starts_with(family));
            lines
                .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
                .sum()
        };
        sum("tidegate_requests_started_total{") - sum("tidegate_requests_total{")
    }

    /// Nothing is held any more: checks what must hold then. `pages` are what
    /// operators see.
    pub(crate) fn settled(&self, pages: &[&str]) {
        let mut asked = 0;
        for state in self.states() {
            asked += state.totals.received;
            let ended = Totals {
                received: state.totals.admitted
                    + state.totals.refused
                    + state.totals.expired
                    + state.totals.left,
                admitted: state.totals.finished + state.totals.failed + state.totals.cancelled,
                ..state.totals
            };
            assert_eq!(state.totals, ended, "requests were lost or counted twice");
        }
        *self.settled.lock().unwrap() = Some(asked);
        self.holds();
        for page in pages {
            secrets::are_not_in(page);
        }
        let diagnostics = logged()[self.began..].to_vec();
        secrets::are_not_in(&String::from_utf8_lossy(&diagnostics));
        let access = self.access_log.as_ref().map(std::fs::read_to_string);
        if let Some(Ok(lines)) = access {
            secrets::are_not_in(&lines);
        }
    }

    /// The test need not settle, for it cuts everything; the caller says so by
    /// looking at the books itself.
    pub(crate) fn cut(&self) {
        *self.settled.lock().unwrap() = Some(self.received());
    }

    /// Whether something asked after the test settled.
    pub(crate) fn is_open(&self) -> bool {
        *self.settled.lock().unwrap() != Some(self.received())
    }

    /// What holds at any time.
    fn holds(&self) {
        for state in self.states() {
            let Totals {
                received,
                admitted,
                refused,
                expired,
                left,
                finished,
                failed,
                cancelled,
                measured,
                measured_output: _,
                foreseen_output: _,
                output_error: _,
                promised,
                kept,
                waited: _,
                foreseen_wait: _,
                wait_error: _,
                prompt: _,
                generated: _,
                overdrawn,
            } = state.totals;
            assert!(measured <= finished, "a length was learned twice");
            assert!(
                kept <= promised && promised <= admitted,
                "a wait counts once"
            );
            let waiting = u64::from(state.queue.requests);
            assert_eq!(received, admitted + waiting + refused + expired + left);
            let leases = state.backends.iter().map(|at| u64::from(at.leases));
            let in_flight: u64 = leases.sum();
            assert_eq!(admitted, in_flight + finished + failed + cancelled);
            assert_eq!(overdrawn, 0, "a backend was filled past its capacity");
        }
        let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
        let panics = panics.get_or_insert_default();
        let thread = std::thread::current().name().unwrap_or("?").to_owned();
        for name in SHARED_THREADS.iter().copied().chain([thread.as_str()]) {
            assert_eq!(panics.get(name), None, "{name} panicked");
        }
    }

    fn states(&self) -> Vec<PoolState> {
        let pools = self.gateway.pools();
        pools.all().iter().map(|pool| pool.gate().state()).collect()
    }

    fn received(&self) -> u64 {
        self.states().iter().map(|pool| pool.totals.received).sum()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(path) = &self.access_log {
            drop(std::fs::remove_file(path));
        }
        if std::thread::panicking() {
            return;
        }
        self.holds();
        assert!(
            !self.is_open(),
            "the test asks and does not settle after it"
        );
    }
}
