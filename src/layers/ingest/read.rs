//! Reads a request body to its end, within its limits.
//!
//! The body is read before anything can queue: only then does the connection
//! code tell a parked handler that its client has left.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body_util::BodyExt;

use crate::config::{Limits, Server};
use crate::layers::budget::Budget;
use crate::layers::error::IngestError;
use crate::layers::steps::Body;

/// Memory set aside at once for a body whose length is announced, in bytes.
const FIRST_ALLOCATION: u64 = 1 << 20;

/// Limits of a request body.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimits {
    /// Largest header block, in bytes.
    pub max_header_bytes: usize,
    /// Largest body, in bytes.
    pub max_body_bytes: u64,
    /// From the end of the headers to the end of the body.
    pub body_timeout: Duration,
}

// === impl BodyLimits ===

impl BodyLimits {
    /// The limits that hold on a listener.
    pub const fn of(server: &Server) -> Self {
        Self {
            max_header_bytes: server.max_header_bytes,
            max_body_bytes: server.max_body_bytes,
            body_timeout: server.body_timeout,
        }
    }

    /// These, and what one tenant may send.
    #[must_use]
    pub fn within(mut self, tenant: &Limits) -> Self {
        let own = tenant.max_body_bytes.unwrap_or(u64::MAX);
        self.max_body_bytes = self.max_body_bytes.min(own);
        self
    }
}

/// Reads `body`, whose share of the budget grows as it comes.
///
/// # Errors
/// Where it is too large, too slow, broken off, or the budget is spent.
pub(super) async fn read<B>(
    headers: &HeaderMap,
    body: B,
    budget: &Budget,
    limits: &BodyLimits,
) -> Result<Body, IngestError>
where
    B: http_body::Body<Data = Bytes>,
{
    let limit = limits.max_body_bytes;
    let announced = headers
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit) {
        return Err(IngestError::BodyTooLarge { limit });
    }
    let reading = collect(body, announced.unwrap_or(0), budget, limit);
    tokio::time::timeout(limits.body_timeout, reading)
        .await
        .unwrap_or(Err(IngestError::BodyTooSlow {
            limit: limits.body_timeout,
        }))
}

async fn collect<B>(
    body: B,
    announced: u64,
    budget: &Budget,
    limit: u64,
) -> Result<Body, IngestError>
where
    B: http_body::Body<Data = Bytes>,
{
    let mut body = std::pin::pin!(body);
    let mut share = budget.share();
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| IngestError::BodyBroken)?;
        let Ok(chunk) = frame.into_data() else {
            continue;
        };
        let more = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
        if share.held().saturating_add(more) > limit {
            return Err(IngestError::BodyTooLarge { limit });
        }
        share.grow(more).map_err(|_| IngestError::BodyBudgetSpent)?;
        if first.is_empty() && all.is_empty() {
            first = chunk;
            continue;
        }
        if all.is_empty() {
            let expected = announced.min(FIRST_ALLOCATION);
            all.reserve(usize::try_from(expected).unwrap_or(0));
            all.extend_from_slice(&std::mem::take(&mut first));
        }
        all.extend_from_slice(&chunk);
    }
    let bytes = if all.is_empty() { first } else { all.freeze() };
    Ok(Body { bytes, share })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::script::Script;
    use tokio_test::{assert_pending, assert_ready, task};

    const LIMITS: BodyLimits = BodyLimits {
        max_header_bytes: 1024,
        max_body_bytes: 10,
        body_timeout: Duration::from_secs(5),
    };

    async fn read_all(pieces: &[&'static str], budget: &Budget) -> Result<Body, IngestError> {
        let (script, body) = Script::new();
        for piece in pieces {
            script.data(piece);
        }
        script.end();
        read(&HeaderMap::new(), body, budget, &LIMITS).await
    }

    #[tokio::test]
    async fn a_body_in_pieces_is_joined_and_charged_until_dropped() {
        let budget = Budget::new(100);
        let body = read_all(&["abc", "def", "g"], &budget).await.unwrap();
        assert_eq!(body.bytes, "abcdefg");
        assert_eq!(budget.used(), 7);
        drop(body);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn a_body_past_the_limit_or_the_budget_is_refused_and_charged_nothing() {
        let budget = Budget::new(100);
        let refused = read_all(&["12345", "678901"], &budget).await.err();
        assert_eq!(refused, Some(IngestError::BodyTooLarge { limit: 10 }));
        let small = Budget::new(4);
        let refused = read_all(&["123", "45"], &small).await.err();
        assert_eq!(refused, Some(IngestError::BodyBudgetSpent));
        assert_eq!((budget.used(), small.used()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_is_given_up_at_its_limit() {
        let (script, body) = Script::new();
        script.data("ab");
        let (headers, budget) = (HeaderMap::new(), Budget::new(100));
        let mut reading = task::spawn(read(&headers, body, &budget, &LIMITS));
        assert_pending!(reading.poll());
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(reading.is_woken());
        let refused = assert_ready!(reading.poll()).err();
        let limit = Duration::from_secs(5);
        assert_eq!(refused, Some(IngestError::BodyTooSlow { limit }));
        drop(reading);
        assert_eq!(budget.used(), 0);
    }
}
