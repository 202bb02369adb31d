//! Why a request is refused: nothing can hold it, or the line does not take it.

use std::time::Duration;

use super::Admission;
use crate::core::demand::{Demand, OutputLimit, TenantId};
use crate::core::reject::{QueueBound, Reject};
use crate::core::time::Time;
use crate::core::units::Tokens;

impl Admission {
    pub(super) fn no_backend(&self, now: Time) -> Reject {
        Reject::NoBackend {
            retry_after: self.drain.retry_after(now, self.queue.tokens()),
        }
    }

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
        self.line_is_full(now, tenant, Tokens::ZERO)
            .map_or(Ok(()), Err)
    }

    /// Why the line does not take `tokens` more of `tenant`, if it does not.
    fn line_is_full(&self, now: Time, tenant: TenantId, tokens: Tokens) -> Option<Reject> {
        let retry_after = self.drain.retry_after(now, self.queue.tokens() + tokens);
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
    pub(super) fn refuses_wait(
        &self,
        now: Time,
        demand: &Demand,
        tokens: Tokens,
    ) -> Option<Reject> {
        let full = self.line_is_full(now, demand.tenant, tokens);
        full.or_else(|| {
            let predicted = self.predicted_wait(now, demand.tenant).unwrap_or_default();
            // A forecast may be wrong by half; a refusal must not be.
            let in_vain = demand.deadline <= now || now + predicted / 2 > demand.deadline;
            in_vain.then(|| self.too_late(now, tokens))
        })
    }

    /// Nothing could give it its first token in time any more.
    pub(super) fn too_late(&self, now: Time, tokens: Tokens) -> Reject {
        Reject::Overloaded {
            bound: QueueBound::PredictedWait,
            retry_after: self.drain.retry_after(now, self.queue.tokens() + tokens),
        }
    }

    /// The least this tenant's newest request will wait: the drain may serve
    /// nobody else, and still its own earlier requests come first.
    pub(super) fn predicted_wait(&self, now: Time, tenant: TenantId) -> Option<Duration> {
        self.drain
            .time_for(now, self.flows.get(tenant)?.waiting_tokens)
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
