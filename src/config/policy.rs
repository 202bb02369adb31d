//! The resolved configuration in the words of the core.

use super::resolved::{Config, Model, ReservationKind, Tenant};
use crate::core::admission::PoolPolicy;
use crate::core::fairness::TenantPolicy;
use crate::core::placement::{ForecastPolicy, Reservation, TierPolicy};
use crate::core::queue::QueuePolicy;

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
            dispatch: crate::core::dispatch::DispatchPolicy::default(),
            observed_for: self.probe.stale_after,
        }
    }
}

impl Tenant {
    /// Its share in each pool.
    pub const fn policy(&self) -> TenantPolicy {
        TenantPolicy {
            weight: self.weight,
            max_in_flight: self.limits.max_in_flight,
            max_waiting: self.limits.max_waiting,
        }
    }
}
