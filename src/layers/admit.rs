//! Waits for KV: a measured request becomes a leased one, or is refused.
//!
//! Decides nothing itself, the gate does; it only waits, and tries again once
//! where a backend was lost before it took any byte. Admission happens here, in
//! `call`, because the cost is unknown before the request exists. Dropping the
//! future leaves the queue or gives the lease back.

use std::task::{Context, Poll};

use http::Response;
use tower::{Layer, Service};

use crate::gate::{Lease, Submission};

use super::BoxFuture;
use super::error::{ForwardError, Refusal};
use super::steps::{Leased, Measured};

/// Adds [`Admit`].
#[derive(Clone, Copy, Debug, Default)]
pub struct AdmitLayer;

/// Admits requests.
#[derive(Clone)]
pub struct Admit<S>(S);

/// Why a leased request was not answered.
pub enum Undelivered {
    /// No byte of it was taken: it may go elsewhere.
    Untouched(Box<Measured>),
    /// A backend may have it: nobody else gets it.
    Lost(ForwardError),
}

/// Submits `measured` and waits for its turn.
async fn acquire(measured: &Measured) -> Result<Lease, Refusal> {
    let letter = &measured.letter;
    let lease = match letter.pool.gate().submit(measured.demand.clone()) {
        Submission::Admitted(lease) => lease,
        Submission::Waiting(ticket) => ticket.await?,
        Submission::Rejected(reject) => return Err(reject.into()),
    };
    let grant = lease.grant();
    let seat = letter.pool.seat(grant.backend);
    letter.trail.note(|facts| {
        let record = &mut facts.record;
        record.queue_ms = Some(record.queue_ms.unwrap_or_default() + grant.waited);
        record.backend = Some(seat.name().clone());
        record.tier = Some(grant.tier);
    });
    Ok(lease)
}

// === impl AdmitLayer ===

impl<S> Layer<S> for AdmitLayer {
    type Service = Admit<S>;

    fn layer(&self, inner: S) -> Admit<S> {
        Admit(inner)
    }
}

// === impl Admit ===

impl<S, R> Service<Measured> for Admit<S>
where
    S: Service<Leased, Response = Response<R>, Error = Undelivered> + Clone + Send + 'static,
    S::Future: Send + 'static,
    R: 'static,
{
    type Response = Response<R>;
    type Error = Refusal;
    type Future = BoxFuture<Result<Response<R>, Refusal>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, measured: Measured) -> Self::Future {
        let mut inner = self.0.clone();
        Box::pin(async move {
            let lease = acquire(&measured).await?;
            let measured = match inner.call(Leased { measured, lease }).await {
                Ok(answer) => return Ok(answer),
                Err(Undelivered::Lost(error)) => return Err(error.into()),
                Err(Undelivered::Untouched(measured)) => *measured,
            };
            let lease = acquire(&measured).await?;
            inner
                .call(Leased { measured, lease })
                .await
                .map_err(|undelivered| match undelivered {
                    Undelivered::Lost(error) => error.into(),
                    Undelivered::Untouched(_) => ForwardError::Failed.into(),
                })
        })
    }
}
