//! A backend as requests see it: where to send, whom to tell, when to give up.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use crate::core::backend::Health;
use crate::upstream::client::Endpoint;
use crate::upstream::probe::Outcome;

use super::BoxFuture;

/// Takes outcomes. Called from destructors: must not block or panic.
pub type Reporter = Arc<dyn Fn(Outcome) + Send + Sync>;

/// One backend of a pool: an endpoint, or one data-parallel rank of it.
pub struct Seat {
    name: Arc<str>,
    endpoint: Endpoint,
    health: watch::Receiver<Health>,
    reporter: Reporter,
}

// === impl Seat ===

impl Seat {
    /// A seat that tells `reporter` and gives up when `health` says down.
    pub fn new(
        name: Arc<str>,
        endpoint: Endpoint,
        health: watch::Receiver<Health>,
        reporter: Reporter,
    ) -> Self {
        Self {
            name,
            endpoint,
            health,
            reporter,
        }
    }

    /// The backend's configured name.
    pub const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Where to send.
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Tells how a request went.
    pub fn report(&self, outcome: Outcome) {
        (self.reporter)(outcome);
    }

    /// Resolves when the backend is given up; never where nobody watches it.
    pub fn lost(&self) -> BoxFuture<()> {
        let mut health = self.health.clone();
        Box::pin(async move {
            let watched = health
                .wait_for(|state| *state == Health::Down)
                .await
                .is_ok();
            if !watched {
                std::future::pending::<()>().await;
            }
        })
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat")
            .field("name", &self.name)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}
