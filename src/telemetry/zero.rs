//! Every counter exists at 0 before there is anything to count.
//!
//! A series that appears with its first event hides that event from `rate()`, and
//! a query for one that never came finds nothing instead of 0. So whatever the
//! configuration names, its models, tiers, tenants and backends, has all its
//! counters from the moment it is known. Never counts anything. Adding again what
//! is there changes nothing.

use std::collections::BTreeSet;

use super::metric::Metric;
use super::metrics::Metrics;
use super::outcome::{Check, Load, Loss, Reload, SpanLoss, UpstreamFailure};
use super::tls::HandshakeFailure;
use crate::config::{Config, Model, ModelAccess, Tenant};
use crate::protocol::Route;

/// Listeners that may be secured.
const LISTENERS: [&str; 2] = ["clients", "admin"];

// === impl Metrics ===

impl Metrics {
    /// Begins the counters of everything that `config` names, and those that need
    /// no name.
    pub(super) fn begin(&self, config: &Config) {
        let zero = |metric, labels: &[&str]| self.counter(metric, labels).increment(0);
        for loss in Loss::ALL {
            zero(Metric::AccessRecordsLost, &[loss.label()]);
        }
        zero(Metric::SpansExported, &[]);
        for loss in SpanLoss::ALL {
            zero(Metric::SpansDropped, &[loss.label()]);
        }
        for reload in Reload::ALL {
            zero(Metric::ConfigReloads, &[reload.label()]);
        }
        for listener in LISTENERS {
            for failure in HandshakeFailure::ALL {
                zero(Metric::HandshakesFailed, &[listener, failure.label()]);
            }
        }
        for route in routes() {
            zero(Metric::RequestsStarted, &[route]);
        }
        for model in &config.models {
            self.begin_model(model, &config.tenants);
        }
    }

    fn begin_model(&self, model: &Model, tenants: &[Tenant]) {
        let name = &*model.name;
        let zero = |metric, labels: &[&str]| self.counter(metric, labels).increment(0);
        for check in Check::ALL {
            zero(Metric::CountMismatches, &[name, check.label()]);
        }
        for load in Load::ALL {
            zero(Metric::TokenizerLoads, &[name, load.label()]);
        }
        zero(Metric::CountOverruns, &[name]);
        zero(Metric::EventsSkipped, &[name]);
        zero(Metric::EstimatedCounts, &[name]);
        let label = self.labels().model(Some(name));
        for tenant in tenants.iter().filter(|tenant| may_use(tenant, name)) {
            let tenant = self.labels().tenant(Some(&tenant.name));
            self.tokens(&label, &tenant);
        }
        let tiers: BTreeSet<_> = model.backends.iter().map(|backend| backend.tier).collect();
        for tier in tiers {
            self.times(&label, tier.name());
        }
        drop(self.differences(&label));
    }

    /// Begins the counters of a backend, given as model, name and tier.
    pub(super) fn begin_backend(&self, labels: [&str; 3]) {
        let [model, backend, _] = labels;
        self.counter(Metric::EnginePreemptions, &labels)
            .increment(0);
        for failure in UpstreamFailure::ALL {
            let labels = [model, backend, failure.label()];
            self.counter(Metric::UpstreamFailures, &labels).increment(0);
        }
    }

    /// Begins the ends that requests of every route may come to: the status sent,
    /// `None` where the client left before one was, and the reason.
    pub fn begin_ends(&self, ends: &[(Option<u16>, Option<&'static str>)]) {
        for route in routes() {
            for &(status, reason) in ends {
                self.ended(route, status, reason).increment(0);
            }
        }
    }

    /// Begins what shadow mode tells of each model: `refusals` are the reasons for
    /// which admission refuses.
    pub fn begin_shadow(&self, config: &Config, refusals: &[&'static str]) {
        for model in &config.models {
            let zero = |would, reason| {
                let labels = [&*model.name, would, reason];
                self.counter(Metric::Shadow, &labels).increment(0);
            };
            for would in ["admit", "move", "wait"] {
                zero(would, "none");
            }
            for reason in refusals {
                zero("refuse", reason);
            }
        }
    }
}

/// Every value of the label `route`.
pub(super) fn routes() -> BTreeSet<&'static str> {
    let served = Route::served().map(|(_, route)| route.label());
    served.chain(["other"]).collect()
}

fn may_use(tenant: &Tenant, model: &str) -> bool {
    match &tenant.models {
        ModelAccess::All => true,
        ModelAccess::Only(names) => names.iter().any(|name| name == model),
    }
}
