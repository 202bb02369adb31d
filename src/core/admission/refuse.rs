//! Why a request is refused, and what it is told of waiting.
//!
//! At arrival only what is certain is refused: nothing can hold it, the line is full,
//! or even in the lucky case its turn comes too late.

use std::time::Duration;

use super::Admission;
use crate::core::demand::{Demand, OutputLimit, TenantId};
use crate::core::fairness::Cost;
use crate::core::reject::{QueueBound, Reject};
use crate::core::time::Time;
use crate::core::units::Tokens;
use crate::core::waits::Promise;

/// Told where no backend is usable: nobody knows when one will be.
const UNUSABLE: Duration = Duration::from_secs(2);

/// What a request asks of the line.
pub(super) struct Newcomer<'a> {
    pub(super) demand: &'a Demand,
    pub(super) tokens: Tokens,
    pub(super) promise: Promise,
}

impl Admission {
    /// Whether the line has a place left for `tenant`, before the size of its
    /// request is known. A line that takes nobody by its policy refuses nobody
    /// here: what need not wait is still let in.
    ///
    /// # Errors
    ///
    /// The refusal that a request of any size would get, had it to wait.
    pub fn has_room(&self, now: Time, tenant: TenantId) -> Result<(), Reject> {
        let policy = &self.policy.queue;
        let own = self
            .flows
            .get(tenant)
            .and_then(|flow| flow.policy.max_waiting);
        if policy.max_requests == 0 || own == Some(0) {
            return Ok(());
        }
        let promise = self.promise(tenant, now, Cost::ZERO);
        self.line_is_full(tenant, Tokens::ZERO, promise)
            .map_or(Ok(()), Err)
    }

    /// Why the line does not take `tokens` more of `tenant`, if it does not.
    fn line_is_full(&self, tenant: TenantId, tokens: Tokens, promise: Promise) -> Option<Reject> {
        let retry_after = self.returns.after(tenant, promise);
        let flow = self.flows.get(tenant);
        let waiting = flow.map_or(0, |flow| {
            u32::try_from(flow.waiting.len()).unwrap_or(u32::MAX)
        });
        let places = flow.and_then(|flow| flow.policy.max_waiting);
        if let Some(limit) = places.filter(|&limit| waiting >= limit) {
            return Some(Reject::TenantQueueFull {
                waiting,
                limit,
                retry_after,
            });
        }
        let policy = &self.policy.queue;
        let bound = if self.queue.len() >= policy.max_requests {
            QueueBound::Requests
        } else if self.queue.tokens().saturating_add(tokens) > policy.max_tokens {
            QueueBound::Tokens
        } else {
            return None;
        };
        Some(Reject::Overloaded { bound, retry_after })
    }

    /// Why the line does not take a request, if it does not.
    pub(super) fn refuses_wait(&self, now: Time, newcomer: &Newcomer<'_>) -> Option<Reject> {
        let &Newcomer {
            demand,
            tokens,
            promise,
        } = newcomer;
        let full = self.line_is_full(demand.tenant, tokens, promise);
        full.or_else(|| {
            let lucky = match promise.is_tried {
                true => promise.predicted.q20,
                false => Duration::ZERO,
            };
            let in_vain = demand.deadline <= now || now + lucky > demand.deadline;
            in_vain.then(|| too_late(self.returns.after(demand.tenant, promise)))
        })
    }
}

/// Nothing could give it its first token in time any more.
pub(super) const fn too_late(retry_after: Duration) -> Reject {
    Reject::Overloaded {
        bound: QueueBound::PredictedWait,
        retry_after,
    }
}

/// No backend of the model is usable.
pub(super) const fn no_backend() -> Reject {
    Reject::NoBackend {
        retry_after: UNUSABLE,
    }
}

/// Why nothing can ever hold `demand`, where one sequence of at most `limit`
/// tokens and sequences of at most `pool` tokens together could be held.
pub(super) fn too_long(demand: &Demand, limit: Tokens, pool: Tokens) -> Reject {
    let output = match demand.output {
        OutputLimit::Asked(bound) => bound,
        OutputLimit::Open { .. } => Tokens::ZERO,
    };
    let sequences = demand.sequences();
    if sequences > 1 && demand.prompt_longest().saturating_add(output) <= limit {
        let tokens = demand
            .prompt_total()
            .saturating_add(output.saturating_mul(sequences));
        return Reject::TooManySequences {
            sequences,
            tokens,
            limit,
            pool,
        };
    }
    Reject::ContextTooLong {
        prompt: demand.prompt_longest(),
        output,
        limit,
    }
}
