//! Reads a request body to its end, within its limits.
//!
//! The body is read before anything can queue: only then does the connection
//! code tell a parked handler that its client has left. Until then it holds
//! memory for nothing, so it must not only come in time but keep coming.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body_util::BodyExt;
use tokio::time::Instant;

use crate::config::{Limits, Server};
use crate::layers::budget::Share;
use crate::layers::error::IngestError;
use crate::layers::steps::Body;

/// Memory set aside at once for a body whose length is announced, in bytes.
const FIRST_ALLOCATION: u64 = 1 << 20;

/// Over how long the least rate of a body is looked at.
const WINDOW: Duration = Duration::from_secs(5);

/// Limits of a request body.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimits {
    /// Largest header block, in bytes.
    pub max_header_bytes: usize,
    /// Largest body, in bytes.
    pub max_body_bytes: u64,
    /// From the end of the headers to the end of the body.
    pub body_timeout: Duration,
    /// Bytes that must come each second, over five seconds; 0 is no limit.
    pub min_body_rate: u64,
}

/// How fast a body comes.
struct Pace {
    /// Bytes that must come in a window.
    least: u64,
    came: u64,
    window_ends: Instant,
}

// === impl BodyLimits ===

impl BodyLimits {
    /// The limits that hold on a listener.
    pub const fn of(server: &Server) -> Self {
        Self {
            max_header_bytes: server.max_header_bytes,
            max_body_bytes: server.max_body_bytes,
            body_timeout: server.body_timeout,
            min_body_rate: server.min_body_bytes_per_second,
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

/// Reads `body`, whose `share` of the budget grows as it comes.
///
/// # Errors
/// Where it is too large, too slow, broken off, or the budget is spent.
pub(super) async fn read<B>(
    headers: &HeaderMap,
    body: B,
    share: Share,
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
    let reading = collect(body, announced.unwrap_or(0), share, limits);
    tokio::time::timeout(limits.body_timeout, reading)
        .await
        .unwrap_or(Err(IngestError::BodyTooSlow {
            limit: limits.body_timeout,
        }))
}

async fn collect<B>(
    body: B,
    announced: u64,
    mut share: Share,
    limits: &BodyLimits,
) -> Result<Body, IngestError>
where
    B: http_body::Body<Data = Bytes>,
{
    let mut body = std::pin::pin!(body);
    let limit = limits.max_body_bytes;
    let mut pace = Pace::begin(limits.min_body_rate);
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(frame) = pace.keep(body.frame()).await? {
        let frame = frame.map_err(|_| IngestError::BodyBroken)?;
        let Ok(chunk) = frame.into_data() else {
            continue;
        };
        let more = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
        if share.held().saturating_add(more) > limit {
            return Err(IngestError::BodyTooLarge { limit });
        }
        pace.came += more;
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

// === impl Pace ===

impl Pace {
    fn begin(rate: u64) -> Self {
        Self {
            least: rate.saturating_mul(WINDOW.as_secs()),
            came: 0,
            window_ends: Instant::now() + WINDOW,
        }
    }

    /// Waits for `next`, as long as enough comes in every window.
    async fn keep<F: Future>(&mut self, next: F) -> Result<F::Output, IngestError> {
        let mut next = std::pin::pin!(next);
        loop {
            if let Ok(came) = tokio::time::timeout_at(self.window_ends, &mut next).await {
                return Ok(came);
            }
            if self.came < self.least {
                let least = self.least / WINDOW.as_secs();
                return Err(IngestError::BodyTrickles { least });
            }
            self.came = 0;
            self.window_ends += WINDOW;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::demand::TenantId;
    use crate::layers::budget::Budget;
    use crate::layers::script::Script;
    use tokio_test::task;

    const LIMITS: BodyLimits = BodyLimits {
        max_header_bytes: 1024,
        max_body_bytes: 10,
        body_timeout: Duration::from_secs(60),
        min_body_rate: 1,
    };

    async fn read_all(pieces: &[&'static str], budget: &Budget) -> Result<Body, IngestError> {
        let (script, body) = Script::new();
        for piece in pieces {
            script.data(piece);
        }
        script.end();
        read(&HeaderMap::new(), body, budget.share(TenantId(0)), &LIMITS).await
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

    /// Reads a body of which so much comes every 4 seconds, 1 byte more than
    /// is ever waited for in all; returns the refusal and after how long.
    async fn dripping(drop_of: &'static str, limits: BodyLimits) -> (Option<IngestError>, u64) {
        let (script, body) = Script::new();
        let (headers, budget) = (HeaderMap::new(), Budget::new(100));
        let began = Instant::now();
        let share = budget.share(TenantId(0));
        let mut reading = task::spawn(read(&headers, body, share, &limits));
        loop {
            if let std::task::Poll::Ready(refused) = reading.poll() {
                drop(reading);
                assert_eq!(budget.used(), 0);
                return (refused.err(), began.elapsed().as_secs());
            }
            let seconds = began.elapsed().as_secs();
            if seconds.is_multiple_of(4) {
                script.data(drop_of);
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_comes_too_slowly_is_given_up_after_a_window() {
        let (refused, after) = dripping("a", LIMITS).await;
        assert_eq!(refused, Some(IngestError::BodyTrickles { least: 1 }));
        assert_eq!(after, 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_is_given_up_at_its_limit() {
        let slow = BodyLimits {
            body_timeout: Duration::from_secs(7),
            min_body_rate: 0,
            ..LIMITS
        };
        let (refused, after) = dripping("a", slow).await;
        let limit = Duration::from_secs(7);
        assert_eq!(refused, Some(IngestError::BodyTooSlow { limit }));
        assert_eq!(after, 7);
    }
}
