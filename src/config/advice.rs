//! What is allowed but seldom meant. Told at start-up and by `check`, never refused.

use std::time::Duration;

use super::cross::usable;
use super::problem::Problem;
use super::resolved::{Config, Model, ModelAccess, Tenant};
use super::units::time_text;
use crate::core::backend::Tier;
use crate::core::placement::LongOnStandard;

/// How long vLLM keeps an idle connection open.
const ENGINE_KEEP_ALIVE: Duration = Duration::from_secs(5);

impl Config {
    /// Settings that are allowed but seldom meant, each with its consequence.
    pub fn advice(&self) -> Vec<Problem> {
        let mut advice = Vec::new();
        self.advise_on_sections(&mut advice);
        for (index, model) in self.models.iter().enumerate() {
            advise_on_model(model, &format!("models[{index}]"), &mut advice);
        }
        for (index, tenant) in self.tenants.iter().enumerate() {
            self.advise_on_tenant(tenant, &format!("tenants[{index}]"), &mut advice);
        }
        advice
    }

    fn advise_on_sections(&self, advice: &mut Vec<Problem>) {
        let idle = self.upstream.pool_idle_timeout;
        if idle >= ENGINE_KEEP_ALIVE {
            let problem =
                "vLLM closes idle connections after 5s: some requests will meet a closed one";
            advice.push(told(
                "upstream.pool_idle_timeout",
                quoted(&time_text(idle)),
                problem,
            ));
        }
        let open = self.tenants.iter().all(|tenant| tenant.keys.is_empty());
        let listen = self.server.listen;
        if open && !listen.ip().to_canonical().is_loopback() {
            let problem =
                "no tenant has a key: everybody who reaches this address may use the fleet";
            advice.push(told("server.listen", quoted(&listen.to_string()), problem));
        }
    }

    fn advise_on_tenant(&self, tenant: &Tenant, path: &str, advice: &mut Vec<Problem>) {
        let limits = &tenant.limits;
        if let (Some(held), Some(context)) = (limits.max_in_flight, limits.max_context)
            && held < context
        {
            let problem =
                format!("requests between this and max_context_tokens, {context}, are refused");
            let key = format!("{path}.max_in_flight_tokens");
            advice.push(told(&key, held.to_string(), &problem));
        }
        let shut = |model: &&Model| tenant.models == ModelAccess::All && !usable(tenant, model);
        for model in self.models.iter().filter(shut) {
            let problem = format!(
                "no backend of model {:?} is in a tier this tenant may use",
                model.name
            );
            advice.push(Problem {
                key: format!("{path}.tiers"),
                value: None,
                problem,
            });
        }
    }
}

fn advise_on_model(model: &Model, path: &str, advice: &mut Vec<Problem>) {
    let larger = model
        .backends
        .iter()
        .any(|backend| backend.tier > Tier::Standard);
    if !larger && model.long_on_standard == LongOnStandard::Never {
        let problem = "no backend is larger than standard: every long document is refused";
        advice.push(told(
            &format!("{path}.long_on_standard"),
            quoted("never"),
            problem,
        ));
    }
}

fn told(key: &str, value: String, problem: &str) -> Problem {
    Problem {
        key: key.to_owned(),
        value: Some(value),
        problem: problem.to_owned(),
    }
}

fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}
