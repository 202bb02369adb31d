//! Levels of tenants' rates, set when `/metrics` is read.

use std::collections::BTreeMap;

use super::metric::Metric;
use super::metrics::Metrics;
use crate::core::units::Tokens;

/// A tenant's rates at one moment.
#[derive(Clone, Copy, Debug)]
pub struct RateView<'a> {
    /// Its name.
    pub tenant: &'a str,
    /// Requests let in at once; `None` without a limit.
    pub requests: Option<u64>,
    /// Tokens let in at once; `None` without a limit.
    pub tokens: Option<u64>,
    /// Tokens charged to requests that are not over.
    pub booked: Tokens,
}

impl Metrics {
    /// Sets every level of these tenants' rates. Of those that share a label the
    /// least that is left counts, and all that is booked.
    pub fn show_rates<'a>(&self, views: impl IntoIterator<Item = RateView<'a>>) {
        let (mut left, mut booked) = (BTreeMap::new(), BTreeMap::new());
        for view in views {
            let label = self.labels().tenant(Some(view.tenant));
            for (unit, units) in [("requests", view.requests), ("tokens", view.tokens)] {
                let Some(units) = units else { continue };
                let least = left.entry((label.clone(), unit)).or_insert(units);
                *least = units.min(*least);
            }
            if view.tokens.is_some() {
                let sum = booked.entry(label).or_insert(Tokens::ZERO);
                *sum = sum.saturating_add(view.booked);
            }
        }
        for ((tenant, unit), units) in left {
            let units = Tokens::new(units).as_f64();
            self.set(Metric::TenantRateRemaining, &[&tenant, unit], units);
        }
        for (tenant, tokens) in booked {
            self.set(Metric::TenantBooked, &[&tenant], tokens.as_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Tenant};

    #[test]
    fn tenants_that_share_a_label_show_the_least_that_is_left() {
        let metrics = Metrics::new(1);
        let names = ["acme", "zeta", "yota"];
        metrics.know(&Config {
            tenants: names.map(Tenant::new).to_vec(),
            ..Config::default()
        });
        let view = |(tenant, tokens)| RateView {
            tenant,
            requests: None,
            tokens: Some(tokens),
            booked: Tokens::new(10),
        };
        metrics.show_rates(names.into_iter().zip([5, 90, 70]).map(view));
        let text = metrics.render();
        for line in [
            r#"tidegate_tenant_rate_remaining{tenant="acme",unit="tokens"} 5"#,
            r#"tidegate_tenant_rate_remaining{tenant="other",unit="tokens"} 70"#,
            r#"tidegate_tenant_booked_tokens{tenant="other"} 20"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
