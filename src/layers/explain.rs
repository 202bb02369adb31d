//! A request that nobody sent: what would become of it, told step by step.
//!
//! It goes down the path of every request, through the very same steps, as far as
//! the decision of admission, and is then forgotten. Decides nothing of its own.
//! Never charges a rate, never holds KV or a place in line, leaves no record; while
//! it is looked at it has its share of the body budget like any other. Invariant:
//! where nothing happens in between, a request that is sent next gets what was told.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use tokio::sync::Semaphore;

use crate::config::AdmissionMode;
use crate::core::admission::Explanation;
use crate::core::demand::Demand;
use crate::core::units::Tokens;
use crate::protocol::{Route, parse};
use crate::telemetry::{Class, Telemetry};
use crate::tenants::{Cost, TenantRef};
use crate::tokenize::{Count, Part, Precision};
use crate::upstream::client::Connector;

use super::error::{Refusal, TenantError};
use super::forward::output_to_write;
use super::ingest::{BodyLimits, IngestLayer, check_head};
use super::measure::{MeasureLayer, Offline};
use super::message::{message, param};
use super::pool::Pool;
use super::rescue::status_and_code;
use super::steps::{Keyed, Measured, Traced};
use super::tenant::TenantLayer;
use super::threads::Errand;
use super::trail::Trail;
use super::wait::retry_within;

/// Requests looked at side by side; more wait, unread. Each takes memory and a
/// thread as a real one does.
const AT_ONCE: usize = 4;

/// Bodies up to this size are told part by part, in bytes: that counts them up to
/// three times more.
const TOLD_BY_PART: usize = 1 << 20;

/// Looks at requests.
pub struct Explain<C> {
    tenant: TenantLayer,
    ingest: IngestLayer,
    measure: MeasureLayer<C>,
    telemetry: Arc<Telemetry>,
    places: Semaphore,
}

/// A request to look at.
pub struct Question<B> {
    /// Whose it would be.
    pub tenant: TenantRef,
    /// Its head as a client would send it, without keys.
    pub head: Parts,
    /// Its body.
    pub body: B,
}

/// What is told of a request, as far as its way goes.
#[derive(Default)]
pub struct Told {
    /// Its pool, once it is known.
    pub pool: Option<Arc<Pool>>,
    /// Output tokens asked by the client.
    pub asked: Option<u64>,
    /// What makes it special to admission.
    pub class: Vec<Class>,
    /// Whether its prompts are counted `exact`, `estimated` or `at_least`.
    pub precision: Option<&'static str>,
    /// Prompt tokens, once counted; also of one that is refused for them.
    pub prompt_tokens: Option<u64>,
    /// The same by part; empty where that is not told.
    pub parts: Vec<Part>,
    /// What it asks of the fleet, once that is known.
    pub demand: Option<Demand>,
    /// The most it may cost its tenant's rate.
    pub cost: Option<Cost>,
    /// The output bound that would be written into its body.
    pub max_tokens: Option<Tokens>,
    /// What admission would do.
    pub explanation: Option<Explanation>,
    /// Whether admission enforces what it decides.
    pub mode: Option<AdmissionMode>,
    /// What its client would be answered, were it refused at once.
    pub refusal: Option<RefusedAs>,
}

/// A refusal as its client would get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedAs {
    /// `x-tidegate-reason`.
    pub reason: &'static str,
    /// Status.
    pub status: u16,
    /// `error.code`.
    pub code: &'static str,
    /// `error.message`.
    pub message: String,
    /// `error.param`.
    pub param: Option<&'static str>,
    /// The least and the most that `Retry-After` would say, in seconds.
    pub retry_after: Option<(u64, u64)>,
}

// === impl Explain ===

impl<C: Connector> Explain<C> {
    /// A look by the steps that real requests take.
    pub fn new(
        (tenant, ingest, measure): (TenantLayer, IngestLayer, MeasureLayer<C>),
        telemetry: Arc<Telemetry>,
    ) -> Self {
        Self {
            tenant,
            ingest,
            measure,
            telemetry,
            places: Semaphore::new(AT_ONCE),
        }
    }

    /// Tells what would become of a request. Waits while others are looked at.
    /// Dropping the future gives it up.
    pub async fn explain<B>(&self, question: Question<B>) -> Told
    where
        B: http_body::Body<Data = Bytes>,
    {
        let _place = self.places.acquire().await;
        let route = crate::protocol::route(&question.head.method, question.head.uri.path());
        let route = route.ok().map(|matched| matched.route);
        let trail = Trail::look("explain", route, Arc::clone(&self.telemetry));
        let mut told = Told::default();
        let refused = self.look(question, (&trail, &mut told)).await.err();
        trail.read(|facts| {
            told.class.clone_from(&facts.record.class);
            told.precision = facts.record.precision;
            told.prompt_tokens = facts.record.prompt_tokens;
            told.asked = facts.record.max_tokens;
        });
        if let Some(refusal) = refused {
            told.refusal
                .get_or_insert_with(|| RefusedAs::of(&refusal, route));
        }
        told
    }

    async fn look<B>(
        &self,
        question: Question<B>,
        (trail, told): (&Trail, &mut Told),
    ) -> Result<(), Refusal>
    where
        B: http_body::Body<Data = Bytes>,
    {
        let Question { tenant, head, body } = question;
        let snapshot = self.tenant.current.load();
        told.mode = Some(snapshot.config.admission.mode);
        trail.belongs_to(&tenant);
        let matched = check_head(&head, &BodyLimits::of(&snapshot.config.server));
        let route = matched.as_ref().ok().map(|matched| matched.route);
        // What the door refuses is told, and looked into all the same.
        let at_the_door = self.tenant.look(&head, (&tenant, &snapshot));
        let limits = &tenant.tenant.limits;
        let at_the_door = at_the_door.and_then(|()| Ok(tenant.rates.look(limits, None)?));
        if let Err(error) = at_the_door {
            told.refusal = Some(RefusedAs::of(&error.into(), route));
        }
        let keyed = Keyed {
            traced: Traced {
                head: Box::new(head),
                body,
                trail: trail.clone(),
            },
            tenant,
            snapshot,
        };
        let parsed = self.ingest.parse(keyed, matched?).await?;
        told.pool = Some(Arc::clone(&parsed.letter.pool));
        let measured = self.measure.measure(parsed).await?;
        told.parts = self.parts(&measured, trail).await;
        self.decide(measured, told)
    }

    /// The rates and the pool, asked and not charged.
    fn decide(&self, measured: Measured, told: &mut Told) -> Result<(), Refusal> {
        let letter = &measured.letter;
        let (tenant, cost) = (&letter.tenant, measured.outline.cost);
        let rate = tenant.rates.look(&tenant.tenant.limits, Some(cost));
        let explanation = letter.pool.gate().explain(&measured.demand);
        told.cost = Some(cost);
        told.max_tokens = output_to_write(&measured, explanation.max_tokens);
        let rejected = explanation.rejected();
        told.explanation = Some(explanation);
        told.demand = Some(measured.demand);
        rate.map_err(TenantError::from)?;
        rejected.map_or(Ok(()), |reject| Err(reject.into()))
    }

    /// The count by part, made as the count was, on a thread for long work.
    async fn parts(&self, measured: &Measured, trail: &Trail) -> Vec<Part> {
        let letter = &measured.letter;
        let precision = match trail.read(|facts| facts.record.precision) {
            Some("exact") => Precision::Exact,
            _ => Precision::Estimated,
        };
        let count = Count {
            prompts: measured
                .demand
                .prompts
                .iter()
                .map(|one| one.get())
                .collect(),
            precision,
        };
        let bytes = letter.body.bytes.clone();
        if letter.route.takes_form() || bytes.len() > TOLD_BY_PART {
            return Vec::new();
        }
        let (route, counter) = (letter.route, letter.pool.counter());
        let stored_history = letter.pool.counting().stored_history;
        let errand = Errand::of(&letter.tenant, bytes.len());
        let work = move |_: &std::sync::atomic::AtomicBool| {
            let request = parse(route, &bytes).ok()?;
            let offline = Offline {
                counter: &counter,
                request: &request,
                body_bytes: bytes.len(),
                stored_history,
            };
            Some(offline.parts(&count))
        };
        let parts = self.ingest.threads.run(errand, work).await;
        parts.ok().flatten().unwrap_or_default()
    }
}

// === impl RefusedAs ===

impl RefusedAs {
    fn of(refusal: &Refusal, route: Option<Route>) -> Self {
        let reason = refusal.reason();
        let (status, code) = status_and_code(reason);
        Self {
            reason: reason.label(),
            status: status.as_u16(),
            code: code.as_str(),
            message: message(refusal),
            param: param(refusal, route),
            retry_after: retry_within(refusal),
        }
    }
}
