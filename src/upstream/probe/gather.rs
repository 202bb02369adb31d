//! Asks an endpoint how it is: the requests of one probe, and what their
//! answers mean.
//!
//! Decides which answers are a failure and of what kind. Keeps nothing.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;

use super::state::Failure;
use crate::core::units::Tokens;
use crate::protocol::models::{ModelCard, read_models};
use crate::upstream::client::{Answer, Bounds, Client, Connector, Endpoint, FetchError, SendError};
use crate::upstream::prometheus;
use crate::upstream::scrape::{self, Scrape};
use crate::upstream::version::Version;

/// Largest `/v1/models` answer that is read, in bytes: thousands of adapters.
const MODELS_BYTES: usize = 1 << 20;
/// Largest other answer that is read, in bytes.
const SMALL_BYTES: usize = 64 * 1024;

/// Sends the requests of one probe.
pub(super) struct Asker<'a, C> {
    pub(super) client: &'a Client<C>,
    pub(super) endpoint: &'a Endpoint,
    /// Limit of each request.
    pub(super) timeout: Duration,
}

/// What changes seldom: the release and the models.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Facts {
    /// The release as the endpoint writes it; `None` where it does not say.
    pub(super) release: Option<String>,
    /// The models it serves.
    pub(super) models: Vec<ModelCard>,
}

/// What a liveness check and a scrape said.
pub(super) struct Pulse {
    /// The slower of the answers that came.
    pub(super) latency: Duration,
    /// The metrics, where they were readable.
    pub(super) scrape: Option<Scrape>,
}

// === impl Asker ===

impl<C: Connector> Asker<'_, C> {
    /// Checks `/health` and scrapes `/metrics`, one after the other.
    ///
    /// Metrics that do not come cost nothing but themselves: an engine that
    /// serves without them still serves.
    pub(super) async fn pulse(&self) -> Result<Pulse, Failure> {
        let started = Instant::now();
        let health = self.get("/health", SMALL_BYTES).await;
        let alive = started.elapsed();
        if let Some(failure) = failure(&health) {
            return Err(failure);
        }
        let started = Instant::now();
        let metrics = self.get("/metrics", prometheus::MAX_BYTES).await;
        let scrape = match (failure(&metrics), metrics) {
            (Some(refused @ (Failure::Refused | Failure::Unauthorized | Failure::Tls(_))), _) => {
                return Err(refused);
            }
            (None, Ok(answer)) => Some(scrape::read(&prometheus::unpacked(answer.body))),
            _ => None,
        };
        // Metrics that do not come are no slow answer.
        let read = scrape.as_ref().map(|_| started.elapsed());
        Ok(Pulse {
            latency: alive.max(read.unwrap_or_default()),
            scrape,
        })
    }

    /// Reads the release and the models. The models must come: a server that
    /// answers `/health` without them serves no model.
    pub(super) async fn facts(&self) -> Result<Facts, Failure> {
        let models = self.get("/v1/models", MODELS_BYTES).await;
        if let Some(failure) = failure(&models) {
            return Err(failure);
        }
        let models = models
            .ok()
            .and_then(|answer| read_models(&answer.body).ok())
            .ok_or(Failure::NotAnEngine)?;
        let release = match self.get("/version", SMALL_BYTES).await {
            Ok(answer) if answer.status.is_success() => Version::text_of_answer(&answer.body),
            _ => None,
        };
        Ok(Facts { release, models })
    }

    async fn get(&self, path: &'static str, bytes: usize) -> Result<Answer, FetchError> {
        let bounds = Bounds {
            time: self.timeout,
            bytes,
        };
        self.client.get(self.endpoint, path, bounds).await
    }
}

/// What an answer says against the endpoint; `None` for a good one.
fn failure(answer: &Result<Answer, FetchError>) -> Option<Failure> {
    let answer = match answer {
        Ok(answer) => answer,
        Err(FetchError::Send(SendError::Refused)) => return Some(Failure::Refused),
        Err(FetchError::Send(SendError::Tls { failure, .. })) => {
            return Some(Failure::Tls(*failure));
        }
        Err(FetchError::Send(SendError::NotHttp)) => return Some(Failure::NotAnEngine),
        Err(_) => return Some(Failure::Unresponsive),
    };
    match answer.status {
        status if status.is_success() => None,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Some(Failure::Unauthorized),
        StatusCode::SERVICE_UNAVAILABLE if is_scaling(&answer.body) => Some(Failure::Scaling),
        // Both come without a body where the engine process is dead: 503 since
        // 0.11, 500 before. With one they may be anybody's in between.
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::INTERNAL_SERVER_ERROR
            if answer.body.is_empty() =>
        {
            Some(Failure::EngineDead)
        }
        status if status.is_server_error() => Some(Failure::Unresponsive),
        _ => Some(Failure::NotAnEngine),
    }
}

/// Whether a 503 is that of an engine changing its number of ranks, which is
/// the only one whose error is a string.
fn is_scaling(body: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Scaling<'a> {
        #[serde(borrow)]
        error: std::borrow::Cow<'a, str>,
    }
    serde_json::from_slice::<Scaling<'_>>(body)
        .is_ok_and(|body| body.error.contains("scaling") || body.error.contains("retired"))
}

// === impl Facts ===

impl Facts {
    /// The release, as far as rules depend on it.
    pub(super) fn version(&self) -> Option<Version> {
        Version::parse(self.release.as_deref()?)
    }

    /// Whether it lists any of these models.
    pub(super) fn lists_any(&self, ids: &[Arc<str>]) -> bool {
        ids.iter().any(|id| self.lists(id))
    }

    /// Whether it lists this model.
    pub(super) fn lists(&self, id: &str) -> bool {
        self.models.iter().any(|card| card.id == id)
    }

    /// The smallest `max_model_len` of its base models; adapters have none.
    pub(super) fn max_model_len(&self) -> Option<Tokens> {
        let bases = self.models.iter().filter(|card| card.parent.is_none());
        bases
            .filter_map(|card| card.max_model_len)
            .filter(|&tokens| tokens > 0)
            .min()
            .map(Tokens::new)
    }
}
