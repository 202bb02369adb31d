//! Whom an answer is accounted to, and by what figures.
//!
//! Decides what is written down of an answer that has ended, and how much it
//! generated where the engine does not say: the text that passed, at what the
//! model's other texts were worth, and never the number of events. Never ends
//! anything. Invariant: a figure that is not the engine's own is marked so.

use std::sync::Arc;

use crate::core::demand::{OutputLimit, TenantId};
use crate::core::units::Tokens;
use crate::layers::BoxFuture;
use crate::layers::door::Door;
use crate::layers::pool::Pool;
use crate::layers::reason::Reason;
use crate::layers::seat::Seat;
use crate::layers::selfcheck::compare_usage;
use crate::layers::steps::Measured;
use crate::layers::trail::{Lap, Trail};
use crate::protocol::{Dialect, Usage, WorkKind};
use crate::telemetry::{Finish, OutputPrecision, UpstreamFailure};
use crate::tokenize::Sample;
use crate::upstream::probe::Outcome;

use super::broken::Break;
use super::reader::Ended;

/// What the relay accounts to.
pub struct Account {
    trail: Trail,
    pool: Arc<Pool>,
    seat: Arc<Seat>,
    door: Door,
    /// Ends with the answer.
    _lap: Lap,
    /// How a failure is told.
    dialect: Dialect,
    /// Prompt tokens counted.
    prompt: Tokens,
    /// Whether the engine itself has answered: what is answered beside it says
    /// nothing of its health.
    generates: bool,
    tenant: TenantId,
    /// The route's name.
    kind: &'static str,
    /// What an estimate can learn from.
    sample: Option<Sample>,
    /// What the engine must have counted if our count is exact.
    claim: Option<u64>,
    /// The most its sequences may generate together, where the client said.
    most: Option<Tokens>,
}

/// How much of an answer was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// All the engine had to say.
    Whole,
    /// As much as came.
    Partly,
}

/// What an answer generated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Output {
    pub(super) tokens: Tokens,
    precision: OutputPrecision,
}

// === impl Account ===

impl Account {
    /// The account of a request that was sent to `seat` while `door` was not over.
    pub fn new(measured: &Measured, (seat, lap): (Arc<Seat>, Lap), door: Door) -> Self {
        let (letter, outline) = (&measured.letter, &measured.outline);
        Self {
            trail: letter.trail.clone(),
            pool: Arc::clone(&letter.pool),
            seat,
            door,
            _lap: lap,
            dialect: letter.route.dialect(),
            prompt: outline.prompt,
            generates: letter.route.work() != WorkKind::Aside,
            tenant: letter.tenant.id,
            kind: letter.route.label(),
            sample: outline.sample,
            claim: outline.claim,
            most: match measured.demand.output {
                OutputLimit::Asked(each) => Some(Tokens::new(
                    each.get().saturating_mul(measured.demand.sequences()),
                )),
                OutputLimit::Open { .. } => None,
            },
        }
    }

    /// How a failure is told.
    pub(super) const fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Prompt tokens counted.
    pub(super) const fn prompt(&self) -> Tokens {
        self.prompt
    }

    /// Resolves when the backend is given up, or the process ends.
    pub(super) fn trouble(&self) -> BoxFuture<Break> {
        let (lost, over) = (self.seat.lost(), self.door.over());
        Box::pin(async move {
            tokio::select! {
                () = lost => Break::Lost,
                () = over => Break::Shutdown,
            }
        })
    }

    /// The first output came.
    pub(super) fn first_output(&self) {
        let since = self.trail.started().elapsed();
        self.trail.note(|facts| facts.record.ttft_ms = Some(since));
    }

    /// The backend failed this request.
    pub(super) fn failed(&self, failure: UpstreamFailure) {
        self.trail.backend_failed(failure);
        self.seat.report(Outcome::Failed);
    }

    /// The answer broke off for a `cause` that is a failure.
    pub(super) fn broke(&self, failure: UpstreamFailure, cause: Break) {
        self.trail.backend_failed(failure);
        if cause.blames_backend() {
            self.seat.report(Outcome::Failed);
        }
    }

    /// The answer is all there and good.
    pub(super) fn succeeded(&self, ended: &Ended) {
        if self.generates {
            self.seat.report(Outcome::Served);
        }
        if let Some(usage) = ended.usage {
            let outputs = self.pool.outputs();
            outputs.learn(ended.text, usage.completion_tokens);
        }
    }

    /// What an answer generated that `ended` like this.
    pub(super) fn output(&self, ended: &Ended, told: Told) -> Output {
        if let Some(usage) = ended.usage {
            return Output {
                tokens: Tokens::new(usage.completion_tokens),
                precision: OutputPrecision::Exact,
            };
        }
        let estimate = self.pool.outputs().estimate(ended.text);
        // No engine generates more than it was asked for, whatever its texts weigh.
        let estimate = self.most.map_or(estimate, |most| estimate.min(most));
        Output {
            tokens: estimate.max(ended.generated),
            precision: match told {
                Told::Whole => OutputPrecision::Estimated,
                Told::Partly => OutputPrecision::Partial,
            },
        }
    }

    /// The engine would not serve the request, or failed it before any output:
    /// its tenant's rate is not charged.
    pub(super) fn costs_nothing(&self) {
        self.trail.settle(Tokens::ZERO);
    }

    /// Notes what the answer used, charges it where nobody has said that it costs
    /// nothing, and learns from the engine's own account.
    pub(super) fn close(&self, ended: &Ended, output: Output) {
        if let Some(usage) = &ended.usage {
            self.learn(usage);
        }
        if ended.skipped > 0 {
            let metrics = self.trail.metrics();
            metrics.events_skipped(self.pool.name(), ended.skipped);
        }
        let prompt = ended.usage.map(|usage| Tokens::new(usage.prompt_tokens));
        let prompt = prompt.unwrap_or(self.prompt);
        self.trail.settle(prompt.saturating_add(output.tokens));
        let is_known = ended.usage.is_some() || !output.tokens.is_zero();
        self.trail.note(|facts| {
            let record = &mut facts.record;
            record.used_prompt_tokens = ended.usage.map(|usage| usage.prompt_tokens);
            record.used_cached_tokens = ended.usage.and_then(|usage| usage.cached_tokens);
            record.used_output_tokens = is_known.then_some(output.tokens.get());
            record.output_precision = is_known.then_some(output.precision);
        });
    }

    /// Notes how the request ended.
    pub(super) fn ended(&self, finish: Finish, reason: Option<Reason>) {
        self.trail.ended(finish, reason);
    }

    /// Learns from what the engine says the prompt was.
    fn learn(&self, usage: &Usage) {
        let theirs = usage.prompt_tokens;
        if let Some(sample) = self.sample {
            self.pool.counter().observe(self.tenant.0, sample, theirs);
        }
        if let Some(ours) = self.claim {
            let pool = (&*self.pool, self.trail.metrics());
            compare_usage(pool, self.kind, (ours, theirs));
        }
    }
}
