//! What is known of one request, gathered on its way down and back.
//!
//! Every step holds the same [`Trail`] and notes what it learns. Decides only
//! *when* the request is over: when the last holder lets go, which is the end
//! or the drop of the response body, or the drop of the handler future of a
//! client that left. Invariant: one access record per request, whatever ended it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use http::{HeaderMap, StatusCode};
use tokio::time::Instant;

use crate::config::BackendVisibility;
use crate::core::units::Tokens;
use crate::protocol::Route;
use crate::telemetry::{
    AccessRecord, Finish, Journey, Leg, Metrics, Stage, Target, Telemetry, UpstreamFailure,
};
use crate::tenants::{Charge, Standing, TenantRef};

use super::reason::Reason;

/// A stage of a request's trace, where it has one.
pub struct Lap(Option<(Trail, Leg)>);

/// A handle on the facts of one request. Cheap to clone.
#[derive(Clone)]
pub struct Trail(Arc<Inner>);

struct Inner {
    started: Instant,
    memory: Memory,
    telemetry: Arc<Telemetry>,
    /// Held for one assignment or copy at a time, never across an await.
    facts: Mutex<Facts>,
}

/// What is left of a request when it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    /// Its record, and what it adds to the metrics.
    Kept,
    /// Nothing: nobody sent it, somebody looks at what would become of it.
    Forgotten,
}

/// Everything the steps learn of a request.
#[derive(Debug)]
pub struct Facts {
    /// What goes into the access log.
    pub record: AccessRecord,
    /// The route, where it is one of ours.
    pub route: Option<Route>,
    /// Whether the answer may name the backend.
    pub backend_name: BackendVisibility,
    /// `max_tokens` as the gateway wrote it into the body.
    pub set_output: Option<Tokens>,
    /// Its trace, where traces are sent.
    pub journey: Option<Journey>,
    /// What its tenant's rates had left when that was last looked at.
    pub standing: Option<Standing>,
    /// Whose rates those are.
    payer: Option<TenantRef>,
    /// What it was charged; settled at the end of the trail at the latest.
    charge: Option<Charge>,
}

// === impl Trail ===

impl Trail {
    /// The trail of a request that begins now and says so to `telemetry`.
    pub fn begin(id: &str, route: Option<Route>, telemetry: Arc<Telemetry>) -> Self {
        let name = route.map_or("other", Route::label);
        telemetry.metrics().started(name);
        Self::new(id, (route, Memory::Kept), telemetry)
    }

    /// The trail of a request that nobody sent: nothing of it is counted or written.
    pub fn look(id: &str, route: Option<Route>, telemetry: Arc<Telemetry>) -> Self {
        Self::new(id, (route, Memory::Forgotten), telemetry)
    }

    fn new(id: &str, (route, memory): (Option<Route>, Memory), telemetry: Arc<Telemetry>) -> Self {
        let name = route.map_or("other", Route::label);
        let record = AccessRecord::new(SystemTime::now(), Arc::from(id), name);
        Self(Arc::new(Inner {
            started: Instant::now(),
            memory,
            telemetry,
            facts: Mutex::new(Facts {
                record,
                route,
                backend_name: BackendVisibility::Hidden,
                set_output: None,
                journey: None,
                standing: None,
                payer: None,
                charge: None,
            }),
        }))
    }

    /// The request id, ours or the client's.
    pub fn id(&self) -> Arc<str> {
        self.read(|facts| Arc::clone(&facts.record.request_id))
    }

    /// When the request began.
    pub fn started(&self) -> Instant {
        self.0.started
    }

    /// Whether nobody sent it: the steps then leave nothing behind either.
    pub fn is_look(&self) -> bool {
        self.0.memory == Memory::Forgotten
    }

    /// Notes something. `note` must be a few assignments.
    pub fn note(&self, note: impl FnOnce(&mut Facts)) {
        note(&mut self.0.facts());
    }

    /// Reads something.
    pub fn read<R>(&self, read: impl FnOnce(&Facts) -> R) -> R {
        read(&self.0.facts())
    }

    /// Notes whose the request is.
    pub fn belongs_to(&self, tenant: &TenantRef) {
        self.note(|facts| {
            facts.record.tenant = Some(Arc::from(tenant.tenant.name.as_str()));
            facts.backend_name = tenant.tenant.backend_name;
        });
    }

    /// Begins its trace, or takes up the one that its headers name.
    pub fn trace(&self, headers: &HeaderMap, target: Target) {
        let Some(tracer) = self.0.telemetry.tracer() else {
            return;
        };
        let journey = tracer.begin(headers, target);
        self.note(|facts| {
            facts.record.trace_id = Some(journey.trace_id().into());
            facts.journey = Some(journey);
        });
    }

    /// A stage of its trace begins; it ends when the answer is dropped.
    pub fn enter(&self, stage: Stage) -> Lap {
        let mut facts = self.0.facts();
        let Some(journey) = facts.journey.as_mut() else {
            return Lap(None);
        };
        let leg = journey.enter(stage, self.0.started.elapsed());
        drop(facts);
        Lap(Some((self.clone(), leg)))
    }

    /// Notes what its tenant's rates have left at this moment.
    pub fn look_at_rates(&self, tenant: &TenantRef) {
        let standing = tenant.rates.standing(&tenant.tenant.limits);
        self.note(|facts| {
            facts.standing = Some(standing);
            facts.payer = Some(tenant.clone());
        });
    }

    /// Notes the status of the answer. One for which nothing was used costs
    /// nothing from here on, so that it tells what its tenant's rates have left
    /// after it.
    pub fn answered(&self, status: StatusCode) {
        let unused = |charge: &Charge| !status.is_success() && charge.used().is_zero();
        let (unused, payer) = self.read(|facts| {
            let unused = facts.charge.as_ref().is_some_and(unused);
            (unused, facts.payer.clone())
        });
        if let (true, Some(payer)) = (unused, payer) {
            self.settle(Tokens::ZERO);
            self.look_at_rates(&payer);
        }
        self.note(|facts| facts.record.status = Some(status.as_u16()));
    }

    /// Notes what the request was charged. The trail owns it from now on, so
    /// that it is settled whatever ends the request.
    pub fn charged(&self, charge: Charge) {
        self.note(|facts| facts.charge = Some(charge));
    }

    /// Tells the charge what became of the request.
    pub fn tell_charge(&self, tell: impl FnOnce(&mut Charge)) {
        self.note(|facts| {
            if let Some(charge) = &mut facts.charge {
                tell(charge);
            }
        });
    }

    /// Settles the charge at what was used, prompt and output.
    pub fn settle(&self, used: Tokens) {
        self.note(|facts| {
            if let Some(charge) = facts.charge.take() {
                facts.record.charged_tokens = Some(used.get());
                charge.settle(used);
            }
        });
    }

    /// Notes how the request ended, and why where it did not go well.
    pub fn ended(&self, finish: Finish, reason: Option<Reason>) {
        self.note(|facts| {
            facts.record.finish = finish;
            facts.record.reason = reason.map(Reason::label);
        });
    }

    /// Where what happens is counted.
    pub fn metrics(&self) -> &Metrics {
        self.0.telemetry.metrics()
    }

    /// The same for what outlives the request.
    pub fn telemetry(&self) -> Arc<Telemetry> {
        Arc::clone(&self.0.telemetry)
    }

    /// Counts a failure of the backend the request is on.
    pub fn backend_failed(&self, failure: UpstreamFailure) {
        let (model, backend) = self.read(|facts| {
            let record = &facts.record;
            (record.model.clone(), record.backend.clone())
        });
        if let (Some(model), Some(backend)) = (model, backend) {
            self.metrics().upstream_failed(&model, &backend, failure);
        }
        self.note(|facts| {
            if let Some(journey) = &mut facts.journey {
                journey.failed(failure.label());
            }
        });
    }
}

// === impl Lap ===

impl Lap {
    /// Makes this stage the parent of what a request with these headers begins.
    pub fn inject(&self, headers: &mut HeaderMap) {
        if let Some((_, leg)) = &self.0 {
            leg.inject(headers);
        }
    }
}

impl Drop for Lap {
    fn drop(&mut self) {
        let Some((trail, leg)) = &self.0 else {
            return;
        };
        let now = trail.0.started.elapsed();
        trail.note(|facts| {
            if let Some(journey) = &mut facts.journey {
                journey.leave(leg, now);
            }
        });
    }
}

// === impl Inner ===

impl Inner {
    /// A panic under this lock leaves a half-noted record, not wrong books.
    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.memory == Memory::Forgotten {
            return;
        }
        let took = self.started.elapsed();
        let facts = self.facts.get_mut().unwrap_or_else(PoisonError::into_inner);
        let blank = AccessRecord::new(SystemTime::UNIX_EPOCH, Arc::from(""), "other");
        let mut record = std::mem::replace(&mut facts.record, blank);
        record.duration_ms = Some(took);
        if let Some(charge) = facts.charge.take() {
            record.charged_tokens = Some(charge.used().get());
        }
        if let Some(journey) = &facts.journey {
            self.telemetry.traced(journey, &record);
        }
        self.telemetry.finished(record);
    }
}
