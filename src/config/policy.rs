//! The resolved configuration in the words of the core.

use std::time::Duration;

use super::resolved::{AdmissionConfig, Config, Model, ReservationKind, Tenant};
use crate::core::admission::PoolPolicy;
use crate::core::dispatch::DispatchPolicy;
use crate::core::fairness::TenantPolicy;
use crate::core::placement::{ForecastPolicy, Reservation, TierPolicy};
use crate::core::queue::QueuePolicy;
use crate::core::units::Tokens;

impl Config {
    /// The model that serves this id, by name or alias.
    pub fn model_serving(&self, id: &str) -> Option<&Model> {
        self.models
            .iter()
            .find(|model| model.served_ids().any(|served| served == id))
    }

    /// How the pool of `model` admits.
    pub fn pool_policy(&self, model: &Model) -> PoolPolicy {
        let admission = &self.admission;
        let forecast = ForecastPolicy {
            open_output: admission.open_output_tokens,
            margin: admission.plan_share,
            confidence: admission.confidence,
        };
        PoolPolicy {
            reservation: match admission.reservation {
                ReservationKind::Strict => Reservation::Strict,
                ReservationKind::Forecast => Reservation::Forecast(forecast),
            },
            queue: QueuePolicy {
                max_requests: self.queue.max_requests,
                max_tokens: self.queue.max_tokens,
                max_bypass: self.queue.max_bypass,
                unserved: self.queue.unserved,
            },
            tiers: TierPolicy {
                long_share: admission.long_share,
                free_reserve: admission.free_reserve,
                long_on_standard: model.long_on_standard,
            },
            dispatch: admission.dispatch(),
            observed_for: self.probe.stale_after,
        }
    }
}

impl AdmissionConfig {
    /// What is sent when.
    const fn dispatch(&self) -> DispatchPolicy {
        DispatchPolicy {
            late: match self.late {
                Some(late) => late,
                None => Duration::MAX,
            },
            order_weight: self.order_weight,
            patience: self.patience,
            token_pace: self.token_pace,
        }
    }

    /// How long after its arrival the first token of a request with this prompt
    /// is worth having; `None` where that is for ever.
    pub fn first_token_within(&self, prompt: Tokens) -> Option<Duration> {
        let base = self.first_token?;
        // Saturates: a count may be any number, and so far off means never.
        let nanoseconds = self.first_token_per_1000.as_nanos() * u128::from(prompt.get()) / 1000;
        let more = u64::try_from(nanoseconds).map_or(Duration::MAX, Duration::from_nanos);
        Some(base.saturating_add(more))
    }
}

impl Tenant {
    /// Its share in each pool.
    pub const fn policy(&self) -> TenantPolicy {
        TenantPolicy {
            weight: self.weight,
            priority: match self.priority {
                Some(priority) => priority,
                None => 0,
            },
            max_in_flight: self.limits.max_in_flight,
            in_flight_share: self.in_flight_share,
            max_waiting: self.limits.max_waiting,
        }
    }
}
