//! Looks at the gateway, on a thread of their own so that keys are never waited for.
//!
//! Decides nothing. Invariant: at most one look is under way, and one more asked for.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};

use serde::Deserialize as _;

use super::view::{Hour, State};
use crate::cli::plain::of_lines;
use crate::cli::remote::{Remote, RemoteError};

/// What came of a look: the state and the hour before it, or why there is none.
pub(super) type Told = Result<(State, Hour), String>;

/// Owns the thread that looks. Dropping it ends the thread, at the end of the look under
/// way at the latest.
pub(super) struct Feed {
    ask: Option<SyncSender<()>>,
    told: Receiver<Told>,
    thread: Option<JoinHandle<()>>,
}

// === impl Feed ===

impl Feed {
    /// Begins to look at `remote`, when asked.
    pub(super) fn start(remote: Remote) -> Self {
        let (ask, asked) = sync_channel(1);
        let (tell, told) = sync_channel(1);
        let thread = thread::spawn(move || {
            let mut hour = Hour::default();
            while asked.recv().is_ok() {
                let state = look(&remote, &mut hour);
                let news = state.map(|state| (state, hour.clone()));
                if tell.send(news.map_err(|error| error.to_string())).is_err() {
                    return;
                }
            }
        });
        Self {
            ask: Some(ask),
            told,
            thread: Some(thread),
        }
    }

    /// Asks for a look; one that is asked for already is enough.
    pub(super) fn ask(&self) {
        let asked = self.ask.as_ref().map(|ask| ask.try_send(()));
        debug_assert!(!matches!(asked, Some(Err(TrySendError::Disconnected(())))));
    }

    /// What came of a look since the last call.
    pub(super) fn told(&self) -> Option<Told> {
        self.told.try_recv().ok()
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        drop(self.ask.take());
        // Makes room for what is being told.
        drop(self.told.try_recv());
        let ended = self.thread.take().map(JoinHandle::join);
        debug_assert!(!matches!(ended, Some(Err(_))), "the feed's thread panicked");
    }
}

/// The state now; `hour` is brought up to date with it.
///
/// # Errors
/// The gateway does not answer, or not as this version reads it. Without a history the
/// state is told all the same.
pub(super) fn look(remote: &Remote, hour: &mut Hour) -> Result<State, RemoteError> {
    let told = of_lines(remote.json("/state")?);
    let state = State::deserialize(&told).map_err(|error| RemoteError::Broken {
        url: "/state".to_owned(),
        problem: format!("not as this version reads it: {error}"),
    })?;
    match remote.json(&hour.path(&state.instance)) {
        Ok(news) => hour.take(&of_lines(news)),
        Err(RemoteError::NoPage(_)) => {}
        Err(error) => return Err(error),
    }
    Ok(state)
}
