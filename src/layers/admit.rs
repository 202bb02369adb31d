//! Waits for KV: a measured request becomes a leased one, or is refused.
//!
//! Decides nothing itself, the gate does; it only waits, and tries again a few
//! times where a backend was lost before it took any byte. Admission happens here, in
//! `call`, because the cost is unknown before the request exists. Dropping the
//! future leaves the queue or gives the lease back.

use std::task::{Context, Poll};

use http::Response;
use tower::{Layer, Service};

use crate::config::AdmissionMode;
use crate::core::admission::Would;
use crate::core::reject::Reject;
use crate::core::waits::Predicted;
use crate::gate::{Lease, Submission};
use crate::telemetry::{self, Stage};

use super::BoxFuture;
use super::error::{ForwardError, Refusal, TenantError};
use super::steps::{Leased, Letter, Measured};
use super::trail::Facts;

/// Backends a request is offered to, where each is lost before it takes a byte.
/// Each failure is told before the next try, which goes elsewhere if it can.
/// Fewer give up while an engine is there; more make a client wait through a
/// connect timeout for each.
const TRIES: u32 = 3;

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
    let _lap = letter.trail.enter(Stage::Queue);
    let lease = match submit(measured) {
        Submission::Admitted(lease) => lease,
        Submission::Waiting(ticket) => {
            let foreseen = ticket.foreseen();
            letter.trail.note(|facts| {
                foretold(facts, foreseen.map(|foreseen| foreseen.predicted));
                let held_by = foreseen.map(|foreseen| foreseen.hold.name());
                facts.record.held_by = facts.record.held_by.or(held_by);
            });
            ticket.await.map_err(|reject| expired(letter, reject))?
        }
        Submission::Rejected(reject) => return Err(reject.into()),
    };
    let grant = lease.grant();
    let seat = letter.pool.seat(grant.backend);
    letter.trail.note(|facts| {
        let record = &mut facts.record;
        record.queue_ms = Some(record.queue_ms.unwrap_or_default() + grant.waited);
        record.backend = Some(seat.name().clone());
        record.tier = Some(grant.tier);
        record.home = Some(grant.home);
        record.choice = Some(grant.choice.name());
    });
    Ok(lease)
}

/// Lets admission decide, or watch, as the request's configuration says.
fn submit(measured: &Measured) -> Submission {
    let letter = &measured.letter;
    let (gate, demand) = (letter.pool.gate(), measured.demand.clone());
    match letter.snapshot.config.admission.mode {
        AdmissionMode::Enforce => gate.submit(demand),
        AdmissionMode::Shadow => {
            let (submission, would) = gate.shadow(demand);
            if let Some(would) = would {
                note_would(letter, would);
            }
            submission
        }
    }
}

/// Notes what would have become of a request, at its first try.
fn note_would(letter: &Letter, would: Would) {
    let (told, predicted) = match would {
        Would::Admit => (telemetry::Would::Admit, None),
        Would::Move(tier) => (telemetry::Would::Move(tier), None),
        Would::Wait(predicted) => (telemetry::Would::Wait, Some(predicted)),
        Would::Refuse(reject) => {
            let reason = Refusal::from(reject).reason();
            (telemetry::Would::Refuse(reason.label()), None)
        }
    };
    letter.trail.note(|facts| {
        if facts.record.would.is_none() {
            facts.record.would = Some(told);
            foretold(facts, predicted);
        }
    });
}

/// Notes how long a request will wait, as far as that can be told.
fn foretold(facts: &mut Facts, predicted: Option<Predicted>) {
    facts.record.predicted_wait_ms = predicted.map(|wait| wait.q50);
    facts.record.predicted_wait_q80_ms = predicted.map(|wait| wait.q80);
}

/// Notes how long a request has waited in vain.
fn expired(letter: &Letter, reject: Reject) -> Reject {
    if let Reject::QueueTimeout { waited, .. } = reject {
        letter
            .trail
            .note(|facts| facts.record.queue_ms = Some(waited));
    }
    reject
}

/// Charges the tenant's rate the most that `measured` may use. From here on the
/// trail owns the charge, whatever becomes of the request.
fn charge(measured: &Measured) -> Result<(), TenantError> {
    let Letter { tenant, trail, .. } = &*measured.letter;
    let limits = &tenant.tenant.limits;
    let charge = tenant.rates.charge(limits, measured.outline.cost);
    trail.look_at_rates(tenant);
    trail.charged(charge?);
    Ok(())
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
            charge(&measured)?;
            let mut measured = measured;
            for _ in 0..TRIES {
                let lease = acquire(&measured).await?;
                measured = match inner.call(Leased { measured, lease }).await {
                    Ok(answer) => return Ok(answer),
                    Err(Undelivered::Lost(error)) => return Err(error.into()),
                    Err(Undelivered::Untouched(measured)) => *measured,
                };
            }
            Err(ForwardError::Failed.into())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::fixture::Fixture;
    use crate::layers::reason::Reason;
    use tokio_test::{assert_pending, assert_ready, task};

    const FILLS: &str =
        r#"{"messages":[{"role":"user","content":"hi"}],"max_tokens":900,"stream":true}"#;

    type Answered = Result<Response<u64>, Undelivered>;

    /// Answers with the blocks that were granted.
    async fn answer(leased: Leased) -> Answered {
        Ok(Response::new(leased.lease.grant().blocks.get()))
    }

    async fn untouched(leased: Leased) -> Answered {
        Err(Undelivered::Untouched(Box::new(leased.measured)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_is_woken_with_its_lease_when_room_comes() {
        let fixture = Fixture::new();
        let first = fixture.measured(FILLS).await;
        let held = fixture.lease(&first);
        let mut admit = AdmitLayer.layer(tower::service_fn(answer));
        let mut waiting = task::spawn(admit.call(fixture.measured(FILLS).await));
        assert_pending!(waiting.poll());
        assert_eq!(fixture.state().queue.requests, 1);
        drop(held);
        assert!(waiting.is_woken());
        let answer = assert_ready!(waiting.poll()).ok().unwrap();
        assert_eq!(*answer.body(), 58);
        drop(waiting);
        assert!(fixture.state().is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_that_is_dropped_leaves_the_line() {
        let fixture = Fixture::new();
        let first = fixture.measured(FILLS).await;
        let held = fixture.lease(&first);
        let mut admit = AdmitLayer.layer(tower::service_fn(answer));
        let mut waiting = task::spawn(admit.call(fixture.measured(FILLS).await));
        assert_pending!(waiting.poll());
        drop(waiting);
        let state = fixture.state();
        assert_eq!((state.queue.requests, state.totals.left), (0, 1));
        drop(held);
        assert!(fixture.state().is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_nobody_takes_is_tried_three_times_and_no_more() {
        let fixture = Fixture::new();
        let mut admit = AdmitLayer.layer(tower::service_fn(untouched));
        let refused = admit.call(fixture.measured(FILLS).await).await.err();
        let reason = refused.map(|refusal| refusal.reason());
        assert_eq!(reason, Some(Reason::UpstreamFailed));
        assert_eq!(fixture.state().totals.admitted, 3);
        assert!(fixture.state().is_idle());
    }

    #[tokio::test]
    async fn a_panic_gives_its_lease_back_and_the_next_thousand_are_served() {
        async fn panics(leased: Leased) -> Answered {
            panic!("a bug, at {} blocks", leased.lease.grant().blocks);
        }
        let fixture = Fixture::new();
        let mut broken = AdmitLayer.layer(tower::service_fn(panics));
        let ended = tokio::spawn(broken.call(fixture.measured(FILLS).await)).await;
        assert!(ended.is_err_and(|error| error.is_panic()));
        assert!(fixture.state().is_idle());
        let mut admit = AdmitLayer.layer(tower::service_fn(answer));
        for _ in 0..1000 {
            let answered = admit.call(fixture.measured(FILLS).await).await;
            assert!(answered.is_ok());
        }
        assert_eq!(fixture.state().totals.cancelled, 1001);
        assert!(fixture.state().is_idle());
    }
}
