//! Why an answer broke off, and whose fault that is.
//!
//! Decides what the client is told, what the books say, and whether the
//! backend's health is in doubt. Never ends anything.

use crate::layers::reason::Reason;
use crate::protocol::{Code, ErrorBody};
use crate::telemetry::UpstreamFailure;

use super::watchdog::Overrun;

/// Why an answer broke off.
#[derive(Clone, Copy)]
pub(super) enum Break {
    Lost,
    TooSlow(Overrun),
    /// The process ends.
    Shutdown,
}

// === impl Break ===

impl Break {
    /// What the backend did; `None` where it did nothing wrong.
    pub(super) const fn failure(self) -> Option<UpstreamFailure> {
        match self {
            Self::Lost => Some(UpstreamFailure::CutOff),
            Self::TooSlow(_) => Some(UpstreamFailure::Timeout),
            Self::Shutdown => None,
        }
    }

    /// Whether it says anything of the backend's health. An answer that flowed
    /// to the end of its time may only have been long, or read by a client that
    /// takes its time: who wanted to could eject backends with it.
    pub(super) const fn blames_backend(self) -> bool {
        !matches!(self, Self::TooSlow(Overrun::Whole))
    }

    /// The reason in logs and metrics.
    pub(super) const fn reason(self) -> Reason {
        match self {
            Self::Lost => Reason::UpstreamFailed,
            Self::TooSlow(_) => Reason::UpstreamTimeout,
            Self::Shutdown => Reason::ServerShutdown,
        }
    }

    /// What the client is told.
    pub(super) fn error(self) -> ErrorBody {
        let (code, text) = match self {
            Self::Lost => (
                Code::UpstreamFailed,
                "The backend was lost before the answer was complete.",
            ),
            Self::TooSlow(Overrun::FirstData) => (
                Code::UpstreamTimeout,
                "The backend did not begin its answer in time.",
            ),
            Self::TooSlow(Overrun::Silence) => (
                Code::UpstreamTimeout,
                "The backend fell silent before the answer was complete.",
            ),
            Self::TooSlow(Overrun::Whole) => (
                Code::UpstreamTimeout,
                "The answer was not complete in time.",
            ),
            Self::Shutdown => (
                Code::ServerShutdown,
                "The gateway shut down before the answer was complete.",
            ),
        };
        ErrorBody::new(code, text)
    }
}
