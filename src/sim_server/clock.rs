//! The server's virtual clock: tokio's, scaled, and stopped while the engine is held.

use std::time::Duration;

use tokio::time::Instant;

use crate::core::time::Time;

/// Invariant: virtual time never goes back, and stands still while stopped.
#[derive(Clone, Copy, Debug)]
pub(super) struct VirtualClock {
    /// Real seconds per virtual second.
    scale: f64,
    /// A real instant and the virtual time at it.
    origin: Instant,
    base: Time,
    running: bool,
}

impl VirtualClock {
    pub(super) fn start(scale: f64) -> Self {
        Self {
            scale,
            origin: Instant::now(),
            base: Time::ZERO,
            running: true,
        }
    }

    /// A clock of the same scale that begins now.
    pub(super) fn restarted(&self) -> Self {
        Self::start(self.scale)
    }

    pub(super) fn now(&self) -> Time {
        if !self.running {
            return self.base;
        }
        let real = self.origin.elapsed();
        self.base
            + Duration::try_from_secs_f64(real.as_secs_f64() / self.scale).unwrap_or(Duration::MAX)
    }

    /// The real instant of a virtual one; `None` while stopped or too far away.
    pub(super) fn instant_of(&self, at: Time) -> Option<Instant> {
        if !self.running {
            return None;
        }
        let real =
            Duration::try_from_secs_f64(at.since(self.base).as_secs_f64() * self.scale).ok()?;
        self.origin.checked_add(real)
    }

    pub(super) fn stop(&mut self) {
        self.base = self.now();
        self.running = false;
    }

    pub(super) fn go(&mut self) {
        if !self.running {
            self.origin = Instant::now();
            self.running = true;
        }
    }

    /// Moves a stopped clock on to `at`.
    pub(super) fn jump(&mut self, at: Time) {
        self.base = self.base.max(at);
    }
}
