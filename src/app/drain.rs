//! The stop signal: running → draining → cut.
//!
//! Decides nothing about requests; whoever serves watches. The phase never
//! goes back.

use tokio::sync::watch;

/// Where the process is on its way out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Serving.
    #[default]
    Running,
    /// Finishing what it has, taking nothing new.
    Draining,
    /// Dropping what is left.
    Cut,
}

/// The end that moves the phase on.
#[derive(Debug)]
pub struct Drain(watch::Sender<Phase>);

/// The end that watches it.
#[derive(Clone, Debug)]
pub struct Watcher(watch::Receiver<Phase>);

// === impl Phase ===

impl Phase {
    /// The name in `/state` and `/readyz`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Draining => "draining",
            Self::Cut => "cut",
        }
    }
}

// === impl Drain ===

impl Drain {
    /// A running process.
    pub fn new() -> (Self, Watcher) {
        let (sender, receiver) = watch::channel(Phase::Running);
        (Self(sender), Watcher(receiver))
    }

    /// Moves on to `phase`; an earlier one changes nothing.
    pub fn advance(&self, phase: Phase) {
        self.0.send_if_modified(|now| {
            let moves = phase > *now;
            if moves {
                *now = phase;
            }
            moves
        });
    }
}

// === impl Watcher ===

impl Watcher {
    /// The phase now.
    pub fn phase(&self) -> Phase {
        *self.0.borrow()
    }

    /// Resolves once draining has begun. A dropped [`Drain`] counts as a cut.
    pub async fn draining(self) {
        self.reached(Phase::Draining).await;
    }

    /// Resolves once what is left must go. A dropped [`Drain`] counts as that.
    pub async fn cut(self) {
        self.reached(Phase::Cut).await;
    }

    async fn reached(mut self, phase: Phase) {
        // An error means that the sender is gone: nobody can ask for more.
        let gone = self.0.wait_for(|now| *now >= phase).await.is_err();
        if gone {
            tracing::debug!("the drain handle is gone");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_phase_never_goes_back() {
        let (drain, watcher) = Drain::new();
        assert_eq!(watcher.phase(), Phase::Running);
        drain.advance(Phase::Cut);
        drain.advance(Phase::Draining);
        assert_eq!(watcher.phase(), Phase::Cut);
        watcher.clone().draining().await;
        watcher.cut().await;
    }
}
