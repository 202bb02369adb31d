//! When a waiter may be sent, and in which order: the settings of the work gate.
//!
//! A request that is sent too early waits in the engine's own line, where it can
//! no longer be ordered, moved or refused. So little is sent ahead of what an
//! engine has begun, and the rest is ordered here.

use std::time::Duration;

/// Settings of the work gate, the order of a tenant's line and the choice of a
/// backend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DispatchPolicy {
    /// Prefill, in predicted seconds, that may be on its way to a backend without
    /// a first token before it takes one more request; a backend without any takes
    /// one of any length, and one whose steps are long takes what fills a few. Too small leaves an engine idle for the time of a round
    /// trip; too large makes the engine's own line the one that counts.
    /// [`Duration::MAX`] sends whatever fits.
    pub late: Duration,
    /// How often its own predicted prefill counts in the place of a request: 1 is
    /// the earliest deadline first, more lets short requests pass long ones that
    /// wait for the same instant. At least 1.
    pub order_weight: f64,
    /// The instant by which a first token is taken to be wanted where nobody has
    /// said, counted from arrival: it lets everybody age.
    pub patience: Duration,
    /// The time per token that is promised; a backend whose decode step would
    /// become longer takes nobody. `None` where nothing is promised.
    pub token_pace: Option<Duration>,
}

impl Default for DispatchPolicy {
    /// Half a second of prefill ahead, weight four, patience of thirty seconds, no
    /// promise for the time per token.
    fn default() -> Self {
        Self {
            late: Duration::from_millis(500),
            order_weight: 4.0,
            patience: Duration::from_secs(30),
            token_pace: None,
        }
    }
}

impl DispatchPolicy {
    /// Whatever fits is sent at once, in the order of arrival.
    pub const EAGER: Self = Self {
        late: Duration::MAX,
        order_weight: 1.0,
        patience: Duration::from_secs(30),
        token_pace: None,
    };
}
